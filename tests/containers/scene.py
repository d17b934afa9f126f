"""One test's topic, producer, group and coordinators on the shared ensemble; at the end all is proven, and removed."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.containers.ensemble import Box, Ensemble, wait_until
from tests.containers.processes import PATIENCE_S, Process
from tests.containers.proof import Verdict, judge
from zkcoord.shell.zk.blocking import Tree
from zkcoord.tree.paths import CANDIDATES, DRAFT
from zkcoord.tree.snapshot import Kind, Read

PARTITIONS = 4
BATCH_PAUSE_S = 0.02
ANSWER_S = 30.0


class Producing:
    """Writes a record to each partition every 20 ms, until `pause`; `written` is what the broker has taken."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self._topic = topic
        self.written = dict.fromkeys(range(PARTITIONS), 0)
        settings = {"enable.idempotence": True, "linger.ms": 5, "topic.metadata.refresh.interval.ms": 500}
        self._producer = Producer({"bootstrap.servers": bootstrap_servers, **settings})
        self._going, self._over = threading.Event(), threading.Event()
        self._idle = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def go_on(self) -> None:
        """Write again."""
        self._idle.clear()
        self._going.set()

    def pause(self) -> None:
        """Write no more; returns when the broker has taken all of it."""
        self._going.clear()
        assert self._idle.wait(PATIENCE_S), "the producer's thread does not answer"
        left = self._producer.flush(ANSWER_S)
        assert left == 0, f"Kafka did not take {left} records"

    def ends(self) -> dict[str, int]:
        """Partition -> number of records that the broker has taken."""
        return {f"{self._topic}-{partition}": count for partition, count in self.written.items()}

    def close(self) -> None:
        """End the thread."""
        self._over.set()
        self._going.set()
        self._thread.join(PATIENCE_S)
        self._producer.flush(ANSWER_S)

    def _run(self) -> None:
        while not self._over.wait(BATCH_PAUSE_S):
            if not self._going.is_set():
                self._idle.set()
                self._going.wait()
                continue
            for partition in list(self.written):
                try:
                    self._producer.produce(self._topic, b"x", partition=partition, on_delivery=self._delivered)
                except KafkaException as error:
                    if error.args[0].code() != KafkaError._UNKNOWN_PARTITION:  # it is new: the producer hears of it
                        raise
            self._producer.poll(0)

    def _delivered(self, error: Any, message: Any) -> None:
        assert error is None, error  # its thread ends with it, and the wait for an idle one fails
        self.written[message.partition()] += 1


