"""How often a hand-over of claims reads a node. This count does not depend on the machine's speed."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest

from tests.sim.script import QUIET, Script
from tests.sim.store import SimStore
from zkcoord.tree.paths import LEGACY
from zkcoord.tree.snapshot import Kind, Read

OWNER, OFFSET = re.compile(r"/consumers/g/owners/t/\d+$"), re.compile(r"/consumers/g/offsets/t/\d+$")
CONSUMERS, PARTITIONS = 3, 40
MOVED = PARTITIONS // (CONSUMERS + 1)


def test_a_hand_over_of_claims_reads_each_claim_and_offset_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The claiming member reads each of them after its claim, and the coordinator reads each claim once more."""
    script = Script(1, QUIET, topics={"t": PARTITIONS}, consumers=CONSUMERS, coordinators=1, layout=LEGACY)
    script.settle()
    script.world.run_for(1_000)
    asked, read = Counter[tuple[str, str]](), SimStore.read

    def counting(store: SimStore, token: int, reads: Any) -> None:
        for wanted in reads:
            assert isinstance(wanted, Read)
            for name, pattern in (("owner", OWNER), ("offset", OFFSET)):
                if wanted.kind is Kind.DATA and pattern.match(wanted.path):
                    asked[store.process.name.rstrip("0123456789"), name] += 1
        read(store, token, reads)

    monkeypatch.setattr(SimStore, "read", counting)
    script.join("late")
    script.settle()
    assert len(script.journal("stop")) == MOVED
    assert asked == {("late", "owner"): MOVED, ("late", "offset"): MOVED, ("coordinator", "owner"): MOVED}
