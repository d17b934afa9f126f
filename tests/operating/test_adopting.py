"""What becomes of one group that people adopt, on a tree in memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.legacy.groups import A, group, static
from tests.migrate.memory_tree import MemoryTree
from zkcoord.core.adoption import Adoption
from zkcoord.core.record import GroupRecord
from zkcoord.errors import UnavailableError
from zkcoord.operating.adopting import ADOPTED, CHANGED, REFUSED, UNCHANGED, Result, adopt_group
from zkcoord.tree.paths import LEGACY
from zkcoord.tree.record import decode_record, encode_record

TOLD = Adoption(offsets="zookeeper", strategy="range", kafka="1.1")
FOUND = group({A: static(t=1)}, {"t/0": f"{A}-0"}, {"t/0": "1"}, {"t": 1}, {})


def tree() -> MemoryTree:
    return MemoryTree("/zkcoord", "/zkcoord/groups", "/consumers")


def test_a_group_whose_folder_may_not_be_read_is_refused_and_one_that_is_not_there_is_adopted() -> None:
    there = tree()
    assert adopt_group(there, LEGACY, "g", TOLD, None, force=False).result == ADOPTED
    there.set(LEGACY.group("h"), b"")
    assert adopt_group(there, LEGACY, "h", TOLD, None, force=True) == Result(
        "h", REFUSED, 0, "it cannot be read: give this user the right to it (ACL)"
    )


def test_another_versions_facts_stay_when_a_group_is_adopted_again() -> None:
    there, later = tree(), replace(TOLD, unknown={"of_later": 1})
    there.set(LEGACY.record("g"), encode_record(GroupRecord(adoption=later)))
    assert adopt_group(there, LEGACY, "g", TOLD, FOUND, force=False).result == UNCHANGED
    assert adopt_group(there, LEGACY, "g", replace(TOLD, retries=9), FOUND, force=False).result == CHANGED
    assert decode_record(there.data()[LEGACY.record("g")]).adoption == replace(later, retries=9)


def test_a_tree_that_does_not_answer_ends_the_whole_command() -> None:
    there = tree()
    there.fault = lambda _: "before"
    with pytest.raises(UnavailableError):
        adopt_group(there, LEGACY, "g", TOLD, FOUND, force=False)
