"""The way out and back with programs that are killed between two commits: nothing is left out, and what comes again was
not committed when one was killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cli.group.kafkas_reader import COMMITTED_EVERY
from tests.cli.group.test_hand_over import BOTH, NEW_PROTOCOL, NEWER, OLD_PROTOCOL, zkcoord
from tests.cli.program import Run
from tests.integration.stores_world import Cluster, soon
from tests.integration.test_stores_real import read_in
from tests.kafka.helpers import PATIENCE_SECONDS

pytestmark = [pytest.mark.zookeeper, pytest.mark.kafka, pytest.mark.long]

PARTITIONS = (0, 1)
ROUNDS_MAX = 500
SOON = {  # a member of the new protocol that was killed is missed so soon
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.session.timeout.ms": "6000",
}
Place = tuple[int, int]  # partition, offset


@pytest.fixture(scope="module")
def servers(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    settings = SOON if request.param.startswith("4") else {}
    with Cluster(settings, version=request.param) as cluster:
        yield cluster


@pytest.fixture
def cluster(servers: Cluster) -> Cluster:
    servers.begin(len(PARTITIONS))
    return servers


class Program:
    """A reader in a process of its own: what it has printed so far."""

    def __init__(self, words: list[str], place_in: Callable[[str], Place]) -> None:
        self.read: list[Place] = []
        self.process = subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, text=True)
        self._place_in = place_in
        self._thread = threading.Thread(target=self._copy, daemon=True)
        self._thread.start()

    def _copy(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                if line.endswith("\n"):  # else it was killed while it wrote it
                    self.read.append(self._place_in(line))

    def end(self, number: signal.Signals) -> None:
        """Send it this signal, and wait until it is gone, and all that it printed is known."""
        self.process.send_signal(number)
        self.process.wait(PATIENCE_SECONDS)
        self._thread.join(PATIENCE_SECONDS)


class Readers:
    """All programs of a group, and what their deaths explain."""

    def __init__(self, cluster: Cluster, stack: ExitStack) -> None:
        self.cluster, self._stack = cluster, stack
        self.programs: list[Program] = []
        self.produced = 20
        self.explained: set[Place] = set()  # may come again
        self.killed_with_uncommitted = 0

    def ours(self) -> Program:
        """Start `zkcoord consume`, which commits each second."""
        where = ["--zookeeper", self.cluster.zookeeper, "--bootstrap-servers", self.cluster.servers]
        words = ["-m", "zkcoord_command", "consume", "--group", self.cluster.group, "--topic", self.cluster.topic]

        def place(line: str) -> Place:
            found = json.loads(line)
            return found["partition"], found["offset"]

        return self._start([*words, *where, "--output", "json"], place)

    def theirs(self, protocol: str) -> Program:
        """Start a consumer of Kafka's own protocol."""
        program = Path(__file__).with_name("kafkas_reader.py")
        words = [str(program), self.cluster.servers, self.cluster.group, self.cluster.topic, protocol]
        return self._start(words, lambda line: (int(line.split()[0]), int(line.split()[1])))

    def _start(self, words: list[str], place: Callable[[str], Place]) -> Program:
        program = Program(words, place)
        self._stack.callback(program.end, signal.SIGKILL)
        self.programs.append(program)
        return program

    def produce(self, *watched: Program, until: Callable[[], bool] = lambda: True) -> None:
        """Write into both partitions, and wait until all is read: again until each of `watched` has read some of it,
        and `until` holds."""
        since = [len(each.read) for each in watched]
        for _ in range(ROUNDS_MAX):
            self.cluster.produce(2, *PARTITIONS)
            self.produced += 2
            last = {(partition, self.produced - 1) for partition in PARTITIONS}
            soon(self.cluster, "all is read", lambda last=last: last <= {at for p in self.programs for at in p.read})  # type: ignore[misc]
            if all(len(each.read) > count for each, count in zip(watched, since, strict=True)) and until():
                return
        raise AssertionError("not each of them reads")

    def killed(self, program: Program) -> None:
        """Kill it at once. What is not committed now may come again until `committed`."""
        committed = self.cluster.offsets_in_kafka()
        program.end(signal.SIGKILL)
        self._since = committed
        self.killed_with_uncommitted += any(committed[n] < self.produced for n in PARTITIONS)

    def committed(self) -> None:
        """Wait until all is committed; what a death explains ends there."""
        everything = dict.fromkeys(PARTITIONS, self.produced)
        soon(self.cluster, "all is committed", lambda: self.cluster.offsets_in_kafka() == everything)
        self.explained |= {(n, offset) for n in PARTITIONS for offset in range(self._since[n], self.produced)}

    def check(self) -> None:
        """Each record since the beginning was read, and again only where a death explains it."""
        times = Counter(at for each in self.programs for at in each.read)
        assert set(times) == {(n, offset) for n in PARTITIONS for offset in range(20, self.produced)}
        assert {at for at, count in times.items() if count > 1} <= self.explained


def there_and_back(cluster: Cluster, run: Run, protocol: str) -> None:
    """In each phase one of two is killed, and another takes its place."""
    with ExitStack() as stack:
        first, readers = read_in(cluster, "kafka"), Readers(cluster, stack)
        one, two = readers.ours(), readers.ours()
        first.leave()
        readers.produce(one, two)
        readers.killed(one)
        three = readers.ours()
        readers.produce(two, three)
        readers.committed()
        assert zkcoord(run, cluster, "hand-over").exit_code == 0

        kafkas, second = readers.theirs(protocol), readers.theirs(protocol)
        readers.produce(kafkas, second, until=lambda: len(kafkas.read) % COMMITTED_EVERY > 0)
        readers.killed(kafkas)
        third = readers.theirs(protocol)
        readers.produce(second, third)
        for each in (second, third):
            each.end(signal.SIGTERM)
        readers.committed()
        back = zkcoord(run, cluster, "take-back")
        assert back.exit_code == 0, back.stderr

        readers.produce(two, three)
        readers.killed(two)
        readers.produce(three)
        readers.committed()
        readers.check()
        assert readers.killed_with_uncommitted >= 1
        three.end(signal.SIGTERM)


@BOTH
def test_f161_killed_programs_lose_nothing_on_the_way_to_the_classic_protocol_and_back(
    cluster: Cluster, run: Run
) -> None:
    there_and_back(cluster, run, OLD_PROTOCOL)


@NEWER
def test_f159_killed_programs_lose_nothing_on_the_way_to_the_new_protocol_and_back(cluster: Cluster, run: Run) -> None:
    there_and_back(cluster, run, NEW_PROTOCOL)
