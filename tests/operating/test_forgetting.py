"""Which groups have commits in Kafka that go with them when they are deleted. No server."""

from __future__ import annotations

import pytest

from tests.migrate.memory_tree import MemoryTree
from zkcoord.core.record import GroupRecord
from zkcoord.errors import UsageError
from zkcoord.operating.forgetting import forget_in_kafka
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.record import encode_record


@pytest.mark.parametrize(("store", "step"), [("dual", 1), ("kafka", 2), ("zookeeper", 2)])
def test_a_group_that_has_ever_committed_to_kafka_is_not_deleted_without_its_commits_there(
    store: str, step: int
) -> None:
    """Without a node what stands in Kafka counts: a later group of that name that goes to `dual` would go on there."""
    tree = MemoryTree()
    tree.set(DRAFT.record("g"), encode_record(GroupRecord(store_name=store, store_step=step)))
    with pytest.raises(UsageError, match="group g has offsets in Kafka, too: give --bootstrap-servers"):
        forget_in_kafka(tree, DRAFT, "g", None)


@pytest.mark.parametrize("record", [None, GroupRecord()])
def test_a_group_that_has_never_committed_to_kafka_needs_none(record: GroupRecord | None) -> None:
    tree = MemoryTree()
    if record is not None:
        tree.set(DRAFT.record("g"), encode_record(record))
    forget_in_kafka(tree, DRAFT, "g", None)
