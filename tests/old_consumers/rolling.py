"""A group under traffic whose members are replaced one by one: what was sent, who read what when, what was committed.

Old members are the lab's; ours are processes with a `KafkaConsumer`. The broker is of version 1.1.1, with which all of
them work. All times are of the wall clock, in ms.
"""

from __future__ import annotations

import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from click.testing import CliRunner
from confluent_kafka import KafkaError, Message, Producer
from kazoo.protocol.states import ZnodeStat

from tests.old_consumers.lab import LOOK_EVERY_S, RETRIES, START_S, V11, Lab, OldConsumer
from tests.old_consumers.our_member import COMMIT_MS, Hold, Ours, Row, wall_ms
from tests.old_consumers.sessions import SessionEnds
from tests.old_consumers.stale_starts import stale_start
from tests.old_consumers.test_traffic import broker, create
from tests.waiting import wait_until
from zkcoord import Coordinator
from zkcoord.cli.main import cli
from zkcoord.kafka.client import KafkaClient
from zkcoord.migrate import upgrade
from zkcoord.offsets.kafka_store import KafkaCommits
from zkcoord.shell.zk.blocking import Tree

TOPIC, SIZE = "t", 12  # two, three and four members have equal shares
SEND_EVERY_S = 0.1
BACKOFF_MS = 2_000  # the old default
LATE_MS = 250
"""An old member forgets what it released at its next look, and its program is in the middle of a record meanwhile."""
TOLD_MS = 50  # ours tells its stop behind the release, which the next owner sees as soon; and both clocks are rounded


def first_behind(then_ms: int, times: Callable[[], Iterable[int]]) -> int:
    """The first of these times behind that one. A member tells what it owns a moment after ZooKeeper does."""
    found: list[int] = []

    def told() -> bool:
        found[:] = [at_ms for at_ms in times() if at_ms > then_ms]
        return bool(found)

    wait_until(told, f"an event behind {then_ms} ms")
    return min(found)


M = TypeVar("M", OldConsumer, Ours)


