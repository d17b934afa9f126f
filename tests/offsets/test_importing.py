"""An import reports exactly the changes that the group's consumers will see. No server."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import nullcontext
from dataclasses import replace

import pytest

from tests.migrate.memory_tree import CrashError, MemoryTree
from tests.offsets.test_in_kafka import Store
from tests.offsets.test_writing import Recorder
from tests.offsets.two_trees import put
from zkcoord.core.model import TopicPartition
from zkcoord.core.moved import Moved, MoveState
from zkcoord.core.record import PAUSE, RESET, GroupRecord, Request, Response
from zkcoord.core.resetting import EXPIRED
from zkcoord.core.tenure import KafkaCommit, Stamp, Tenure
from zkcoord.errors import UnavailableError, UsageError
from zkcoord.offsets.in_kafka import set_in_kafka
from zkcoord.offsets.ports import ReadCommits
from zkcoord.offsets.reading import kept_by
from zkcoord.offsets.targets import Goal, Move, Targets, Where, targets
from zkcoord.offsets.verdict import Log
from zkcoord.offsets.writing import Change, RecordChangedError, readers_of
from zkcoord.operating.importing import Import
from zkcoord.operating.resetting import How, Reset, _stops_first
from zkcoord.tree.paths import DRAFT, LEGACY
from zkcoord.tree.record import decode_record, encode_record

P0 = TopicPartition("t", 0)
NODE = DRAFT.offset("g", P0)
CHECKPOINT_MZXID = 0  # the value in the tree in memory


def scene(store_name: str) -> tuple[Recorder, Store]:
    """The group's last checkpoint is 4, and it has committed 9 to Kafka since."""
    record = encode_record(GroupRecord(store_name=store_name)).decode()
    tree, store = Recorder({NODE: "4", DRAFT.record("g"): record}), Store()
    store.commits = {P0: KafkaCommit(offset=9, stamp=Stamp(tenure=Tenure("aa", CHECKPOINT_MZXID)))}
    return tree, store


@pytest.mark.parametrize(
    ("wanted", "changed"),
    [(4, [Change(P0, 9, 4, 0)]), (9, []), (7, [Change(P0, 9, 7, 0)])],
    ids=["back", "same", "other"],
)
def test_f244_an_import_compares_with_the_offset_that_counts_and_so_does_its_dry_run(
    wanted: int, changed: list[Change]
) -> None:
    """Only the node was compared. So the import of an older export reported no change, and set the group back."""
    tree, store = scene("kafka")
    assert Import(tree=tree, layout=DRAFT, tree_id="aa", dry_run=True).write("g", {P0: wanted}, store) == changed
    assert (tree.sent, tree.nodes[NODE]) == ([], "4")
    assert Import(tree=tree, layout=DRAFT, tree_id="aa").write("g", {P0: wanted}, store) == changed
    assert (len(tree.sent), tree.nodes[NODE]) == (1, str(wanted))


def test_where_kafka_is_not_read_an_import_compares_with_the_node() -> None:
    tree, store = scene("zookeeper")
    assert Import(tree=tree, layout=DRAFT, tree_id="aa").write("g", {P0: 4}, store) == []
    assert tree.sent == []


@pytest.mark.parametrize(("current", "moves"), [({P0: 9}, [Move(P0, 9, 4)]), ({P0: 4}, []), ({}, [Move(P0, None, 4)])])
def test_f244_a_reset_tells_what_changes_from_the_offset_that_counts(
    current: Mapping[TopicPartition, int | None], moves: list[Move]
) -> None:
    assert targets(Goal(Where.OFFSET, 4), current, {P0: Log(0, 10)}, {}).moves() == moves


def reset(tree: Recorder, goal: Where, to_kafka: Callable[[Mapping[TopicPartition, int]], None]) -> Reset:
    targets_found = Targets({P0: 4}, [])
    return Reset(tree=tree, layout=DRAFT, group="g", compute=lambda: targets_found, to_kafka=to_kafka, goal=goal)


def test_no_node_is_written_before_kafka_has_taken_what_consumers_would_follow() -> None:
    """If a tool dies between the two writes, the nodes are unchanged. In the other order the nodes would be set, but
    consumers would still go on at the commits in Kafka."""
    tree, store = scene("kafka")
    store = Store(refuses=True)
    store.commits = {P0: KafkaCommit(offset=9)}

    def to_kafka(offsets: Mapping[TopicPartition, int]) -> None:
        set_in_kafka(store, "g", kept_by(DRAFT, GroupRecord(store_name="kafka")), offsets)

    for work in (
        lambda: Import(tree=tree, layout=DRAFT, tree_id="aa").write("g", {P0: 7}, store),
        lambda: reset(tree, Where.OFFSET, to_kafka).write(()),
    ):
        with pytest.raises(UnavailableError, match="no answer"):
            work()
    assert tree.sent == []


