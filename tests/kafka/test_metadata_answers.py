"""How a cluster's answers are handled, complete or not. A test cannot make a real broker give such answers."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicCollection

from zkcoord.core.topic_answers import Broker, Cluster, Described, Kind, Listed, Question, Told
from zkcoord.core.topic_mirror import DESCRIBE_MAX, Topic
from zkcoord.errors import RefusedError, UnavailableError, UsageError
from zkcoord.kafka.client import KafkaClient
from zkcoord.kafka.metadata import KafkaMetadata, answering
from zkcoord.kafka.renewed import RENEW_MS

NOWHERE = "127.0.0.1:9"
TOPIC_ID = "J9yFzcT8Sdqog+R1XZ7J/A"
MISSING, REFUSED = KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED


def done(told: Any) -> Future[Any]:
    """Return a finished answer; an error's number becomes the error."""
    future: Future[Any] = Future()
    if isinstance(told, int):
        future.set_exception(KafkaException(KafkaError(told)))
    else:
        future.set_result(told)
    return future


def topic(topic_id: str = TOPIC_ID) -> Any:
    """Return a cluster's description of a topic with one partition."""
    return SimpleNamespace(topic_id=topic_id, partitions=[SimpleNamespace(id=0, replicas=[NODE])])


class Answers(KafkaClient):
    """A cluster with given answers about its topics and about itself."""

    def __init__(self, topics: dict[str, Future[Any]], controller: int | None = 2) -> None:
        super().__init__(NOWHERE)
        self._topics, self._controller = topics, controller
        self._cluster_id: str | None = "c"
        self.brokers = {2: NODE}
        self.lists = 0
        self.asked: list[list[str]] = []
        self.closed = self.collected = False

    def list_topics(self, timeout_seconds: float) -> Any:
        """Return all topics; those without an answer have an error."""
        self.collected = gc.isenabled()
        self.lists += 1
        partitions = {0: SimpleNamespace(replicas=[2])}
        topics = {
            name: SimpleNamespace(partitions=partitions, error="offline" if told is SILENT else None)
            for name, told in self._topics.items()
        }
        return SimpleNamespace(
            topics=topics, brokers=self.brokers, controller_id=self._controller, cluster_id=self._cluster_id
        )

    def admin(self) -> Any:
        """Return the client that asks this cluster."""
        return self

    def describe_topics(self, named: TopicCollection, request_timeout: float) -> dict[str, Future[Any]]:
        """Return the answers about these topics."""
        assert request_timeout == 0.1
        self.asked.append(named.topic_names)
        return {name: self._topics[name] for name in named.topic_names}

    def close(self) -> None:
        """Note that the client was closed."""
        self.closed = True
        super().close()


NODE = SimpleNamespace(id=2, host="kafka2", port=9092, rack="r")
ONE = Told("J9yFzcT8Sdqog-R1XZ7J_A", {0: (2,)})
SILENT: Future[Any] = Future()


@pytest.fixture
def collecting() -> Iterator[None]:
    """Restore the garbage collector's settings after the test."""
    yield
    gc.enable()


def opened(client: Answers, monkeypatch: pytest.MonkeyPatch) -> KafkaMetadata:
    monkeypatch.setattr("zkcoord.kafka.metadata.KafkaClient", lambda *_args, **_named: client)
    return KafkaMetadata(NOWHERE, timeout_ms=100, grace_seconds=0.0)


def described(topics: dict[str, Future[Any]], monkeypatch: pytest.MonkeyPatch) -> dict[str, Told]:
    answer = opened(Answers(topics), monkeypatch).answer(Question(Kind.DESCRIBE, tuple(topics)))
    assert isinstance(answer, Described)
    return dict(answer.topics)


def test_everything_is_asked_for_in_parts_and_topics_without_an_id_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"t{number:04}" for number in range(DESCRIBE_MAX + 2)]
    client = Answers({name: done(topic()) for name in names} | {"old": done(topic("A" * 22))})
    found, nameless = opened(client, monkeypatch).whole()
    assert [len(asked) for asked in client.asked] == [1, DESCRIBE_MAX, 3]  # the first request is for the brokers' racks
    assert client.lists == 1
    assert nameless == ("old",)
    one = Topic(topic_id="J9yFzcT8Sdqog-R1XZ7J_A", partitions={0: (2,)})
    assert dict(found.topics) == dict.fromkeys(names, one)
    assert (found.cluster_id, dict(found.brokers), found.whole) == ("c", {2: Broker("kafka2", 9092, "r")}, True)


