"""A group of old consumers (Kafka 0.8 to 1.1, the real jars) alone: what a join and a death cost it.

    python benchmarks/legacy.py [--quick] [--json FILE] [--runs N] [--point N,P] [--old-version V]

The old members are in one Java process, with Kafka's defaults but for a session of 60 s (hardly a ping falls into a
measurement), and fetch nothing. Each group has a tree of its own.

    join      t0: the joiner's registration; N members to N + 1
    death     t0: a member's registration is gone, with its session; N members to N - 1
    t1        the last write that ZooKeeper saw before it was silent with every partition owned as the range assignor
              has it
    requests  packets that ZooKeeper received from just before the event to the end of that silence, less the questions
              asked here; the pings of idle sessions are among them

Ends with one line a measure: `measure value goal ok|short`.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from common import DEADLINE_S, GROUP, SESSION_TIMEOUT_MS, TOPIC, Client, now_ns, repeated
from floor import create, topic
from verdict import OUT, Measure, conclude

from zkcoord.core.assignors import ASSIGNORS, AssignorInput
from zkcoord.core.model import Subscriber, TopicPartition
from zkcoord.embedded import EmbeddedZooKeeper
from zkcoord.embedded.artifacts import OLD_KAFKA_VERSIONS, kafka_jars
from zkcoord.embedded.child import Child as Process
from zkcoord.embedded.java_program import java_command
from zkcoord.embedded.zookeeper import four_letters
from zkcoord.shell.zk.blocking import Tree
from zkcoord.tree.paths import BROKERS, LEGACY, TOPICS, parents
from zkcoord.tree.snapshot import Kind, Read
from zkcoord.tree.writes import CreateNode

SOURCE = Path(__file__).parent / "java" / "OldGroup.java"
POINTS = ((10, 1_000), (50, 1_000))
QUICK_POINTS = ((10, 1_000),)
SILENCE_S, LOOK_S = 0.4, 0.01
HEAP = "768m"
BROKER = b'{"jmx_port":-1,"timestamp":"1416335000123","host":"127.0.0.1","version":1,"port":1}'


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event of a group."""

    settled_ms: float
    requests: int


class OldMembers:
    """The process of the old members."""

    def __init__(self, hosts: str, version: str, folder: Path) -> None:
        words = {
            "topic": TOPIC,
            "group.id": GROUP,
            "zookeeper.connect": hosts,
            "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
            "zookeeper.connection.timeout.ms": str(SESSION_TIMEOUT_MS),
        }
        arguments = [f"{key}={value}" for key, value in words.items()]
        command = java_command(SOURCE, kafka_jars(version), arguments, heap=HEAP)
        self._process = Process(f"old members ({version})", command, folder / "old.log", listens=True)
        self._process.start()
        self._read = 0
        self._await("ready")

    def join(self, count: int) -> None:
        """So many more; returns when their first rebalances have ended."""
        self._ask(f"join {count}", "joined")

    def leave(self) -> None:
        """The oldest member's session ends."""
        self._ask("leave", "left")

    def close(self) -> None:
        """End the process; its sessions end by themselves."""
        self._process.kill()

    def _ask(self, command: str, answer: str) -> None:
        self._process.say(command)
        self._await(answer)

    def _await(self, answer: str) -> None:
        pause, end_ns = threading.Event(), now_ns() + int(2 * DEADLINE_S * 1e9)
        while now_ns() < end_ns:
            text = self._process.log.read_text(errors="replace")[self._read :]
            whole = text[: text.rfind("\n") + 1]
            if answer in whole.splitlines():
                self._read += len(whole)
                return
            if not self._process.running:
                break
            pause.wait(LOOK_S)
        raise RuntimeError(f"the old members do not say {answer!r}: {self._process.tail()}")


