"""A member in a mixed group: what it reads of others when it has claimed, above all the ranges that they announced."""

from __future__ import annotations

import pytest

from tests.core.member.members import ME, NOW, T0, T1, T2, T3, start
from tests.core.member.stores import Keeper
from tests.core.member.test_sharing import PATIENCE_MS, STOPPED_BY_MS, acknowledging, beside, claiming, kinds, member
from tests.core.member.test_sharing_late import AT, claimed, claims, gives_back
from zkcoord.core.fast_replace import fast_replace
from zkcoord.core.member.decisions import AskCommits, AskStart, ClaimPartitions, LetGo, LookUp, ReadAgain, ReadStatuses
from zkcoord.core.member.log import CommitLog, LogAnswer, LogCall
from zkcoord.core.member.neighbours import ALONE, Neighbours
from zkcoord.core.member.view import NOBODY, STATUSES, Holder, Position
from zkcoord.core.model import TopicPartition
from zkcoord.core.state import Announced
from zkcoord.core.view import Owner
from zkcoord.errors import UnavailableError


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
    assert acknowledging(found).status.batch == {T0: Announced(7, 9, 6, 3)}


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


def test_f352_an_acknowledgement_checks_the_statuses_of_those_that_may_still_announce() -> None:
    found = claims(member(neighbours=beside(T0, T1, free=(T0, T1))), (T0, T1))
    others = {"a": frozenset({T0, T3}), "b": frozenset({T3}), "c": None, "d": frozenset({T1})}
    found.has(holders={f"g_{name}": Holder(version, held) for version, (name, held) in enumerate(others.items())})
    assert kinds(found.decides()) == [AskStart]
    found.called("start", T0, T1, number=1)
    found.answers()
    assert acknowledging(found).statuses == {"g_a": 0, "g_c": 2, "g_d": 3}


def test_f358_a_claim_has_the_highest_generation_of_the_ranges_that_others_announced() -> None:
    """Also of those that are over, since a coordinator that does not know the offset may take those for later ones."""
    found = claims(member(neighbours=beside(T0, T1, T2, free=(T0, T1, T2))), (T0, T1, T2))
    left = {
        T0: (Announced(5, 7, 6, 3), Announced(3, 5, 4, 3)),
        T1: (Announced(7, 9, 2, 3),),
        T3: (Announced(1, 2, 9, 3),),
    }
    found.has(announced=left)
    assert kinds(found.decides()) == [AskStart]
    found.called("start", T0, T1, T2, number=1)
    found.answers()
    status = acknowledging(found).status
    assert {p: held.generation for p, held in status.held.items()} == {T0: 6, T1: 2, T2: 0}
    assert status.batch == {T1: Announced(7, 9, 2, 3)}


def test_f352_after_a_refused_acknowledgement_commits_are_asked_for_again() -> None:
    """Who had the partition before may have committed to Kafka before it announced."""
    found = member(neighbours=fast_replace(beside(T0, free=(T0,)), store="kafka", old_store="kafka"))
    log = CommitLog(tree="5e0b", patience_ms=PATIENCE_MS, checkpoint_ms=NOW)
    found.has(log=log)
    claims(found, (T0,))
    assert found.decides() == [AskCommits(partitions=(T0,), starting=1)]
    found.has(log=fast_replace(log, answers=(LogAnswer(call=LogCall("read", (T0,), starting=1), value={}),)))
    found.decides()
    found.has(log=log)
    found.called("start", T0, number=1)
    found.answers()
    acknowledging(found)
    assert kinds(found.decides()) == [ReadAgain]
    found.reads({T0: Position(7, 2)}, {T0: Owner(ME, 1)})
    assert found.decides() == [ReadStatuses()]
    assert found.decides() == [AskCommits(partitions=(T0,), starting=2)]


def test_f342_statuses_that_cannot_be_read_do_not_keep_claims_from_old_members() -> None:
    found = claimed(T0)
    found.has(unread=frozenset({STATUSES}), neighbours=beside())
    assert found.decides(STOPPED_BY_MS - 1) == []
    gives_back(found, T0)


LEFT, OTHER_CLAIM = Announced(7, 9, 4, 3), Owner("g_other-1-00000000-0", 1)


def in_kafka(*held: TopicPartition, neighbours: Neighbours = ALONE, store: str = "kafka") -> Keeper:
    """A member whose offsets are in a store with tenures: there the node may not tell the offset."""
    found = Keeper(*held, store=store)
    found.has(claims=True, neighbours=neighbours)
    return found


def leaving_a_range(neighbours: Neighbours = ALONE, store: str = "kafka") -> Keeper:
    """A member that has released T3 in the middle of a range. The version of its offset was 3 before."""
    found = in_kafka(T3, neighbours=neighbours, store=store)
    found.memory = fast_replace(found.memory, batch={T3: LEFT})
    found.reads(owners={T3: NOBODY})
    found.decides()
    found.runs()
    assert not found.memory.held
    return found


