"""Failure cases of size on a real ZooKeeper (docs/failures.md): many commands in a channel, large multis."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tests.integration.world import World, wait_until
from zkcoord import Consumer, TopicPartition
from zkcoord.tree.command import Option, decode_command
from zkcoord.tree.paths import BROKERS, DRAFT

pytestmark = pytest.mark.zookeeper

GROUP = "g"
WAVES = 120
LONG_TOPIC = "t" * 200
PARTITIONS = 3_000


@pytest.fixture
def world(chroot: str) -> Iterator[World]:
    """A tree of its own."""
    with World(chroot) as made:
        yield made


def test_f09_a_channel_of_many_commands_is_taken_over_as_it_is_and_drained_in_order(world: World) -> None:
    """One start is not obeyed, and the topic grows and grows: a command each time; another coordinator adds none."""
    world.put(BROKERS)
    world.topic("t", 1)
    first = world.coordinate()
    go_on, begun = threading.Event(), list[int]()

    def start(positions: dict[TopicPartition, int]) -> None:
        assert go_on.wait(60)
        begun.extend(sorted(partition.partition for partition in positions))

    consumer = Consumer(
        *(world.zookeeper, GROUP, ["t"]),
        on_start=start,  # type: ignore[arg-type]
        on_stop=lambda partitions: {},
        on_lost=lambda partitions: None,
        reset=lambda partitions: dict.fromkeys(partitions, 0),
    )
    with consumer:
        wait_until(lambda: consumer.consumer_id is not None, "it is a member")
        channel = DRAFT.channel(GROUP, str(consumer.consumer_id))
        wait_until(lambda: len(world.children(channel)) == 1, "the first start")
        for wave in range(2, WAVES + 1):
            world.topic("t", wave)
            wait_until(lambda wave=wave: len(world.children(channel)) == wave, "one command more")  # type: ignore[misc]
        first.stop()
        told = len(world.reports.of("group_phase"))
        world.coordinate()
        wait_until(lambda: len(world.reports.of("group_phase")) > told, "the new one has read the group")
        named = [decode_command(world.data(f"{channel}/{name}")) for name in world.children(channel)]
        assert [sorted(p.partition for p in command.ownership or ()) for command in named] == [
            [n] for n in range(WAVES)
        ]
        go_on.set()
        wait_until(lambda: world.children(channel) == [], "drained")
        assert begun == list(range(WAVES))
        assert {command.option for command in named} == {Option.START_FETCHER}


def test_f19_thousands_of_partitions_with_long_names_go_to_one_member_and_back(world: World) -> None:
    """3,000 partitions, names of 200 characters: more than a megabyte in one multi; nothing is refused or lost."""
    world.put(BROKERS)
    world.topic(LONG_TOPIC, PARTITIONS)
    world.coordinate()
    first = world.join(GROUP, LONG_TOPIC)
    wait_until(lambda: len(first.held()) == PARTITIONS, "the first has all", 60)
    second = world.join(GROUP, LONG_TOPIC)
    wait_until(lambda: len(second.held()) == len(first.held()) == PARTITIONS // 2, "they share", 60)
    first.consumer.stop()
    wait_until(lambda: len(second.held()) == PARTITIONS, "the second has all", 60)
    assert world.reports.of("session_lost") == []
    assert world.reports.of("write_refused") == []
