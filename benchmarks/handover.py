"""Hand-overs of the product against the floor, in the same run on the same server.

    python benchmarks/handover.py [--quick] [--json FILE] [--runs N] [--point N,P]

At each point (members, partitions), floor (see `floor.py`) and product alternate; medians are compared. Product: two
real coordinators, each a process, and real `zkcoord.Consumer`s with callbacks that do nothing, in another process;
each run in a tree of its own. Each partition's offset has moved by one when it is stopped, as the floor's.

    cold      t0: the reply to the multi that creates the topic, under N registered members
    death     t0: `ids/<c>` gone (watched), the session was ended without leaving; N members to N - 1
    failover  t0: the coordinator's node gone (watched), a member's session ended right after; to the floor's death
    join      t0: the reply to the registration; N members to N + 1
    t1        the last start acknowledged, from the members' logs; Stable, as the coordinator logs it, beside it
    unowned   per partition: from `on_stop`'s return (of a dead member: from `ids` gone) to the start's acknowledgement
    moved     starts acknowledged, over the fewest that could be
    requests  difference of `zk_packets_received` over the join and one idle window, less pings and lease syncs; per
              partition moved
    command   from sending a stop to a member at rest until the application is told; the floor: until it has been read

Ends with one line a measure: `measure value goal ok|short`. Ratios are product / floor.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, replace
from statistics import median
from typing import Any

from common import DEADLINE_S, POINTS, SESSION_TIMEOUT_MS, Child, Result, now_ns, repeated
from floor import COMMANDS, fresh_tree, run_floor, topic
from floor_actors import TOPIC_PATH
from members import Members, OneCoordinator
from verdict import OUT, Measure, conclude

from zkcoord.embedded import EmbeddedZooKeeper
from zkcoord.embedded.java import LONG_LIVED
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.writes import CreateNode

IDLE_S = 0.3
"""The length of an idle window: so long no request comes."""
RATIO, FAILOVER_RATIO, COMMAND_RATIO, REQUESTS = 2.0, 4.0, 1.5, 1.5
EVENTS = ("cold", "death", "failover", "join")


class Product:
    """One run of the product, event after event."""

    def __init__(
        self, server: EmbeddedZooKeeper, address: str, members: int, partitions: int, layout: str = DRAFT.name
    ) -> None:
        self._server, self._count, self._partitions = server, members, partitions
        self._coordinator = Child(OneCoordinator, address, layout)
        self._coordinator.ask("serving")
        self._standby = Child(OneCoordinator, address, layout)
        self._standby.ask("standing", 2)
        self._members = Child(Members, address, layout)
        self._members.ask("join", members)
        self._quiet()

    def cold(self) -> Result:
        """The topic appears under the registered members."""
        self._members.ask("create", CreateNode(TOPIC_PATH, topic(self._partitions)))
        return self._measured()

    def death(self) -> Result:
        """One member dies; the requests are counted, too."""
        return self._counted("kill", -1)

    def failover(self) -> Result:
        """The serving coordinator ends, and a member right after it; the standby takes over."""
        self._members.ask("kill_after_coordinator")
        self._count -= 1
        self._coordinator.ask("stop")
        self._members.ask("coordinator_is_gone")
        self._coordinator, self._standby = self._standby, self._coordinator
        return self._measured()

    def join(self) -> Result:
        """One more member joins; the requests are counted, too."""
        return self._counted("join", 1, 1)

    def _counted(self, event: str, more: int, *arguments: int) -> Result:
        self._quiet()
        before, before_apart = self._requests(), self._apart()
        self._members.ask(event, *arguments)
        self._count += more
        measured = self._measured()
        asked = self._quiet()
        apart = self._apart() - before_apart
        return replace(measured, requests=asked - before - apart, apart=apart)

    def commands(self) -> list[float]:
        """Return the times from sending a command until the application of an idle member is told, in ms."""
        found = []
        for _ in range(COMMANDS):
            consumer, partition = self._members.ask("someone")
            sent_ns = self._coordinator.ask("command", consumer, partition)
            found.append((self._members.ask("seen") - sent_ns) / 1e6)
            self._members.ask("measured", self._count, self._partitions)
            self._coordinator.ask("stable", sent_ns)
        return found

    def close(self) -> None:
        """End the processes, the coordinators first."""
        for child in (self._standby, self._coordinator, self._members):
            child.close()

    def _measured(self) -> Result:
        measured, t0_ns = self._members.ask("measured", self._count, self._partitions)
        stable_ns = self._coordinator.ask("stable", t0_ns)
        again, _ = self._members.ask("measured", self._count, self._partitions)
        if again.moved != measured.moved:  # more partitions moved after the measurement
            measured = again
        return replace(measured, stable_ms=(stable_ns - t0_ns) / 1e6)

    def _requests(self) -> int:
        return int(self._server.mntr()["zk_packets_received"])

    def _apart(self) -> int:
        pings = self._coordinator.ask("pings") + self._standby.ask("pings")
        return int(self._members.ask("apart") + pings)

    def _quiet(self) -> int:
        """Wait for an idle window; return the server's count of requests at its end, less those of this method."""
        pause, end_ns, asked = threading.Event(), now_ns() + int(DEADLINE_S * 1e9), 1
        last = self._requests()
        while now_ns() < end_ns:
            pause.wait(IDLE_S)
            found, asked = self._requests(), asked + 1
            if found - last <= 1:  # the request that asks for the count
                return found - asked
            last = found
        raise RuntimeError("the group does not come to rest")


