"""When a group may take a step to another offset store though the step before is not done."""

from __future__ import annotations

import pytest

from tests.core.test_stores import able, at_store, change, reading, start
from zkcoord.core.offset_store import DUAL, KAFKA, ZOOKEEPER
from zkcoord.core.view import Channel
from zkcoord.operating.store_migration import _beside


@pytest.mark.parametrize(
    ("channel", "beside"),
    [
        (at_store("a", DUAL, 3), True),
        (at_store("a", KAFKA, 2), False),
        (at_store("a", KAFKA, 2, change(DUAL, 3)), False),  # it reads on there until it obeys
        (at_store("a", DUAL, 1, change(KAFKA, 2)), False),  # it will come there, however late it obeys
        (at_store("a", DUAL, 1, start(KAFKA)), False),
        (at_store("a", "", 0), True),
        (at_store("a", "other", 9), False),
    ],
)
def test_a_step_is_taken_only_to_a_neighbour_of_every_store_that_a_member_comes_to(
    channel: Channel, beside: bool
) -> None:
    """The group was on its way to `kafka`, and is on its way back: who still comes to `kafka` commits there alone."""
    view = reading(able("a"), channels={"a": channel}, store_name=DUAL, store_step=3)
    assert _beside(view, ZOOKEEPER) is beside


def test_the_records_own_store_must_be_a_neighbour_too() -> None:
    view = reading(able("a"), channels={"a": at_store("a", DUAL, 1)}, store_name=KAFKA, store_step=2)
    assert not _beside(view, ZOOKEEPER)
    assert _beside(view, DUAL)
