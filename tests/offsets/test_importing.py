"""What an import says that it changes: what the group's consumers will see change. No server."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.offsets.test_in_kafka import Store
from tests.offsets.test_writing import Recorder
from zkcoord.core.model import TopicPartition
from zkcoord.core.record import GroupRecord
from zkcoord.core.tenure import KafkaCommit, Stamp, Tenure
from zkcoord.offsets.targets import Goal, Move, Where, targets
from zkcoord.offsets.verdict import Log
from zkcoord.offsets.writing import Change
from zkcoord.operating.importing import Import
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.record import encode_record

P0 = TopicPartition("t", 0)
NODE = DRAFT.offset("g", P0)
CHECKPOINT_MZXID = 0  # as the tree in memory has it


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
    """Compared with the node alone, an import of an older export said that nothing changes, and set the group back."""
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
