"""Hand-overs as a coordinator's views and decisions show them; times are its own clock."""

from zkcoord.core.decisions import GrantPartitions, StopFetching
from zkcoord.core.handovers import HandOver, KeptHandOvers
from zkcoord.core.model import TopicPartition
from zkcoord.core.state import GroupState
from zkcoord.core.view import START, STOP, Channel, GroupView, Member, Owner, QueuedCommand

A, B = "g_h-1-aaaaaaaa", "g_h-2-bbbbbbbb"
P = TopicPartition("clicks", 0)
STOPS = StopFetching(consumer_id=A, partitions={P: f"{B}-0"}, why="")
STARTS = GrantPartitions(consumer_id=B, partitions={P: f"{B}-0"}, why="")


def view(owner: str = "", *, command: tuple[str, str] | None = None, members: tuple[str, ...] = (A, B)) -> GroupView:
    """The group with one partition; `command`: the consumer and the option of what is outstanding about it."""
    queued = {
        c: (QueuedCommand(sequence="0000000001", version=0, option=command[1], threads={P: ""}),)
        for c in (A, B)
        if command is not None and command[0] == c
    }
    return GroupView(
        group="g",
        members={c: Member(consumer_id=c, czxid=n) for n, c in enumerate(members)},
        channels={c: Channel(consumer_id=c, version=1, commands=queued.get(c, ())) for c in (A, B)},
        owners={P: Owner(owner, 1)},
        topics={"clicks": (0,)},
        state=GroupState(generation=7),
    )


def test_a_move_has_each_of_its_stages_at_the_moment_when_the_coordinator_saw_it() -> None:
    kept = KeptHandOvers().after(view(f"{A}-0"), [STOPS], 1_000)
    kept = kept.after(view(f"{A}-0", command=(A, STOP)), [], 1_100)
    kept = kept.after(view(), [], 1_800)
    kept = kept.after(view(), [STARTS], 1_810)
    kept = kept.after(view(f"{B}-0", command=(B, START)), [], 1_850)
    assert kept.completed == ()
    kept = kept.after(view(f"{B}-0"), [], 2_000)

    done = HandOver(P, A, B, 7, stop_ms=1_000, released_ms=1_800, granted_ms=1_810, acknowledged_ms=2_000)
    assert (kept.completed, kept.open) == ((done,), {})
    assert (done.begun_ms, done.unowned_ms) == (1_000, 200)
    assert kept.after(view(f"{B}-0"), [], 3_000) == KeptHandOvers()


def test_a_partition_of_a_dead_reader_is_granted_without_a_stop() -> None:
    kept = KeptHandOvers().after(view(f"{A}-0", members=(B,)), [STARTS], 500)
    kept = kept.after(view(f"{B}-0", members=(B,)), [], 700)

    assert kept.completed == (HandOver(P, "", B, 7, None, released_ms=500, granted_ms=500, acknowledged_ms=700),)


def test_a_giver_that_dies_before_it_obeys_counts_as_having_released() -> None:
    kept = KeptHandOvers().after(view(f"{A}-0"), [STOPS], 100)
    kept = kept.after(view(f"{A}-0", command=(A, STOP), members=(B,)), [STARTS], 900)

    assert kept.open[P] == HandOver(P, A, B, 7, stop_ms=100, released_ms=900, granted_ms=900)


def test_a_start_that_is_refused_leaves_the_partition_without_a_reader_until_another_obeys() -> None:
    kept = KeptHandOvers().after(view(), [STARTS], 100)
    kept = kept.after(view(), [], 200)
    assert kept.open[P] == HandOver(P, "", "", 7, released_ms=100)
    kept = kept.after(view(), [STARTS], 5_000)
    kept = kept.after(view(f"{B}-0"), [], 5_100)

    assert [each.unowned_ms for each in kept.completed] == [5_000]


def test_a_stop_that_its_consumer_refused_is_no_hand_over_any_more() -> None:
    kept = KeptHandOvers().after(view(f"{A}-0"), [STOPS], 100)

    assert kept.after(view(f"{A}-0"), [], 200) == KeptHandOvers()


def test_what_a_topic_takes_along_when_it_goes_is_not_waited_for() -> None:
    kept = KeptHandOvers().after(view(), [STARTS], 100)
    gone = GroupView(group="g", members=view().members)

    assert kept.after(gone, [], 200).open == {}
