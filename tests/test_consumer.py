"""Arguments that the public classes refuse before they do anything: a call that can never work raises a UsageError that
says what is allowed."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from zkcoord import Consumer, Coordinator, TopicPartition, UsageError
from zkcoord.consumer import new_consumer_id
from zkcoord.tree.registration import Registration, decode_registration

CALLBACKS: dict[str, Any] = {"on_start": print, "on_stop": lambda p: {}, "on_lost": print}


@pytest.mark.parametrize(
    ("zookeeper", "group", "topics", "settings", "says"),
    [
        ("127.0.0.1:1", "a/b", ["t"], {}, "group 'a/b'"),
        ("127.0.0.1:1", "", ["t"], {}, "group ''"),
        ("127.0.0.1:1", "g", ["t/u"], {}, "topic 't/u'"),
        ("127.0.0.1:1", "g", [], {}, "at least one topic"),
        ("127.0.0.1:1", "g", "clicks", {}, "must be a list"),
        ("127.0.0.1:1", "g", ["t"], {"assignors": ()}, "range, roundrobin-0.8, roundrobin-1.0, sticky, or your own"),
        ("127.0.0.1:1", "g", ["t"], {"assignors": ("Fair!",)}, "assignor 'Fair!'"),
        ("127.0.0.1:1", "g", ["t"], {"threads": 0}, "t"),
        ("127.0.0.1:1", "g", ["t"], {"include": "t"}, "not topics and include"),
        ("127.0.0.1:1", "g", [], {"include": "t", "exclude": "u"}, "not include and exclude"),
        ("127.0.0.1:1", "g", [], {"include": " '' "}, "it is empty"),
        ("127.0.0.1:1", "g", [], {"exclude": "(t"}, "exclude .*an invalid regex"),
        ("127.0.0.1:1", "g", [], {"include": "t{1,2}"}, "a ',' means or"),
        ("127.0.0.1:1", "g", [], {"include": "t", "threads": 0}, "threads is 0: pass an integer from 1"),
        ("127.0.0.1:1", "g", ["t"], {"instance": "etl-\N{GRINNING FACE}"}, "instance .* letters, digits"),
        ("127.0.0.1:1", "g", ["t"], {"instance": "a b"}, "instance 'a b': letters, digits"),
        ("127.0.0.1:no", "g", ["t"], {}, "127.0.0.1:no"),
        ("127.0.0.1:1", "g", ["t"], {"zookeeper_config": "zk.conf"}, "'zk.conf'; give what load_config"),
        ("127.0.0.1:1", "g", ["t"], {"bootstrap_servers": "nowhere:0"}, "'nowhere:0' is no broker"),
    ],
)
def test_hopeless_settings_are_refused_at_once(
    zookeeper: str, group: str, topics: Any, settings: dict[str, Any], says: str
) -> None:
    with pytest.raises(UsageError, match=says):
        Consumer(zookeeper, group, topics, **CALLBACKS, **settings)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"coordinator_id": -1}, "coordinator_id is -1: pass an integer from 0 to"),
        ({"layout": "other"}, "no layout 'other'"),
        ({"session_timeout_ms": 0}, "session timeout of 0 ms"),
        ({"zookeeper_config": "zk.conf"}, "'zk.conf'; give what load_config"),
    ],
)
def test_a_coordinator_that_can_never_work_is_refused_at_once(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        Coordinator("127.0.0.1:1", **settings)


def test_only_a_consumer_with_brokers_offers_kafka_and_asks_no_broker_at_first() -> None:
    plain = Consumer("127.0.0.1:1", "g", ["t"], **CALLBACKS)
    assert registered(plain).offsets is None and "offset-store" not in registered(plain).offers
    able = Consumer("127.0.0.1:1", "g", ["t"], **CALLBACKS, bootstrap_servers="127.0.0.1:2", offset_checkpoint_ms=9)
    assert registered(able).offsets == ("zookeeper", "dual", "kafka") and "offset-store" in registered(able).offers
    assert able._log is not None and able._log._store._renewed._held is None
    asked = able._role._settings
    assert (asked.checkpoint_ms, asked.log_patience_ms) == (9, 20_000)


def registered(consumer: Consumer) -> Registration:
    return decode_registration(consumer._role._settings.registration(6_000))


def test_early_stops_are_told_within_a_stop_only() -> None:
    consumer = Consumer("127.0.0.1:1", "g", ["t"], **CALLBACKS)
    with pytest.raises(UsageError, match="within on_stop"):
        consumer.stopped([], {})


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        *(("zookeeper", None), ("zookeeper", b"zk:2181"), ("topics", None), ("topics", 7), ("include", 7)),
        *(("threads", "2"), ("threads", 1.0), ("instance", 7), ("hold_ms", "5"), ("replaces", b"x"), ("rack", 7)),
        *(("capacity", 1.5), ("on_start", None), ("on_stop", "f"), ("on_lost", 7), ("on_replay", "f"), ("reset", 0)),
        *(("session_timeout_ms", "9"), ("session_timeout_ms", 9.5), ("rebalance_timeout_ms", 9.5), ("assignors", 7)),
        *(("bootstrap_servers", 9092), ("kafka_config", "f"), ("offset_checkpoint_ms", "9")),
    ],
)
def test_f63_an_argument_of_a_wrong_type_is_refused_when_the_consumer_is_made(name: str, wrong: Any) -> None:
    right = {"zookeeper": "127.0.0.1:1", "group": "g", "topics": ["t"], **CALLBACKS}
    with pytest.raises(UsageError):
        Consumer(**{**right, name: wrong})


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        *(("zookeeper", 7), ("coordinator_id", "1"), ("coordinator_id", 1.0), ("layout", []), ("journal", 7)),
        *(("session_timeout_ms", "9"), ("group_retention_ms", None), ("on_serving", "print")),
        *(("assignors", ["fair"]), ("assignors", {"fair": 7})),
    ],
)
def test_f63_an_argument_of_a_wrong_type_is_refused_when_the_coordinator_is_made(name: str, wrong: Any) -> None:
    with pytest.raises(UsageError):
        Coordinator(**{"zookeeper": "127.0.0.1:1", name: wrong})


def test_f63_a_call_with_a_wrong_type_is_refused_before_it_reaches_the_membership() -> None:
    """Before the fix, the call went to the membership's thread, which ended with an AttributeError."""
    consumer = Consumer("127.0.0.1:1", "g", ["t"], **CALLBACKS)
    plain: Any = ("t", 0)
    calls: list[Any] = [
        lambda: consumer.commit({plain: 5}),
        lambda: consumer.commit({TopicPartition("t", 1): 5, plain: 5}),
        lambda: consumer.commit(None),  # type: ignore[arg-type]
        lambda: consumer.commit({TopicPartition("t", 0): 5}, {plain: 1}),
        lambda: consumer.commit({TopicPartition("t", 0): 5}, 7),  # type: ignore[arg-type]
        lambda: consumer.announce({plain: (1, 2)}),
        lambda: consumer.announce({TopicPartition("t", 0): (1.0, 2.0)}),  # type: ignore[dict-item]
        lambda: consumer.announce({TopicPartition("t", 0): 5}),  # type: ignore[dict-item]
        lambda: consumer.stopped([plain], {}),
        lambda: consumer.stopped([], {plain: 5}),
        lambda: consumer.allowed(plain),
        lambda: consumer.incarnation(plain),
        *[partial(consumer.reading, wrong) for wrong in ([plain], plain, "t", 5, None)],
        lambda: consumer.report(1.5, 0),  # type: ignore[arg-type]
        lambda: consumer.report(0, "7"),  # type: ignore[arg-type]
        lambda: consumer.join_when(True),  # type: ignore[arg-type]
    ]
    for call in calls:
        with pytest.raises(UsageError):
            call()
    assert consumer._driver.inbox.take() == []