@pytest.mark.parametrize(("pause", "refused"), [("r1", True), ("r2", False)], ids=["its own", "a person's later one"])
def test_a_shift_is_refused_behind_a_reset_that_broke_off_until_its_pause_is_over(pause: str, refused: bool) -> None:
    requests, responses = {PAUSE: Request(run=pause)}, {RESET: Response(run="r1", state=EXPIRED)}
    tree = Recorder(
        {NODE: "4", DRAFT.record("g"): encode_record(GroupRecord(requests=requests, responses=responses)).decode()}
    )
    with pytest.raises(UsageError, match="was broken off") if refused else nullcontext():
        reset(tree, Where.SHIFT, lambda _: None).check_shift()
    reset(tree, Where.OFFSET, lambda _: None).check_shift()


@pytest.mark.parametrize("state", list(MoveState))
@pytest.mark.parametrize("store_name", ["zookeeper", "kafka"])
def test_f276_of_a_group_that_is_in_another_tree_or_on_its_way_no_offset_is_imported(
    state: MoveState, store_name: str
) -> None:
    """The import wrote the nodes, which do not count, and the commits in Kafka, at which the group goes on in the other
    tree."""
    moved = Moved(state=state, tree="bb", address="zk2:2181/kafka", run="r1")
    record = encode_record(GroupRecord(store_name=store_name, moved=moved)).decode()
    tree, store = Recorder({NODE: "4", DRAFT.record("g"): record}), Store()
    work = Import(tree=tree, layout=DRAFT, tree_id="aa", force=True)
    for ask in (lambda: work.needs_kafka("g"), lambda: work.write("g", {P0: 7}, store)):
        with pytest.raises(UsageError, match=f"group g {moved.where()}: nothing is changed here"):
            ask()
    assert (tree.sent, store.made) == ([], {})


def unread(store_name: str) -> MemoryTree:
    """A tree with the group g, which nobody reads."""
    tree = MemoryTree()
    record = encode_record(GroupRecord(store_name=store_name))
    put(tree, {NODE: b"4", DRAFT.record("g"): record, DRAFT.group("g"): b""})
    return tree


class Asked(Store):
    """Calls a function when it is asked for commits."""

    def __init__(self, meanwhile: Callable[[], None]) -> None:
        super().__init__()
        self._meanwhile = meanwhile

    def read(self, groups: Collection[str]) -> ReadCommits:
        self._meanwhile()
        return super().read(groups)


def test_f329_a_tool_that_was_overtaken_commits_nothing_to_kafka() -> None:
    """The record's version kept it from the nodes. But it had committed to Kafka before, and consumers, which went on
    since, followed that."""
    tree = unread("kafka")

    def overtaken() -> None:
        tree.set(DRAFT.record("g"), encode_record(GroupRecord(store_name="kafka", requests={RESET: Request(run="r2")})))

    store = Asked(overtaken)
    with pytest.raises(RecordChangedError, match="somebody changed its record"):
        Import(tree=tree, layout=DRAFT, tree_id="aa").write("g", {TopicPartition("t", 1): 7}, store)
    assert (store.made, tree.commits) == ({}, [])

    made: dict[TopicPartition, int] = {}

    def compute() -> Targets:
        overtaken()
        return Targets({P0: 4}, [])

    work = Reset(tree=tree, layout=DRAFT, group="g", compute=compute, to_kafka=made.update, goal=Where.OFFSET)
    with pytest.raises(RecordChangedError, match="somebody changed its record"):
        work.write(readers_of(tree.read, DRAFT, "g").guard)
    assert (made, tree.commits) == ({}, [])


def test_f331_a_shift_of_a_group_that_nobody_reads_is_not_carried_out_twice_wherever_it_breaks_off() -> None:
    """Some offsets were shifted when the tool died, in Kafka or in the first multis. Run again, it shifted them again,
    and so perhaps over records that nobody had processed."""
    for crash in ("crash-before", "crash-after"):
        for at in range(3):
            tree, kafka = unread("kafka"), {P0: 100}

            def compute(kafka: dict[TopicPartition, int] = kafka) -> Targets:
                return Targets({P0: kafka[P0] + 10}, [])

            work = Reset(tree=tree, layout=DRAFT, group="g", compute=compute, to_kafka=kafka.update, goal=Where.SHIFT)
            tree.fault = lambda n, at=at, crash=crash: crash if n == at else ""  # type: ignore[misc]
            with pytest.raises(CrashError):
                shift(tree, work)
            begun = (at, crash) not in {(0, "crash-before"), (2, "crash-after")}
            with pytest.raises(UsageError, match="may have written some offsets") if begun else nullcontext():
                shift(tree, work)
            assert kafka[P0] == (100 if at == 0 and begun else 120 if at == 2 and not begun else 110)


