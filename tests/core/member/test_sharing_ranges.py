"""A member in a mixed group: what it reads of others when it has claimed, above all the ranges that they announced."""

from __future__ import annotations

from tests.core.member.members import ME, NOW, T0, T1, T2
from tests.core.member.test_sharing import PATIENCE_MS, STOPPED_BY_MS, acknowledging, beside, claiming, kinds, member
from tests.core.member.test_sharing_late import claimed, claims, gives_back
from zkcoord.core.fast_replace import fast_replace
from zkcoord.core.member.decisions import AskCommits, AskStart, ClaimPartitions, ReadAgain, ReadStatuses
from zkcoord.core.member.log import CommitLog, LogAnswer, LogCall
from zkcoord.core.member.view import NOBODY, STATUSES, Position
from zkcoord.core.state import Announced
from zkcoord.core.view import Owner


def test_anothers_range_announced_at_the_found_offset_is_taken_over_first() -> None:
    here, passed, other = Announced(7, 9, 4, 3), Announced(5, 7, 6, 3), Announced(7, 12, 5, 2)
    found = member(neighbours=beside(T0, T1, T2, free=(T0, T1, T2)))
    found.decides()
    at = dict.fromkeys((T0, T1, T2), Position(7, 2))
    found.reads(at, dict.fromkeys(at, NOBODY))
    assert kinds(found.decides()) == [ClaimPartitions]
    found.reads(at, dict.fromkeys(at, Owner(ME, 1)))
    assert found.decides() == [ReadStatuses()]
    found.has(unread=frozenset({STATUSES}))
    assert found.decides() == []
    found.has(unread=frozenset(), announced={T0: (passed, Announced(7, 12, 3, 3), here), T1: (passed,), T2: (other,)})
    (asked,) = found.decides()
    assert isinstance(asked, AskStart)
    assert asked.replay == {T0: (7, 9)}  # neither ranges that were passed, nor ranges of another topic of that name
    found.called("start", T0, T1, T2, number=1)
    found.answers()
    assert acknowledging(found).status.batch == {T0: Announced(7, 9, 0, 3)}


def test_f342_when_a_claim_that_somebody_deleted_is_made_again_the_statuses_are_read_again() -> None:
    found = claiming(T0)
    acknowledging(found)
    found.has(status=None)
    found.decides()
    found.reads({T0: Position(7, 2)}, {T0: NOBODY})
    assert found.decides() == [ClaimPartitions(partitions={T0: ME})]
    found.reads({T0: Position(7, 2)}, {T0: Owner(ME, 1)})
    assert found.decides() == [ReadStatuses()]  # another consumer may have announced in between
    found.has(announced={T0: (Announced(7, 9, 0, 3),)})
    (asked,) = found.decides()
    assert isinstance(asked, AskStart)
    assert asked.replay == {T0: (7, 9)}


def test_f342_commits_that_kafka_told_before_another_claim_are_asked_for_again() -> None:
    """Another consumer may have had the partition, and committed, while the claim was gone."""
    found = member(neighbours=fast_replace(beside(T0, free=(T0,)), store="kafka", old_store="kafka"))
    found.has(log=CommitLog(tree="5e0b", patience_ms=PATIENCE_MS, checkpoint_ms=NOW))
    claims(found, (T0,))
    for number in (1, 2):
        assert found.decides() == [AskCommits(partitions=(T0,), starting=number)]
        call = LogCall("read", (T0,), starting=number)
        log = found.view.log
        assert log is not None
        found.has(log=fast_replace(log, answers=(LogAnswer(call=call, value={}),)))
        assert kinds(found.decides()) == [AskStart]
        found.has(log=log)
        found.reads(owners={T0: NOBODY})
        assert kinds(found.decides()) == [ClaimPartitions]
        found.reads(owners={T0: Owner(ME, 1)})
        assert found.decides() == [ReadStatuses()]


def test_commits_that_kafka_told_before_a_refused_acknowledgement_are_asked_for_again() -> None:
    found = member(neighbours=fast_replace(beside(T0, free=(T0,)), store="kafka", old_store="kafka"))
    log = CommitLog(tree="5e0b", patience_ms=PATIENCE_MS, checkpoint_ms=NOW)
    found.has(log=log)
    claims(found, (T0,))
    found.decides()
    found.has(log=fast_replace(log, answers=(LogAnswer(call=LogCall("read", (T0,), starting=1), value={}),)))
    found.decides()
    found.has(log=log)
    found.called("start", T0, number=1)
    found.answers()
    acknowledging(found)
    assert kinds(found.decides()) == [ReadAgain]
    found.reads(owners={T0: NOBODY})
    assert kinds(found.decides()) == [ClaimPartitions]
    found.reads(owners={T0: Owner(ME, 1)})
    assert found.decides() == [ReadStatuses()]
    assert found.decides() == [AskCommits(partitions=(T0,), starting=2)]


def test_what_was_told_for_other_partitions_still_counts_when_one_begins_anew() -> None:
    found = claims(member(neighbours=beside(T0, T1, free=(T0, T1))), (T0, T1))
    assert kinds(found.decides()) == [AskStart]
    found.called("start", T0, T1, number=1)
    found.answers()
    found.has(announced={T0: (Announced(7, 9, 0, 3),)})
    (first,) = found.decides()
    assert isinstance(first, AskStart)
    assert first.positions.keys() == {T0}
    found.called("start", T0, number=2)
    found.answers()
    found.has(announced={T0: (Announced(7, 9, 0, 3),), T1: (Announced(7, 8, 0, 3),)})
    (second,) = found.decides()
    assert isinstance(second, AskStart)
    assert (second.positions.keys(), second.replay) == ({T1}, {T1: (7, 8)})


def test_an_own_range_that_is_passed_does_not_have_a_partition_started_twice() -> None:
    found = member(neighbours=beside(T0, free=(T0,)))
    found.memory = fast_replace(found.memory, batch={T0: Announced(4, 6, 0, 3)})
    claims(found, (T0,))
    assert kinds(found.decides()) == [AskStart]
    found.called("start", T0, number=1)
    found.answers()
    assert acknowledging(found).status.batch == {}
    assert kinds(found.decides()) == [ReadAgain]
    found.reads({T0: Position(7, 2)}, {T0: Owner(ME, 1)})
    assert found.decides() == [ReadStatuses()]
    acknowledging(found)


def test_f342_statuses_that_cannot_be_read_do_not_keep_claims_from_old_members() -> None:
    found = claimed(T0)
    found.has(unread=frozenset({STATUSES}), neighbours=beside())
    assert found.decides(STOPPED_BY_MS - 1) == []
    gives_back(found, T0)
