"""What the public classes refuse before they do anything: what can never work is a UsageError that says what is
allowed."""

from __future__ import annotations

from typing import Any

import pytest

from zkcoord import Consumer, Coordinator, TopicPartition, UsageError
from zkcoord.consumer import new_consumer_id

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
        ("127.0.0.1:1", "g", [], {"include": "t", "threads": 0}, "0 threads"),
        ("127.0.0.1:1", "g", ["t"], {"instance": "etl-\N{GRINNING FACE}"}, "printable characters"),
        ("127.0.0.1:no", "g", ["t"], {}, "127.0.0.1:no"),
        ("127.0.0.1:1", "g", ["t"], {"zookeeper_config": "zk.conf"}, "'zk.conf'; give what load_config"),
    ],
)
def test_what_can_never_work_is_refused_at_once(
    zookeeper: str, group: str, topics: Any, settings: dict[str, Any], says: str
) -> None:
    with pytest.raises(UsageError, match=says):
        Consumer(zookeeper, group, topics, **CALLBACKS, **settings)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"coordinator_id": -1}, "coordinator id -1: choose one from 0 to"),
        ({"layout": "other"}, "no layout 'other'"),
        ({"session_timeout_ms": 0}, "session timeout of 0 ms"),
        ({"zookeeper_config": "zk.conf"}, "'zk.conf'; give what load_config"),
    ],
)
def test_a_coordinator_that_can_never_work_is_refused_at_once(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        Coordinator("127.0.0.1:1", **settings)


def test_what_is_stopped_early_is_said_within_a_stop_only() -> None:
    consumer = Consumer("127.0.0.1:1", "g", ["t"], **CALLBACKS)
    with pytest.raises(UsageError, match="within on_stop"):
        consumer.stopped([], {})


@pytest.mark.parametrize("offset", [-1, -1001, None, "7", 2**63, 1.5])
def test_what_is_no_offset_is_refused_where_it_is_given(offset: Any) -> None:
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
