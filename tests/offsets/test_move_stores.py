"""Which offset of a partition is moved with its group: for each store, and for each difference between the stores."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.offsets.two_trees import P0, P2, Pair, whole
from zkcoord.core.adoption import Adoption
from zkcoord.core.record import DEFAULT_RECORD, GroupRecord
from zkcoord.core.tenure import KafkaCommit, Stamp, Tenure
from zkcoord.tree.paths import DRAFT, LEGACY, Layout
from zkcoord.tree.record import encode_record

NODE, BEHIND, AHEAD = 100, 60, 900
EARLIER, PRESENT = 2, 3  # incarnations of the topic: two_trees.MARK counts 3


def stamp(tree: str = "aa", mzxid: int = 0, incarnation: int = PRESENT) -> Stamp:
    """Return the stamp of a commit, by default in the node's present tenure: nodes in memory have mzxid 0."""
    return Stamp(tenure=Tenure(tree, mzxid), incarnation=incarnation)


LATE, ELSEWHERE, OLD_TOPIC = stamp(mzxid=99), stamp(tree="bb"), stamp(incarnation=EARLIER)


@pytest.mark.parametrize(
    ("store", "committed", "by", "counts"),
    [
        ("zookeeper", AHEAD, stamp(), NODE),
        ("zookeeper", BEHIND, None, NODE),
        *((store, offset, stamp(), offset) for store in ("dual", "kafka") for offset in (BEHIND, AHEAD)),
        *((store, offset, LATE, NODE) for store in ("dual", "kafka") for offset in (BEHIND, AHEAD)),
        *((store, offset, ELSEWHERE, NODE) for store in ("dual", "kafka") for offset in (BEHIND, AHEAD)),
        *((store, offset, OLD_TOPIC, NODE) for store in ("dual", "kafka") for offset in (BEHIND, AHEAD)),
        *((store, offset, None, NODE) for store in ("dual", "kafka") for offset in (BEHIND, AHEAD)),
    ],
)
def test_the_offset_that_counts_goes_along_from_each_store_whether_kafka_is_behind_or_ahead(
    store: str, committed: int, by: Stamp | None, counts: int
) -> None:
    pair = Pair.of()
    pair.memory(0).set(DRAFT.record("g"), encode_record(replace(DEFAULT_RECORD, store_name=store)))
    pair.commits.update({P0: KafkaCommit(offset=committed, stamp=by), P2: KafkaCommit(offset=5, stamp=by)})
    without_node = store != "zookeeper" and by is not OLD_TOPIC  # then Kafka's commit counts, from any program
    expected = {"0": str(counts).encode(), "1": b"7"} | ({"2": b"5"} if without_node else {})

    done = whole(pair.move())

    assert (pair.offsets(0), pair.offsets(1)) == (expected, expected)
    assert done.from_kafka == (counts != NODE) + without_node


def adopted(*, dual_commit: bool) -> Adoption:
    return Adoption(offsets="kafka", dual_commit=dual_commit, strategy="range", kafka="0.11")


@pytest.mark.parametrize("target", [DRAFT, LEGACY])
@pytest.mark.parametrize(
    ("store", "dual_commit", "committed", "by", "counts"),
    [
        ("zookeeper", True, AHEAD, None, AHEAD),  # a group of old members alone starts at the larger offset
        ("zookeeper", True, BEHIND, None, NODE),
        ("kafka", False, AHEAD, None, AHEAD),  # a foreign commit is an old member's
        ("kafka", False, BEHIND, None, BEHIND),
        ("kafka", False, AHEAD, LATE, NODE),
        ("dual", True, AHEAD, None, NODE),  # if old members commit to both stores, ZooKeeper counts
        ("dual", True, BEHIND, stamp(), BEHIND),
    ],
)
def test_of_old_members_that_commit_to_kafka_that_goes_along_which_they_would_start_at(
    store: str, dual_commit: bool, committed: int, by: Stamp | None, counts: int, target: Layout
) -> None:
    pair = Pair.of(LEGACY, target)
    record = GroupRecord(adoption=adopted(dual_commit=dual_commit), store_name=store)
    pair.memory(0).set(LEGACY.record("g"), encode_record(record))
    pair.commits[P0] = KafkaCommit(offset=committed, stamp=by)

    whole(pair.move())

    assert pair.offsets(0) == pair.offsets(1) == {"0": str(counts).encode(), "1": b"7"}
