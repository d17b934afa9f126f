"""Hand-overs as a coordinator sees them in its views and decisions. All times are those of its own clock."""

from zkcoord.core.decisions import GrantPartitions, StopFetching
from zkcoord.core.fast_replace import fast_replace
from zkcoord.core.handovers import MOMENTS, HandOver, KeptHandOvers
from zkcoord.core.model import TopicPartition
from zkcoord.core.state import GroupState
from zkcoord.core.timing import Timing
from zkcoord.core.view import START, STOP, Channel, GroupView, Member, Owner, QueuedCommand

A, B = "g_h-1-aaaaaaaa", "g_h-2-bbbbbbbb"
P = TopicPartition("clicks", 0)
STOPS = StopFetching(consumer_id=A, partitions={P: f"{B}-0"}, why="")
STARTS = GrantPartitions(consumer_id=B, partitions={P: f"{B}-0"}, why="")


def view(owner: str = "", *, command: tuple[str, str] | None = None, members: tuple[str, ...] = (A, B)) -> GroupView:
    """The group with one partition. `command`: the consumer and the option of the outstanding command about the
    partition."""
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

    done = HandOver(
        P, A, B, 7, decided_ms=1_000, sent_ms=1_100, released_ms=1_800, granted_ms=1_810, acknowledged_ms=2_000
    )
    assert (kept.completed, kept.open) == ((done,), {})
    assert (done.begun_ms, done.unowned_ms) == (1_000, 200)
    assert kept.after(view(f"{B}-0"), [], 3_000) == KeptHandOvers()


def test_a_partition_of_a_dead_reader_is_granted_without_a_stop() -> None:
    kept = KeptHandOvers().after(view(f"{A}-0", members=(B,)), [STARTS], 500)
    kept = kept.after(view(f"{B}-0", members=(B,)), [], 700)

    assert kept.completed == (HandOver(P, "", B, 7, released_ms=500, granted_ms=500, acknowledged_ms=700),)


def test_a_giver_that_dies_before_it_obeys_counts_as_having_released() -> None:
    kept = KeptHandOvers().after(view(f"{A}-0"), [STOPS], 100)
    kept = kept.after(view(f"{A}-0", command=(A, STOP), members=(B,)), [STARTS], 900)

    assert kept.open[P] == HandOver(P, A, B, 7, decided_ms=100, released_ms=900, granted_ms=900)


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


def test_hand_overs_of_a_removed_topic_are_not_waited_for() -> None:
    kept = KeptHandOvers().after(view(), [STARTS], 100)
    gone = GroupView(group="g", members=view().members)

    assert kept.after(gone, [], 200).open == {}


# reports of members


def told(
    *entries: Timing, written_ms: int = 0, of: str = A, base: GroupView | None = None, version: int = 2
) -> GroupView:
    """The view with this status of a consumer."""
    seen = base or view()
    channel = fast_replace(seen.channels[of], timing=entries, written_ms=written_ms, version=version)
    return fast_replace(seen, channels={**seen.channels, of: channel})


def stopped(sequence: str, ages: tuple[int, int, int], made_ms: int = 0, numbers: tuple[int, int] = (0, 3)) -> Timing:
    return Timing(sequence, True, made_ms, (("clicks", (numbers,)),), *ages)


def started(sequence: str, seen_ms: int | None, first_ms: int | None = None, made_ms: int = 0) -> Timing:
    return Timing(sequence, False, made_ms, (("clicks", ((0, 0),)),), seen_ms, first_record_ms=first_ms)


def sent() -> KeptHandOvers:
    """A stop that was decided at 1,000 and seen in the channel at 1,020."""
    kept = KeptHandOvers().after(view(f"{A}-0"), [STOPS], 1_000)
    return kept.after(view(f"{A}-0", command=(A, STOP)), [], 1_020)


def moments(kept: KeptHandOvers) -> list[int | None]:
    (each,) = kept.open.values()
    return [getattr(each, name) for name in MOMENTS[:6]]


def test_the_givers_times_count_back_from_its_status_by_zookeepers_clock() -> None:
    """The command was written at 70,000, and the status 780 ms later. The coordinator sees the status after another 20
    ms."""
    kept = sent().after(told(stopped("0000000001", (700, 50, 0), made_ms=70_000), written_ms=70_780), [], 1_800)

    assert moments(kept) == [1_000, 1_020, 1_080, 1_730, 1_780, 1_800]


