"""A group's commits through a consumer that never subscribes, on a real broker and without one."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from tests.kafka.helpers import QUIET, Broker
from tests.kafka.mock_cluster import MockCluster
from tests.offsets.test_kafka_store import NOWHERE, PARTITIONS, admin, new_group, new_topic, ours
from tests.waiting import PATIENCE_SECONDS, wait_until
from zkcoord.core.model import TopicPartition
from zkcoord.core.tenure import CommitOutcome, KafkaCommit
from zkcoord.embedded import EmbeddedKafka
from zkcoord.errors import RefusedError, UnavailableError, UnknownPartitionError, UsageError
from zkcoord.kafka.client import KafkaClient
from zkcoord.offsets import group_consumer
from zkcoord.offsets.group_consumer import TIMEOUT_MS_MIN, GroupConsumer
from zkcoord.offsets.kafka_store import KafkaCommits

__all__ = ["admin"]

TIMEOUT_MS = 30_000  # a busy machine may stand still for seconds
DELAY_MS = 400  # of a slow broker's answers


@pytest.fixture
def group() -> str:
    return new_group()


@pytest.fixture
def store(kafka: EmbeddedKafka, group: str) -> Iterator[GroupConsumer]:
    with closing(GroupConsumer(group, kafka.bootstrap_servers, {}, timeout_ms=TIMEOUT_MS)) as consumer:
        yield consumer


def committed(store: GroupConsumer, commits: dict[TopicPartition, KafkaCommit]) -> CommitOutcome:
    """Commit as soon as the broker's coordinator of groups is there."""
    outcomes: list[CommitOutcome] = []

    def answered() -> bool:
        outcomes[:] = [store.commit(commits)]
        return not outcomes[0].unknown

    wait_until(answered, "Kafka answers a commit")
    return outcomes[0]


@pytest.mark.kafka
def test_commits_of_many_partitions_come_back_with_what_they_say_of_themselves(
    store: GroupConsumer, group: str, admin: AdminClient, kafka: EmbeddedKafka
) -> None:
    topic = new_topic(admin, PARTITIONS)
    commits = {TopicPartition(topic, n): ours(n * 7) for n in range(1, PARTITIONS)}
    some = [TopicPartition(topic, 3), TopicPartition(topic, 4)]
    assert committed(store, commits) == CommitOutcome(done=frozenset(commits))
    assert store.read(some) == {p: commits[p] for p in some}
    assert store.read(list(commits)) == commits
    assert store.read([TopicPartition(topic, 0)]) == store.read([]) == {}
    with KafkaClient(kafka.bootstrap_servers) as client:
        seen = KafkaCommits(client)
        assert seen.read([group]).found == {group: commits}
        assert seen.users(group) == []  # the consumer is no member


def test_partitions_that_could_not_be_committed_are_named_one_by_one() -> None:
    broker = Broker()
    topic = broker.topic()
    first, second, bad = (TopicPartition(topic, n) for n in (0, 1, 70))
    with closing(GroupConsumer("g", broker.bootstrap_servers, {}, timeout_ms=TIMEOUT_MS)) as store:
        assert committed(store, {first: ours(3), second: ours(4)}).done == {first, second}
        both: dict[TopicPartition, KafkaCommit] = {first: ours(5), second: ours(4), bad: ours(6)}
        for commits, done in ((both, {first, second}), ({bad: ours(6)}, set[TopicPartition]())):
            outcome = committed(store, commits)
            assert (outcome.done, outcome.unknown) == (done, {})
            assert {p: type(error) for p, error in outcome.refused.items()} == {bad: UnknownPartitionError}
            assert f"commit the offset of {bad} of group" in str(outcome.error())
        assert store.read([first, second]) == {first: ours(5), second: ours(4)}


@pytest.mark.kafka
def test_a_group_id_that_a_real_consumer_uses_is_refused_with_who_must_act(
    store: GroupConsumer, group: str, admin: AdminClient, kafka: EmbeddedKafka
) -> None:
    topic = new_topic(admin, 1)
    p = TopicPartition(topic, 0)
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": group}, logger=QUIET)
    consumer.subscribe([topic])
    try:
        wait_until(lambda: consumer.poll(0.1) is None and bool(consumer.assignment()), "the consumer has joined")
        outcome = committed(store, {p: ours(5)})
        assert outcome.done == frozenset()
        assert isinstance(outcome.error(), UsageError)
        assert f"consumers of Kafka's own protocol use the group id {group}; stop them" in str(outcome.error())
    finally:
        consumer.close()
    wait_until(lambda: store.commit({p: ours(6)}).done == {p}, "Kafka takes it when that one has left")


