"""What the streaming source knows of its partitions: what is complete, and how far a query that shall end reads."""

from __future__ import annotations

from typing import Any

import pytest

from tests.spark.fakes import FakeMembership, World
from zkcoord.core.model import TopicPartition
from zkcoord.errors import UnavailableError
from zkcoord.spark.ranges import Batch, OffsetRange
from zkcoord.spark.stream.handover import Handover
from zkcoord.spark.stream.offsets import offset_of, ranges_in
from zkcoord.spark.stream.options import stream_options
from zkcoord.spark.stream.parts import StreamParts, StreamPositions
from zkcoord.spark.stream.source import Source

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_what_a_checkpoint_has_is_not_committed_over_what_another_member_went_on_to_meanwhile() -> None:
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
    """A membership whose callbacks tell `known`; the given ones are behind them."""
    parts = StreamParts(World(), "g", Handover(), known)
    names = ("on_start", "on_stop", "on_lost", "on_replay", "reset")
    member = parts.membership(**{name: callbacks.get(name, never) for name in names})
    assert isinstance(member, FakeMembership)
    return member


def test_a_query_that_shall_end_does_not_wait_for_a_partition_that_could_not_be_started() -> None:
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
