"""Where a group is while it is being moved, or after it was moved, to another tree. It is part of the group's record in
both trees.

A group with this in its record reads nothing in that tree, whoever resumes it. `tree.moved` is the codec.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class MoveState(Enum):
    """The state of a move, in the record of one of the two trees."""

    LEAVING = "leaving"  # the other tree gets a copy; this one still counts
    GONE = "gone"  # the other tree counts: this record is a tombstone
    ARRIVING = "arriving"  # this tree gets a copy; the other one still counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """One move. `tree` and `address` are those of the other tree. `run` is the run of the tool that may continue the
    move."""

    state: MoveState
    tree: str
    address: str
    run: str
    paused: bool = False  # people had paused the group before the move: it stays paused in the other tree
    back: bool = False  # it arrives where it had gone from: giving up the move leaves the tombstone there again

    def where(self) -> str:
        """Return what people are told about the group.

        >>> Moved(state=MoveState.GONE, tree="5e0b", address="zk2:2181/kafka", run="r").where()
        'was moved to zk2:2181/kafka'
        """
        words = {
            MoveState.LEAVING: "is being moved to",
            MoveState.GONE: "was moved to",
            MoveState.ARRIVING: "is arriving from",
        }
        return f"{words[self.state]} {self.address}"