def test_an_unanswered_commit_is_unknown_and_not_refused() -> None:
    p = TopicPartition("t", 0)
    with closing(GroupConsumer("g", NOWHERE, {}, timeout_ms=1_000)) as store:
        outcome = store.commit({p: ours(1)})
        assert (outcome.done, outcome.refused, list(outcome.unknown)) == (frozenset(), {}, [p])
        assert isinstance(outcome.error(), UnavailableError)
        with pytest.raises(UnavailableError, match="tell the offsets of group g"):
            store.read([p])


def test_a_closed_one_ends_a_commit_that_is_under_way_and_takes_no_other() -> None:
    p, found = TopicPartition("t", 0), list[CommitOutcome]()
    store = GroupConsumer("g", NOWHERE, {}, timeout_ms=60_000)
    thread = threading.Thread(target=lambda: found.append(store.commit({p: ours(1)})))
    thread.start()
    wait_until(lambda: store._renewed._held is not None, "the commit is under way")
    store.close()
    thread.join(PATIENCE_SECONDS)
    assert [set(outcome.unknown) for outcome in found] == [{p}]
    with pytest.raises(UsageError, match="is closed"):
        store.commit({p: ours(1)})
    store.close()


def test_settings_of_a_consumer_that_reads_do_not_matter_to_one_that_commits() -> None:
    settings = {"group.id": "another", "group.protocol": "consumer", "enable.auto.commit": "true", "client.id": "c"}
    settings |= {"session.timeout.ms": "45000", "fetch.wait.max.ms": "5000", "group.instance.id": uuid.uuid4().hex}
    with closing(GroupConsumer("g", NOWHERE, settings, timeout_ms=1_000)) as store, pytest.raises(UnavailableError):
        store.read([TopicPartition("t", 0)])


class Clock:
    """Stands for the module `time`: it goes on only while somebody waits. By the machine's clock, a thread that stands
    still for a moment would have no time left to ask."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Native:
    """librdkafka's consumer, without a broker while it is `away`. A poll answers the commits that it was asked for.

    `on_error` is called with an error, `broken` when a connection has ended, and `answered` after each answer to a
    commit.
    """

    def __init__(
        self, clock: Clock, settings: dict[str, Any], on_error: Callable[[KafkaError], None], broken: Callable[[], None]
    ) -> None:
        self.settings, self.on_error, self.broken, self.away, self.closed = settings, on_error, broken, False, 0
        self._clock = clock
        self.sent = list[Any]()
        self.refusal: Any = None
        self.answered: Callable[[], object] = lambda: None

    def commit(self, *, offsets: list[Any], asynchronous: bool) -> None:
        self.sent.append(offsets)

    def poll(self, _seconds: float) -> None:
        while self.sent and not self.away:
            self.settings["on_commit"](self.refusal, self.sent.pop(0))
            self.answered()

    def committed(self, asked: list[Any], timeout: float) -> list[Any]:
        if self.away:
            self._clock.sleep(timeout)
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return asked

    def list_topics(self, topic: str, timeout: float) -> Any:
        if self.away or timeout <= 0:
            self._clock.sleep(timeout)
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return SimpleNamespace(cluster_id="c")

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of the requests."""
    clock = Clock()
    monkeypatch.setattr(group_consumer, "time", clock)
    return clock


