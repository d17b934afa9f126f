"""A member that keeps offsets in Kafka, and offset nodes that somebody deletes or creates again."""

from __future__ import annotations

from tests.core.member.members import ME, NOW, SECOND, T0, T1, commit, other, start, stop
from tests.core.member.stores import HELD, PATIENCE_MS, Keeper
from zkcoord.core.command import Option
from zkcoord.core.member.decisions import AcknowledgeStarts, LookUp, Rejoin, ReleasePartitions
from zkcoord.core.member.view import Position
from zkcoord.core.tenure import CommitOutcome
from zkcoord.core.view import Owner
from zkcoord.errors import UnavailableError


def test_f140_the_range_of_a_refused_start_stays_announced_though_the_node_lags() -> None:
    m = Keeper(T1, store="kafka")
    m.finds(start(T0, replay={T0: (20, 30)}, offsets="kafka", incarnations={"t": 1}))
    m.decides()
    m.reads({T0: Position(10, 3, None, 70)}, {T0: Owner(ME, 0)})  # Kafka has 20 in tenure 70, but does not answer
    m.decides()
    (ack,) = [d for d in m.decides(NOW + PATIENCE_MS) if isinstance(d, AcknowledgeStarts)]
    assert T0 in ack.status.batch
    m.finds()
    m.reads({T0: Position(10, 3, None, 70)}, {T0: Owner("", 1)})
    m.decides(NOW + PATIENCE_MS)
    m.finds(other(Option.PING, SECOND))
    m.decides(NOW + PATIENCE_MS)
    m.finds()
    assert any(isinstance(d, LookUp) for d in m.decides(NOW + PATIENCE_MS))
    m.reads({T0: Position(10, 3, None, 70)}, {T0: Owner("", 1)})
    m.decides(NOW + PATIENCE_MS)
    assert T0 in m.memory.batch


def test_f139_a_node_deleted_under_an_unanswered_commit_is_made_by_a_new_start() -> None:
    m = Keeper(T0, T1, store="kafka")
    m.asks(commit({T0: 8}))
    m.decides()
    m.kafka_answers({})
    m.decides()
    m.asks()
    m.runs(T1)  # T0 is lost: somebody deleted its node
    m.reads({T0: Position(None, None)})
    m.kafka_answers(CommitOutcome(unknown={T0: UnavailableError("REQUEST_TIMED_OUT")}))
    found = [d for _ in range(5) for d in m.decides()]
    assert any(isinstance(d, Rejoin) for d in found), found


def test_a_release_in_dual_does_not_wait_for_a_commit_of_an_earlier_tenure() -> None:
    m = Keeper(T0, store="dual")
    m.asks(commit({T0: 8}))
    m.decides()
    m.node(T0, 8, 4, 80)
    m.decides()
    m.asks()
    m.decides()  # 8 is committed to Kafka in tenure 80
    m.asks(commit({T0: 9}))
    m.decides()
    m.node(T0, 9, 5, 90)
    m.decides()
    m.asks()
    m.finds(stop(T0))
    m.decides()
    m.called("stop", T0)
    m.answers({})
    assert any(isinstance(d, ReleasePartitions) for d in m.decides(NOW + 1) + m.decides(NOW + 1))


def test_f141_a_node_made_again_at_the_same_version_counts_as_set_by_somebody() -> None:
    m = Keeper(T0, store="kafka")
    assert m.memory.held[T0].position == (HELD.offset, HELD.offset_version)
    m.reads({T0: Position(100, HELD.offset_version, None, HELD.mzxid + 25)})
    m.decides()
    assert (m.memory.held[T0].offset, m.memory.held[T0].mzxid) == (100, HELD.mzxid + 25)
