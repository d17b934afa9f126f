"""The moments of a hand-over are in their order, whatever fails. Without failures they show how long each part of a
stop took."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from tests.sim.actors import GROUP, ProductActor, coordinator
from tests.sim.options import seeds
from tests.sim.process import SimProcess
from tests.sim.scenarios import storm
from tests.sim.script import CHANNEL, Script, hold_calls, on_seeds
from zkcoord.core.handovers import MOMENTS, HandOver
from zkcoord.core.model import TopicPartition
from zkcoord.serving.handovers import ServedHandOvers
from zkcoord.shell.ports import Input
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.writes import ANY_VERSION, SetNode, Transaction

TOLD = ("sent_ms", "seen_ms", "stopped_ms", "committed_ms")


class Seen:
    """The hand-overs that coordinators have completed, and those that later got their first record."""

    def __init__(self) -> None:
        self.completed: list[HandOver] = []
        self.amended: list[HandOver] = []

    def __call__(self, process: SimProcess) -> ProductActor:
        served, actor = ServedHandOvers(), coordinator(process)
        step = actor.step

        def watched(inputs: Sequence[Input], now_ms: int) -> int | None:
            wake_at_ms = step(inputs, now_ms)
            self.completed += [each for _, each in served.after_step(actor.role)]
            self.amended += [each for _, each in served.amended]
            return wake_at_ms

        actor.step = watched
        return actor

    def moved(self, partition: TopicPartition | None = None) -> list[HandOver]:
        """The completed hand-overs that had a stop."""
        return [each for each in self.completed if each.giver and partition in (None, each.partition)]


REACHED: Counter[str] = Counter()


@pytest.mark.parametrize("seed", seeds(24))
def test_the_moments_of_each_handover_are_in_their_order_whatever_fails(seed: int) -> None:
    seen = Seen()
    storm(seed, seen)
    for each in [*seen.completed, *seen.amended]:
        moments = [at_ms for name in MOMENTS if (at_ms := getattr(each, name)) is not None]
        assert moments == sorted(moments), each
        told = [getattr(each, name) is not None for name in TOLD]
        assert all(told) or not any(told[1:]), each
    completed = {(each.partition, each.acknowledged_ms): each for each in seen.completed}
    for each in seen.amended:
        assert completed[each.partition, each.acknowledged_ms]._replace(first_record_ms=each.first_record_ms) == each
    REACHED["told"] += sum(None not in [getattr(each, name) for name in MOMENTS[:9]] for each in seen.completed)
    REACHED["amended"] += len(seen.amended)
    REACHED["untold"] += sum(each.seen_ms is None for each in seen.moved())  # the giver died


def test_these_storms_reach_handovers_with_all_moments_and_some_without() -> None:
    if not REACHED:
        pytest.skip("the storms were not played in this process")
    assert min(REACHED["told"], REACHED["amended"]) > 40, REACHED
    assert REACHED["untold"] > 0, REACHED


def moving(seed: int) -> tuple[Script, Seen]:
    """A group of one consumer with all partitions, before a second one joins."""
    seen = Seen()
    script = Script(seed, coordinators=1, consumers=1, topics={"t": 4}, coordinates=seen)
    script.settle()
    script.world.run_for(1_000)
    return script, seen


@on_seeds()
def test_a_slow_stop_is_told_from_all_that_is_quick(seed: int) -> None:
    script, seen = moving(seed)
    go_on = hold_calls(script.application("consumer0"))
    sent = len(script.world.events("stop_sent"))
    script.join("consumer1")
    script.world.run_until(lambda: len(script.world.events("stop_sent")) > sent, 20_000, "it is told to stop")
    script.world.run_for(800)
    go_on()
    script.settle("each has its share")
    script.world.run_for(1_000)

    moved = seen.moved()
    assert len(moved) == 2
    for each in moved:
        parts = {part.name: part.ended_ms - part.begun_ms for part in each.stages()[0].parts}
        assert list(parts) == ["send", "see", "finish", "commit", "release"]
        assert parts["finish"] > 600
        assert parts["finish"] > 4 * (sum(parts.values()) - parts["finish"])


@on_seeds()
def test_the_first_record_becomes_known_some_seconds_behind_the_start(seed: int) -> None:
    script, seen = moving(seed)
    script.join("consumer1")
    script.settle("each has its share")
    before = len(seen.amended)
    script.world.run_for(12_000)
    joined = script.member("consumer1")
    told = [each for each in seen.amended[before:] if each.taker == joined]
    assert sorted(each.partition for each in told) == sorted(each.partition for each in seen.moved())
    for each in told:
        entry = next(e for e in script.journal("read", each.partition) if e.process == "consumer1")
        clock = script.process(script.leader()).clock
        true_ms = clock.zero_ms + entry.time_ms * clock.permille // 1000
        assert each.first_record_ms is not None
        assert abs(each.first_record_ms - true_ms) < 100


def tells_first_records(transaction: Transaction) -> bool:
    """True for a consumer's commit that also writes its status."""
    status = [w for w in transaction.writes if isinstance(w, SetNode) and CHANNEL.search(w.path)]
    return bool(status) and transaction.why == "commit"


@on_seeds()
@pytest.mark.parametrize("when", ["request_lost", "reply_lost"])
def test_f210_a_commit_that_tells_a_first_record_and_has_no_answer_is_made_or_found(when: str, seed: int) -> None:
    script, seen = moving(seed)
    script.world.strike("consumer1", tells_first_records, when)
    script.join("consumer1")
    script.settle("each has its share")
    script.world.run_until(lambda: script.world.struck, 60_000, "its commit has no answer")
    struck_ms, before = script.world.now_ms, script.owned("consumer1")
    script.world.run_for(13_000)

    joined = script.member("consumer1")
    assert (script.owned("consumer1"), script.world.events("session_lost", struck_ms)) == (before, [])
    assert script.journal("lost", since_ms=struck_ms) == []
    committed = [
        told
        for told in script.world.events("offsets_committed", struck_ms)
        if told.client == script.client("consumer1")
    ]
    assert committed != []
    assert {each.partition for each in seen.amended if each.taker == joined} == set(before)


@on_seeds()
def test_f211_a_status_that_somebody_changes_under_a_commit_refuses_it_once(seed: int) -> None:
    script, seen = moving(seed)
    edited: list[int] = []

    def edits_first(transaction: Transaction) -> bool:
        """Right before the commit is executed, somebody writes the status again, unchanged."""
        if not edited and tells_first_records(transaction):
            path = DRAFT.channel(GROUP, script.member("consumer1"))
            ensemble = script.world.ensemble
            ensemble.operate(SetNode(path, ensemble.data(path) or b"", ANY_VERSION))
            edited.append(script.world.now_ms)
        return False

    script.world.strike("consumer1", edits_first, "before")
    script.join("consumer1")
    script.settle("each has its share")
    script.world.run_until(lambda: bool(edited), 60_000, "its status is changed under a commit")
    script.world.run_for(13_000)

    tried = [
        t for t in script.world.tried if t.client == script.client("consumer1") and tells_first_records(t.transaction)
    ]
    assert [each.applied for each in tried[:2]] == [False, True]
    assert script.journal("lost", since_ms=edited[0]) == []
    joined = script.member("consumer1")
    assert {each.partition for each in seen.amended if each.taker == joined} == set(script.owned("consumer1"))
