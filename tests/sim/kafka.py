"""A simulated Kafka as one process sees it: records of the logs are their offsets, and brokers take time to answer."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from math import ceil
from types import SimpleNamespace, TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from tests.sim.application import Logs
from tests.sim.field import parse_json
from tests.sim.offset_log import LogClient, OffsetLog
from tests.sim.threads import SimThread
from zkcoord.core.model import TopicPartition
from zkcoord.core.tenure import CommitOutcome
from zkcoord.errors import UnavailableError, UnknownPartitionError, ZkcoordError
from zkcoord.kafka.client import librdkafka
from zkcoord.offsets.group_commits import GroupCommits
from zkcoord.offsets.ports import Commits
from zkcoord.shell.ports import CallDone

if TYPE_CHECKING:
    from tests.sim.programs import ProgramProcess

ANSWER_MS = 20
AWAY_MS = 12_000
"""So long it may take until a client gives a question up."""

FETCH_MS = 100
FETCHED_MAX = 12


class SimError:
    """confluent_kafka's KafkaError."""

    def __init__(self, name: str) -> None:
        self._name = name

    def name(self) -> str:
        return self._name

    def str(self) -> str:
        return f"simulated {self._name}"

    def fatal(self) -> bool:
        return False

    def retriable(self) -> bool:
        return False


class SimMessage(NamedTuple):
    """confluent_kafka's Message."""

    at: TopicPartition
    place: int
    failed: SimError | None = None

    def topic(self) -> str:
        return self.at.topic

    def partition(self) -> int:
        return self.at.partition

    def offset(self) -> int:
        return self.place

    def error(self) -> SimError | None:
        return self.failed


class SimKafka:
    """The simulated Kafka of one process."""

    def __init__(self, process: ProgramProcess, logs: Logs, log: OffsetLog | None = None) -> None:
        """`log`: the group's commits."""
        self.process, self.world, self.logs, self.log = process, process.world, logs, log

    def draw(self, most: int) -> int:
        """A number from 0 to `most`."""
        return int(self.world.rng.random() * (most + 1))

    def exists(self, partition: TopicPartition) -> bool:
        """True if the partition's topic exists."""
        return self.world.ensemble.data(f"/brokers/topics/{partition.topic}") is not None

    def answers(self) -> bool:
        """Wait for the answer to a question; False when no answer comes."""
        if self.world.stormy and self.world.rng.random() < self.logs.away_rate:
            self.process.crew.sleep(self.draw(AWAY_MS) / 1000)
            return False
        if not self.world.draining:
            self.process.crew.sleep(self.draw(ANSWER_MS) / 1000)
        return True

    def starts(self) -> bool:
        """True if the broker that answers has just started."""
        return self.world.stormy and self.world.rng.random() < self.logs.away_rate

    def client(self, *args: Any, **kwargs: Any) -> SimClient:
        """Stands in for `SteadyClient`."""
        return SimClient(self)

    def commits(self, group: str, *args: Any, patience_ms: int, wall_ms: Callable[[], int], known: Any) -> GroupCommits:
        """Stands in for `kafka_commits`."""
        return GroupCommits(SimCommits(self), wall_ms)

    def open_consumer(
        self, servers: str, config: Any, on_error: Callable[[Any], None], broken: Callable[[], None]
    ) -> SimNative:
        """Stands in for librdkafka's consumer."""
        return SimNative(self)


class SimCommits(LogClient):
    """Stands in for `zkcoord.offsets.group_consumer.GroupConsumer`: the thread that asks waits for the answer."""

    def __init__(self, kafka: SimKafka) -> None:
        super().__init__(kafka.process, kafka.log)  # type: ignore[arg-type]  # None: nobody may ask
        self._crew = kafka.process.crew
        self._asks: SimThread | None = None
        self._answers: list[tuple[CallDone, Any]] = []

    def read(self, partitions: Collection[TopicPartition]) -> Commits:
        """The commits that exist; raises while no broker answers."""
        done = self._ask("read", tuple(partitions))
        if done.error is not None:
            raise done.error
        return done.value  # type: ignore[no-any-return]

    def commit(self, commits: Commits) -> CommitOutcome:
        """Commit, and return the outcome of each commit."""
        return self._ask("commit", commits).value  # type: ignore[no-any-return]

    def close(self) -> None:
        """Close; commits on their way may still land."""

    def tell(self, done: CallDone, commits: Commits | None) -> None:
        """Wake the thread that waits."""
        self._answers.append((done, commits))
        if self._asks is not None:
            self._crew.wake(self._asks)

    def _ask(self, name: str, argument: Any) -> CallDone:
        assert self._log is not None, "this scene has no commits in Kafka"
        self._asks = self._crew.me()
        self.call(0, name, argument)
        while not self._answers:
            self._crew.park(None)
        done, commits = self._answers.pop()
        self.told(done, commits)
        return done