class Rolling:
    """The group, its traffic, and everything that was noted of it. A context manager."""

    def __init__(
        self, chroot: str, folder: Path, *, store: str = "zookeeper", version: str = V11, strategy: str = "range"
    ) -> None:
        """`store`: where offsets are kept; `dual`: old members commit to both. `version`: of the broker."""
        self.hosts, self.store, self._version, self._strategy = chroot, store, version, strategy
        self.lab = Lab(chroot, folder)
        self.ours: list[Ours] = []
        self.died: dict[str, int] = {}  # who was killed or stood still, and when
        self._resumed: dict[str, int] = {}  # who went on, and when
        self.committed: list[tuple[int, int, int]] = []  # time, partition, offset: as ZooKeeper told them, or Kafka
        self.unseen: list[tuple[int, int]] = []  # time and partition of a commit right behind one that nobody saw
        self._sent: list[int] = [0] * SIZE
        self._stack, self._over = ExitStack(), threading.Event()

    def __enter__(self) -> Rolling:
        with ExitStack() as stack:
            stack.enter_context(self.lab)
            self._ends = SessionEnds(self.lab.zk, self.lab.path("ids"))
            kafka = stack.enter_context(broker(self.hosts, self._version))
            create(self.lab, kafka, TOPIC, SIZE)
            self._servers = kafka.bootstrap_servers
            threads = [threading.Thread(target=self._send, name="sender")]
            if self.store == "kafka":
                threads.append(threading.Thread(target=self._note_kafka, name="noter"))
            else:
                for number in range(SIZE):
                    self.lab.zk.DataWatch(self.lab.path("offsets", TOPIC, str(number)), self._noter(number))
            for thread in threads:
                thread.start()
                stack.callback(thread.join)
            stack.callback(self._over.set)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    # -- members

    def serve(self) -> None:
        """The tree is set up, and a coordinator serves."""
        with Tree(self.hosts) as tree:
            upgrade(tree, run_id="test", layout="legacy")
        serving = threading.Event()
        coordinator = Coordinator(self.hosts, layout="legacy", on_serving=lambda *_: serving.set())
        coordinator.start()
        self._stack.callback(coordinator.stop)
        wait_until(serving.is_set, "it serves")

    def adopt(self) -> None:
        """The operator says what its old members are, as soon as their offsets show where they are kept."""
        wait_until(lambda: len({partition for _, partition, _ in self.committed}) == SIZE, "all offsets are there")
        where = {"zookeeper": ("zookeeper",), "dual": ("kafka", "--dual-commit"), "kafka": ("kafka",)}[self.store]
        told = ("--offsets", *where, "--strategy", self._strategy, "--kafka", self.lab.consumers[0].version)
        waits = ("--retries", str(RETRIES), "--backoff-ms", str(BACKOFF_MS))
        self.run("adopt", *told, *waits, "--auto-commit-interval-ms", str(COMMIT_MS))

    def run(self, command: str, *words: str) -> str:
        """Run `zkcoord group COMMAND g`; what it prints."""
        arguments = ["--zookeeper", self.hosts, "--output", "json", "group", command, "g", *words]
        ran = CliRunner().invoke(cli, arguments, prog_name="zkcoord")
        assert ran.exit_code == 0, ran.output
        return ran.stdout

    def old(self, name: str, version: str) -> OldConsumer:
        """Start an old member."""
        words: dict[str, object] = {"rebalance_backoff_ms": BACKOFF_MS, "auto_commit_interval_ms": COMMIT_MS}
        words["partition_assignment_strategy"] = self._strategy
        if self.store != "zookeeper":
            words |= {"offsets_storage": "kafka", "dual_commit_enabled": str(self.store == "dual").lower()}
        return self.lab.start(name, version, fetch=True, **words)

    def our(self, name: str) -> Ours:
        """Start a consumer of zkcoord."""
        ours = Ours(name, self.hosts, self._servers)
        self._stack.callback(ours.process.close)
        self._stack.callback(ours.process.signal, signal.SIGCONT)
        self.ours.append(ours)
        return ours

    def leave(self, member: OldConsumer | Ours) -> None:
        """Its own shutdown."""
        member.leave()
        if isinstance(member, OldConsumer):
            member.child.kill()  # its program has nothing left to do

    def kill(self, member: OldConsumer | Ours) -> None:
        """SIGKILL."""
        self.died[member.name] = wall_ms()
        member.child.kill() if isinstance(member, OldConsumer) else member.process.close()

    def change(self, before: OldConsumer | Ours, start: Callable[[], M], *, kills: bool, starts_first: bool) -> M:
        """Replace one of three members by another one, and settle after each step."""
        if starts_first:
            after = start()
            self.settle(4)
        (self.kill if kills else self.leave)(before)
        self.settle(3 if starts_first else 2)
        if not starts_first:
            after = start()
            self.settle(3)
        return after

    def pause(self, member: OldConsumer | Ours) -> int:
        """SIGSTOP beyond its session, until the other member has all; SIGCONT; when that was."""
        self.died[member.name] = wall_ms()
        member.child.pause() if isinstance(member, OldConsumer) else member.process.signal(signal.SIGSTOP)
        self.settle(1)
        self._resumed[member.name] = resumed_ms = wall_ms()
        member.child.resume() if isinstance(member, OldConsumer) else member.process.signal(signal.SIGCONT)
        return resumed_ms

    def settle(self, members: int) -> None:
        """Wait until so many are registered; then, before an old one gives up, all is owned in equal shares, old ones
        have told so, and what was sent until then is processed."""
        wait_until(lambda: len(self.lab.members()) == members, f"{members} members are registered")
        wait_until(lambda: self.gave_up() or self._shared(members), f"{members} equal shares")
        assert self.gave_up() == []
        self.catch_up()

    def _shared(self, members: int) -> bool:
        owners, registered = self.lab.owners(), self.lab.members()
        by = Counter(thread.rpartition("-")[0] for thread in owners.values())
        return by == dict.fromkeys(registered, SIZE // members) and all(
            old.owned() == {owned for owned, thread in owners.items() if thread.rpartition("-")[0] == old.id}
            for old in self.lab.consumers
            if old.id in registered  # one that stood still in between would tell later what it had, with a later time
        )

    def catch_up(self) -> None:
        """Wait until everything that was sent until now is processed, each record at least once."""
        sent = list(self._sent)
        wait_until(lambda: not self.missing(sent), f"all of {sent} is processed")

    def missing(self, sent: list[int]) -> list[tuple[int, int]]:
        """What nobody processed."""
        done = {(row.partition, row.offset) for row in self.rows()}
        return [(p, offset) for p, count in enumerate(sent) for offset in range(count) if (p, offset) not in done]

    # -- what was noted

    def rows(self) -> list[Row]:
        """Everything that anybody processed, in the order of time."""
        found = [row for ours in self.ours for row in ours.rows()]
        for member in self.lab.consumers:
            events = member.events("record")
            found += [Row(e["at_ms"], e["partition"], e["offset"], member.name) for e in events]
        return sorted(found)

    def holds(self) -> list[Hold]:
        """Who held what when. Whoever stands still, was killed, or lost its session, holds nothing from then on."""
        found = [hold for ours in self.ours for hold in ours.holds()]
        for member in self.lab.consumers:
            owns = member.events("owns")
            ends = [event["at_ms"] for event in owns[1:]] + [wall_ms()] * (member.child.running)
            for event, end_ms in zip(owns, ends, strict=False):
                numbers = event["partitions"].get(TOPIC, ())
                found += [Hold(member.name, n, event["at_ms"], end_ms) for n in numbers]
        return [replace(hold, end_ms=self._end_ms(hold)) for hold in found]

    def _end_ms(self, hold: Hold) -> int:
        ids = {each.id for each in self.lab.consumers if each.name == hold.reader}
        ids |= {each for ours in self.ours if ours.name == hold.reader for each in ours.ids()}
        until_ms = self.lab.held_until(f"{TOPIC}-{hold.partition}", ids, hold.begin_ms, hold.end_ms)
        ends = [self.died.get(hold.reader, hold.end_ms), *self._gone(hold.reader), until_ms]
        return min((at_ms for at_ms in ends if hold.begin_ms <= at_ms < hold.end_ms), default=hold.end_ms)

    def _gone(self, name: str) -> Sequence[int]:
        """When an old member's session ended."""
        return next((self._ends.of(each.id) for each in self.lab.consumers if each.name == name), ())

    def beyond(self, name: str, at_ms: int) -> bool:
        """Whether an old member ran then, and did not know yet that its session was over."""
        behind = [gone_ms for gone_ms in self._gone(name) if gone_ms <= at_ms]
        if not behind or self.died.get(name, at_ms) < at_ms < self._resumed.get(name, at_ms):
            return False
        owns = [e["at_ms"] for each in self.lab.consumers if each.name == name for e in each.events("owns")]
        return at_ms < LATE_MS + min((known_ms for known_ms in owns if known_ms > behind[-1]), default=at_ms)

    def overlaps(self) -> list[tuple[Row, Hold]]:
        """Records that one processed while another held the partition. Two things aside: the moment of a release, and
        an old member that does not know yet that its session is over."""
        old, found = {member.name for member in self.lab.consumers}, []
        holds: dict[int, list[Hold]] = {n: [] for n in range(SIZE)}
        for hold in self.holds():
            holds[hold.partition].append(hold)
        for row in self.rows():
            for hold in holds[row.partition]:
                begin_ms = hold.begin_ms + (LATE_MS if row.reader in old else 0)
                end_ms = hold.end_ms - (LATE_MS if hold.reader in old else TOLD_MS)
                late = row.reader in old and self.beyond(row.reader, row.at_ms)
                if row.reader != hold.reader and begin_ms < row.at_ms < end_ms and not late:
                    found.append((row, hold))
        return found

    def repeats(self) -> dict[str, list[Row]]:
        """What was processed again, by the name of the one who had processed it first."""
        first: dict[tuple[int, int], str] = {}
        found: dict[str, list[Row]] = {}
        for row in self.rows():
            key = row.partition, row.offset
            if key in first:
                found.setdefault(first[key], []).append(row)
            else:
                first[key] = row.reader
        return found

    def taken_out_late(self, name: str, row: Row) -> bool:
        """Whether an old member processed this record, too, while it rebalanced: it commits before it releases, and its
        program goes on with what was fetched."""
        events = [e for each in self.lab.consumers if each.name == name for e in each.events("rebalance")]
        begun = [e["at_ms"] - LATE_MS for e in events if e["phase"] == "begin"]
        ended = [e["at_ms"] + LATE_MS for e in events if e["phase"] == "end"]
        of = name, row.partition, row.offset
        times = [r.at_ms for r in self.rows() if (r.reader, r.partition, r.offset) == of]
        return any(begin <= at_ms <= end for at_ms in times for begin, end in zip(begun, ended, strict=False))

    def committed_before(self, row: Row) -> bool:
        """Whether it was committed already that this record is processed."""
        return any(
            at_ms < row.at_ms - LATE_MS and partition == row.partition and offset > row.offset
            for at_ms, partition, offset in self.committed
        )

    def backwards(self) -> list[tuple[int, int, int, int]]:
        """Where an offset went back: time, partition, from, to."""
        found, last = [], dict[int, int]()
        for at_ms, partition, offset in list(self.committed):
            if offset < last.get(partition, offset):
                found.append((at_ms, partition, last[partition], offset))
            last[partition] = offset
        return found

    def begun_before_a_release(self, row: Row) -> bool:
        """Whether an old member reads this again since it had read the offset, and claimed behind another commit."""
        member = next((each for each in self.lab.consumers if each.name == row.reader), None)
        begun = [e["at_ms"] for e in member.events("rebalance") if e["phase"] == "begin"] if member else []
        begun_ms = max((at_ms for at_ms in begun if at_ms <= row.at_ms), default=0)
        of = row.reader, row.partition
        first = min(r for r in self.rows() if (r.reader, r.partition) == of and r.at_ms >= begun_ms)
        commits = [(at_ms, offset) for at_ms, partition, offset in list(self.committed) if partition == row.partition]
        return bool(begun) and row.offset in stale_start(first.offset, begun_ms, first.at_ms, commits)

    def gave_up(self) -> list[str]:
        """Old members that could not rebalance."""
        return [member.name for member in self.lab.consumers if member.events("gave_up")]

    def _noter(self, number: int) -> Callable[[bytes | None, ZnodeStat | None], None]:
        version = -1

        def note(data: bytes | None, stat: ZnodeStat | None) -> None:
            nonlocal version
            if data is not None and stat is not None:
                self.committed.append((stat.mtime, number, int(data)))
                if stat.version > version + 1:
                    self.unseen.append((stat.mtime, number))
                version = stat.version

        return note

    def _note_kafka(self) -> None:
        """Ask Kafka again and again: a commit is noted a little later than it was made."""
        last: dict[int, int] = {}
        client = KafkaClient(self._servers, {})
        try:
            while not self._over.wait(LOOK_EVERY_S):
                for partition, commit in KafkaCommits(client).read(["g"]).found.get("g", {}).items():
                    number = partition.partition
                    if last.get(number) != commit.offset:
                        last[number] = commit.offset
                        self.committed.append((wall_ms(), number, commit.offset))
        finally:
            client.close()

    def _send(self) -> None:
        """A record to each partition, again and again; its number is its offset."""
        producer = Producer({"bootstrap.servers": self._servers, "acks": "all", "retries": 0, "log_level": 0})

        def delivered(error: KafkaError | None, message: Message) -> None:
            partition = message.partition()
            assert error is None and message.offset() == self._sent[partition], (error, message.offset())
            self._sent[partition] += 1

        while not self._over.wait(SEND_EVERY_S):
            for number in range(SIZE):
                producer.produce(TOPIC, b"%d" % self._sent[number], partition=number, on_delivery=delivered)
            producer.flush(START_S)
