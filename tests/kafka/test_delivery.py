"""The turns of the polling thread: a message may still be read at the moment when the user gets it."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.sim.kafka import SimMessage
from zkcoord.core.model import Starting, TopicPartition
from zkcoord.errors import UnavailableError
from zkcoord.kafka.delivery import Delivery
from zkcoord.kafka.fetch_positions import FetchPositions
from zkcoord.kafka.fetcher import Fetched
from zkcoord.kafka.resets import Log

GOOD, BEYOND = TopicPartition("t", 0), TopicPartition("t", 1)
LOSS_SECONDS_MAX = 60.0  # only a failure takes so long


class Around:
    """Plays membership, fetcher and Kafka. The lease ends during a request to Kafka."""

    policy, consumer_id, idle, answered = "latest", "g-1", False, True
    cluster_id: str | None = None
    answering = False
    doubtful, questions = True, 0

    def __init__(self) -> None:
        self.positions, self.changed = FetchPositions(), threading.Condition()
        self.asked: list[TopicPartition] = []
        self.told: list[str | None] = []
        self._epochs: dict[TopicPartition, int] = {}
        self._fetched = [Fetched(messages=(SimMessage(GOOD, 5),), out_of_range=(BEYOND,))]

    def allowed(self, partition: TopicPartition) -> bool:
        return partition in self.positions.partitions()

    def report(self, progress: int, lag: int) -> None:
        """Nobody listens."""

    def reading(self, partitions: Iterable[TopicPartition]) -> None:
        """Nobody listens."""

    def epoch_of(self, partition: TopicPartition) -> int | None:
        return self._epochs.get(partition)

    def apply(self, wanted: Mapping[TopicPartition, tuple[int, int]]) -> None:
        self._epochs = {partition: epoch for partition, (epoch, _) in wanted.items()}

    def fetch(self, count: int, wait_seconds: float) -> Fetched:
        return self._fetched.pop() if self._fetched else Fetched(messages=(), out_of_range=())

    def take_trouble(self) -> Any:
        """There is none."""

    def answers(self, seconds: float) -> bool:
        self.questions += 1
        return self.answering

    def settle(self) -> None:
        self.doubtful = False

    def hear(self, cluster_id: str | None) -> None:
        self.answered = True
        self.told.append(cluster_id)

    def lost(self) -> None:
        """The membership's thread says that a partition is lost. It must not wait for Kafka's answer."""
        assert self.changed.acquire(timeout=LOSS_SECONDS_MAX)
        self.positions.lose([GOOD])
        self.changed.release()

    def log_of(self, partition: TopicPartition) -> Log:
        self.asked.append(partition)
        with ThreadPoolExecutor(1) as worker:
            worker.submit(self.lost).result()
        return Log(start=0, end=3, reset=3)


def test_f69_messages_are_of_held_partitions_also_after_a_slow_question_to_kafka() -> None:
    """The loss comes while Kafka is asked, and is heard at once."""
    around = Around()
    around.positions.start(Starting({GOOD: 5, BEYOND: 9}, 1))
    delivery = Delivery("g", around, around, around, around.positions, around.changed)  # type: ignore[arg-type]
    for _ in range(3):
        for message in delivery.turn(10, 0.0):
            assert message.partition() in [held.partition for held in around.positions.partitions()]
    assert around.asked == [BEYOND]
    assert around.positions.position(BEYOND) == 3
    assert delivery.handed == 1


def test_f224_nothing_is_fetched_before_a_kafka_that_was_away_has_told_which_cluster_it_is() -> None:
    """The records may be of another cluster than that of the tree's topics. Then the membership sees the difference,
    and ends."""
    around = Around()
    around.answered, around.cluster_id, around._fetched = False, "cluster-2", []
    around.positions.start(Starting({GOOD: 5}, 1))
    delivery = Delivery("g", around, around, around, around.positions, around.changed)  # type: ignore[arg-type]
    delivery.reach.failed(UnavailableError("it does not answer"))
    for _ in range(3):
        delivery.turn(10, 0.0)
    assert around.epoch_of(GOOD) is None
    around.answering = True
    delivery.reach.look(heard=True)
    delivery.turn(10, 0.0)
    assert (around.told, around.epoch_of(GOOD)) == (["cluster-2"], 1)


def test_f310_messages_go_out_once_their_cluster_is_known_and_it_is_asked_for_once() -> None:
    around = Around()
    around.cluster_id = "cluster-1"
    around._fetched = [Fetched(messages=(SimMessage(GOOD, offset),), out_of_range=()) for offset in (6, 5, 5)]
    around.positions.start(Starting({GOOD: 5}, 1))
    delivery = Delivery("g", around, around, around, around.positions, around.changed)  # type: ignore[arg-type]
    assert delivery.turn(10, 0.0) == []
    around.answering = True
    assert [message.offset() for _ in range(2) for message in delivery.turn(10, 0.0)] == [5, 6]
    assert around.questions == 2
