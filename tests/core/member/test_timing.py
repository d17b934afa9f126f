"""The times of a member's commands in its status. No decision depends on them, so other tests compare statuses without
them."""

from __future__ import annotations

from tests.core.member.members import FIRST, ME, NOW, SECOND, T0, T1, T2, Member, commit, start, stop
from zkcoord.core.fast_replace import fast_replace
from zkcoord.core.member.application import FirstRecords
from zkcoord.core.member.decisions import AcknowledgeStarts, AskStart, CommitOffsets, ReleasePartitions
from zkcoord.core.member.timing import COMMANDS_MAX, FIRSTS_MAX, Times
from zkcoord.core.member.told import Named, Told
from zkcoord.core.member.view import MemberView, Position
from zkcoord.core.model import TopicPartition
from zkcoord.core.view import Owner

MADE = 70_000
FREE = Owner("", 1)


def released(member: Member, now_ms: int) -> tuple[Told, ...]:
    """The `timing` entries of the release that is decided now."""
    decision = member.decides(now_ms)[-1]
    assert isinstance(decision, ReleasePartitions)
    assert decision.status is not None
    return decision.status.timing


def told_stop(*partitions: TopicPartition, times: tuple[int, int, int], sequence: str = FIRST) -> Told:
    seen_ms, stopped_ms, committed_ms = (NOW + at_ms for at_ms in times)
    return Told(
        command=Named(sequence, MADE),
        stops=True,
        partitions=frozenset(partitions),
        seen_ms=seen_ms,
        stopped_ms=stopped_ms,
        committed_ms=committed_ms,
    )


def test_a_release_tells_when_its_stop_was_seen_done_and_free_of_commits() -> None:
    member = Member(T0, T1, T2)
    member.finds(fast_replace(stop(T0, T1), made_ms=MADE))
    member.decides(NOW)
    member.called("stop", T0, T1)
    member.decides(NOW + 300)
    member.answers({T0: 8})
    member.has(writing=True)  # a commit is under way
    assert member.decides(NOW + 700) == []
    member.has(writing=False)

    assert released(member, NOW + 740) == (told_stop(T0, T1, times=(0, 700, 740)),)


def test_a_stop_that_is_released_in_parts_tells_of_each_part() -> None:
    member = Member(T0, T1, T2)
    member.finds(fast_replace(stop(T0, T1), made_ms=MADE))
    member.decides(NOW)
    member.called("stop", T0, T1)
    member.answers(((T1,), {T1: 9}), part=True)
    part = told_stop(T1, times=(0, 100, 100))
    assert released(member, NOW + 100) == (part,)
    member.reads({T1: Position(9, 4)}, {T1: FREE})
    member.decides(NOW + 110)
    member.answers({T0: 8})

    assert released(member, NOW + 900) == (part, told_stop(T0, times=(0, 900, 900)))


def test_a_release_that_was_refused_is_told_once_as_it_is_written_again() -> None:
    member = Member(T0)
    member.finds(fast_replace(stop(T0), made_ms=MADE))
    member.decides(NOW)
    member.called("stop", T0)
    member.answers({T0: 8})
    assert released(member, NOW + 10) == (told_stop(T0, times=(0, 10, 10)),)
    member.reads({T0: Position(5, 3)})

    assert released(member, NOW + 90) == (told_stop(T0, times=(0, 10, 90)),)


def test_the_command_counts_as_seen_when_it_was_read_though_it_waits_behind_another() -> None:
    member = Member(T0, T1)
    first, second = stop(T0), fast_replace(stop(T1, sequence=SECOND), made_ms=MADE)
    member.finds(first, second)
    member.decides(NOW)
    member.called("stop", T0)
    member.answers({T0: 8})
    member.decides(NOW + 400)
    member.reads({T0: Position(8, 4)}, {T0: FREE})
    member.finds(second)
    member.decides(NOW + 410)
    member.decides(NOW + 410)
    member.called("stop", T1)
    member.answers({T1: 9})

    assert released(member, NOW + 500)[-1] == told_stop(T1, times=(0, 500, 500), sequence=SECOND)


