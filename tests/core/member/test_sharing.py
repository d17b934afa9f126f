"""A member in a mixed group: it follows the old members' plan by itself, without a command."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.core.member.members import ME, NOW, T0, T1, T2, T3, Member, Roomy, commit, start
from zkcoord.core.fast_replace import fast_replace
from zkcoord.core.former_owners import FormerOwners
from zkcoord.core.member.application import CallKind
from zkcoord.core.member.decisions import (
    AcknowledgeStarts,
    AnswerRequest,
    AskStart,
    AskStop,
    ClaimPartitions,
    CommitOffsets,
    Decision,
    LetGo,
    LookUp,
    LosePartitions,
    ReadAgain,
    ReadStatuses,
    ReleasePartitions,
    Report,
    Versions,
)
from zkcoord.core.member.log import CommitLog
from zkcoord.core.member.memory import PLANNED
from zkcoord.core.member.neighbours import ALONE, EARLY_MS, Neighbours
from zkcoord.core.member.starts import PUT_OFF_MS
from zkcoord.core.member.view import NOBODY, Position
from zkcoord.core.mode import GroupMode, Mode
from zkcoord.core.model import TopicPartition
from zkcoord.core.view import Owner
from zkcoord.errors import FencedError, UnavailableError

OLD = "g_old-0"
PATIENCE_MS = 6_000
LATE_MS = 90_000
STOPPED_BY_MS = NOW + PATIENCE_MS - EARLY_MS


def beside(*share: TopicPartition, free: tuple[TopicPartition, ...] = (), since_ms: int = NOW) -> Neighbours:
    """A mixed group whose plan gives this member these partitions, some of which are free."""
    plan = {p: ME if p in share else OLD for p in (T0, T1, T2, T3)}
    mode = GroupMode(mode=Mode.MIXED, old=frozenset({"g_old"}), plan=plan, patience_ms=PATIENCE_MS)
    return Neighbours(
        mode=mode,
        share=dict.fromkeys(share, ME),
        since_ms=since_ms,
        free=frozenset(free),
        incarnations={"t": 3},
        record_version=7,
        former=FormerOwners(earlier=None, earlier_until_ms=NOW + LATE_MS),
    )


def member(*held: TopicPartition, neighbours: Neighbours) -> Member:
    """A member of a mixed group, where owners are claims."""
    found = Member(*held)
    found.memory = fast_replace(
        found.memory, held={p: mine._replace(owner_version=1) for p, mine in found.memory.held.items()}
    )
    found.has(claims=True, neighbours=neighbours, owners=dict.fromkeys(held, Owner(ME, 1)))
    return found


def kinds(decisions: list[Decision]) -> list[type]:
    """The types of the decisions."""
    return [type(decision) for decision in decisions]


def claiming(
    *partitions: TopicPartition,
    at: Mapping[TopicPartition, Position] | None = None,
) -> Member:
    """A member that has claimed these partitions, and whose application runs them. They are not acknowledged yet."""
    found = member(neighbours=beside(*partitions, free=partitions))
    assert kinds(found.decides()) == [LookUp]
    positions = at or dict.fromkeys(partitions, Position(7, 2))
    found.reads(positions, dict.fromkeys(partitions, NOBODY))
    assert found.decides() == [ClaimPartitions(partitions=dict.fromkeys(partitions, ME))]
    found.reads(positions, dict.fromkeys(partitions, Owner(ME, 1)))
    assert found.decides() == [ReadStatuses()]
    (asked,) = found.decides()
    assert isinstance(asked, AskStart)
    assert asked.incarnations == dict.fromkeys(partitions, 3)
    found.called("start", *partitions, number=1)
    found.answers()
    return found


def acknowledging(found: Member) -> AcknowledgeStarts:
    """The decision that acknowledges the claims."""
    (decision,) = found.decides()
    assert isinstance(decision, AcknowledgeStarts)
    return decision


def acknowledged(*partitions: TopicPartition) -> Member:
    """A member that holds these partitions by the plan."""
    found = claiming(*partitions)
    sent = acknowledging(found)
    found.has(status=sent.status)
    found.reads(dict.fromkeys(partitions, Position(7, 3)))
    found.decides()
    assert found.memory.held.keys() == set(partitions)
    return found


def test_a_free_own_share_is_claimed_and_acknowledged_without_a_command() -> None:
    found = claiming(T0, T1)
    sent = acknowledging(found)
    set_to = (7, Versions(1, 2))
    assert (sent.commands, sent.record_version, sent.first) == ({}, 7, {T0: set_to, T1: set_to})
    assert sent.status.held.keys() == {T0, T1}
    assert not found.memory.held  # the outcome is not known yet
    found.has(status=sent.status)
    found.reads({T0: Position(7, 3), T1: Position(7, 3)})
    found.decides()
    assert {p: (h.thread, h.offset, h.offset_version, h.incarnation) for p, h in found.memory.held.items()} == {
        T0: (ME, 7, 3, 3),
        T1: (ME, 7, 3, 3),
    }


def test_the_store_of_a_claim_is_the_records_unless_another_one_holds_something_or_kafka_is_not_known() -> None:
    """Beside old members no command names the store. Without a start there is only the record's store."""
    kafka = fast_replace(beside(T0, T1, free=(T1,)), store="kafka", old_store="kafka")
    log = CommitLog(tree="5e0b", patience_ms=PATIENCE_MS, checkpoint_ms=NOW)
    for held, brokers, store in (((), log, "kafka"), ((T0,), log, "zookeeper"), ((), None, "zookeeper")):
        found = member(*held, neighbours=kafka)
        found.has(log=brokers)
        assert kinds(found.decides()) == [LookUp]
        assert found.memory.store.name == store