class SimClient:
    """Stands in for `zkcoord.kafka.steady.SteadyClient`: asks questions."""

    cluster_id = None

    def __init__(self, kafka: SimKafka) -> None:
        self._kafka = kafka

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Do nothing: no connection is open."""

    def check_credentials(self) -> None:
        """Credentials are always right, if a broker answers."""
        self._kafka.answers()

    def confirm(self, topic: str, timeout_ms: int) -> None:
        """Do nothing: it is always the same cluster."""

    def look_anew(self, topic: str, timeout_ms: int) -> None:
        """Do nothing: it is always the same cluster."""

    def ask_offsets(
        self, partitions: Collection[TopicPartition], which: Any, isolation: Any = None, timeout_ms: Any = None
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, ZkcoordError]]:
        """Ends or starts of logs."""
        if not self._kafka.answers():
            return {}, {each: UnavailableError("Kafka does not answer") for each in sorted(partitions)}
        found = {each for each in partitions if self._kafka.exists(each)}
        offsets = {each: self._kafka.logs.end(each) if which == "latest" else 0 for each in sorted(found)}
        return offsets, {each: UnknownPartitionError(f"{each}", {each}) for each in sorted(set(partitions) - found)}

    def beginning_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offsets."""
        return self._all(partitions, "earliest")

    def end_offsets(self, partitions: Collection[TopicPartition], isolation: Any = None) -> dict[TopicPartition, int]:
        """The offsets behind the last ones."""
        return self._all(partitions, "latest")

    def reset_positions(self, partitions: Collection[TopicPartition], policy: Any) -> dict[TopicPartition, int]:
        """Positions for partitions without an offset."""
        found = self._all(partitions, policy)
        for each, offset in found.items():
            self._kafka.process.application.note("reset", each, offset)
        return found

    def partitions(self) -> tuple[TopicPartition, ...]:
        """All partitions of all topics."""
        if not self._kafka.answers():
            raise UnavailableError("Kafka does not answer")
        ensemble, found = self._kafka.world.ensemble, []
        for topic in ensemble.names("/brokers/topics"):
            numbers = parse_json(ensemble.data(f"/brokers/topics/{topic}") or b"").get("partitions", {})
            found += [TopicPartition(topic, int(number)) for number in numbers]
        return tuple(sorted(found))

    def _all(self, partitions: Collection[TopicPartition], which: Any) -> dict[TopicPartition, int]:
        found, failed = self.ask_offsets(partitions, which)
        unknown = {each for each, why in failed.items() if isinstance(why, UnknownPartitionError)}
        if failed and not unknown:
            raise UnavailableError("Kafka does not answer")
        if unknown:
            raise UnknownPartitionError(f"Kafka does not know {sorted(unknown)}", unknown)
        return found


class SimNative:
    """librdkafka's consumer: fetches the assigned partitions into a queue of its own."""

    def __init__(self, kafka: SimKafka) -> None:
        self._kafka = kafka
        self._next: dict[TopicPartition, int] = {}  # assigned partition -> the next offset to fetch
        self._queued: deque[SimMessage] = deque()
        self._inside = 0

    def incremental_assign(self, partitions: Collection[Any]) -> None:
        """Fetch these partitions, too."""
        for each in partitions:
            at = TopicPartition(each.topic, each.partition)
            assert at not in self._next, f"{at} is assigned already"
            self._next[at] = each.offset

    def incremental_unassign(self, partitions: Collection[Any]) -> None:
        """Stop fetching these partitions, and drop their queued records."""
        gone = {TopicPartition(each.topic, each.partition) for each in partitions}
        for each in gone:
            del self._next[each]
        self._queued = deque(message for message in self._queued if message.at not in gone)

    def poll(self, wait_seconds: float) -> SimMessage | None:
        """Return the next message, or None at the timeout."""
        crew = self._kafka.process.crew
        assert not self._inside, "two threads poll one consumer"
        self._inside = 1
        until_ms = crew.now_ms() + ceil(wait_seconds * 1000)
        try:
            while not self._queued:
                left_ms = until_ms - crew.now_ms()
                if left_ms <= 0:
                    break
                crew.sleep(min(left_ms, 1 + self._kafka.draw(FETCH_MS)) / 1000)
                self._fetch()
        finally:
            self._inside = 0
        return self._queued.popleft() if self._queued else None

    def consume(self, count: int, wait_seconds: float) -> list[SimMessage]:
        """Return the queued messages."""
        return [self._queued.popleft() for _ in range(min(count, len(self._queued)))]

    def list_topics(self, *topic: str, timeout: float) -> Any:
        """The cluster as a broker tells it. Raises when no broker answers; without topics when the broker has just
        started."""
        assert not self._inside, "asked while a thread polls"
        if not self._kafka.answers():
            raise librdkafka().KafkaException(SimError("_TRANSPORT"))
        return SimpleNamespace(cluster_id=None, brokers={} if self._kafka.starts() else {0: "broker"})

    def close(self) -> None:
        """Close; no thread may be inside a call."""
        assert not self._inside, "closed while a thread polls"
        self._next.clear()
        self._queued.clear()

    def _fetch(self) -> None:
        """Take a broker's answer: some records of some partitions, with the partitions in any order."""
        kafka = self._kafka
        for at in sorted(self._next):
            if kafka.world.rng.random() < 0.4 and not kafka.world.draining:
                continue
            start, end = self._next[at], kafka.logs.end(at)
            if not kafka.exists(at) or start < 0:
                continue
            if start > end:
                self._queued.append(SimMessage(at, start, SimError("_AUTO_OFFSET_RESET")))
                self._next[at] = -1  # until the partition is assigned again
                continue
            most = end if kafka.world.draining else min(end, start + kafka.draw(FETCHED_MAX))
            self._queued.extend(SimMessage(at, offset) for offset in range(start, most))
            self._next[at] = most
