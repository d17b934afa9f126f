"""The floor of a hand-over: what the protocol itself costs, with nothing decided, in the same two processes.

    python benchmarks/floor.py [--quick] [--json FILE] [--runs N] [--point N,P] [--piecewise]

Both processes follow a plan that was made before the event (`floor_plan`): they issue exactly the multis of the
protocol with their checks, and the reads that it cannot do without: the list that says that something happened, each
command, the owners after a release, the offsets before a start.

    cold   topic created -> raise; mark; N starts (three checks, the owners, the command)
           each member: list, command, offsets, one multi (own registration, first offsets, deletion of the command)
    join   registration -> raise; a stop to each source; each source: list, command, one multi (own registration,
           offsets and owners by version, deletion); the coordinator: list, owners, and after the last release one
           start; the joiner as above. That is the lower floor: `--piecewise` sends a start for each source as soon as
           it has released, which costs the joiner as many rounds
    death  registration gone -> raise; a start to each that gets something of it

Multis are pipelined. Transport is the product's own store, not raw kazoo: it waits with poll(2) as the product does,
and it also writes queued requests in one packet and spares kazoo's path handling, so it is the lower floor, and what
remains between floor and product is the product's own: its decisions, JSON, bookkeeping and hops between threads. For
the same reason the floor acts right on the session's thread, writes no status, does not read registrations, and knows
every owner's and offset's version beforehand.

Ends with one line a measure, in ms; there is no goal here (`inf`): `handover.py` compares.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from statistics import median
from typing import Any

from common import (
    GROUP,
    POINTS,
    SESSION_TIMEOUT_MS,
    Child,
    Result,
    repeated,
)
from floor_actors import TOPIC_PATH, FloorCoordinator, FloorMembers
from floor_plan import Plan, Planner
from verdict import Measure, conclude

from zkcoord.core.record import DEFAULT_RECORD
from zkcoord.core.state import GroupState
from zkcoord.embedded import EmbeddedZooKeeper
from zkcoord.embedded.java import LONG_LIVED
from zkcoord.migrate import first_revision_reads, first_revision_writes
from zkcoord.shell.ports import Outcome
from zkcoord.shell.zk.blocking import Tree
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.record import encode_record
from zkcoord.tree.snapshot import Read, parents
from zkcoord.tree.state import encode_state
from zkcoord.tree.writes import CreateNode, Transaction, Write

COMMANDS = 15  # commands to idle members in each run


def topic(partitions: int) -> bytes:
    """Return the topic's data as a broker writes it."""
    rows = ",".join(f'"{number}":[1]' for number in range(partitions))
    return f'{{"version":1,"partitions":{{{rows}}}}}'.encode("ascii")


def create(tree: Tree, *writes: Write) -> None:
    """Create the nodes; RuntimeError if that is refused."""
    done = tree.commit(Transaction(writes=writes))
    if done.outcome is not Outcome.COMMITTED:
        raise RuntimeError(f"{writes[done.failed_at]}: {done.reason}")


@contextmanager
def fresh_tree(hosts: str, name: str, layout: str = DRAFT.name) -> Iterator[tuple[str, Tree]]:
    """Make a chroot with the nodes of the first revision and the topics' parent; return its address, and a session in
    it.
    """
    with Tree(hosts) as root:
        create(root, CreateNode(f"/{name}"))
    with Tree(f"{hosts}/{name}", session_timeout_ms=SESSION_TIMEOUT_MS) as tree:
        nodes = {node.path: node for node in tree.read([Read(path) for path in first_revision_reads(layout)])}
        create(tree, *first_revision_writes(nodes, layout, "floor"), *map(CreateNode, parents(TOPIC_PATH)))
        yield f"{hosts}/{name}", tree