def test_an_acknowledgement_that_was_refused_is_tried_again_from_what_is_read_then() -> None:
    found = claiming(T0)
    acknowledging(found)
    found.has(status=None)
    assert found.decides() == [ReadAgain(partitions=(T0,), parents=True)]
    found.reads({T0: Position(9, 4)}, {T0: Owner(ME, 1)})  # the earlier owner's last commit came in between
    assert found.decides() == [ReadStatuses()]  # that owner may have announced, too
    (asked,) = found.decides()
    assert isinstance(asked, AskStart)
    assert asked.positions == {T0: 9}
    assert not found.memory.held


def test_nothing_is_claimed_that_is_not_free_or_not_its_own_share() -> None:
    assert member(neighbours=beside(T0)).decides() == []
    assert member(neighbours=ALONE).decides() == []
    assert member(neighbours=Neighbours(mode=GroupMode(mode=Mode.OBSERVE), free=frozenset({T0}))).decides() == []
    waiting = GroupMode(mode=Mode.MIXED, grace_ends_ms=NOW + 1)
    assert member(T0, neighbours=Neighbours(mode=waiting)).decides() == []


def test_a_partition_that_another_claimed_first_is_retried_a_second_later() -> None:
    found = member(neighbours=beside(T0, free=(T0,)))
    found.decides()
    found.reads({T0: Position(7, 2)}, {T0: Owner(OLD, 0)})
    told = found.decides()
    assert kinds(told) == [LetGo, Report]
    assert found.memory.start is None
    assert found.decides(NOW + PUT_OFF_MS - 1) == []
    assert kinds(found.decides(NOW + PUT_OFF_MS)) == [LookUp]


def test_an_unstartable_partition_is_given_back_and_put_off() -> None:
    found = member(neighbours=beside(T0, free=(T0,)))
    found.decides()
    found.reads({T0: Position(7, 2)}, {T0: NOBODY})
    found.decides()
    found.reads({T0: Position(7, 2)}, {T0: Owner(ME, 1)})
    found.decides()
    found.decides()
    found.called("start", T0, number=1)
    found.answers(error=UnavailableError("no broker"))
    sent = acknowledging(found)
    assert (sent.refused, sent.first, sent.status.refused) == ({T0: Versions(1, 2)}, {}, {})
    found.has(status=sent.status)  # the status says the same as before, which proves nothing
    assert kinds(found.decides()) == [ReadAgain]
    found.reads({T0: Position(7, 2)}, {T0: Owner(ME, 1)})
    assert acknowledging(found).refused == {T0: Versions(1, 2)}
    found.reads({T0: Position(7, 2)}, {T0: NOBODY})
    assert LetGo in kinds(found.decides())
    assert found.memory.put_off == {T0: NOW + PUT_OFF_MS}


