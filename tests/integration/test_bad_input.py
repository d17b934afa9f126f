"""What nobody can read is named, with who must act; all else goes on. Coordinator, members and ZooKeeper are real."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain

import pytest

from tests.integration.world import Member, World, named
from tests.waiting import wait_until
from zkcoord import TopicPartition
from zkcoord.core.record import DEFAULT_RECORD
from zkcoord.core.state import GroupState
from zkcoord.tree.paths import BROKERS, DRAFT
from zkcoord.tree.record import encode_record
from zkcoord.tree.state import encode_state

pytestmark = pytest.mark.zookeeper

P0, P1 = TopicPartition("clicks", 0), TopicPartition("clicks", 1)
ALL = named("clicks", 0, 1, 2, 3)
MENDED_SECONDS = 20.0  # it is a matter of milliseconds; without its watch the node would be read after 30 s


@pytest.fixture
def world(chroot: str) -> Iterator[World]:
    """Kafka's nodes, a topic of four partitions and a coordinator that serves."""
    with World(chroot) as world:
        world.put(BROKERS)
        world.topic("clicks", 4)
        world.coordinate()
        yield world


def settled(*members: Member) -> bool:
    """Whether these share the four partitions evenly."""
    held = [member.held() for member in members]
    return sorted(chain.from_iterable(held)) == ALL and len({len(partitions) for partitions in held}) == 1


# registrations

GARBAGE = {
    "empty": b"",
    "text": b"clicks",
    "bytes": b"\xff\xfe\x00",
    "list": b"[]",
    "number": b'{"version":1,"subscription":{"clicks":"two"},"pattern":"static","timestamp":"1"}',
}


def test_a_registration_that_nobody_can_parse_stops_nobody(world: World) -> None:
    paths = {DRAFT.registration("g", f"g_old-1-{name}"): data for name, data in GARBAGE.items()}
    for path, data in paths.items():
        world.put(path, data)

    first, other = world.join("g", "clicks"), world.join("other", "clicks")
    wait_until(lambda: settled(first) and settled(other), "both groups read")
    second = world.join("g", "clicks")
    wait_until(lambda: settled(first, second), "the group is rebalanced")

    told = world.reports.paths("unreadable")
    assert told.keys() == paths.keys()
    assert all(why.endswith("its owner must register again correctly") for why in told.values())


def test_a_registration_that_nobody_can_parse_comes_and_goes_without_moving_anything(world: World) -> None:
    member = world.join("g", "clicks")
    wait_until(lambda: settled(member), "the group reads")
    before = world.data(DRAFT.state("g"))
    path = DRAFT.registration("g", "g_old-1-text")

    world.put(path, b"clicks")
    wait_until(lambda: path in world.reports.paths("unreadable"), "it is told")
    world.remove(path)
    world.topic("clicks", 5)  # what is decided after all that

    wait_until(lambda: member.held() == [*ALL, "clicks-4"], "the new partition is read, too")
    generations = [json.loads(data)["generation"] for data in (before, world.data(DRAFT.state("g")))]
    assert generations == [1, 2]


# owners


@pytest.mark.parametrize("data", [b"\xff\xfe\x00", b"somebody", b'{"thread":1}'])
def test_an_owner_that_nobody_can_parse_is_left_alone_until_an_operator_empties_it(world: World, data: bytes) -> None:
    path = DRAFT.owner("g", P0)
    world.put(path, data)

    first, other = world.join("g", "clicks"), world.join("other", "clicks")
    wait_until(lambda: first.held() == named("clicks", 1, 2, 3) and settled(other), "all else is read")
    wait_until(lambda: path in world.reports.paths("unreadable"), "it is told")

    assert "an operator must set it empty" in world.reports.paths("unreadable")[path]
    assert world.data(path) == data
    world.put(path, b"")
    wait_until(lambda: settled(first), "the mended one is read, too")


@pytest.mark.parametrize(
    "place",
    [
        "record",
        "state",
    ],
)
def test_a_group_whose_record_or_state_nobody_can_parse_is_left_alone_until_it_is_mended(
    world: World, place: str
) -> None:
    good = {DRAFT.record("g"): encode_record(DEFAULT_RECORD), DRAFT.state("g"): encode_state(GroupState())}
    path = {"record": DRAFT.record("g"), "state": DRAFT.state("g")}[place]
    world.make({**good, path: b"{nonsense"})  # a record alone would be given a state at once

    first, other = world.join("g", "clicks"), world.join("other", "clicks")
    wait_until(lambda: settled(other), "the other group reads")
    wait_until(lambda: path in world.reports.paths("unreadable"), "it is told")

    assert "an operator must" in world.reports.paths("unreadable")[path]
    assert (first.held(), world.data(path)) == ([], b"{nonsense")
    world.put(path, good[path])
    wait_until(lambda: settled(first), "the mended one reads, too", MENDED_SECONDS)


