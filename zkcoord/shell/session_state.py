"""The state of a loop's present session: its requests under way, and its link."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from zkcoord.shell.hearing import Hearing
from zkcoord.shell.ports import Heard, ReadDone, StoreInput, TreeStore
from zkcoord.shell.tracker import Tracker
from zkcoord.tree.snapshot import Key, Kind
from zkcoord.tree.writes import Transaction


@dataclass(frozen=True, slots=True)
class Sent:
    """A transaction without an outcome."""

    tag: Any
    lane: str
    sent_ms: int
    step: int  # number of the loop's step: transactions of one step are refused together
    transaction: Transaction
    touched: list[Key]  # the wanted nodes that it touches
    tells: bool  # True if a want relies on the reply


@dataclass(slots=True)
class Lane:
    """Transactions whose refusals are counted together."""

    refused: int = 0  # in a row
    step: int = 0  # step in which the last refused one was sent
    until_ms: int = 0


@dataclass(slots=True)
class SessionState:
    """One session and what is under way in it."""

    number: int
    store: TreeStore
    tracker: Tracker = field(default_factory=Tracker)
    commits: dict[int, Sent] = field(default_factory=dict)  # by token
    syncs: dict[int, int] = field(default_factory=dict)  # token -> time of sending
    connected: bool = False
    opened: bool = False
    lanes: dict[str, Lane] = field(default_factory=dict)
    unreadable: dict[str, tuple[Kind, str]] = field(default_factory=dict)  # path -> (kind, reason), as reported
    gate: int | None = None
    # reads wait for the answer to this sync (0: it was not sent yet), because the link broke or an outcome is unknown
    hearing: Hearing = field(default_factory=Hearing)

    @property
    def awaits(self) -> bool:
        """True while an answer of the server is awaited."""
        return bool(self.commits or self.syncs or self.tracker.oldest is not None)

    def overtakes(self, item: StoreInput) -> bool:
        """True for an answer to a read that was sent after a sync or transaction that has no answer yet.

        A server answers in order. So such a server will not answer those, for example a follower that has lost its
        leader.
        """
        if not (self.syncs or self.commits) or not isinstance(item, (ReadDone, Heard)):
            return False
        # a part of an answer belongs to the oldest awaited read
        answers = item.token if isinstance(item, ReadDone) else self.tracker.oldest
        return answers is not None and answers > min((*self.syncs, *self.commits))