@pytest.mark.parametrize("controller", [-1, None])
def test_a_partial_answer_is_not_taken_as_whole(monkeypatch: pytest.MonkeyPatch, controller: int | None) -> None:
    told, missing = {"t": done(topic())}, {"t": done(topic()), "u": done(MISSING)}
    metadata = opened(Answers(told, controller=controller), monkeypatch)
    assert metadata.answer(Question(Kind.LIST)) == Listed("c", frozenset({2}), {"t": "0:2"}, whole=False)
    with pytest.raises(UnavailableError, match="names no controller"):
        metadata.whole()
    with pytest.raises(UnavailableError, match="did not describe topic u"):
        opened(Answers(missing), monkeypatch).whole()


def test_a_topic_that_is_refused_or_not_told_in_time_is_not_a_missing_one(monkeypatch: pytest.MonkeyPatch) -> None:
    topics = {"t": done(topic()), "gone": done(MISSING), "hidden": done(REFUSED), "late": SILENT}
    nothing = Told()
    assert described(topics, monkeypatch) == {"t": ONE, "gone": Told(missing=True), "hidden": nothing, "late": nothing}
    assert described({"gone": done(MISSING)}, monkeypatch) == {"gone": Told(missing=True)}
    with pytest.raises(RefusedError):
        described({"hidden": done(REFUSED), "late": SILENT}, monkeypatch)


