"""ZooKeeper names a partition that Kafka does not know (yet). Its start is tried again, and counts as a fault only if
the partition stays unknown."""

from __future__ import annotations

from tests.sim.field import START
from tests.sim.script import GROUP, Script, on_seeds
from zkcoord.core.member.starts import UNKNOWN_MS
from zkcoord.core.model import TopicPartition

NEW = [TopicPartition("t", number) for number in range(4, 8)]
LATE = NEW[3]


def grown(seed: int, *ignorant: str, consumers: int = 3) -> Script:
    """The topic gets four more partitions. The brokers of the named consumers do not know the last one."""
    script = Script(seed, consumers=consumers)
    script.settle()
    for name in ignorant:
        script.application(name).unknown.add(LATE)
    script.grow("t", 8)
    return script


def reasons(script: Script) -> list[str]:
    """The reasons of refused starts, in order."""
    return [told.fields["why"] for told in script.world.events("start_refused")]


@on_seeds()
def test_partitions_unknown_to_kafka_hold_up_nothing_and_blame_nobody(seed: int) -> None:
    script = grown(seed, "consumer0", "consumer1", "consumer2")
    world = script.world
    world.run_until(lambda: bool(reasons(script)), 20_000, "it is refused")
    world.run_until(lambda: all((GROUP, p) in script.field.holdings for p in NEW[:3]), 20_000, "the others are read")
    world.run_for(UNKNOWN_MS // 2)
    assert {why.partition(":")[0] for why in reasons(script)} == {"broker"}
    receivers = {write.path for t in script.commands_sent(START, LATE) for write in t.commands(START, LATE)}
    assert len(receivers) == 1  # it is tried again at the same consumer
    for number in range(3):
        script.application(f"consumer{number}").unknown.clear()
    script.settle()
    assert script.state()["quarantined"] == {}
    assert script.field.evicted == {}
    script.calm()


@on_seeds()
def test_a_partition_unknown_to_one_consumer_for_a_minute_goes_to_another(seed: int) -> None:
    """The consumer's credentials lack a right, or it was given the brokers of another cluster."""
    script = grown(seed, "consumer0", "consumer1", consumers=2)
    world = script.world
    world.run_until(lambda: bool(reasons(script)), 20_000, "it is refused")
    ignorant = world.events("start_refused")[0].client.partition("#")[0]
    other = "consumer1" if ignorant == "consumer0" else "consumer0"
    script.application(other).unknown.clear()
    began_ms = world.now_ms
    world.run_until(lambda: script.owner(LATE) == script.member(other), 60_000, "the other reads it")
    assert world.now_ms > began_ms + UNKNOWN_MS
    assert reasons(script)[-1].startswith("reset: Kafka does not know")
    world.run_until(lambda: not script.outstanding(), 20_000, "all is started")
    script.calm()


@on_seeds()
def test_a_partition_unknown_to_every_kafka_is_quarantined(seed: int) -> None:
    script = grown(seed, "consumer0", "consumer1", "consumer2")
    world = script.world
    world.run_until(lambda: str(LATE) in script.state()["quarantined"], 200_000, "it is quarantined")
    assert world.now_ms > 3 * UNKNOWN_MS
    assert "Kafka does not know" in script.state()["quarantined"][str(LATE)]["why"]
    assert list(script.state()["quarantined"]) == [str(LATE)]
    world.run_until(lambda: all((GROUP, p) in script.field.holdings for p in NEW[:3]), 20_000, "the others are read")
    script.calm()
