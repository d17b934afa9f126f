"""Replies of ZooKeeper, decoded: names of any length, in any number, whatever stands behind them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zkcoord.shell.zk import jute

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
LONG = st.sampled_from(["x" * size for size in (127, 128, 255, 256, 257, 65_536)])


@settings(deadline=None)
@given(
    names=st.lists(NAMES | LONG, max_size=30),
    before=st.binary(max_size=5),
    behind=st.sampled_from([b"", bytes(80), b"\0\0\0\1a", b"\xff\xff"]),
)
def test_names_are_read_to_their_end(names: list[str], before: bytes, behind: bytes) -> None:
    written = jute.INT.pack(len(names)) + b"".join(map(jute.text, names))
    found = jute.read_names(before + written + behind, len(before))
    assert found == (tuple(sorted(names)), len(before) + len(written))


@pytest.mark.parametrize("count", [-1, 0])
def test_a_missing_list_has_no_names(count: int) -> None:
    assert jute.read_names(jute.INT.pack(count) + bytes(80), 0) == ((), jute.INT.size)