def shifting(tree: MemoryTree, compute: Callable[[], Targets] = lambda: Targets({P0: 14}, [])) -> Reset:
    """A shift, to 14 by default, in a group that commits nothing to Kafka."""
    return Reset(tree=tree, layout=DRAFT, group="g", compute=compute, to_kafka=lambda _: None, goal=Where.SHIFT)


def shift(tree: MemoryTree, work: Reset) -> None:
    """Do what the command does for a group that nobody reads."""
    readers = readers_of(tree.read, DRAFT, "g")
    assert not _stops_first(work, readers, How(dry_run=False, stop_first=False))
    work.unread(readers.guard)


def test_f331_a_shift_goes_on_when_a_coordinator_answers_its_request_and_computes_nothing_again() -> None:
    tree, computed = unread("zookeeper"), list[int]()

    def compute() -> Targets:
        computed.append(1)
        return Targets({P0: 14}, [])

    def answers(n: int) -> None:
        if n == 1:
            record = decode_record(tree.nodes[DRAFT.record("g")][0])
            response = Response(run=record.requests[RESET].run, state="stopped")
            tree.set(DRAFT.record("g"), encode_record(replace(record, responses={RESET: response})))

    tree.meanwhile = answers
    work = shifting(tree, compute)
    shift(tree, work)
    assert (computed, tree.nodes[NODE][0]) == ([1], b"14")
    assert decode_record(tree.nodes[DRAFT.record("g")][0]).requests == {}


def test_f331_a_shift_that_cannot_be_computed_leaves_no_request() -> None:
    def compute() -> Targets:
        raise UnavailableError("no broker answers")

    tree = unread("zookeeper")
    work = shifting(tree, compute)
    with pytest.raises(UnavailableError, match="no broker answers"):
        shift(tree, work)
    assert decode_record(tree.nodes[DRAFT.record("g")][0]).requests == {}


def test_f331_two_shifts_that_begin_at_the_same_time_are_not_both_carried_out() -> None:
    tree = unread("zookeeper")
    work = shifting(tree)

    def other(n: int) -> None:
        if n == 0:
            tree.set(DRAFT.record("g"), encode_record(GroupRecord(requests={RESET: Request(run="r2")})))

    tree.meanwhile = other
    with pytest.raises(UsageError, match="may have written some offsets"):
        shift(tree, work)
    assert (tree.nodes[NODE][0], decode_record(tree.nodes[DRAFT.record("g")][0]).requests[RESET].run) == (b"4", "r2")


@pytest.mark.parametrize("stop_first", [True, False])
def test_f331_a_reset_that_broke_off_is_ended_and_not_passed_over(stop_first: bool) -> None:
    """Without --stop-first the offsets were set beside the earlier run's request. When that expired, the group was
    paused."""
    tree = unread("zookeeper")
    tree.set(DRAFT.record("g"), encode_record(GroupRecord(requests={RESET: Request(run="r1")})))
    work = replace(shifting(tree, lambda: Targets({}, [])), goal=Where.OFFSET)
    with nullcontext() if stop_first else pytest.raises(UsageError, match="run it again, with --stop-first"):
        assert _stops_first(work, readers_of(tree.read, DRAFT, "g"), How(dry_run=False, stop_first=stop_first))


def test_f191_a_reset_that_begins_while_its_group_is_handed_over_is_refused() -> None:
    tree = unread("kafka")
    work = shifting(tree)
    handed_over = GroupRecord(store_name="kafka", requests={PAUSE: Request(run="r2", handed_over="begun")})
    tree.meanwhile = lambda n: tree.set(DRAFT.record("g"), encode_record(handed_over)) if n == 0 else None
    with pytest.raises(UsageError, match="group take-back g"):
        shift(tree, work)
    assert decode_record(tree.nodes[DRAFT.record("g")][0]) == handed_over


def test_a_group_that_is_not_adopted_is_shifted_without_a_request() -> None:
    """No coordinator serves it, and nobody would read its record."""
    tree = MemoryTree()
    put(tree, {LEGACY.offset("g", P0): b"4"})
    work = replace(shifting(tree), layout=LEGACY)
    work.unread(readers_of(tree.read, LEGACY, "g").guard)
    assert tree.nodes[LEGACY.offset("g", P0)][0] == b"14"
    assert LEGACY.record("g") not in tree.nodes