def looks(found: Keeper, version: int | None, owner: Owner = OTHER_CLAIM, offset: int = LEFT.start) -> bool:
    """It looks for ranges that are over, and finds this. Returns True if the partition's range still counts."""
    found.memory = fast_replace(found.memory, short_of_room=True)
    assert kinds(found.decides()) == [LookUp]
    found.reads({T3: Position(offset, version)}, {T3: owner})
    assert found.decides() == [LetGo(partitions=(T3,))]
    return T3 in found.memory.batch


@pytest.mark.parametrize("neighbours", [ALONE, beside(T0)], ids=["coordinated", "mixed"])
def test_f348_in_the_store_kafka_the_acknowledgement_of_another_consumer_ends_a_left_range(
    neighbours: Neighbours,
) -> None:
    """Its claim does not: that may be one by the plan, also when the last old member has left since."""
    found = leaving_a_range(neighbours)
    assert looks(found, 3)
    assert looks(found, 4)  # as its own release has set it
    assert not looks(found, 5)


@pytest.mark.parametrize("version", [None, 0])
def test_f348_in_the_store_kafka_a_left_range_is_over_when_its_offset_was_deleted(version: int | None) -> None:
    assert not looks(leaving_a_range(), version, NOBODY)


def test_f348_in_the_store_kafka_a_range_of_a_partition_that_was_not_held_is_known_from_the_first_look_on() -> None:
    found = in_kafka()
    found.memory = fast_replace(found.memory, batch={T3: LEFT})
    assert looks(found, 8, NOBODY)
    assert looks(found, 8)
    assert not looks(found, 9)


def test_f348_in_the_store_kafka_a_range_whose_start_was_refused_is_over_when_another_consumer_has_started() -> None:
    found = leaving_a_range()  # what it knows from an earlier time does not count
    found.finds(start(T3, versions=None, offsets="kafka", replay={T3: (7, 9)}))
    claims(found, (T3,), Position(7, 8))
    assert kinds(found.decides()) == [AskCommits]
    found.kafka_answers({})
    assert kinds(found.decides()) == [AskStart]
    found.called("start", T3, number=2)
    found.answers(error=UnavailableError("no broker"))
    assert acknowledging(found).status.batch.keys() == {T3}
    found.finds()
    found.reads(owners={T3: NOBODY})
    found.decides()
    assert not looks(found, 9)


@pytest.mark.parametrize("store", ["dual", "kafka"])
def test_f354_a_left_range_counts_until_somebody_sets_the_node_whatever_offset_it_has(store: str) -> None:
    """The node may be behind Kafka, also in the store `dual`, if it was last set in the store `kafka`."""
    found = leaving_a_range(store=store)
    assert looks(found, 3, offset=5)
    assert looks(found, 4, NOBODY, offset=5)
    assert not looks(found, 5, NOBODY, offset=9)


@pytest.mark.parametrize("store", ["dual", "kafka"])
def test_f354_a_left_range_counts_when_a_tool_has_set_the_node_to_its_start(store: str) -> None:
    found = leaving_a_range(store=store)
    assert looks(found, 6, NOBODY)
    assert not looks(found, 6)  # another consumer has set it, and has the range


@pytest.mark.parametrize("store", ["dual", "kafka"])
def test_f354_where_grants_set_owners_only_an_owner_ends_a_left_range(store: str) -> None:
    found = leaving_a_range(store=store)
    found.has(claims=False)
    assert looks(found, 3, NOBODY, offset=5)
    assert not looks(found, 3, offset=5)


@pytest.mark.parametrize("since", [beside(T3), ALONE], ids=["they are there", "they have gone again"])
def test_f360_who_obeys_a_start_of_before_old_members_joined_looks_for_ranges_announced_since(
    since: Neighbours,
) -> None:
    found = member(neighbours=ALONE)
    found.finds(start(T0, versions=None))
    found.has(neighbours=beside(T3), channel_read=False)
    assert found.decides() == []
    found.has(neighbours=since, channel_read=True)
    assert kinds(found.decides()) == [LookUp]
    found.reads({T0: AT}, {T0: NOBODY})
    assert kinds(found.decides()) == [ClaimPartitions]
    found.reads({T0: AT}, {T0: Owner(ME, 1)})
    assert found.decides() == [ReadStatuses()]
    found.has(announced={T0: (Announced(7, 9, 0, 0),)}, holders={"g_a": Holder(4, frozenset({T0}))})
    (asked,) = found.decides()
    assert isinstance(asked, AskStart)
    assert asked.replay == {T0: (7, 9)}
    found.called("start", T0, number=1)
    found.answers()
    sent = acknowledging(found)
    assert (sent.status.batch, sent.statuses) == ({T0: Announced(7, 9, 1)}, {"g_a": 4})
    found.finds()
    found.reads({T0: Position(7, 3)})
    found.decides()
    found.has(neighbours=ALONE)
    found.decides()
    found.finds(start(T1, sequence="0000000001", versions=None))
    claims(found, (T1,))
    assert kinds(found.decides()) == [AskStart]  # nobody else can have claimed it