class Scene:
    """A context manager. Leaving it ends every process, mends every link and the ensemble."""

    def __init__(self, ensemble: Ensemble, seats: list[Box], name: str) -> None:
        self.ensemble, self.name = ensemble, name
        self.topic = f"{name}-clicks"
        self.coordinators: list[Process] = []
        self.consumers: list[Process] = []
        self._seats = list(seats)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._admin = AdminClient({"bootstrap.servers": self.ensemble.bootstrap_servers})
        future = self._admin.create_topics([NewTopic(self.topic, PARTITIONS, 1)])[self.topic]
        future.result(ANSWER_S)
        self.producing = Producing(self.ensemble.bootstrap_servers, self.topic)
        self._stack.callback(self.producing.close)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for seat in self._used():
            seat.mend()
        for server in self.ensemble.servers:
            if server.state == "running":
                server.mend()
        self._stack.close()
        self.ensemble.heal()

    def coordinate(self, zookeeper: str = "") -> Process:
        """Start a coordinator."""
        process = Process(
            f"coordinator-{len(self.coordinators)}",
            self._seats.pop(),
            *("coordinator", "--zookeeper", zookeeper or self.ensemble.hosts, "--id", str(len(self.coordinators))),
        )
        self.coordinators.append(process)
        self._stack.callback(process.close)
        return process

    def consume(self, zookeeper: str = "", clock_ahead_s: int = 0) -> Process:
        """Start a consumer."""
        name = "abcdef"[len(self.consumers)]
        process = Process(
            name,
            self._seats.pop(),
            *("consume", "--group", self.name, "--topic", self.topic, "--from-beginning", "--output", "json"),
            *("--zookeeper", zookeeper or self.ensemble.hosts),
            *("--bootstrap-servers", self.ensemble.bootstrap_servers),
            clock_ahead_s=clock_ahead_s,
        )
        self.consumers.append(process)
        self._stack.callback(process.close)
        return process

    def begin(self, zookeeper: str = "", others: str = "") -> tuple[Process, Process, Process, Process]:
        """The usual: two coordinators, the first elected, and two consumers that share, while records come.

        `zookeeper`: where the first consumer finds it, `others`: where all others do, if not on all servers.
        """
        first = self.coordinate(others)
        first.wait("elected")
        second = self.coordinate(others)
        a, b = self.consume(zookeeper), self.consume(others)
        self.producing.go_on()
        self.wait_shared()
        self.wait_committed(since=[a, b])
        return first, second, a, b

    def wait_shared(self, *among: Process) -> None:
        """Wait until these (all) consumers hold all partitions, each its share."""
        consumers = among or tuple(self.consumers)
        total = len(self.producing.written)

        def shared() -> bool:
            held = [consumer.held() for consumer in consumers]
            sizes = sorted(map(len, held))
            return len(set().union(*held)) == sum(sizes) == total and sizes[-1] - sizes[0] <= 1

        wait_until(shared, f"{[c.name for c in consumers]} share", PATIENCE_S, self._state)

    def wait_committed(self, since: list[Process]) -> None:
        """Wait until each of these has committed something anew."""
        counts = {consumer.name: len(consumer.of("offsets_committed")) for consumer in since}
        wait_until(
            lambda: all(len(consumer.of("offsets_committed")) > counts[consumer.name] for consumer in since),
            f"commits of {list(counts)}",
            PATIENCE_S,
            self._state,
        )

    def registered(self) -> set[str]:
        """The members, by the tree."""
        return set(self._children(DRAFT.ids(self.name)))

    def candidates(self) -> set[str]:
        """The coordinators that serve or stand by, by the tree."""
        return set(self._children(CANDIDATES))

    def settle_idle(self) -> None:
        """Produce no more, and wait until everything is read and committed."""
        self.producing.pause()
        ends = self.producing.ends()
        wait_until(lambda: self._committed() == ends, f"all is committed: {ends}", PATIENCE_S, self._committed)

    def commands(self, consumer: Process) -> tuple[str, ...]:
        """What stands in this consumer's channel."""
        return self._children(DRAFT.channel(self.name, consumer.ids()[-1]))

    def add_partition(self) -> None:
        """As a Kafka operator does."""
        total = len(self.producing.written) + 1
        future = self._admin.create_partitions([NewPartitions(self.topic, total)])[self.topic]
        future.result(ANSWER_S)
        self.producing.written[total - 1] = 0

    def prove(self) -> Verdict:
        """Stop producing, wait until all is read and committed, leave, and judge the consumers' logs."""
        self.settle_idle()
        everybody = [*self.consumers, *self.coordinators]
        for process in everybody:
            process.ask_to_leave()
        codes = {process.name: process.left() for process in everybody}
        assert not any(codes.values()), codes
        verdict = judge(consumer.log() for consumer in self.consumers)
        assert not verdict.wrong, "\n".join(verdict.wrong)
        wanted = {partition: (0, end) for partition, end in self.producing.ends().items()}
        assert verdict.offsets() == wanted, f"{verdict.offsets()}, not {wanted}"
        return verdict

    def _committed(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for consumer in self.consumers:
            for event in consumer.of("offsets_committed", "fetch_stopped"):
                for partition, offset in event["offsets"].items():
                    found[partition] = max(offset, found.get(partition, 0))
        return found

    def _children(self, path: str) -> tuple[str, ...]:
        with Tree(self.ensemble.hosts) as tree:
            return tree.read([Read(path, Kind.CHILDREN)])[0].children

    def _state(self) -> dict[str, set[str]]:
        return {consumer.name: consumer.held() for consumer in self.consumers}

    def _used(self) -> list[Box]:
        return [process.seat for process in (*self.coordinators, *self.consumers)]