def brokers(client: Answers, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    answer = opened(client, monkeypatch).answer(Question(Kind.CLUSTER))
    assert isinstance(answer, Cluster)
    return answer


def test_brokers_are_those_of_a_list_with_the_racks_that_one_topic_of_theirs_tells(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = Answers({"broken": SILENT, "t": done(topic()), "u": done(topic())})
    client.brokers = {2: NODE, 3: SimpleNamespace(host="kafka3", port=9093)}  # the second broker has no replica
    expected = {2: Broker("kafka2", 9092, "r"), 3: Broker("kafka3", 9093)}
    assert brokers(client, monkeypatch) == Cluster("c", expected)
    assert client.asked == [["t"]]
    client._cluster_id = None
    assert brokers(client, monkeypatch) == Cluster("", expected)


def test_a_list_counts_for_one_question_about_the_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Answers({"t": done(topic())})
    metadata = opened(client, monkeypatch)
    lists = []
    for kind in (Kind.LIST, Kind.CLUSTER, Kind.CLUSTER, Kind.LIST, Kind.CLUSTER):
        metadata.answer(Question(kind))
        lists.append(client.lists)
    assert lists == [1, 1, 2, 3, 3]


def test_a_broker_whose_rack_another_one_does_not_know_yet_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = SimpleNamespace(id=3, host=None, port=-1, rack=None)
    told = SimpleNamespace(topic_id=TOPIC_ID, partitions=[SimpleNamespace(id=0, replicas=[NODE, unknown])])
    client = Answers({"t": done(told)})
    client.brokers = {2: NODE, 3: SimpleNamespace(host="kafka3", port=9093)}
    assert brokers(client, monkeypatch) == Cluster("c", {2: Broker("kafka2", 9092, "r")})


def test_brokers_whose_racks_are_not_told_are_away(monkeypatch: pytest.MonkeyPatch) -> None:
    for untold in (done(MISSING), Future[Any]()):  # the topic has just gone, or there is no answer
        client = Answers({"t": untold})
        with pytest.raises(UnavailableError, match="did not tell the racks"):
            brokers(client, monkeypatch)
        assert (client.lists, client.asked) == (2, [["t"], ["t"]])
    with pytest.raises(RefusedError):
        brokers(Answers({"t": done(REFUSED)}), monkeypatch)
    nobody = Answers({"t": done(topic())})
    nobody.brokers = {}
    with pytest.raises(UnavailableError, match="names no brokers"):
        brokers(nobody, monkeypatch)


def test_f247_a_client_without_answers_for_long_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    client, ended, clock = Answers({"t": Future()}), list[Any](), [0]
    monkeypatch.setattr(client._renewed, "_ends", ended.append)
    monkeypatch.setattr("zkcoord.kafka.renewed.mono_ms", lambda: clock[0])
    metadata, nobody = opened(client, monkeypatch), dict[int, Any]()
    with client._renewed.used() as first:
        pass

    def unanswered(at_ms: int) -> None:
        clock[0] = at_ms
        with pytest.raises(UnavailableError, match="names no brokers"):
            metadata.answer(Question(Kind.CLUSTER))

    client.brokers = nobody
    unanswered(0)
    client._topics, client.brokers = {"t": done(REFUSED)}, {2: NODE}
    with pytest.raises(RefusedError):  # a refusal is an answer
        metadata.answer(Question(Kind.CLUSTER))
    client.brokers = nobody
    unanswered(RENEW_MS)
    clock[0] += RENEW_MS - 1
    assert metadata.answer(Question(Kind.LIST)) == Listed("c", frozenset(), {"t": "0:2"}, whole=False)
    assert ended == []
    unanswered(2 * RENEW_MS)
    assert ended == [first]
    unanswered(2 * RENEW_MS + 1)
    client.brokers = {2: NODE}
    assert metadata.answer(Question(Kind.LIST)) == Listed("c", frozenset({2}), {"t": "0:2"})
    client.brokers, metadata._seen = nobody, None
    unanswered(3 * RENEW_MS + 1)
    assert ended == [first]


def test_all_names_that_kafka_allows_are_listed_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    allowed, others = ["a" * 249, "A_z.0-9", "__consumer_offsets"], ["a" * 250, "", "a b", "a\n", "ä"]
    client = Answers({name: done(topic()) for name in allowed + others}, controller=0)
    listed = opened(client, monkeypatch).answer(Question(Kind.LIST))
    assert listed == Listed("c", frozenset({2}), dict.fromkeys(allowed, "0:2"), whole=True)


def test_brokers_that_know_no_id_of_their_cluster_name_none(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Answers({})
    client._cluster_id = None
    assert opened(client, monkeypatch).answer(Question(Kind.LIST)) == Listed("", frozenset({2}), {}, whole=True)


def test_of_several_topics_with_an_error_the_first_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Answers({"b": SILENT, "a": SILENT, "t": done(topic())})
    with pytest.raises(UnavailableError, match=r"cannot tell all of topic a \(offline\)"):
        opened(client, monkeypatch).whole()


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_kept_out_of_a_long_list_and_is_then_as_it_was(
    monkeypatch: pytest.MonkeyPatch, collecting: None, enabled: bool
) -> None:
    client = Answers({"t": done(topic())}, controller=-1)
    metadata = opened(client, monkeypatch)
    if not enabled:
        gc.disable()
    metadata.answer(Question(Kind.LIST))
    assert (client.collected, gc.isenabled()) == (False, enabled)


def test_leaving_closes_the_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Answers({})
    with opened(client, monkeypatch):
        assert not client.closed
    assert client.closed


def test_settings_that_can_never_work_are_refused_at_once_or_at_the_first_question() -> None:
    wrong = {"no.such.setting": "1"}
    with pytest.raises(UsageError, match=r"no\.such\.setting"):
        answering(NOWHERE, wrong, at_once=True)
    answer = answering(NOWHERE, wrong, at_once=False)
    with pytest.raises(UsageError, match=r"no\.such\.setting"):
        answer(Question(Kind.LIST))


def test_all_questions_go_through_one_client(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Answers] = []

    def make(*_args: object, **_named: object) -> Answers:
        made.append(Answers({"t": done(topic())}))
        return made[-1]

    monkeypatch.setattr("zkcoord.kafka.metadata.KafkaClient", make)
    answer = answering(NOWHERE, None, at_once=False)
    assert made == []
    assert answer(Question(Kind.LIST)) == answer(Question(Kind.LIST))
    assert len(made) == 1