def test_without_zookeepers_clock_ages_count_back_from_when_they_were_seen() -> None:
    for made_ms, written_ms in ((0, 0), (70_000, 60_000), (70_000, 90_000)):
        entry = stopped("0000000001", (700, 50, 0), made_ms=made_ms)
        kept = sent().after(told(entry, written_ms=written_ms), [], 1_800)

        assert moments(kept) == [1_000, 1_020, 1_100, 1_750, 1_800, 1_800]


def test_nothing_is_seen_before_it_is_sent_however_late_the_coordinator_took_in_that_it_was() -> None:
    """The coordinator is busy: it handles the answer at 1,900, long after the consumer has seen the stop."""
    kept = KeptHandOvers().after(view(f"{A}-0"), [STOPS], 1_000)
    kept = kept.after(view(f"{A}-0", command=(A, STOP)), [], 1_900)
    kept = kept.after(told(stopped("0000000001", (60, 20, 0), made_ms=70_000), written_ms=70_100), [], 1_920)
    assert moments(kept) == [1_000, 1_860, 1_860, 1_900, 1_920, 1_920]

    unseen = KeptHandOvers().after(view(f"{A}-0"), [STOPS], 1_000)  # obeyed before the coordinator looked
    unseen = unseen.after(told(stopped("0000000001", (60, 20, 0), made_ms=70_000), written_ms=70_100), [], 1_920)
    assert moments(unseen) == [1_000, 1_040, 1_040, 1_080, 1_100, 1_920]


def test_a_member_that_tells_nothing_has_only_the_moments_that_the_coordinator_sees() -> None:
    assert moments(sent().after(view(), [], 1_800)) == [1_000, 1_020, None, None, None, 1_800]


def test_times_of_earlier_stops_and_other_partitions_are_ignored() -> None:
    before = told(stopped("0000000001", (9_000, 8_000, 7_000)), base=view(f"{A}-0"))
    kept = KeptHandOvers().after(before, [STOPS], 1_000)
    entries = (
        stopped("0000000001", (100, 90, 80)),
        stopped("0000000002", (50, 40, 30), numbers=(1, 9)),
        started("0000000003", 10),
    )
    assert moments(kept.after(told(*entries), [], 1_800)) == [1_000, None, None, None, None, 1_800]
    mine = (*entries, stopped("0000000002", (500, 40, 0)))
    assert moments(kept.after(told(*mine), [], 1_800)) == [1_000, 1_300, 1_300, 1_760, 1_800, 1_800]


def granted() -> KeptHandOvers:
    """A partition that was granted at 500 without a stop."""
    return KeptHandOvers().after(view(), [STARTS], 500)


def test_the_taker_tells_when_it_saw_the_start_and_later_its_first_record() -> None:
    entry = started("0000000001", 30, made_ms=70_000)
    kept = granted().after(told(entry, of=B, base=view(f"{B}-0"), written_ms=70_080), [], 600)
    (done,) = kept.completed
    assert (done.granted_ms, done.start_seen_ms, done.acknowledged_ms) == (500, 550, 600)
    assert [(stage.name, [part.name for part in stage.parts]) for stage in done.stages()] == [
        ("grant", []),
        ("start", ["start_see", "prepare"]),
    ]

    again = told(entry, of=B, base=view(f"{B}-0"), written_ms=70_080)
    kept = kept.after(again, [], 700)
    assert kept.after(again, [], 800) is kept
    first = started("0000000001", None, 4_000, made_ms=70_000)
    kept = kept.after(told(entry, first, of=B, base=view(f"{B}-0"), written_ms=75_000, version=3), [], 5_600)
    assert kept.amended == (done._replace(first_record_ms=1_500),)
    assert kept.after(view(f"{B}-0"), [], 6_000) == KeptHandOvers()


def test_a_first_record_that_is_told_with_the_acknowledgement_is_known_at_once() -> None:
    both = started("0000000001", 100), started("0000000001", None, 20)
    kept = granted().after(told(*both, of=B, base=view(f"{B}-0")), [], 600)

    assert ([each.first_record_ms for each in kept.completed], kept.reading) == ([600], {})


def test_no_first_record_is_awaited_of_what_has_gone_on() -> None:
    entry = started("0000000001", 30)
    kept = granted().after(told(entry, of=B, base=view(f"{B}-0")), [], 600)
    assert list(kept.reading) == [B]
    assert kept.after(told(entry, of=B, base=view(f"{A}-0"), version=3), [], 700).reading == {}
    assert kept.after(view(f"{B}-0", members=(A,)), [], 700).reading == {}
