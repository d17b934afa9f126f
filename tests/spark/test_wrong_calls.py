"""Arguments that can never work are refused when the consumer is made or `run` is called. The error names the argument,
and says what is expected."""

from __future__ import annotations

import re
from inspect import Parameter, signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import zkcoord.spark
from tests.spark.fakes import World
from zkcoord.errors import UsageError
from zkcoord.spark import SparkConsumer
from zkcoord.spark.stream.options import stream_options

RIGHT: dict[str, Any] = {
    "zookeeper": "zk:2181/kafka",
    "bootstrap_servers": "k:9092",
    "group": "etl",
    "topics": ["clicks"],
}
OPTIONS = {"zookeeper": "zk", "kafka.bootstrap.servers": "k:1", "group": "g", "subscribe": "t"}


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"max_offset_per_batch": 5}, "has no option max_offset_per_batch; is max_offsets_per_batch meant"),
        ({"max_offsets": 5}, r"no option max_offsets; is max_offsets_per_batch or max_offsets_per_task meant\?"),
        ({"maxOffsetsPerTrigger": 5}, r"no option maxOffsetsPerTrigger; is max_offsets_per_batch meant\?"),
        ({"colour": "red"}, "has no option colour; it has announce, assignors, at_rebalance"),
        ({"max_offsets_per_batch": "1000"}, "max_offsets_per_batch is '1000': pass an integer of 1 or more"),
        ({"max_offsets_per_batch": 10.5}, "max_offsets_per_batch is 10.5: pass an integer"),
        ({"max_offsets_per_batch": None}, "max_offsets_per_batch is None: pass an integer"),
        ({"max_offsets_per_task": True}, "max_offsets_per_task is True: pass an integer"),
        ({"threads": 0}, "threads is 0: pass an integer from 1 to 65536"),
        ({"session_timeout_ms": "10000"}, "session_timeout_ms is '10000': pass an integer"),
        ({"rebalance_timeout_ms": None}, "rebalance_timeout_ms is None: pass an integer"),
        ({"capacity": 0}, "capacity is 0: pass an integer from 1 to 2147483647"),
        ({"announce": "false"}, "announce is 'false': pass True or False"),
        ({"include_headers": 1}, "include_headers is 1: pass True or False"),
        ({"on_report": "print"}, "on_report is 'print': pass a function"),
        ({"config": "a=b"}, "config is 'a=b': pass a mapping of Kafka settings"),
        ({"config": {"foo.bar": "1"}}, 'No such configuration property: "foo.bar"; check the Kafka client'),
        ({"config": {"kafka.foo.bar": "1"}, "reader": "python"}, 'No such configuration property: "foo.bar"'),
        (
            {"config": {"librdkafka.fetch.min.bytes": "few"}},
            'Invalid value for configuration property "fetch.min.bytes"',
        ),
        ({"rack": 7}, "rack is 7: pass a text"),
        ({"reader": "jar"}, "reader is 'jar': pass 'kafka' or 'python'"),
        ({"at_stop": None}, "at_stop is None: pass 'finish' or 'cancel'"),
        ({"min_batch_ms": 9, "max_batch_ms": 5}, "max_batch_ms is 5; it must lie between min_batch_ms"),
        ({"starting_offsets": {"klicks": "earliest"}}, "names the topic 'klicks', which is not read: clicks "),
        ({"assignors": "sticky"}, "assignors must be a list of names"),
        ({"hold_ms": 5}, "give this consumer an instance"),
        ({"instance": "a/b"}, "instance 'a/b': letters, digits"),
        ({"zookeeper_config": "zk.conf"}, "zookeeper_config is 'zk.conf'; give what load_config"),
        ({"zookeeper": None}, "zookeeper is None; it must be text"),
        ({"zookeeper": "http://zk:2181"}, "it is no URL; write HOST:PORT"),
        ({"zookeeper": "zk:port"}, "'port' is no port"),
        ({"bootstrap_servers": ["k:9092"]}, r"bootstrap_servers is \['k:9092'\]; it must be text"),
        ({"bootstrap_servers": "http://k:9092"}, "is no broker; write HOST:PORT"),
        ({"group": "my group"}, "group 'my group': letters, digits"),
        ({"topics": "clicks"}, "topics must be a list"),
        ({"topics": []}, "topics must be a list"),
        ({"topics": ["my clicks"]}, "topic 'my clicks': letters, digits"),
        ({"topics": [None]}, "topic None: letters, digits"),
        ({"topics": {"clicks": "two"}}, "the threads of clicks is 'two': pass an integer from 1 to 65536"),
        ({"include": "c.*"}, "name topics, or give include"),
        ({"topics": [], "include": "("}, "an invalid regex"),
    ],
)
def test_a_wrong_argument_is_told_when_the_consumer_is_made(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        SparkConsumer(None, **{**RIGHT, **wrong})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "right",
    [
        {"starting_offsets": {"clicks": "earliest", "*": "latest"}},
        {"max_batch_ms": None, "max_offsets_per_task": None, "config": None, "instance": None},
        {"assignors": ["mine"]},
        {"topics": {"clicks": 3}},
        {"topics": [], "include": "c.*", "starting_offsets": {"any": "earliest"}},
        {"config": {"kafka.max.poll.records": "5", "kafka.fetch.max.wait.ms": "9"}, "reader": "python"},
        {"config": {"kafka.metrics.num.samples": "5"}},
        {"config": {"security.protocol": "SASL_SSL", "ssl.ca.location": "/not/yet/there"}},
    ],
)
def test_a_right_one_is_not(right: dict[str, Any]) -> None:
    SparkConsumer(None, **{**RIGHT, **right})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((None,), "process is None; it must be a function of a DataFrame and a Batch"),
        ((print, "5"), "max_batches is '5': pass an integer of 0 or more"),
        ((print, None, -1), "idle_timeout_ms is -1: pass an integer of 0 or more"),
    ],
)
def test_a_wrong_argument_of_run_is_told_before_the_group_is_joined(
    world: World, arguments: tuple[Any, ...], told: str
) -> None:
    with pytest.raises(UsageError, match=told):
        world.consumer().run(*arguments)
    assert world.events == []


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"zookeeper": ""}, "option zookeeper is missing"),
        ({"group": ""}, "option group is missing"),
        ({"kafka.group.id": "other"}, "give one of them"),
        ({"subscribe": ""}, "say what to read"),
        ({"subscribepattern": "t.*"}, "say what to read"),
        ({"startingoffsets": "latest", "startingtimestamp": "5"}, "give startingOffsets or startingTimestamp"),
        ({"startingoffsets": '{"t":{"0":23}}'}, "its offsets in ZooKeeper say"),
        ({"startingtimestamp": "noon"}, "must be a whole number"),
        ({"includeheaders": "yes"}, "must be true or false"),
        ({"outofrange": "never"}, "option outOfRange is 'never'"),
        ({"maxoffsetspertrigger": "0"}, "option maxOffsetsPerTrigger is 0: pass an integer of 1 or more"),
        ({"group": "my group"}, "group 'my group': letters, digits"),
        ({"subscribe": "a,b c"}, "topic 'b c': letters, digits"),
        ({"startingoffsets": '{"klicks":"earliest"}'}, "names the topic 'klicks', which is not read: t "),
        ({"zookeeper": "http://zk"}, "it is no URL"),
        ({"kafka.bootstrap.servers": "k:port"}, "'k:port' is no broker"),
        ({"instance": "a b"}, "instance 'a b': letters, digits"),
        ({"minpartitions": "9"}, "use maxRecordsPerPartition"),
        ({"kafka.auto.offset.reset": "latest"}, "use startingOffsets"),
        ({"kafka.enable.auto.commit": "true"}, "leave it out"),
        ({"kafka.max.poll.records": "5"}, "leave it out"),
        ({"kafka.isolation.level": "none"}, "must be read_committed or read_uncommitted"),
        ({"kafka.foo.bar": "1"}, 'No such configuration property: "foo.bar"; check the Kafka client'),
        ({"rows": "offsets"}, "option rows is 'offsets'; it must be records or ranges"),
        ({"rows": "ranges", "kafka.enable.auto.commit": "true"}, "leave it out"),
        ({"colour": "red"}, "has no option colour; it has announce"),
        ({"max_offsets": "5"}, r"no option max_offsets; is maxOffsetsPerTrigger or maxRecordsPerPartition meant\?"),
        ({"holdms2": "5"}, r"has no option holdms2; is holdMs meant\?"),
    ],
)
def test_a_wrong_option_of_a_query_says_what_to_use(options: dict[str, str], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        stream_options({**OPTIONS, **options})


SINKS = [name for name in zkcoord.spark.__all__ if name.startswith("write_")]


@pytest.mark.parametrize("name", SINKS)
def test_a_sink_refuses_what_is_no_batch_before_all_else(name: str) -> None:
    sink = getattr(zkcoord.spark, name)
    needed = [each for each in signature(sink).parameters.values() if each.default is Parameter.empty]
    given = {each.name: "x" for each in needed} | {"df": SimpleNamespace(columns=[]), "batch": 3}
    with pytest.raises(UsageError, match=r"batch is 3; give what `process` of a SparkConsumer is given"):
        sink(**given)


def test_every_sink_has_a_row_in_the_table_of_sinks() -> None:
    page = (Path(__file__).parents[2] / "docs/consumers.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)", page, re.MULTILINE)
    assert [name for name in SINKS if name not in rows] == []