class Observer:
    """A session that sees registrations come and go, and who owns what, with a count of its own requests."""

    def __init__(self, server: EmbeddedZooKeeper, address: str, partitions: int) -> None:
        self._port, self._partitions = server.port, partitions
        self._client = Client(address)
        self._client.connected()
        self._ids = LEGACY.ids(GROUP)
        self._questions = 0
        self._changed = threading.Event()
        self._t0_ns = 0

    def watch(self) -> int:
        """See the next change of the registrations; returns the server's count before it."""
        self._changed.clear()

        def fired(at_ns: int) -> None:
            self._t0_ns = at_ns
            self._changed.set()

        self._client.watching[self._ids] = fired
        self._client.nodes([Read(self._ids, Kind.CHILDREN, True)])
        self._questions = 0
        return self._packets()[0]

    def settled(self, before: int) -> Event:
        """Wait until the group has settled after the change that is watched."""
        if not self._changed.wait(DEADLINE_S):
            raise RuntimeError("no registration changed")
        pause, end_ns = threading.Event(), now_ns() + int(DEADLINE_S * 1e9)
        (packets, zxid), last_ns = self._packets(), now_ns()
        while now_ns() < end_ns:
            pause.wait(LOOK_S)
            (packets, found), at_ns = self._packets(), now_ns()
            if found != zxid:
                zxid, last_ns = found, at_ns
            elif at_ns - last_ns > SILENCE_S * 1e9 and self._as_planned():
                asked = packets - before - self._questions
                return Event(settled_ms=(last_ns - self._t0_ns) / 1e6, requests=asked)
        raise RuntimeError("the group did not settle")

    def close(self) -> None:
        """End the session."""
        self._client.store.close()
        self._client.store.join(2_000)

    def _packets(self) -> tuple[int, int]:
        self._questions += 1
        rows = dict(row.split(": ", 1) for row in four_letters(self._port, "srvr").splitlines() if ": " in row)
        return int(rows["Received"]), int(rows["Zxid"], 16)

    def _as_planned(self) -> bool:
        partitions = [TopicPartition(TOPIC, number) for number in range(self._partitions)]
        self._questions += 2
        (ids,) = self._client.nodes([Read(self._ids, Kind.CHILDREN)])
        owners = self._client.nodes([Read(LEGACY.owner(GROUP, partition)) for partition in partitions])
        found = {p: node.data.decode() for p, node in zip(partitions, owners, strict=True) if node.exists}
        return found == planned(ids.children, self._partitions)


def planned(members: tuple[str, ...], partitions: int) -> Mapping[TopicPartition, str]:
    """Partition -> thread, as the old members' range assignor has it."""
    subscribers = tuple(Subscriber(consumer_id=name, threads={TOPIC: 1}) for name in members)
    given = AssignorInput(subscribers=subscribers, partitions={TOPIC: tuple(range(partitions))}, owned={})
    return ASSIGNORS["range"](given)


@contextmanager
def old_tree(hosts: str, name: str, partitions: int) -> Iterator[str]:
    """A chroot of its own with a broker, a topic and the group's parents: its address."""
    with Tree(hosts) as root:
        create(root, CreateNode(f"/{name}"))
    paths = [*parents(LEGACY.registration(GROUP, "c")), *parents(f"{TOPICS}/t"), *parents(f"{BROKERS}/0")]
    with Tree(f"{hosts}/{name}", session_timeout_ms=SESSION_TIMEOUT_MS) as tree:
        create(tree, *map(CreateNode, dict.fromkeys(paths)))
        create(tree, CreateNode(f"{BROKERS}/0", BROKER), CreateNode(f"{TOPICS}/{TOPIC}", topic(partitions)))
    yield f"{hosts}/{name}"


def run_alone(server: EmbeddedZooKeeper, name: str, version: str, members: int, partitions: int) -> dict[str, Event]:
    """One run of a group of old members alone: event -> what it cost."""
    with (
        tempfile.TemporaryDirectory() as folder,
        old_tree(server.hosts, name, partitions) as address,
        closing(Observer(server, address, partitions)) as observer,
        closing(OldMembers(address, version, Path(folder))) as old,
    ):
        before = observer.watch()
        old.join(members)
        observer.settled(before)
        before = observer.watch()
        old.join(1)
        found = {"join": observer.settled(before)}
        before = observer.watch()
        old.leave()
        found["death"] = observer.settled(before)
    return found


def main() -> int:
    """Measure each point, and print."""
    parser = repeated("A group of old consumers: what a join and a death cost it.")
    parser.add_argument("--old-version", choices=OLD_KAFKA_VERSIONS, default=OLD_KAFKA_VERSIONS[-1], help="of the jars")
    chosen = parser.parse_args()
    runs = chosen.runs or (1 if chosen.quick else 5)
    measures, raw = [], {}
    with EmbeddedZooKeeper(max_session_timeout_ms=2 * SESSION_TIMEOUT_MS) as server:
        run_alone(server, "warm", chosen.old_version, 2, 100)
        for members, partitions in chosen.point or (QUICK_POINTS if chosen.quick else POINTS):
            where = f"{members}x{partitions}"
            alone = []
            for number in range(runs):
                alone.append(run_alone(server, f"alone-{where}-{number}", chosen.old_version, members, partitions))
                print(f"{where}-{number}: load {os.getloadavg()[0]:.1f}", file=sys.stderr)
            for event in ("join", "death"):
                measures.append(Measure(f"old_{event}_{where}_ms", median(run[event].settled_ms for run in alone)))
                measures.append(Measure(f"old_{event}_{where}_requests", median(run[event].requests for run in alone)))
            raw[where] = [{event: asdict(each) for event, each in run.items()} for run in alone]
    details = {"runs": runs, "old_version": chosen.old_version, "raw": raw}
    return conclude(measures, details, chosen.json or OUT / "legacy.json")


if __name__ == "__main__":
    sys.exit(main())
