"""The only place that reads and writes the key `moved` of a group record."""

from __future__ import annotations

from typing import Any

from zkcoord.core.moved import Moved, MoveState
from zkcoord.tree.codec import Document

STATES = tuple(state.value for state in MoveState)


def moved_fields(moved: Moved) -> dict[str, Any]:
    """Return the key's value."""
    back = {"back": True} if moved.back else {}
    return {
        "state": moved.state.value,
        "tree": moved.tree,
        "address": moved.address,
        "run": moved.run,
        "paused": moved.paused,
        **back,
    }


def read_moved(section: Document) -> Moved | None:
    """Return where the group is. None: the record has no such key. Raises CorruptError for a bad value."""
    if not section.fields:
        return None
    state = section.text("state")
    if state not in STATES:
        raise section.wrong("state", state, " or ".join(STATES))
    return Moved(
        state=MoveState(state),
        tree=section.text("tree"),
        address=section.text("address", default=""),
        run=section.text("run", default=""),
        paused=section.flag("paused"),
        back=section.flag("back"),
    )
