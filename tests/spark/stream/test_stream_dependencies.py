"""The streaming source's state of its partitions: which ranges are complete, and how far a query that shall end
reads."""

from __future__ import annotations

from typing import Any

import pytest

from tests.spark.fakes import FakeMembership, World
from zkcoord.core.model import Starting, TopicPartition
from zkcoord.errors import UnavailableError
from zkcoord.spark.ranges import Batch, OffsetRange
from zkcoord.spark.stream.dependencies import StreamDependencies, StreamPositions
from zkcoord.spark.stream.handover import Handover
from zkcoord.spark.stream.offsets import offset_of, ranges_in
from zkcoord.spark.stream.options import stream_options
from zkcoord.spark.stream.source import Source

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_f102_a_checkpoints_range_is_not_committed_over_another_members_progress() -> None:
    """The partition is lost, read further elsewhere and started again, while the commit is on its way."""

    def lose_and_give_back() -> None:
        world.member.lose(P0)
        world.member.give({P0: 7})

    world = World()
    world.given, world.ends, world.before_commit = {P0: 0}, {P0: 10}, [lose_and_give_back]
    done = offset_of("before", "g", Batch(id="", seq=0, generation=7, ranges=(OffsetRange("t", 0, 0, 4),)), {})
    asked = {"zookeeper": "zk", "kafka.bootstrap.servers": "k:1", "group": "g", "subscribe": "t"}
    source = Source(stream_options(asked), world, "run")
    assert source.tasks(done, done) == []
    assert ranges_in(source.latest(None)) == (OffsetRange("t", 0, 7, 10),)
    source.stop()
    assert world.commits == []


def never(*_: object) -> Any:
    raise AssertionError("nobody calls this")


def member_of(known: StreamPositions, **callbacks: Any) -> FakeMembership:
    """Return a membership whose callbacks change `known` first, and then call the given ones."""
    dependencies = StreamDependencies(World(), "g", Handover(), known)
    names = ("on_start", "on_stop", "on_lost", "on_replay", "reset")
    member = dependencies.membership(**{name: callbacks.get(name, never) for name in names})
    assert isinstance(member, FakeMembership)
    return member


def test_a_query_that_shall_end_does_not_wait_for_a_partition_that_failed_to_start() -> None:
    def on_start(positions: Any) -> None:
        if P0 in positions:
            raise UnavailableError("a commit of an earlier ownership is still under way")

    known = StreamPositions()
    member = member_of(known, on_start=on_start)
    known.end_at_present()
    known.heard({P0: 10, P1: 5})
    member.give({P1: 5})
    with pytest.raises(UnavailableError):
        member.give({P0: 0})
    assert known.enough


def complete(start: int, end: int, incarnation: int = 0) -> OffsetRange:
    """Note a range of P0 as complete, by a checkpoint."""
    return OffsetRange("t", 0, start, end, incarnation)


@pytest.mark.parametrize(
    ("written", "now", "position"),
    [(1, 2, 0), (2, 1, 0), (1, 1, 4), (0, 2, 4), (1, 0, 4)],  # 0: nobody knows
)
def test_a_complete_range_of_a_topic_that_was_created_again_is_not_passed_over(
    written: int, now: int, position: int
) -> None:
    known = StreamPositions()
    known.recover([complete(0, 4, written)])
    assert known.started(Starting({P0: 0}, 1, {P0: now})) == {P0: position}


def test_a_passed_complete_range_is_read_again_when_its_offset_is_set_back() -> None:
    known = StreamPositions()
    known.recover([complete(0, 4)])
    assert known.started(Starting({P0: 7}, 1, {})) == {P0: 7}
    known.lost([P0])
    assert known.started(Starting({P0: 0}, 2, {})) == {P0: 0}


