"""An import reports exactly the changes that the group's consumers will see. No server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext

import pytest

from tests.offsets.test_in_kafka import Store
from tests.offsets.test_writing import Recorder
from zkcoord.core.model import TopicPartition
from zkcoord.core.moved import Moved, MoveState
from zkcoord.core.record import PAUSE, RESET, GroupRecord, Request, Response
from zkcoord.core.resetting import EXPIRED
from zkcoord.core.tenure import KafkaCommit, Stamp, Tenure
from zkcoord.errors import UnavailableError, UsageError
from zkcoord.offsets.in_kafka import set_in_kafka
from zkcoord.offsets.reading import kept_by
from zkcoord.offsets.targets import Goal, Move, Targets, Where, targets
from zkcoord.offsets.verdict import Log
from zkcoord.offsets.writing import Change
from zkcoord.operating.importing import Import
from zkcoord.operating.resetting import Reset
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.record import encode_record

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