def reading(member: Member, at_ms: int, *partitions: TopicPartition, number: int = 1) -> None:
    """The application got the first records of these partitions since their start of this number."""
    member.has(firsts=(FirstRecords(dict.fromkeys(partitions, number), NOW + at_ms),))


def holding() -> Member:
    """A member that was granted T0 and T1. It saw the start at NOW, and acknowledged it at NOW + 50."""
    member = Member()
    member.finds(fast_replace(start(T0, T1), made_ms=MADE))
    member.decides(NOW)
    member.reads(dict.fromkeys((T0, T1), Position(5, 3)), dict.fromkeys((T0, T1), Owner(ME, 0)))
    assert [type(each) for each in member.decides(NOW)] == [AskStart]
    member.called("start", T0, T1, number=1)
    member.answers()
    (acknowledged,) = member.decides(NOW + 50)
    assert isinstance(acknowledged, AcknowledgeStarts)
    assert acknowledged.status.timing == (SEEN,)
    member.finds()
    member.decides(NOW + 60)
    assert member.memory.readable == {T0, T1}
    return member


SEEN = Told(command=Named(FIRST, MADE), stops=False, partitions=frozenset({T0, T1}), seen_ms=NOW)


def first(at_ms: int, *partitions: TopicPartition) -> Told:
    at_ms += NOW
    return Told(command=Named(FIRST, MADE), stops=False, partitions=frozenset(partitions), first_record_ms=at_ms)


def test_a_first_record_is_told_with_the_next_commit_and_no_other_commit_writes_the_status() -> None:
    member = holding()
    reading(member, 200, T0)
    assert member.decides(NOW + 210) == []
    member.has(firsts=())
    member.asks(commit({T0: 6}))
    (sent,) = member.decides(NOW + 300)
    assert isinstance(sent, CommitOffsets)
    assert sent.status is not None
    assert (sent.status.held.keys(), sent.status.timing) == ({T0, T1}, (SEEN, first(200, T0)))
    member.reads({T0: Position(5, 3)})  # the multi was refused
    (again,) = member.decides(NOW + 310)
    assert isinstance(again, CommitOffsets)
    assert again.status is not None
    assert again.status.timing == sent.status.timing
    member.reads({T0: Position(6, 4)})
    member.has(status=again.status)
    member.decides(NOW + 320)
    member.asks(commit({T0: 7}))
    (sent,) = member.decides(NOW + 330)
    assert isinstance(sent, CommitOffsets)
    assert sent.status is None


def test_a_commit_leaves_the_status_alone_while_the_channel_is_being_read() -> None:
    member = holding()
    reading(member, 200, T0)
    member.asks(commit({T0: 6}))
    member.has(channel_read=False)
    (sent,) = member.decides(NOW + 300)

    assert isinstance(sent, CommitOffsets)
    assert sent.status is None


def test_a_first_record_of_an_earlier_start_is_not_told() -> None:
    member = holding()
    reading(member, 200, T0, number=7)
    member.decides(NOW + 210)

    assert member.memory.times.told == (SEEN,)


def test_first_records_within_ten_milliseconds_share_an_entry_and_all_are_bounded() -> None:
    view = MemberView()
    many = [TopicPartition("t", n) for n in range(FIRSTS_MAX * 2)]
    command = Named(FIRST, MADE)
    times = Times(started=dict.fromkeys(many, command))
    running = dict.fromkeys(many, 1)
    view = fast_replace(view, application=fast_replace(view.application, running=running))
    times = times.reading(view, [FirstRecords({p: 1}, 1_000 + 5 * n) for n, p in enumerate(many)])
    assert [(each.first_record_ms, len(each.partitions)) for each in times.told[:2]] == [(1_000, 2), (1_010, 2)]
    assert len(times.told) == FIRSTS_MAX
    times = times.reading(view, [FirstRecords({many[0]: 1}, 9_000)])
    assert (len(times.told), times.told[-1].first_record_ms) == (FIRSTS_MAX, 9_000)
    for number in range(COMMANDS_MAX + 3):
        times = times.stopped(view, f"{number:010}", {many[0]: number}, number)
    assert [each.committed_ms for each in times.told if each.stops] == list(range(3, COMMANDS_MAX + 3))