def test_f102_a_restarted_partition_keeps_no_other_of_the_checkpoint_from_its_commit() -> None:
    def lose_and_give_back() -> None:
        member.lose(P0)
        member.give({P0: 7})

    known, world = StreamPositions(), World()
    held = {TopicPartition("t", number): 0 for number in range(3)}
    known.recover([OffsetRange("t", number, 0, 4) for _, number in held])
    member = StreamDependencies(world, "g", Handover(), known).membership(
        on_start=lambda positions: None, on_stop=never, on_lost=lambda lost: None, on_replay=never, reset=never
    )
    assert isinstance(member, FakeMembership)
    member.give(held)
    world.before_commit = [lose_and_give_back]
    known.commit(member)
    known.commit(member)
    assert world.commits == [{each: 4} for each in held if each != P0]


def test_a_query_that_shall_end_does_not_wait_for_partitions_that_others_have() -> None:
    """The partitions are lost, stopped, or given back before the stop is over. A partition whose end is not known still
    counts."""
    known = StreamPositions()
    seen: list[tuple[str, bool]] = []

    def on_stop(partitions: Any, stopped: Any) -> Any:
        stopped((P0,), {P0: 0})
        seen.append(("given back early", known.enough))
        return {}

    member = member_of(known, on_start=lambda positions: None, on_stop=on_stop, on_lost=lambda partitions: None)
    known.end_at_present()
    known.heard({P1: 5})
    member.give({P0: 0, P1: 5})
    seen.append(("its end is not known", known.enough))
    known.heard({P0: 10, P1: 5})
    seen.append(("it is not read", known.enough))
    member.take(P0)
    member.give({P0: 0})
    known.heard({P0: 10})
    member.lose(P0)
    seen.append(("lost", known.enough))
    member.give({P0: 0})
    known.heard({P0: 10})
    assert seen == [
        ("its end is not known", False),
        ("it is not read", False),
        ("given back early", True),
        ("lost", True),
    ]
    assert not known.enough


def test_a_query_that_shall_end_does_not_wait_for_a_stopped_partition() -> None:
    known = StreamPositions()
    member = member_of(known, on_start=lambda positions: None, on_stop=lambda partitions, stopped: {P0: 0})
    known.end_at_present()
    member.give({P0: 0, P1: 5})
    known.heard({P0: 10, P1: 5})
    assert not known.enough
    member.take(P0)
    assert known.enough


def test_a_query_that_shall_end_reads_to_the_first_known_end_of_the_present_topic() -> None:
    known = StreamPositions()
    known.end_at_present()
    member = member_of(known, on_start=lambda positions: None, on_lost=lambda partitions: None)
    member.give({P0: 0, P1: 5})
    known.heard({P0: 10, P1: 5})
    known.heard({P0: 20, P1: 30})
    known.done([complete(0, 10)])
    assert known.enough
    member.lose(P0)
    assert P0 not in known.ends  # `query.lastProgress` tells of logs that are held
    member.give({P0: 0})
    known.heard({P0: 3})
    assert not known.enough
    known.done([complete(0, 3)])
    assert known.enough


def test_checkpointed_offsets_are_not_committed_without_a_lease() -> None:
    known, world = StreamPositions(), World()
    known.recover([complete(0, 4)])
    dependencies = StreamDependencies(world, "g", Handover(), known)
    member = dependencies.membership(
        on_start=lambda positions: None, on_stop=never, on_lost=never, on_replay=never, reset=never
    )
    assert isinstance(member, FakeMembership)
    member.give({P0: 0})
    world.leased = False
    known.commit(member)
    assert world.commits == []
    world.leased = True
    known.commit(member)
    known.commit(member)
    assert world.commits == [{P0: 4}]


def test_whether_a_batch_may_be_read_is_asked_of_the_membership() -> None:
    handover = Handover()
    dependencies = StreamDependencies(World(), "g", handover, StreamPositions())
    member = dependencies.membership(
        on_start=lambda positions: None, on_stop=never, on_lost=never, on_replay=never, reset=never
    )
    assert isinstance(member, FakeMembership)
    assert not handover.allowed(P0)
    member.give({P0: 0})
    assert handover.allowed(P0)