def test_f63_an_answer_with_plain_tuples_is_that_callbacks_error() -> None:
    answers: Any = {"on_stop": lambda p: {("t", 0): 5}, "reset": lambda p: {("t", 0): 5}}
    consumer = Consumer("127.0.0.1:1", "g", ["t"], **{**CALLBACKS, **answers})
    for function in (consumer._worker._callbacks.functions["stop"], consumer._worker._questions.functions["reset"]):
        with pytest.raises(UsageError, match=r"\('t', 0\) is no partition: pass zkcoord\.TopicPartition"):
            function((TopicPartition("t", 0),))


def test_f63_a_ready_that_raises_is_not_ready_and_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """It is called on the membership's thread. Before the fix, its error ended that thread."""
    consumer = Consumer("127.0.0.1:1", "g", ["t"], **CALLBACKS)

    def ready() -> bool:
        raise ValueError("no such file")

    consumer.join_when(ready)
    with caplog.at_level("WARNING", "zkcoord.events"):
        assert [consumer._role.may_join() for _ in range(3)] == [False] * 3
    assert caplog.messages == ['not_ready why="join_when: ValueError: no such file"']


@pytest.mark.parametrize("offset", [-1, -1001, None, "7", 2**63, 1.5])
def test_a_wrong_offset_is_refused_where_it_is_given(offset: Any) -> None:
    consumer = Consumer("127.0.0.1:1", "g", ["t"], **{**CALLBACKS, "on_stop": lambda p: dict.fromkeys(p, offset)})
    partition = TopicPartition("t", 0)
    with pytest.raises(UsageError, match=r"t-0: .* is no offset"):
        consumer.commit({partition: offset})
    with pytest.raises(UsageError, match=r"t-0: .* is no offset"):
        consumer.stopped([partition], {partition: offset})
    with pytest.raises(UsageError, match=r"t-0: .* is no offset"):
        consumer._worker._callbacks.functions["stop"]((partition,))


def test_a_consumer_that_was_never_started_stops_at_once() -> None:
    Consumer("127.0.0.1:1", "g", ["t"], **CALLBACKS).stop()


def test_a_consumer_that_reaches_nobody_still_stops() -> None:
    consumer = Consumer("127.0.0.1:1", "g", ["t"], **CALLBACKS)
    consumer.start()
    consumer.stop()
    assert consumer.consumer_id is None


def test_a_consumer_id_is_never_given_twice() -> None:
    first, second = (new_consumer_id("g", "etl-1") for _ in range(2))
    assert first != second
    assert first.startswith("g_etl-1-")
