"""A member that releases partitions to old members which read offsets in Kafka alone."""

from __future__ import annotations

import pytest

from tests.core.member.members import NOW, T0, T1, Member
from tests.core.member.test_sharing import PATIENCE_MS, beside, kinds, member
from zkcoord.core.fast_replace import fast_replace
from zkcoord.core.member.decisions import AskCommits, AskStop, ReleasePartitions
from zkcoord.core.member.log import CommitLog
from zkcoord.core.member.mirror import Mirror
from zkcoord.core.member.status import Store
from zkcoord.core.member.view import Position


def stopped(mirror: Mirror) -> Member:
    """A member whose application has stopped T1, which the plan gives to an old member."""
    found = member(T0, T1, neighbours=fast_replace(beside(T0), store="kafka", old_store="kafka"))
    found.has(log=CommitLog(tree="5e0b", patience_ms=PATIENCE_MS, checkpoint_ms=NOW))
    found.memory = fast_replace(found.memory, store=Store("kafka", 0), mirror=mirror)
    assert found.decides() == [AskStop(partitions=(T1,))]
    found.called("stop", T1)
    found.answers({T1: 9})
    return found


def test_the_final_offset_is_committed_to_kafka_first() -> None:
    assert kinds(stopped(Mirror()).decides()) == [AskCommits]


@pytest.mark.parametrize("mirror", [Mirror(away=True), Mirror(failing=frozenset({T1}))])
def test_kafka_that_takes_no_commits_is_not_waited_for(mirror: Mirror) -> None:
    (released,) = stopped(mirror).decides()
    assert isinstance(released, ReleasePartitions)
    assert released.offsets == {T1: 9}


def test_an_offset_that_somebody_deleted_is_not_made_again_in_kafka() -> None:
    """Where there is no node, a commit in Kafka counts: the deletion would be undone."""
    found = stopped(Mirror())
    found.reads({T1: Position(None, None)})
    decisions = [decision for _ in range(3) for decision in found.decides()]
    assert AskCommits not in kinds(decisions)
    released = next(decision for decision in decisions if isinstance(decision, ReleasePartitions))
    assert (released.held.keys(), released.offsets) == ({T1}, {})
