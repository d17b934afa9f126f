"""F20, F32, F41, F50 and deleted topics: which owners and offsets belong to them, and what happens to these."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.sim.actors import GROUP, ConsumerFactory, topic_json
from tests.sim.field import parse_json
from tests.sim.script import QUIET, Script, Told, on_seeds
from zkcoord.core.model import TopicPartition
from zkcoord.core.topics import DELETED_MS
from zkcoord.serving import topics as topic_table
from zkcoord.tree.paths import DRAFT, TOPICS
from zkcoord.tree.writes import ANY_VERSION, CreateNode, DeleteNode, SetNode

MARK = DRAFT.mark(GROUP, "t")
MANY = 10_000


class Topics(Script):
    """A group that has read its topic for a while."""

    def __init__(self, seed: int, **size: Any) -> None:
        size.setdefault("consumers", 2)
        super().__init__(seed, QUIET, **size)
        self.settle()
        self.world.run_for(5_000)

    def mark(self) -> dict[str, Any]:
        return parse_json(self.world.ensemble.data(MARK) or b"")

    def offset(self, number: int, topic: str = "t") -> int | None:
        data = self.world.ensemble.data(DRAFT.offset(GROUP, TopicPartition(topic, number)))
        return None if data is None else int(data)

    def offsets(self, topic: str = "t") -> dict[TopicPartition, str]:
        names = self.world.ensemble.names(DRAFT.topic_offsets(GROUP, topic))
        return {TopicPartition(topic, int(n)): str(self.offset(int(n), topic)) for n in sorted(names, key=int)}

    def recreate(self, topic: str, partitions: int, **fields: Any) -> None:
        self.delete_topic(topic)
        self.create_topic(topic, partitions, **fields)

    def settle_on(self, incarnation: int) -> None:
        self.world.run_until(lambda: self.mark().get("incarnation") == incarnation, what="another mark")
        self.settle()

    def dropped(self) -> Told:
        [told] = self.world.events("topic_dropped")
        return told


@on_seeds(1)
def test_f20_among_ten_thousand_topics_a_change_costs_the_topics_that_changed(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The names come in one list in one reply, and each name is matched once. Only topics that a group wants are
    read."""
    matched: list[int] = []  # the number of names in each call
    original = topic_table.taken

    def taken(regex: str, names: Sequence[str], *, black_list: bool) -> list[str]:
        matched.append(len(names))
        return original(regex, names, black_list=black_list)

    monkeypatch.setattr(topic_table, "taken", taken)
    script = Script(seed, consumers=0, coordinators=1, topics={f"x{n}": 1 for n in range(MANY)})
    world = script.world
    script.create_topic("t1", 2)
    script.consumers = ConsumerFactory(script.logs, {"t.*": 1}, pattern="white_list")
    script.join("consumer0")
    world.run_until(lambda: len(script.field.holdings) == 2, what="the one that matches is read")
    world.run_for(3_000)

    def asked(since_ms: int) -> list[str]:
        return sorted(p for ms, who, p in world.asked if ms >= since_ms and "coord" in who and p.startswith(TOPICS))

    assert (set(asked(0)), matched) == ({TOPICS, f"{TOPICS}/t1"}, [MANY + 1])
    since_ms = world.now_ms + 1
    world.run_for(5)
    script.create_topic("y", 1)
    world.run_for(3_000)
    assert (asked(since_ms), matched) == ([TOPICS], [MANY + 1, 1])
    assert script.touched_below(DRAFT.group(GROUP), since_ms) == []
    script.create_topic("t2", 3)
    world.run_until(lambda: len(script.field.holdings) == 5, what="the new one is read, too")
    assert (asked(since_ms), matched) == ([TOPICS, TOPICS, f"{TOPICS}/t2"], [MANY + 1, 1, 1])
    script.calm()


@on_seeds(4)
def test_f32_a_topic_that_is_created_again_with_fewer_partitions_starts_anew(seed: int) -> None:
    group = Topics(seed)
    before_ms, generation = group.world.now_ms, group.generation()
    group.recreate("t", 2)
    group.settle_on(2)
    told = group.dropped()
    assert [str(p) for p in told.fields["offsets"]] == ["t-0", "t-1", "t-2", "t-3"]
    assert all(int(text) > 0 for text in told.fields["offsets"].values())
    assert group.generation() == generation + 1
    group.calm()
    assert sorted(group.world.ensemble.names(MARK)) == ["0", "1"]
    assert sorted(group.offsets()) == [TopicPartition("t", 0), TopicPartition("t", 1)]
    assert {p for _, p in group.field.resolved} == set()
    for number in range(2):  # once, by the reset policy: offsets of the earlier topic do not count
        partition = TopicPartition("t", number)
        [reset] = group.journal("reset", partition, before_ms)
        offset = group.offset(number)
        assert offset is not None and reset.start <= offset < int(told.fields["offsets"][partition])