def test_partitions_planned_for_others_are_released_the_rest_runs_on() -> None:
    found = member(T0, T1, neighbours=beside(T0))
    assert found.decides() == [AskStop(partitions=(T1,))]
    found.called("stop", T1)
    found.answers({T1: 9})
    (released,) = found.decides()
    assert isinstance(released, ReleasePartitions)
    assert (released.held.keys(), released.offsets, released.commands) == ({T1}, {T1: 9}, {})
    assert released.status is not None
    assert released.status.held.keys() == {T0}
    found.reads({T1: Position(9, 4)}, {T1: NOBODY})
    found.decides()  # T1 is gone
    found.decides()  # and the stop is over
    assert (set(found.memory.held), found.memory.stop) == ({T0}, None)
    assert found.view.application.running.keys() == {T0}
    assert found.decides() == []


def test_another_thread_of_its_own_is_another_owner() -> None:
    shared = beside(T0)
    found = member(T0, neighbours=fast_replace(shared, share={T0: f"{ME[:-1]}1"}))
    assert found.decides() == [AskStop(partitions=(T0,))]
    found.called("stop", T0)
    assert found.decides(NOW + 10 * PATIENCE_MS) == []  # no old member waits for this partition


def test_f97_a_partition_not_stopped_in_time_is_lost_and_released_without_a_commit() -> None:
    found = member(T0, T1, neighbours=beside(T0))
    found.decides()
    found.called("stop", T1)
    assert found.decides(STOPPED_BY_MS - 1) == []
    late = found.decides(STOPPED_BY_MS)
    assert kinds(late) == [LosePartitions, Report]
    assert late[0] == LosePartitions(partitions=(T1,), ignored=CallKind.STOP)
    found.has(application=found.view.application.lost((T1,), CallKind.STOP))
    (released,) = found.decides(STOPPED_BY_MS)
    assert isinstance(released, ReleasePartitions)
    assert (released.held.keys(), released.offsets) == ({T1}, {})
    before = found.view.application
    assert before.answered(1, {T1: 99}, None, part=False) is before  # the application's later answer does not count


def test_f108_a_commit_of_what_was_not_stopped_in_time_is_refused_and_one_of_the_rest_is_not() -> None:
    found = member(T0, T1, neighbours=beside(T0))
    found.decides()
    found.called("stop", T1)
    found.asks(commit({T0: 8, T1: 8}), commit({T0: 9}))
    late = found.decides(STOPPED_BY_MS)
    refused = [decision for decision in late if isinstance(decision, AnswerRequest)]
    assert [(each.number, each.error) for each in refused] == [(1, FencedError)]
    found.has(requests=found.view.requests[1:])
    found.has(application=found.view.application.lost((T1,), CallKind.STOP))
    (released,) = found.decides(STOPPED_BY_MS)
    assert isinstance(released, ReleasePartitions)
    assert (released.held.keys(), released.offsets) == ({T1}, {})
    found.reads(owners={T1: NOBODY})
    found.decides(STOPPED_BY_MS)
    (sent,) = [each for each in found.decides(STOPPED_BY_MS) if isinstance(each, CommitOffsets)]
    assert sent.offsets == {T0: 9}


def test_f97_the_deadline_counts_from_the_change_that_made_the_plan_and_no_plan_has_none() -> None:
    found = member(T0, T1, neighbours=beside(T0, since_ms=NOW - PATIENCE_MS))
    found.decides()
    found.called("stop", T1)
    assert kinds(found.decides()) == [LosePartitions, Report]
    commanded = member(T0, neighbours=ALONE)
    commanded.has(leaving=True)
    commanded.decides()
    commanded.called("stop", T0)
    assert commanded.decides(NOW + 10 * PATIENCE_MS) == []


def test_f97_partitions_stopped_early_in_the_call_are_released_with_their_offsets() -> None:
    found = member(T0, T1, neighbours=beside())
    found.decides()
    found.called("stop", T0, T1)
    found.answers(((T0,), {T0: 8}), part=True)
    (early,) = found.decides()
    assert isinstance(early, ReleasePartitions)
    assert early.offsets == {T0: 8}
    found.reads({T0: Position(8, 4)}, {T0: NOBODY})
    found.decides()
    late = found.decides(STOPPED_BY_MS)
    assert late[0] == LosePartitions(partitions=(T1,), ignored=CallKind.STOP)


