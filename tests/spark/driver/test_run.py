"""How a run begins, and how a signal ends it. The warm-up comes before joining; errors in the settings come before
both."""

import itertools
import logging
import os
import signal
from collections.abc import Collection
from functools import partial
from typing import Any

import pytest

from tests.spark.fakes import FakeMembership, Job, World
from zkcoord.core.model import TopicPartition
from zkcoord.errors import RefusedError, UnavailableError, UnknownPartitionError, UsageError
from zkcoord.spark.ports import Limits
from zkcoord.spark.ranges import Batch

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def test_the_session_is_warm_before_the_group_is_joined_and_left_before_the_end(world: World) -> None:
    world.consumer().run(lambda frame, batch: world.events.append("batch"), max_batches=1)
    assert world.events == ["warm t-0-9-10", "join", "batch", "leave"]
    assert world.closed == 2


def test_f224_the_membership_is_told_the_cluster_that_the_first_answer_names(world: World) -> None:
    world.cluster_id = "cluster-2"
    world.consumer().run(lambda frame, batch: None, max_batches=1)
    assert world.member is not None and world.member.cluster_id() == "cluster-2"


def test_the_reader_is_checked_even_when_the_topic_is_missing(world: World) -> None:
    world.ends, world.given = {}, {}
    world.consumer().run(lambda frame, batch: None, idle_timeout_ms=0)
    assert world.events == ["join", "leave"]


def test_a_connector_that_fails_at_the_warm_up_is_reported_with_the_right_coordinate(world: World) -> None:
    def fail(frame: object) -> None:
        raise ValueError(
            "An error occurred while calling o59.save.\n: java.lang.NoClassDefFoundError: org/apache/spark/Other\n"
            "\tat org.apache.spark.sql.kafka010.KafkaScan.toBatch(KafkaSourceProvider.scala:502)"
        )

    with pytest.raises(UsageError) as told:
        world.consumer(warm_up=fail).run(lambda frame, batch: None)
    coordinate = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0"
    assert str(told.value) == (
        "Spark has no usable Kafka connector (NoClassDefFoundError: org/apache/spark/Other): it needs "
        f"{coordinate} with what that depends on; its version must be Spark's (4.0.0). Add it when the session is "
        f'built: SparkSession.builder.config("spark.jars.packages", "{coordinate}"), or spark-submit --packages '
        f"{coordinate}; without network give the jars as spark.jars."
    )
    assert (world.events, world.closed) == ([], 1)


def test_a_kafka_that_tells_its_logs_ends_and_delivers_nothing_is_away(world: World) -> None:
    def fail(frame: object) -> None:
        raise UnavailableError("Traceback:\n  RuntimeError: nothing of t-0 from 9 to 10 for 20000 ms\n  at Some.java")

    world.limits = Limits(warm_up_ms=0)
    with pytest.raises(UnavailableError) as told:
        world.consumer(warm_up=fail).run(lambda frame, batch: None)
    assert str(told.value) == (
        "Kafka does not deliver, try again: RuntimeError: nothing of t-0 from 9 to 10 for 20000 ms"
    )
    assert (world.events, world.closed) == ([], 1)


def test_f168_a_broker_that_does_not_know_the_topic_yet_is_read_again_by_the_warm_up(world: World) -> None:
    tries = itertools.count(1)

    def fail_twice(frame: object) -> None:
        if next(tries) < 3:
            raise UnavailableError("UnknownTopicOrPartitionException")

    world.limits = Limits(away_wait_ms=(1, 1))
    world.consumer(warm_up=fail_twice).run(lambda frame, batch: world.events.append("batch"), max_batches=1)
    assert (world.events, next(tries)) == (["join", "batch", "leave"], 4)


def test_a_consumer_that_is_stopped_while_its_warm_up_finds_kafka_away_joins_no_group(world: World) -> None:
    def fail(frame: object) -> None:
        consumer.stop()
        raise UnavailableError("UnknownTopicOrPartitionException")

    consumer = world.consumer(warm_up=fail)
    assert consumer.run(lambda frame, batch: None) == 0
    assert world.events == []


def test_another_error_of_the_warm_up_is_the_callers(world: World) -> None:
    def fail(frame: object) -> None:
        raise ValueError("java.lang.NoSuchMethodError: my.Table.write()")

    with pytest.raises(ValueError, match=r"my\.Table"):
        world.consumer(warm_up=fail).run(lambda frame, batch: None)
    assert world.events == []


def test_kafka_away_at_the_start_is_told_before_the_group_is_joined(world: World) -> None:
    world.away = True
    with pytest.raises(UnavailableError):
        world.consumer().run(lambda frame, batch: None)
    assert world.events == []


@pytest.mark.parametrize("choices", [{"topics": ["t"]}, {"include": "t.*"}, {"exclude": "u"}])
def test_refused_credentials_are_told_before_the_group_is_joined(
    world: World, monkeypatch: pytest.MonkeyPatch, choices: dict[str, Any]
) -> None:
    def refuse() -> tuple[TopicPartition, ...]:
        raise RefusedError("check the client's credentials")

    monkeypatch.setattr(world, "partitions", refuse)
    with pytest.raises(RefusedError):
        world.consumer(**choices).run(lambda frame, batch: None)
    assert (world.events, world.closed) == ([], 1)


