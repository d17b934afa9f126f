"""F20 and topics created again on a real ZooKeeper: a list larger than `jute.maxbuffer`, and what a limit says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.world import World, named
from tests.waiting import wait_until
from zkcoord.core.model import TopicPartition
from zkcoord.shell.zk import connection
from zkcoord.tree.paths import BROKERS, DRAFT, TOPICS
from zkcoord.tree.topic import decode_mark
from zkcoord.tree.writes import CreateNode, Transaction

pytestmark = pytest.mark.zookeeper

GROUP = "g"
MANY = 10_000
AT_ONCE = 500
LONG = "x" * 120  # so that the list has 1.3 MB
BEGUN_SECONDS = 240.0


@pytest.fixture
def world(chroot: str) -> Iterator[World]:
    """A tree of its own, with Kafka's nodes."""
    with World(chroot) as made:
        made.put(BROKERS)
        made.put(TOPICS)
        yield made


def make_topics(world: World, names: list[str]) -> None:
    """Topics of one partition each, many in one transaction."""
    data = b'{"version":1,"partitions":{"0":[1]}}'
    for first in range(0, len(names), AT_ONCE):
        writes = tuple(CreateNode(f"{TOPICS}/{name}", data) for name in names[first : first + AT_ONCE])
        done = world.tree.commit(Transaction(writes=writes))
        assert not done.reason, done


def test_f20_ten_thousand_topics_are_listed_in_one_reply_and_read_by_one_wildcard(world: World) -> None:
    make_topics(world, [f"{LONG}-{n}" for n in range(MANY)])
    make_topics(world, ["other"])
    world.coordinate()
    members = [world.join(GROUP, include=f"{LONG}-[0-9]+") for _ in range(2)]

    def held() -> int:
        return sum(len(member.held()) for member in members)

    wait_until(
        lambda: [len(member.held()) for member in members] == [MANY // 2] * 2, "all topics are read", BEGUN_SECONDS
    )
    make_topics(world, [f"{LONG}-{MANY}", "another"])
    wait_until(lambda: held() == MANY + 1, "one topic more")
    assert world.children(DRAFT.owners(GROUP)) == sorted(f"{LONG}-{n}" for n in range(MANY + 1))


def test_f20_a_list_that_is_too_long_is_named_and_who_names_topics_goes_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.topic("t", 2)
    make_topics(world, [f"{LONG}-{n}" for n in range(200)])
    monkeypatch.setattr(connection, "FRAME_BYTES_MAX", 20_000)
    world.coordinate()
    wait_until(lambda: TOPICS in world.reports.paths("unreadable"), "it is named")
    assert "an operator must remove some of what is there" in world.reports.paths("unreadable")[TOPICS]

    member = world.join(GROUP, "t")
    wait_until(lambda: member.held() == named("t", 0, 1), "who names its topics is served")
    assert len([fields for fields in world.reports.of("unreadable") if fields["path"] == TOPICS]) == 1


def test_f41_a_topic_that_is_created_again_starts_anew(world: World) -> None:
    world.topic("t", 4)
    world.coordinate()
    member = world.join(GROUP, "t")
    wait_until(lambda: member.held() == named("t", 0, 1, 2, 3), "all is read")
    member.consumer.commit({TopicPartition("t", n): 100 + n for n in range(4)})
    world.remove(f"{TOPICS}/t")
    world.topic("t", 2)
    mark = DRAFT.mark(GROUP, "t")

    def incarnation() -> int:
        found = decode_mark(world.data(mark))
        return found.incarnation if found is not None else 0

    wait_until(lambda: incarnation() == 2, "another mark")
    wait_until(lambda: member.held() == named("t", 0, 1), "the new topic is read")
    [dropped] = world.reports.of("topic_dropped")
    assert dropped["offsets"] == {f"t-{n}": str(100 + n) for n in range(4)}
    assert world.children(mark) == ["0", "1"]
    wait_until(lambda: [member.begun[TopicPartition("t", n)] for n in range(2)] == [0, 0], "by the reset policy")
    assert world.children(DRAFT.topic_offsets(GROUP, "t")) == ["0", "1"]


def test_f50_a_mark_of_another_tree_is_written_anew_and_nothing_is_dropped(world: World) -> None:
    world.topic("t", 2)
    first = world.coordinate()
    member = world.join(GROUP, "t")
    wait_until(lambda: member.held() == named("t", 0, 1), "all is read")
    member.consumer.commit({TopicPartition("t", n): 100 + n for n in range(2)})
    first.stop()
    mark = DRAFT.mark(GROUP, "t")
    as_it_is = world.data(mark)
    world.put(mark, b'{"version":1,"incarnation":1,"topic_id":null,"czxid":"1","root_czxid":"2"}')
    world.coordinate()
    wait_until(lambda: world.data(mark) == as_it_is, "the mark is written anew")
    assert member.held() == named("t", 0, 1)
    assert world.reports.of("topic_dropped") == []
    assert [world.data(DRAFT.offset(GROUP, TopicPartition("t", n))) for n in range(2)] == [b"100", b"101"]
