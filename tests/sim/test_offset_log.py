"""The simulated offset log: the fates of requests, other programs that commit, and what its checkers see."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sim.log_checkers import Ledger
from tests.sim.offset_log import LATE_MS_MAX, TIMEOUT_MS, Fate, LogClient, LogFaults, LogStore, OffsetLog
from tests.sim.options import Options
from tests.sim.test_checkers import GROUP, P0, Scene, started
from tests.sim.world import SimulationError, World
from tests.sim.zookeeper import Session
from zkcoord.core.model import TopicPartition
from zkcoord.core.tenure import CommitOutcome, KafkaCommit, Stamp, Tenure
from zkcoord.shell.ports import CallDone
from zkcoord.tree.writes import CheckNode, SetNode

P1 = TopicPartition("t", 1)


def stamped(offset: int, mzxid: int = 1) -> KafkaCommit:
    return KafkaCommit(offset=offset, stamp=Stamp(tenure=Tenure("", mzxid)))


class Listener:
    """A process that only collects its answers."""

    def __init__(self) -> None:
        self.answers: list[Any] = []

    def step(self, inputs: list[Any], now_ms: int) -> int | None:
        self.answers += inputs
        return None


class Wire:
    """One process and its connection to a log."""

    def __init__(self, seed: int = 1) -> None:
        self.world = World(seed, Options())
        self.log = OffsetLog(self.world)
        self.process = self.world.spawn("consumer0", lambda process: Listener())
        self.client = LogClient(self.process, self.log)
        self.answers: list[CallDone] = self.process.actor.answers  # type: ignore[union-attr]

    def commit(self, *offsets: int, fate: Fate = Fate.DONE, token: int = 1) -> None:
        self.log.fates.append(("consumer0", "commit", fate))
        commits = dict(zip((P0, P1), map(stamped, offsets), strict=False))
        self.client.call(token, "commit", commits)

    def answer(self) -> CallDone:
        self.world.run_until(lambda: bool(self.answers), what="an answer")
        return self.answers.pop(0)

    def offsets(self) -> dict[TopicPartition, int]:
        return {partition: commit.offset for partition, commit in self.log.commits.items()}


# -- requests


def test_a_commit_is_answered_and_read() -> None:
    wire = Wire()
    wire.commit(5, 6)
    assert wire.answer() == CallDone(1, CommitOutcome(done=frozenset({P0, P1})))
    wire.client.call(2, "read", (P1,))
    assert wire.answer() == CallDone(2, {P1: stamped(6)})


@pytest.mark.parametrize(("fate", "lands"), [(Fate.LOST, False), (Fate.REPLY_LOST, True), (Fate.LATE, False)])
def test_a_commit_without_an_answer_is_unknown_at_the_timeout(fate: Fate, lands: bool) -> None:
    wire = Wire()
    wire.commit(5, fate=fate)
    done = wire.answer()
    assert set(done.value.unknown) == {P0} and not done.value.done
    assert wire.world.now_ms >= TIMEOUT_MS
    assert bool(wire.offsets()) is lands


def test_a_late_commit_overwrites_what_was_committed_meanwhile() -> None:
    wire = Wire()
    wire.commit(5, fate=Fate.LATE)
    wire.commit(6, token=2)
    assert wire.answer().value.unknown and wire.answer().value.done
    assert wire.offsets() == {P0: 6}
    wire.world.run_for(LATE_MS_MAX)
    assert wire.offsets() == {P0: 5}


def test_some_partitions_of_one_commit_fail_and_others_do_not() -> None:
    outcomes = []
    for seed in range(20):
        wire = Wire(seed)
        wire.commit(5, 6, fate=Fate.PARTIAL)
        outcomes.append(wire.answer().value)
    assert any(outcome.done and outcome.unknown for outcome in outcomes)
    assert any(outcome.done and outcome.refused for outcome in outcomes)
    for outcome in outcomes:
        assert {P0, P1} == outcome.done | outcome.unknown.keys() | outcome.refused.keys()


def test_a_paused_process_sends_its_commit_when_it_goes_on() -> None:
    wire = Wire()
    wire.commit(5)
    wire.process.pause()
    wire.world.run_for(60_000)
    assert wire.offsets() == {}
    wire.process.resume()
    wire.answer()
    assert wire.offsets() == {P0: 5}


def test_a_commit_on_its_way_lands_after_its_sender_was_killed() -> None:
    wire = Wire()
    wire.commit(5)
    wire.client._send()
    wire.world.crash("consumer0")
    wire.world.run_for(3_000)
    assert wire.offsets() == {P0: 5}
    assert wire.process.incarnation == 2 and not wire.process.actor.answers  # type: ignore[union-attr]


def test_brokers_that_are_away_answer_nothing_and_those_that_are_in_use_refuse() -> None:
    wire = Wire()
    wire.log.go_away(10_000)
    wire.commit(5)
    wire.client.call(2, "read", (P0,))
    assert wire.answer().value.unknown
    assert wire.answer().error is not None
    assert LogStore(wire.log).read(["g"]).unknown and LogStore(wire.log).commit("g", {P0: stamped(1)}).unknown
    wire.world.run_for(10_000)
    wire.log.intrude(30_000)
    wire.commit(5, token=3)
    assert set(wire.answer().value.refused) == {P0}
    assert wire.offsets() == {}
    wire.log.heal()
    wire.commit(5, token=4)
    assert wire.answer().value.done == {P0}


def test_commits_expire_by_their_age_unless_they_are_made_again() -> None:
    wire = Wire()
    wire.log.retention_ms = 5_000
    wire.commit(5, 6)
    wire.answer()
    wire.world.run_for(4_000)
    wire.commit(5, token=2)
    wire.answer()
    wire.world.run_for(3_000)
    assert LogStore(wire.log).read(["g"]).found == {"g": {P0: stamped(5)}}


def test_a_storm_draws_every_fault_and_the_same_ones_again() -> None:
    drawn = [LogFaults.drawn(seed) for seed in range(60)]
    assert drawn == [LogFaults.drawn(seed) for seed in range(60)]
    for name in LogFaults.__slots__:
        assert any(getattr(faults, name) for faults in drawn), name
        assert not all(getattr(faults, name) for faults in drawn), name


def test_planned_trouble_happens_and_ends() -> None:
    wire = Wire()
    wire.log.faults = LogFaults(expiries=4, strangers=4, intruders=1, absences=1)
    happened = set()
    wire.log.on_change.append(lambda change: happened.add(change.how))
    wire.log.trouble(0, 20_000, [P0, P1])
    for _ in range(200):
        wire.world.run_for(100)
        happened |= {name for name in ("away", "in_use") if getattr(wire.log, name)}
    wire.world.run_for(1_000)
    assert happened == {"stranger", "expired", "away", "in_use"}
    assert not wire.log.away and not wire.log.in_use


# -- the checkers


def kept() -> tuple[Scene, Session, OffsetLog, Ledger]:
    """The scene of the checkers, with an offset log: `a` reads partition 0 from offset 5."""
    scene, a = started()
    log = OffsetLog(scene.world)
    ledger = Ledger(scene.world, scene.known, log)
    scene.note("a", "read", 5, 20)
    write(scene, a, 5)
    return scene, a, log, ledger


def write(scene: Scene, session: Session, offset: int) -> None:
    """The member sets the node, which begins a new tenure."""
    scene.submit(session, CheckNode(f"{GROUP}/ids/{session.process}", -1), scene.offset(offset))


def commit(scene: Scene, log: OffsetLog, offset: int, client: str = "a#1", tenure: int | None = None) -> None:
    """A commit lands, in the present tenure unless `tenure` is given."""
    stat = scene.ensemble.stat(f"{GROUP}/offsets/t/0")
    assert stat is not None
    log.commit(client, {P0: stamped(offset, stat.mzxid if tenure is None else tenure)})


def acknowledge(log: OffsetLog, offset: int) -> None:
    """`a` is told that its last commit is done."""
    assert log.commits[P0].offset == offset
    log.told_done("a#1", dict(log.commits), CommitOutcome(done=frozenset({P0})))


def tenure(scene: Scene) -> int:
    stat = scene.ensemble.stat(f"{GROUP}/offsets/t/0")
    assert stat is not None
    return stat.mzxid


def test_a_lawful_life_in_kafka_is_no_violation() -> None:
    scene, a, log, ledger = kept()
    for offset in (8, 12):
        commit(scene, log, offset)
        acknowledge(log, offset)
        assert ledger.counted(P0) == offset
    write(scene, a, 12)  # the member sets a checkpoint
    commit(scene, log, 14)  # the answer to this commit is lost, so the member sets the node
    write(scene, a, 14)
    scene.note("a", "start", 14)


def test_it_is_seen_that_a_start_ignores_what_kafka_acknowledged() -> None:
    scene, a, log, _ = kept()
    commit(scene, log, 8)
    acknowledge(log, 8)
    with pytest.raises(SimulationError, match="was promised 8, and 5 counts"):
        write(scene, a, 5)


def test_it_is_seen_that_a_reader_starts_below_what_was_committed() -> None:
    scene, _, log, _ = kept()
    commit(scene, log, 8)
    acknowledge(log, 8)
    with pytest.raises(SimulationError, match="starts t-0 at 7, 8 was committed"):
        scene.note("b", "start", 7)


def test_it_is_seen_that_a_commit_is_beyond_what_was_processed() -> None:
    scene, _, log, _ = kept()
    with pytest.raises(SimulationError, match="beyond what was processed"):
        commit(scene, log, 21)


def test_a_commit_of_another_tenure_may_say_what_it_likes() -> None:
    scene, _, log, ledger = kept()
    commit(scene, log, 99, tenure=1)
    assert ledger.counted(P0) == 5


def test_it_is_seen_that_a_commit_goes_back_within_its_tenure() -> None:
    scene, _, log, _ = kept()
    commit(scene, log, 8)
    acknowledge(log, 8)
    with pytest.raises(SimulationError, match="takes t-0 back from 8 to 7"):
        commit(scene, log, 7)


def test_it_is_seen_that_a_checkpoint_overtakes_the_commit_under_way() -> None:
    scene, a, log, _ = kept()
    commit(scene, log, 8)
    write(scene, a, 6)
    with pytest.raises(SimulationError, match="is told that t-0 is committed at 8, and 6 counts"):
        acknowledge(log, 8)


def test_it_is_seen_that_a_member_commits_without_its_tenure() -> None:
    _, _, log, _ = kept()
    with pytest.raises(SimulationError, match="without its tenure"):
        log.commit("a#1", {P0: KafkaCommit(offset=7)})


def test_a_late_commit_of_an_earlier_tenure_makes_the_node_count() -> None:
    scene, a, log, ledger = kept()
    earlier = tenure(scene)
    write(scene, a, 9)
    commit(scene, log, 12)
    acknowledge(log, 12)
    commit(scene, log, 6, client="zombie#1", tenure=earlier)
    assert ledger.counted(P0) == 9
    write(scene, a, 9)
    with pytest.raises(SimulationError, match=r"went back|was promised"):
        write(scene, a, 6)


def test_an_expired_commit_makes_the_node_count() -> None:
    scene, a, log, ledger = kept()
    commit(scene, log, 12)
    acknowledge(log, 12)
    log.expire([P0])
    assert ledger.counted(P0) == 5
    write(scene, a, 5)


def test_a_strangers_commit_may_be_followed_backwards_and_nothing_else() -> None:
    scene, a, log, ledger = kept()
    write(scene, a, 9)
    log.stranger_commits(P0, 7)
    assert ledger.counted(P0) == 9
    write(scene, a, 7)
    log.stranger_commits(P0, 6)
    with pytest.raises(SimulationError, match=r"went back|was promised"):
        write(scene, a, 5)


def test_a_stranger_is_forgotten_once_the_holder_has_committed_again() -> None:
    scene, a, log, _ = kept()
    write(scene, a, 9)
    log.stranger_commits(P0, 7)
    commit(scene, log, 10)
    with pytest.raises(SimulationError, match=r"went back|was promised"):
        write(scene, a, 7)


def test_an_operator_may_set_the_node_to_anything() -> None:
    scene, a, log, ledger = kept()
    commit(scene, log, 12)
    acknowledge(log, 12)
    scene.ensemble.operate(scene.offset(3))
    assert ledger.counted(P0) == 3
    write(scene, a, 3)


def repaired(scene: Scene, ledger: Ledger) -> None:
    """The log ends at 3, and the reset policy says that reading goes on there."""
    scene.known.covered["g", P0] = 3
    scene.known.may_go_back.add(("g", P0))
    ledger.reset(P0, 3)


def test_a_commit_beyond_the_log_may_be_rewritten_until_the_next_commit() -> None:
    scene, a, log, ledger = kept()
    commit(scene, log, 12)
    acknowledge(log, 12)
    repaired(scene, ledger)
    write(scene, a, 12)  # the member releases the partition
    write(scene, a, 12)  # the next start sets the node
    commit(scene, log, 12)
    repaired(scene, ledger)  # now for the position as well
    scene.note("a", "read", 3, 8)
    write(scene, a, 8)
    with pytest.raises(SimulationError, match="beyond what was processed"):
        write(scene, a, 12)


def test_a_commit_told_as_done_may_be_written_after_its_topic_is_gone() -> None:
    scene, a, log, ledger = kept()
    commit(scene, log, 12)
    acknowledge(log, 12)
    log.forget([P0])
    repaired(scene, ledger)
    write(scene, a, 12)  # a release, with its last acknowledged commit
    with pytest.raises(SimulationError, match="beyond what was processed"):
        write(scene, a, 13)


def test_a_commit_beyond_the_log_is_left_behind_once_kafka_has_another() -> None:
    scene, a, log, ledger = kept()
    write(scene, a, 12)
    commit(scene, log, 12)
    repaired(scene, ledger)
    write(scene, a, 3)
    acknowledge(log, 12)  # the commit before the repair may be told as done after it
    scene.note("a", "read", 3, 20)
    commit(scene, log, 8)
    acknowledge(log, 8)
    assert ("g", P0) not in scene.known.left_behind


def test_a_commit_for_an_earlier_topic_of_that_name_does_not_count() -> None:
    scene, _, log, ledger = kept()
    log.commits[P0] = KafkaCommit(offset=9, stamp=Stamp(tenure=Tenure("", tenure(scene)), incarnation=1))
    assert ledger.counted(P0) == 9
    scene.known.incarnations["g", "t"] = 2
    assert ledger.counted(P0) == 5


def test_without_a_node_kafka_counts() -> None:
    _scene, _, log, ledger = kept()
    log.stranger_commits(P1, 9)
    assert ledger.counted(P1) == 9 and ledger.counted(P0) == 5


@pytest.mark.parametrize("store", ["zookeeper", "dual", "kafka"])
def test_it_is_seen_at_rest_that_kafka_has_not_what_its_holder_committed(store: str) -> None:
    scene, _, log, ledger = kept()
    channel = f"{GROUP}/channel/a"
    stat = scene.ensemble.stat(channel)
    assert stat is not None
    status = b'{"store":{"name":"%s"}}' % store.encode()
    scene.ensemble.operate(SetNode(channel, status, stat.version))
    commit(scene, log, 9, tenure=1)
    complaints = list(ledger._at_rest())
    assert bool(complaints) is (store != "zookeeper")
    commit(scene, log, 9)
    assert list(ledger._at_rest()) == []
