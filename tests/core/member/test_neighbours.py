"""Whether a consumer may register beside the others of its group. This depends on the store of their offsets."""

from __future__ import annotations

import pytest

from zkcoord.core.member.neighbours import Neighbours
from zkcoord.core.mode import GroupMode, Mode
from zkcoord.core.offset_store import DUAL, KAFKA, STORES, ZOOKEEPER

MIXED = GroupMode(mode=Mode.MIXED)


@pytest.mark.parametrize(
    ("neighbours", "why"),
    [
        (Neighbours(store=ZOOKEEPER), None),
        (Neighbours(store=DUAL, stores=STORES), None),
        (Neighbours(store=KAFKA, stores=STORES), None),
        (Neighbours(store=DUAL, old_store=DUAL, stores=STORES), None),  # old members committed to ZooKeeper, too
        (Neighbours(store=DUAL), "whoever runs it must give it bootstrap servers"),
        (Neighbours(store=KAFKA, old_store=KAFKA, stores=STORES), None),
        (Neighbours(store=KAFKA, old_store=KAFKA), "whoever runs it must give it bootstrap servers"),
        (Neighbours(store=ZOOKEEPER, old_store=KAFKA, stores=STORES), None),  # moved there after the old ones had left
        (Neighbours(store=DUAL, old_store=KAFKA, stores=STORES), None),
        (Neighbours(mode=MIXED, share={}, store=ZOOKEEPER, old_store=KAFKA, stores=STORES), "theirs in 'kafka'"),
        (Neighbours(mode=MIXED, share={}, store=DUAL, old_store=KAFKA, stores=STORES), "keep theirs in 'kafka'"),
        (Neighbours(mode=MIXED, share={}, store=ZOOKEEPER, stores=STORES), None),
        (Neighbours(mode=MIXED, share={}, store=ZOOKEEPER, old_store=DUAL, stores=STORES), None),
        (Neighbours(mode=MIXED, share={}, store=DUAL, old_store=DUAL, stores=STORES), None),
        (Neighbours(mode=MIXED, share={}, store=KAFKA, old_store=KAFKA, stores=STORES), None),
        (Neighbours(mode=MIXED, share={}, store=DUAL, stores=STORES), "its old consumers keep theirs in 'zookeeper'"),
        (Neighbours(mode=MIXED, share={}, store=KAFKA, stores=STORES), "its old consumers keep theirs in 'zookeeper'"),
        (Neighbours(mode=MIXED, share={}, store=KAFKA, old_store=DUAL, stores=STORES), "keep theirs in 'dual'"),
    ],
)
def test_a_consumer_registers_only_where_it_can_use_the_store_and_no_old_member_is_misread(
    neighbours: Neighbours, why: str | None
) -> None:
    told = neighbours.obstacle
    assert told is None if why is None else told is not None and why in told


@pytest.mark.parametrize(("patience_ms", "within_ms"), [(6_000, 5_000), (2_000, 1_000), (1_000, 500), (0, 0)])
def test_an_application_has_the_patience_less_a_second_to_stop_or_half_of_it(patience_ms: int, within_ms: int) -> None:
    assert Neighbours(patience_ms=patience_ms).stop_within_ms == within_ms