def test_a_wildcard_is_warmed_up_with_a_record_of_what_it_takes(world: World) -> None:
    world.ends |= {TopicPartition("a", 0): 3, TopicPartition("u", 0): 5, TopicPartition("u", 1): 0}
    assert world.consumer(include="u|v").run(lambda frame, batch: None, max_batches=1) == 1
    assert world.events[0] == "warm u-0-4-5"
    assert world.consumer(exclude="a|u").run(lambda frame, batch: None, max_batches=1) == 1
    assert world.events[3] == "warm t-0-9-10"
    assert world.consumer(include="nothing").run(lambda frame, batch: None, max_batches=1) == 1
    assert world.events[6:] == ["join", "leave"]


@pytest.mark.usefixtures("foreground")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_like_stop_and_the_handlers_are_restored(world: World, number: signal.Signals) -> None:
    def process(frame: object, batch: Batch) -> None:
        if batch.seq == 0:
            os.kill(os.getpid(), number)

    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    world.ends = {A: 10, B: 10**9}
    assert world.consumer(max_offsets_per_batch=1).run(process) >= 1
    assert world.events[-1] == "leave"
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


def levels(caplog: pytest.LogCaptureFixture, event: str) -> list[str]:
    """Return the levels at which an event was logged, in order."""
    return [each.levelname for each in caplog.records if getattr(each, "zkcoord_event", "") == event]


@pytest.mark.usefixtures("foreground")
def test_that_a_person_stops_a_run_is_no_warning(world: World, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "zkcoord"):
        world.consumer().run(lambda frame, batch: os.kill(os.getpid(), signal.SIGINT))
    assert levels(caplog, "stopping") == ["INFO"]


def test_that_all_logs_answer_again_is_no_warning(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.while_planning = [partial(setattr, world, "away", away) for away in (True, False)]
    with caplog.at_level(logging.INFO, "zkcoord"):
        world.consumer().run(lambda frame, batch: None, max_batches=1)
    assert levels(caplog, "log_ends") == ["WARNING", "INFO"]


def interrupt(times: int) -> None:
    for _ in range(times):
        os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.usefixtures("foreground")
def test_a_second_sigint_drops_the_batch_and_is_raised_when_the_group_is_left(world: World) -> None:
    job = Job(world)

    def process(frame: object, batch: Batch) -> None:
        interrupt(2)
        job(frame, batch)

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        world.consumer().run(process)
    assert (world.commits, world.lost, world.events[-1]) == ([], 1, "leave")
    assert signal.getsignal(signal.SIGINT) == before


@pytest.mark.usefixtures("foreground")
def test_a_third_sigint_does_not_wait_for_a_batch_that_cannot_be_cancelled(world: World) -> None:
    went_on: list[Batch] = []

    def process(frame: object, batch: Batch) -> None:
        interrupt(3)
        went_on.append(batch)

    with pytest.raises(KeyboardInterrupt):
        world.consumer().run(process)
    assert (went_on, world.commits, world.events[-1]) == ([], [], "leave")


def test_partitions_of_one_start_are_read_in_one_batch(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = itertools.count()
    monkeypatch.setattr(FakeMembership, "allowed", lambda self, partition: next(asked) > 0)
    seen: list[Batch] = []
    assert world.consumer().run(lambda frame, batch: seen.append(batch), max_batches=1) == 1
    assert [str(each) for each in seen[0].ranges] == ["t-0-0-10", "t-1-100-130"]


@pytest.mark.parametrize(
    ("consumer_id", "given", "told"),
    [
        ("g_here-1-aa", {}, "g_here-1-aa is registered: a coordinator must serve, a topic must exist"),
        (None, {}, "it is not registered: ZooKeeper must answer"),
        ("g_here-1-aa", {A: 10}, None),
    ],
)
def test_a_run_that_was_never_given_a_partition_says_so(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    consumer_id: str | None,
    given: dict[TopicPartition, int],
    told: str | None,
) -> None:
    monkeypatch.setattr(FakeMembership, "consumer_id", consumer_id)
    world.given = given
    assert world.consumer().run(lambda frame, batch: None, idle_timeout_ms=0) == 0
    found = [each.message for each in caplog.records if each.__dict__.get("zkcoord_event") == "nothing_held"]
    assert len(found) == (told is not None)
    assert all((told or "") in each for each in found)
    assert world.unheld_told.is_set() is (given == {})


def test_a_topic_that_its_brokers_do_not_know_yet_is_no_reason_not_to_join(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = world.ask_offsets

    def ask(partitions: Collection[TopicPartition], *arguments: Any) -> Any:
        if world.joined.is_set():
            return asked(partitions, *arguments)
        return {}, {each: UnknownPartitionError(f"Kafka does not know {each}", [each]) for each in partitions}

    monkeypatch.setattr(world, "ask_offsets", ask)
    assert world.consumer().run(lambda frame, batch: None, max_batches=1) == 1