@on_seeds(4)
def test_f41_a_topic_created_again_between_two_reads_with_the_same_partitions_is_another(seed: int) -> None:
    group = Topics(seed)
    generation, before_ms = group.generation(), group.world.now_ms + 1
    group.recreate("t", 4)
    group.settle_on(2)
    group.calm()
    assert group.generation() == generation  # the assignment is the same, only the topic is another one
    assert len(group.dropped().fields["offsets"]) == 4
    starts = [
        command
        for tried in group.commands_sent("start-fetcher", since_ms=before_ms)
        for command in tried.commands("start-fetcher")
    ]
    assert {str(parse_json(command.data)["incarnations"]) for command in starts} == {"{'t': 2}"}


@on_seeds()
def test_a_topic_with_an_id_is_known_by_it(seed: int) -> None:
    group = Topics(seed, topics={})
    group.consumers = ConsumerFactory(group.logs, {"t": 1})
    for n in range(2):
        group.join(f"reader{n}")
    group.create_topic("t", 4, topic_id="J9yFzcT8Sdqog-R1XZ7J1A")
    group.world.run_until(lambda: group.mark().get("incarnation") == 1, what="a mark")
    assert group.mark()["topic_id"] == "J9yFzcT8Sdqog-R1XZ7J1A"
    group.world.run_for(3_000)
    group.recreate("t", 4, topic_id="J9yFzcT8Sdqog-R1XZ7J1A")  # somebody restored it: it is the same topic
    group.world.run_for(3_000)
    assert group.mark()["incarnation"] == 1
    assert group.world.events("topic_dropped") == []
    group.recreate("t", 4, topic_id="AAAAAAAAAAAAAAAAAAAAAA")
    group.world.run_until(lambda: group.mark().get("incarnation") == 2, what="another mark")
    group.calm()


@on_seeds()
def test_a_mark_is_completed_with_the_id_that_brokers_give_a_topic_when_they_are_updated(seed: int) -> None:
    group = Topics(seed)
    begun_ms, before = group.world.now_ms, group.mark()
    assert before["topic_id"] is None
    group.world.ensemble.operate(SetNode(f"{TOPICS}/t", topic_json(4, "J9yFzcT8Sdqog-R1XZ7J1A"), ANY_VERSION))
    group.world.run_until(lambda: group.mark() != before, what="the mark has it")
    assert group.mark() == {**before, "topic_id": "J9yFzcT8Sdqog-R1XZ7J1A"}
    group.settle()
    assert (group.world.events("stop_sent", begun_ms), group.world.events("topic_dropped")) == ([], [])
    group.recreate("t", 4, topic_id="AAAAAAAAAAAAAAAAAAAAAA")
    group.settle_on(incarnation=2)
    group.calm()


def _fail_over(group: Topics) -> None:
    group.world.crash(group.leader(), exact=True, restart_after_ms=60_000)


def _lose_the_others(group: Topics) -> None:
    group.world.stop("consumer1")


def _pause_a_reader(group: Topics) -> None:
    group.world.pause("consumer0")
    group.world.at(group.world.now_ms + 15_000, lambda: group.world.resume("consumer0"))


def _create_once_more(group: Topics) -> None:
    group.recreate("t", 3)


DISTURBANCES: dict[str, Callable[[Topics], None]] = {
    "failover": _fail_over,
    "death": _lose_the_others,
    "pause": _pause_a_reader,
    "again": _create_once_more,
}


@on_seeds()
@pytest.mark.parametrize("disturbance", DISTURBANCES)
@pytest.mark.parametrize("after_ms", [0, 5, 50])
def test_f41_work_begun_for_a_recreated_topic_is_finished_by_any_survivor(
    disturbance: str, after_ms: int, seed: int
) -> None:
    group = Topics(seed)
    group.recreate("t", 4)
    group.world.run_for(after_ms)
    DISTURBANCES[disturbance](group)
    group.world.run_until(lambda: group.mark().get("incarnation", 0) >= 2, what="another mark")
    group.calm()
    assert group.mark()["incarnation"] in (2, 3)


