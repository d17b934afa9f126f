"""The times at which a member that keeps offsets in Kafka must look again, even without an input."""

from __future__ import annotations

from tests.core.member.members import NOW, T0, T1, commit, start
from tests.core.member.stores import CHECKPOINT_MS, PATIENCE_MS, Keeper, reads, to_kafka
from zkcoord.core.member.mirror import RETRY_MS
from zkcoord.core.member.view import Position
from zkcoord.core.tenure import CommitOutcome
from zkcoord.core.view import Owner
from zkcoord.errors import UnavailableError

AWAY = UnavailableError("no broker")


def test_it_looks_again_when_a_checkpoint_is_due() -> None:
    keeper = Keeper(T0, store="kafka")
    assert (keeper.decides(), keeper.wake_at_ms) == ([], NOW + CHECKPOINT_MS)


def test_the_member_wakes_when_a_stop_or_the_commit_itself_stops_waiting() -> None:
    keeper = Keeper(T0, store="kafka")
    keeper.asks(commit({T0: 8}))
    assert (keeper.decides(), keeper.wake_at_ms) == ([reads(T0)], NOW + PATIENCE_MS)
    keeper.decides(NOW + PATIENCE_MS)
    assert keeper.wake_at_ms == NOW + 2 * PATIENCE_MS


def test_it_tries_again_what_kafka_did_not_take() -> None:
    keeper = Keeper(T0, store="dual", level=False)
    assert keeper.decides() == [to_kafka({T0: 5})]
    keeper.kafka_answers(CommitOutcome(refused={T0: AWAY}))
    keeper.decides()
    assert keeper.wake_at_ms == NOW + RETRY_MS
    keeper.decides(NOW + RETRY_MS - 1)
    assert keeper.decides(NOW + RETRY_MS) == [to_kafka({T0: 5})]


def test_it_waits_for_kafkas_answer_to_a_start_no_longer_than_its_patience() -> None:
    keeper = Keeper(T1, store="dual")
    keeper.finds(start(T0, offsets="dual"))
    keeper.decides()
    keeper.reads({T0: Position(10, 3, None, 70)}, {T0: Owner("g_me-1-00000000-0", 0)})
    assert keeper.decides() == [reads(T0, starting=1)]
    assert keeper.wake_at_ms == NOW + PATIENCE_MS