def test_a_record_that_nobody_can_parse_is_told_also_before_the_group_has_a_state(world: World) -> None:
    path = DRAFT.record("g")
    world.put(path, b"{nonsense")

    first, other = world.join("g", "clicks"), world.join("other", "clicks")
    wait_until(lambda: settled(other), "the other group reads")
    wait_until(lambda: path in world.reports.paths("unreadable"), "it is told", MENDED_SECONDS)

    world.put(path, encode_record(DEFAULT_RECORD))
    wait_until(lambda: settled(first), "the mended one reads, too")


# commands

NOT_UNDERSTOOD = {
    "version": {"version": 9, "option": "stop-fetcher"},
    "option": {"version": 1, "option": "dance", "ownershipMap": {"clicks-0": ""}},
    "text": b"stop!",
}


@pytest.mark.parametrize("kind", NOT_UNDERSTOOD)
def test_f48_a_command_from_the_future_is_refused_and_removed_and_the_next_is_obeyed(world: World, kind: str) -> None:
    first = world.join("g", "clicks")
    wait_until(lambda: settled(first), "the group reads")
    channel = DRAFT.channel("g", first.consumer.consumer_id or "")

    world.append(channel, NOT_UNDERSTOOD[kind])
    wait_until(lambda: bool(world.reports.of("command_removed")), "the coordinator removes it")

    assert settled(first)
    (refused,) = world.reports.of("command_refused")
    assert refused["path"].startswith(f"{channel}/0") and refused["why"]
    wait_until(lambda: world.children(channel) == [], "command and mark are gone")
    second = world.join("g", "clicks")
    wait_until(lambda: settled(first, second), "stops and starts are obeyed")


def test_a_refused_command_stays_with_its_error_and_a_mark_until_a_coordinator_comes(chroot: str) -> None:
    with World(chroot) as world:
        world.topic("clicks", 4)
        coordinator = world.coordinate()
        member = world.join("g", "clicks")
        wait_until(lambda: settled(member), "the group reads")
        channel = DRAFT.channel("g", member.consumer.consumer_id or "")
        coordinator.stop()

        world.append(channel, {"version": 9, "option": "stop-fetcher"})
        world.append(channel, {"version": 1, "option": "stop-fetcher", "ownershipMap": {"clicks-0": ""}})
        wait_until(lambda: member.held() == named("clicks", 1, 2, 3), "the second command is obeyed")
        sequence, mark = world.children(channel)

        assert (mark, json.loads(world.data(f"{channel}/{sequence}"))["command"]["version"]) == ("refused", 9)
        assert "this program reads up to 1" in world.data(f"{channel}/{sequence}").decode()
        world.coordinate()
        wait_until(lambda: settled(member) and world.children(channel) == [], "all is as it should be")


# topics


@pytest.mark.parametrize(
    ("data", "who"),
    [
        (b'{"version":1,"partitions":{}}', "its creator must add some"),
        (b"", "its creator must add some"),
        (None, "there is no such topic: create it"),
    ],
)
def test_a_topic_without_partitions_keeps_nobody_waiting_and_is_read_once_it_has_some(
    world: World, data: bytes | None, who: str
) -> None:
    if data is not None:
        world.put("/brokers/topics/views", data)
    both, alone = world.join("g", "clicks", "views"), world.join("other", "views")
    wait_until(lambda: both.held() == ALL, "the other topic is read")
    stable = [("g", "Stable"), ("other", "Stable")]
    wait_until(lambda: set(stable) <= {(r["group"], r["state"]) for r in world.reports.of("rebalance_stable")}, "rest")
    assert who in world.reports.paths("unreadable")["/brokers/topics/views"]

    world.topic("views", 2)

    wait_until(lambda: both.held() == [*ALL, *named("views", 0, 1)], "they are read beside the others")
    wait_until(lambda: alone.held() == named("views", 0, 1), "they are read by the other group")


def test_a_topic_that_nobody_can_parse_is_told_and_read_once_it_is_mended(world: World) -> None:
    world.put("/brokers/topics/views", b"{nonsense")
    member = world.join("g", "clicks", "views")
    wait_until(lambda: member.held() == ALL, "the other topic is read")

    why = world.reports.paths("unreadable")["/brokers/topics/views"]
    assert "the broker or an operator must mend it" in why
    world.topic("views", 1)
    wait_until(lambda: member.held() == [*ALL, "views-0"], "it is read, too")


# offsets


def test_f34_an_offset_that_is_no_number_keeps_its_partition_only_and_only_until_it_is_mended(world: World) -> None:
    path = DRAFT.offset("g", P1)
    world.put(path, b"forty-two")
    world.put(DRAFT.offset("g", P0), b"7\n")

    member, other = world.join("g", "clicks"), world.join("other", "clicks")
    wait_until(lambda: member.held() == named("clicks", 0, 2, 3) and settled(other), "all else is read")
    wait_until(lambda: bool(world.reports.of("start_refused")), "it is told")

    refused = world.reports.of("start_refused")[0]
    assert refused["partitions"] == ["clicks-1"]
    assert refused["why"].startswith(f"unreadable offset: {path}: bad offset 'forty-two'")
    assert refused["why"].endswith("an operator must set the offset")
    assert (member.begun[P0], world.data(path)) == (7, b"forty-two")
    world.put(path, b"42")
    wait_until(lambda: settled(member), "the mended one is read, too")
    assert member.begun[P1] == 42
