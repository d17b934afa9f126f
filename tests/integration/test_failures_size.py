"""Failure cases of size on a real ZooKeeper (docs/failures.md): many commands in a channel, large multis."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from tests.integration.world import PATIENCE_SECONDS, World
from tests.waiting import wait_until
from zkcoord import Consumer, TopicPartition
from zkcoord.coordinator import Coordinator
from zkcoord.core.command import Command, Option
from zkcoord.tree.command import decode_command, encode_command
from zkcoord.tree.paths import BROKERS, DRAFT
from zkcoord.tree.writes import CreateNode, Transaction

pytestmark = pytest.mark.zookeeper

GROUP = "g"
WAVES, COMMANDS = 120, 5_000
GRANTS_AT_ONCE = 500
LONG_TOPIC = "t" * 200
PARTITIONS = 3_000


@pytest.fixture
def world(chroot: str) -> Iterator[World]:
    """A tree of its own."""
    with World(chroot) as made:
        yield made


class Stuck:
    """A member whose first start is not obeyed before `go_on`; `begun` are the partitions in the order of starting."""

    def __init__(self, zookeeper: str) -> None:
        self.go_on = threading.Event()
        self.begun: list[int] = []
        self.consumer = Consumer(
            *(zookeeper, GROUP, ["t"]),
            on_start=self._start,
            on_stop=lambda partitions: {},
            on_lost=lambda partitions: None,
            reset=lambda partitions: dict.fromkeys(partitions, 0),
        )

    def _start(self, positions: Mapping[TopicPartition, int]) -> None:
        assert self.go_on.wait(PATIENCE_SECONDS)
        self.begun.extend(sorted(partition.partition for partition in positions))


@contextmanager
def stuck_member(world: World) -> Iterator[tuple[Stuck, Coordinator, str]]:
    """The group's only member has its first start, of the topic's only partition, in its channel; with its id."""
    world.put(BROKERS)
    world.topic("t", 1)
    first = world.coordinate()
    stuck = Stuck(world.zookeeper)
    with stuck.consumer as consumer:
        wait_until(lambda: consumer.consumer_id is not None, "it is a member")
        consumer_id = str(consumer.consumer_id)
        wait_until(lambda: len(world.children(DRAFT.channel(GROUP, consumer_id))) == 1, "the first start")
        yield stuck, first, consumer_id


def test_f09_a_channel_of_many_commands_is_taken_over_as_it_is_and_drained_in_order(world: World) -> None:
    """One start is not obeyed, and the topic grows and grows: a command each time; another coordinator adds none."""
    with stuck_member(world) as (stuck, first, consumer_id):
        channel = DRAFT.channel(GROUP, consumer_id)
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
        stuck.go_on.set()
        wait_until(lambda: world.children(channel) == [], "drained")
        assert stuck.begun == list(range(WAVES))
        assert {command.option for command in named} == {Option.START_FETCHER}


def test_f09_thousands_of_commands_at_a_restart_are_obeyed_in_order_and_none_is_added(world: World) -> None:
    """A coordinator had granted 5,000 partitions one by one, each with a start of its own, when another one comes."""
    with stuck_member(world) as (stuck, first, consumer_id):
        channel = DRAFT.channel(GROUP, consumer_id)
        first.stop()
        grant(world, consumer_id, range(1, COMMANDS))
        world.topic("t", COMMANDS)
        told = len(world.reports.of("group_phase"))
        world.coordinate()
        wait_until(lambda: len(world.reports.of("group_phase")) > told, "the new one has read the group")
        assert len(world.children(channel)) == COMMANDS
        stuck.go_on.set()
        wait_until(lambda: world.children(channel) == [], "drained", 2 * PATIENCE_SECONDS)
        assert stuck.begun == list(range(COMMANDS))
        assert world.reports.of("session_lost") == []


def grant(world: World, consumer: str, numbers: range) -> None:
    """What a coordinator writes that grants these one by one."""
    thread = f"{consumer}-0"
    for begin in range(numbers.start, numbers.stop, GRANTS_AT_ONCE):
        writes: list[CreateNode] = []
        for number in range(begin, min(begin + GRANTS_AT_ONCE, numbers.stop)):
            partition = TopicPartition("t", number)
            start = Command(
                option=Option.START_FETCHER,
                ownership={partition: thread},
                owner_versions={partition: 0},
                generation=1,
                epoch=1,
                offsets="zookeeper",
                incarnations={"t": 1},
            )
            writes.append(CreateNode(DRAFT.owner(GROUP, partition), thread.encode()))
            writes.append(CreateNode(DRAFT.channel(GROUP, consumer), encode_command(start), sequential=True))
        done = world.tree.commit(Transaction(writes=tuple(writes)))
        assert not done.reason, done


def test_f19_thousands_of_partitions_with_long_names_go_to_one_member_and_back(world: World) -> None:
    """3,000 partitions, names of 200 characters: more than a megabyte in one multi; nothing is refused or lost."""
    world.put(BROKERS)
    world.topic(LONG_TOPIC, PARTITIONS)
    world.coordinate()
    first = world.join(GROUP, LONG_TOPIC)
    wait_until(lambda: len(first.held()) == PARTITIONS, "the first has all")
    second = world.join(GROUP, LONG_TOPIC)
    wait_until(lambda: len(second.held()) == len(first.held()) == PARTITIONS // 2, "they share")
    first.consumer.stop()
    wait_until(lambda: len(second.held()) == PARTITIONS, "the second has all")
    assert world.reports.of("session_lost") == []
    assert world.reports.of("write_refused") == []