@on_seeds()
def test_f50_in_a_copied_tree_marks_are_written_anew_and_nothing_is_dropped(seed: int) -> None:
    """Every czxid differs, also /zkcoord's, as after a restore of the ensemble. The test edits the mark to make it
    so."""
    group = Topics(seed)
    offsets, mark = group.offsets(), group.mark()
    other = {**mark, "czxid": "987654", "root_czxid": "123456"}
    stat = group.world.ensemble.stat(MARK)
    assert stat is not None
    assert not group.world.ensemble.operate(SetNode(MARK, json.dumps(other).encode(), stat.version)).reason
    group.world.crash(group.leader(), exact=True)  # the next coordinator reads it
    group.world.run_until(lambda: group.mark() == mark, what="the mark is written anew")
    group.calm()
    assert group.world.events("topic_dropped") == []
    assert all(int(group.offsets()[p]) >= int(offset) for p, offset in offsets.items())


@on_seeds()
def test_a_deleted_topic_is_released_at_once_and_its_nodes_go_after_a_while(seed: int) -> None:
    group = Topics(seed, topics={"t": 2, "u": 2})
    group.delete_topic("t")
    group.world.run_until(lambda: not group.owner(TopicPartition("t", 0)) and not group.owner(TopicPartition("t", 1)))
    group.settle()
    kept, deleted_ms = group.offsets(), group.world.now_ms
    group.world.run_for(DELETED_MS // 2)
    assert group.offsets() == kept
    group.calm()
    told = group.dropped()
    assert told.fields["offsets"] == kept
    assert told.time_ms - deleted_ms <= 2 * DELETED_MS
    assert not group.world.ensemble.stat(MARK)
    assert not group.world.ensemble.stat(DRAFT.topic_offsets(GROUP, "t"))
    assert group.state()["incarnations"] == 1
    group.create_topic("t", 2)
    group.settle_on(2)
    group.calm()


@on_seeds()
def test_a_deleted_topics_nodes_go_though_nobody_wants_the_topic(seed: int) -> None:
    group = Topics(seed, topics={"t": 2, "u": 2})
    group.consumers = ConsumerFactory(group.logs, {"u": 1})
    for n in range(2):
        group.leave(f"consumer{n}")
        group.join(f"later{n}")
    group.world.run_for(20_000)
    assert len(group.offsets()) == 2
    group.delete_topic("t")
    group.world.run_for(3 * DELETED_MS)
    assert (group.offsets(), group.world.ensemble.stat(MARK)) == ({}, None)
    group.calm()


@on_seeds(1)
def test_nodes_that_are_no_partitions_are_left_and_named(seed: int) -> None:
    group = Topics(seed, topics={"t": 2, "u": 2})
    path = f"{DRAFT.topic_offsets(GROUP, 't')}/notes"
    assert not group.world.ensemble.operate(CreateNode(path)).reason
    group.delete_topic("t")
    group.world.run_for(2 * DELETED_MS)
    assert group.world.ensemble.stat(path)
    assert len(group.world.ensemble.names(DRAFT.topic_offsets(GROUP, "t"))) == 3
    [told] = [t for t in group.world.events("unreadable") if t.fields["path"] == path]
    assert "an operator must remove it" in told.fields["why"]
    assert not group.world.ensemble.operate(DeleteNode(path, 0)).reason


@on_seeds(1)
def test_without_the_list_of_topics_nothing_is_taken_for_deleted(seed: int) -> None:
    group = Topics(seed)
    kept = group.offsets()
    for path in [*(f"{TOPICS}/{t}" for t in group.world.ensemble.names(TOPICS)), TOPICS]:
        assert not group.world.ensemble.operate(DeleteNode(path, -1)).reason
    group.world.run_for(3 * DELETED_MS)
    assert group.world.events("topic_dropped") == []
    assert group.offsets().keys() == kept.keys()


@on_seeds()
def test_a_mark_that_nobody_can_parse_bars_its_topic_until_it_is_mended(seed: int) -> None:
    group = Topics(seed, topics={"t": 2, "u": 2})
    stat, good = group.world.ensemble.stat(MARK), group.world.ensemble.data(MARK)
    assert stat is not None and good is not None
    assert not group.world.ensemble.operate(SetNode(MARK, b"{", stat.version)).reason
    group.world.crash(group.leader(), exact=True)
    group.world.run_for(15_000)
    [told] = [t for t in group.world.events("unreadable") if t.fields["path"] == MARK]
    assert "an operator must mend it" in told.fields["why"]
    group.grow("t", 3)
    group.grow("u", 3)
    group.world.run_for(5_000)
    assert group.owner(TopicPartition("u", 2)) and not group.owner(TopicPartition("t", 2))
    assert group.owner(TopicPartition("t", 0))  # partitions that are being read go on
    assert not group.world.ensemble.operate(SetNode(MARK, good, stat.version + 1)).reason
    group.settle()
    group.calm()
