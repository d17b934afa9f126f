"""The writes of a poke."""

from __future__ import annotations

from zkcoord.tree.channel import poke
from zkcoord.tree.paths import LEGACY
from zkcoord.tree.registration import decode_registration
from zkcoord.tree.writes import CreateNode, DeleteNode


def test_f95_a_poke_registers_somebody_without_topics_and_removes_it_in_the_same_multi() -> None:
    """Each old member rebalances once. If the registration were still there when they read, they would give it a share,
    or fail because of it."""
    made, gone = poke("g", 7, LEGACY)
    path = LEGACY.registration("g", "g_zpoke-7")
    assert isinstance(made, CreateNode)
    assert (made.path, made.ephemeral, gone) == (path, True, DeleteNode(path, 0))
    assert decode_registration(made.data).subscription == {}