@pytest.fixture
def opened(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> list[Native]:
    """librdkafka's clients, in the order in which they were made."""
    made = list[Native]()

    def opens(_to: str, *given: Any) -> Native:
        made.append(Native(clock, *given))
        return made[-1]

    monkeypatch.setattr(group_consumer, "open_consumer", opens)
    return made


def test_a_client_is_made_at_the_first_request_and_closed_once(opened: list[Native]) -> None:
    store = GroupConsumer("g", NOWHERE, {"sasl.username": "u"}, timeout_ms=1_000)
    assert (store.read([]), opened) == ({}, [])
    p = TopicPartition("t", 0)
    assert store.commit({p: ours(1)}).done == {p}
    assert store.read([p]) == {}
    store.close()
    store.close()
    assert [each.closed for each in opened] == [1]
    GroupConsumer("g", NOWHERE, {}, timeout_ms=1_000).close()
    assert len(opened) == 1


def test_f269_a_long_unanswered_client_ends_and_the_next_request_uses_another(
    opened: list[Native],
) -> None:
    p = TopicPartition("t", 0)
    with closing(GroupConsumer("g", NOWHERE, {}, timeout_ms=10)) as patient:
        assert patient.commit({p: ours(1)}).done == {p}
        opened[0].away = True
        assert patient.commit({p: ours(2)}).unknown.keys() == {p}
        with pytest.raises(UnavailableError):
            patient.read([p])
        assert len(opened) == 1
    del opened[:]
    with closing(GroupConsumer("g", NOWHERE, {"sasl.username": "u"}, timeout_ms=10, renew_ms=0)) as store:
        assert store.commit({p: ours(1)}).done == {p}
        opened[0].away = True
        assert store.commit({p: ours(3)}).unknown.keys() == {p}
        assert store.commit({p: ours(3)}).done == {p}
        opened[1].away = True
        with pytest.raises(UnavailableError):
            store.read([p])
        assert store.read([p]) == {}
        opened[0].away = False
        opened[0].poll(0)  # its commits are answered late, with an error
    assert [each.closed for each in opened] == [1, 1, 1]
    assert {each.settings["sasl.username"] for each in opened} == {"u"}


def test_f311_an_answer_is_unknown_when_nobody_tells_its_cluster_afterwards(
    opened: list[Native],
) -> None:
    p = TopicPartition("t", 0)

    def go() -> None:
        opened[0].away = True
        opened[0].broken()

    with closing(GroupConsumer("g", NOWHERE, {}, timeout_ms=10)) as store:
        assert store.commit({p: ours(1)}).done == {p}
        opened[0].answered = go
        outcome = store.commit({p: ours(2)})
        assert (outcome.done, outcome.refused, outcome.unknown.keys()) == (frozenset(), {}, {p})


def test_f311_there_is_time_to_ask_for_the_cluster_after_a_last_moment_answer(
    opened: list[Native], clock: Clock
) -> None:
    p = TopicPartition("t", 0)

    def late() -> None:
        clock.now += TIMEOUT_MS / 1000
        opened[0].broken()

    with closing(GroupConsumer("g", NOWHERE, {}, timeout_ms=TIMEOUT_MS)) as store:
        assert store.commit({p: ours(1)}).done == {p}
        opened[0].answered = late
        assert store.commit({p: ours(2)}).done == {p}


def test_a_refused_requests_partitions_are_unknown_unless_somebody_tells_them(
    opened: list[Native],
) -> None:
    both = {TopicPartition("t", number): ours(5) for number in (0, 1)}
    with closing(GroupConsumer("g", NOWHERE, {}, timeout_ms=10)) as store:
        assert store.commit(both).done == both.keys()
        opened[0].refusal = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
        opened[0].answered = lambda: setattr(opened[0], "away", True)
        outcome = store.commit(both)
        assert (outcome.done, outcome.refused, outcome.unknown.keys()) == (frozenset(), {}, both.keys())


def test_the_answer_to_a_commit_is_none_to_the_same_commit_made_again(opened: list[Native]) -> None:
    five = {TopicPartition("t", 0): KafkaCommit(offset=5)}
    with closing(GroupConsumer("g", NOWHERE, {}, timeout_ms=10)) as store:
        assert store.commit(five).done == five.keys()
        opened[0].away = True
        assert store.commit(five).unknown.keys() == five.keys()


def test_refused_credentials_are_blamed_for_a_silence_until_there_was_an_answer(opened: list[Native]) -> None:
    p = TopicPartition("t", 0)
    with closing(GroupConsumer("g", NOWHERE, {}, timeout_ms=10)) as store:
        assert store.read([p]) == {}
        opened[0].on_error(KafkaError(KafkaError._AUTHENTICATION))
        for refused in (True, False):
            opened[0].away = True
            with pytest.raises(RefusedError if refused else UnavailableError):
                store.read([p])
            opened[0].away = False
            assert store.read([p]) == {}


def test_the_late_answer_of_a_client_that_was_replaced_is_not_the_next_ones(
    opened: list[Native], monkeypatch: pytest.MonkeyPatch
) -> None:
    p, five = TopicPartition("t", 0), {TopicPartition("t", 0): KafkaCommit(offset=5)}
    with closing(GroupConsumer("g", NOWHERE, {}, timeout_ms=10, renew_ms=0)) as store:
        for _ in range(2):
            store.commit({p: ours(1)})
            opened[-1].away = True
            assert store.commit(five).unknown.keys() == {p}
        opened[0].away = False
        sent = Native.commit

        def late(native: Native, **given: Any) -> None:
            sent(native, **given)
            opened[-1].away = True
            opened[0].poll(0)

        monkeypatch.setattr(Native, "commit", late)
        assert store.commit(five).unknown.keys() == {p}


def test_f299_a_broker_slower_to_connect_than_one_request_is_committed_to() -> None:
    cluster = MockCluster(1)
    cluster.delay(1, DELAY_MS)
    p = TopicPartition(MockCluster.topic, 0)
    with closing(GroupConsumer("g", cluster.servers, {}, timeout_ms=TIMEOUT_MS_MIN)) as store:
        began = time.monotonic()
        outcome = store.commit({p: ours(3)})
        # it connects with three answers at least; who stood still meanwhile may have got them
        assert not outcome.done or time.monotonic() - began > 3 * DELAY_MS / 1000

        def taken_and_read() -> bool:
            with suppress(UnavailableError):
                return store.commit({p: ours(3)}).done == {p} and store.read([p]) == {p: ours(3)}
            return False

        wait_until(taken_and_read, "it is connected, and answers in time")