def run_product(server: EmbeddedZooKeeper, name: str, members: int, partitions: int) -> dict[str, Any]:
    """Make one run; return event -> Result, and "commands" -> latencies."""
    with (
        fresh_tree(server.hosts, name) as (address, _),
        closing(Product(server, address, members, partitions)) as product,
    ):
        found: dict[str, Any] = {"cold": product.cold(), "commands": product.commands(), "death": product.death()}
        product.join()  # the group has all members again
        found["failover"] = product.failover()
        product.join()
        found["join"] = product.join()
    return found


def fewest(event: str, members: int, partitions: int) -> int:
    """Return the smallest possible number of moves of an event. A dead member may have had a larger or a smaller
    share."""
    if event == "cold":
        return partitions
    return partitions // (members + 1) if event == "join" else -(-partitions // members)


Runs = list[dict[str, Any]]


def compare(members: int, partitions: int, product: Runs, floor: Runs) -> list[Measure]:
    """A point's measures."""
    measures: list[Measure] = []

    def add(name: str, value: float, goal: float | None) -> None:
        measures.append(Measure(name, value, goal, at_most=True))

    where = f"{members}x{partitions}"

    def middle(runs: Runs, event: str, value: Callable[[Result], float]) -> float:
        return median(value(run[event]) for run in runs)

    print(
        f"\n{where:<10} {'product ms':>11} {'floor ms':>9} {'ratio':>6} {'stable ms':>10} {'unowned':>8} {'floor':>7}"
    )
    for event in EVENTS:
        beside = "death" if event == "failover" else event
        ours, least = middle(product, event, _settled), middle(floor, beside, _settled)
        stable = middle(product, event, lambda r: r.stable_ms or 0.0)
        unowned, floor_unowned = middle(product, event, _unowned), middle(floor, beside, _unowned)
        print(
            f"{event:<10} {ours:>11.1f} {least:>9.1f} {ours / least:>6.2f} {stable:>10.1f}"
            f" {unowned:>8.1f} {floor_unowned:>7.1f}"
        )
        add(f"{event}_{where}_ratio", ours / least, FAILOVER_RATIO if event == "failover" else RATIO)
        if event in ("join", "death"):
            add(f"{event}_{where}_unowned_p50_ratio", unowned / floor_unowned, RATIO)
        moved = max(run[event].moved for run in product)
        add(f"{event}_{where}_moved_over_fewest", moved / fewest(event, members, partitions), 1.0)
    joins = [run["join"] for run in product]
    requests = median(r.requests / r.moved for r in joins)
    add(f"join_{where}_requests_per_moved", requests, REQUESTS if (members, partitions) == (10, 1_000) else None)
    print(f"requests   {median(r.requests for r in joins):.0f}, pings and syncs {median(r.apart for r in joins):.0f}")
    ours, least = (median(ms for run in runs for ms in run["commands"]) for runs in (product, floor))
    print(f"command    {ours:>11.2f} {least:>9.2f} {ours / least:>6.2f}")
    add(f"command_{where}_p50_ratio", ours / least, COMMAND_RATIO)
    return measures


def _settled(measured: Result) -> float:
    return measured.settled_ms


def _unowned(measured: Result) -> float:
    return measured.unowned_p50_ms


def main() -> int:
    """Run floor and product in turns, compare them, and print."""
    chosen = repeated("Hand-overs of the product against the floor.").parse_args()
    runs = chosen.runs or (1 if chosen.quick else 7)
    measures: list[Measure] = []
    raw = {}
    with EmbeddedZooKeeper(max_session_timeout_ms=2 * SESSION_TIMEOUT_MS, jvm_options=LONG_LIVED) as server:
        run_floor(server.hosts, "warm-floor", 2, 100)
        run_product(server, "warm-product", 2, 100)
        for members, partitions in chosen.point or POINTS:
            product, floor = [], []
            for number in range(runs):
                name = f"{members}-{partitions}-{number}"
                floor.append(run_floor(server.hosts, f"floor-{name}", members, partitions))
                product.append(run_product(server, f"product-{name}", members, partitions))
                print(f"{name}: load {os.getloadavg()[0]:.1f}", file=sys.stderr)
            measures += compare(members, partitions, product, floor)
            raw[f"{members}x{partitions}"] = {"product": _plain(product), "floor": _plain(floor)}
    print()
    return conclude(measures, {"runs": runs, "raw": raw}, chosen.json or OUT / "handover.json")


def _plain(runs: Runs) -> list[dict[str, Any]]:
    return [{key: asdict(value) if isinstance(value, Result) else value for key, value in run.items()} for run in runs]


if __name__ == "__main__":
    sys.exit(main())