def test_a_begun_start_is_acknowledged_and_others_partitions_are_released_again() -> None:
    found = member(neighbours=beside())
    found.finds(start(T0, versions=None))
    assert kinds(found.decides()) == [LookUp]
    found.reads({T0: Position(7, 2)}, {T0: NOBODY})
    assert kinds(found.decides()) == [ClaimPartitions]
    found.reads({T0: Position(7, 2)}, {T0: Owner(ME, 1)})
    found.decides()
    found.called("start", T0, number=1)
    found.answers()
    sent = acknowledging(found)
    assert (sent.commands, sent.record_version) == ({"0000000000": 0}, None)
    found.finds()
    found.reads({T0: Position(7, 3)})
    assert found.decides()[-1:] != [AskStop(partitions=(T0,))]
    assert found.decides() == [AskStop(partitions=(T0,))]


def test_one_that_leaves_claims_nothing() -> None:
    found = member(T0, neighbours=beside(T0, T1, free=(T1,)))
    found.has(leaving=True)
    assert found.decides() == [AskStop(partitions=(T0,))]


def test_only_as_much_is_claimed_at_once_as_one_acknowledgement_takes() -> None:
    class Small(Roomy):
        def room(self, partitions: list[TopicPartition]) -> int:
            return 2

    found = member(neighbours=beside(T0, T1, T2, free=(T0, T1, T2)))
    found.sizes = Small()
    (looked,) = found.decides()
    assert isinstance(looked, LookUp)
    assert (looked.name, looked.partitions) == (f"{PLANNED} 0", (T0, T1))


@pytest.mark.parametrize(("after_ms", "late"), [(LATE_MS - 1, True), (LATE_MS, False)])
def test_a_lower_offset_soon_after_a_claim_is_an_earlier_owners_late_commit_and_written_over(
    after_ms: int, *, late: bool
) -> None:
    found = acknowledged(T0)
    found.asks(commit({T0: 20}))
    (sent,) = found.decides()
    assert isinstance(sent, CommitOffsets)
    found.reads({T0: Position(20, 4)})
    found.decides()
    found.asks()
    found.reads({T0: Position(12, 5)})
    told = found.decides(NOW + after_ms)
    if late:
        assert told == [CommitOffsets(held=dict(found.memory.held), offsets={T0: 20})]
        found.reads({T0: Position(20, 6)})
        assert found.decides(NOW + after_ms) == []
        assert (found.memory.held[T0].offset, found.memory.restoring) == (20, {})
        assert T0 in found.view.application.running
    else:
        assert kinds(told)[0] is Report
        assert LosePartitions(partitions=(T0,)) in told


def test_a_higher_offset_is_nobodys_late_commit() -> None:
    found = acknowledged(T0)
    found.reads({T0: Position(12, 5)})
    assert LosePartitions(partitions=(T0,)) in found.decides(NOW + 1)


def test_the_commands_that_stand_are_obeyed_before_the_plan_is_followed() -> None:
    found = member(neighbours=beside(T1, free=(T1,)))
    found.finds(start(T0, versions=None))
    (looked,) = found.decides()
    assert isinstance(looked, LookUp)
    assert looked.partitions == (T0,)


def test_f100_a_later_change_gives_an_old_joiner_that_waits_no_more_time() -> None:
    plan = {T0: "g_old-1-a-0", T1: "g_old-1-a-0"}
    mode = GroupMode(mode=Mode.MIXED, plan=plan, patience_ms=PATIENCE_MS)
    given_ms = PATIENCE_MS - EARLY_MS

    def stopped_by_ms(moved_ms: int) -> int:
        joined, moved = {"g_old-1-a": NOW}, {T0: NOW, T1: moved_ms}
        return Neighbours(mode=mode, share={}, moved_ms=moved, joined_ms=joined).stopped_by_ms([T1])

    assert stopped_by_ms(NOW) == NOW + given_ms
    assert stopped_by_ms(NOW + given_ms - EARLY_MS - 1) == NOW + given_ms
    late_ms = NOW + given_ms - EARLY_MS  # hardly any time would be left, so the application has its own full time
    assert stopped_by_ms(late_ms) == late_ms + given_ms