class Floor:
    """One run of the floor, event after event."""

    def __init__(self, address: str, tree: Tree, members: int, partitions: int, *, merged: bool = True) -> None:
        self._tree, self._partitions, self._merged = tree, partitions, merged
        above = dict.fromkeys([*parents(DRAFT.registration(GROUP, "c")), *parents(DRAFT.channel(GROUP, "c"))])
        missing = [CreateNode(node.path) for node in tree.read([Read(path) for path in above]) if not node.exists]
        record = CreateNode(DRAFT.record(GROUP), encode_record(DEFAULT_RECORD))
        create(tree, *missing, record, CreateNode(DRAFT.state(GROUP), encode_state(GroupState())))
        self._names = [f"{GROUP}_host-1700000000000-{number:08x}" for number in range(members)]
        self._next = members
        self._coordinator = Child(FloorCoordinator, address)
        self._members = Child(FloorMembers, address)
        self._members.ask("make", self._names)
        self._members.ask("register", self._names)
        self._coordinator.ask("follow", self._names)

    def cold(self) -> Result:
        """The topic appears under the registered members."""
        self._prepare(self._planner().cold(self._names))
        self._members.ask("create", CreateNode(TOPIC_PATH, topic(self._partitions)))
        return self._measured()

    def death(self) -> Result:
        """The first member dies."""
        victim = self._names[0]
        self._prepare(self._planner().death(self._names, victim))
        self._names.remove(victim)
        self._members.ask("kill", victim)
        return self._measured()

    def join(self) -> Result:
        """One more joins."""
        joiner = f"{GROUP}_host-1700000000000-{self._next:08x}"
        self._next += 1
        self._members.ask("make", [joiner])
        self._coordinator.ask("follow_channel", joiner)
        self._prepare(self._planner().join(self._names, joiner))
        self._names.append(joiner)
        self._members.ask("register", [joiner])
        return self._measured()

    def commands(self) -> list[float]:
        """Return the times from sending a command to an idle member until it is seen, in ms."""
        found = []
        for _ in range(COMMANDS):
            writes, _, plan = self._planner().idle(self._names[0])
            self._members.ask("prepare", plan)
            sent_ns = self._coordinator.ask("command", writes)
            found.append((self._members.ask("seen") - sent_ns) / 1e6)
        return found

    def close(self) -> None:
        """End the processes."""
        self._coordinator.close()
        self._members.close()

    def _planner(self) -> Planner:
        return Planner(self._tree, self._partitions, merged=self._merged)

    def _prepare(self, plan: Plan) -> None:
        self._coordinator.ask("prepare", plan)
        self._members.ask("prepare", plan)

    def _measured(self) -> Result:
        measured: Result = self._members.ask("measured", len(self._names), self._partitions)
        self._coordinator.ask("check")
        return measured


def run_floor(hosts: str, name: str, members: int, partitions: int, *, merged: bool = True) -> dict[str, Any]:
    """Make one run; return event -> Result, and "commands" -> latencies."""
    with (
        fresh_tree(hosts, name) as (address, tree),
        closing(Floor(address, tree, members, partitions, merged=merged)) as floor,
    ):
        found: dict[str, Any] = {"cold": floor.cold(), "commands": floor.commands(), "death": floor.death()}
        floor.join()  # the group has all members again
        found["join"] = floor.join()
    return found


def main() -> int:
    """Print the floor's medians."""
    parser = repeated("What the hand-over protocol itself costs.")
    parser.add_argument("--piecewise", action="store_true", help="a start for each release")
    chosen = parser.parse_args()
    runs = chosen.runs or (2 if chosen.quick else 7)
    measures: list[Measure] = []
    with EmbeddedZooKeeper(max_session_timeout_ms=2 * SESSION_TIMEOUT_MS, jvm_options=LONG_LIVED) as server:
        for members, partitions in chosen.point or POINTS:
            found = [
                run_floor(
                    server.hosts, f"floor-{members}-{partitions}-{n}", members, partitions, merged=not chosen.piecewise
                )
                for n in range(runs + 1)
            ][1:]  # the first run only warms the server up
            for event in ("cold", "join", "death"):
                where = f"floor_{event}_{members}x{partitions}"
                measures.append(Measure(f"{where}_ms", median(run[event].settled_ms for run in found)))
                if event != "cold":
                    unowned = median(run[event].unowned_p50_ms for run in found)
                    measures.append(Measure(f"{where}_unowned_p50_ms", unowned))
            commands = [ms for run in found for ms in run["commands"]]
            measures.append(Measure(f"floor_command_{members}x{partitions}_p50_ms", median(commands)))
    return conclude(measures, {"runs": runs}, chosen.json)


if __name__ == "__main__":
    sys.exit(main())
