"""How a consumer obeys commands: reads what it needs, asks the application, and acknowledges in one multi.

Here stands what all tasks have in common, stops and refusals; starts are in `start_task`, ranges left over in
`replay_cleanup`.

Each task is advanced until it is done; it never trusts an outcome. After a refused or unknown write it reads the nodes
again and decides again: a command that is gone was acknowledged, one that stands was not. A partition is the
application's exactly from the acknowledgement of its start to the multi that releases it (rule 3).
"""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from zkcoord.core.model import TopicPartition
from zkcoord.errors import CorruptError
from zkcoord.member.owned_partitions import Lookup
from zkcoord.member.session import MemberSession
from zkcoord.shell.ports import CallDone, CommitDone, Outcome
from zkcoord.tree import member
from zkcoord.tree.snapshot import Node

TASK = "task"  # the scope of what a task looks up


class Step(Enum):
    """Where a task stands."""

    READ = "read"  # owners and offsets are being read
    CALL = "call"  # the application is at it
    WRITE = "write"  # ready to send
    SENT = "sent"  # multis under way
    VERIFY = "verify"  # an outcome was refused or unknown: reading again
    DONE = "done"


UNWRITTEN = (Step.READ, Step.CALL, Step.WRITE)
"""Where a task has written nothing whose outcome it does not know: others may write beside it."""


class Task(Protocol):
    """Commands being obeyed."""

    step: Step

    def advance(self) -> None:
        """Do what can be done now."""

    def called(self, done: CallDone) -> None:
        """Take the application's answer."""

    def written(self, outcomes: list[CommitDone]) -> None:
        """Take the outcomes of the multis that were sent together."""

    def partitions(self) -> set[TopicPartition]:
        """What it is about, as far as it is not done."""


class StopTask:
    """Obey a stop-fetcher, or leave: the application stops, then offsets and releases, then the command is deleted.

    What the application has stopped while it is still at the rest is released at once: the command stands on.
    """

    def __init__(self, session: MemberSession, sequence: str | None, named: set[TopicPartition] | None) -> None:
        """`sequence` None: no command asked for it (leaving); `named` None: everything that is held."""
        self.sequence = sequence
        self.step = Step.CALL
        self._session = session
        held = session.holdings.held
        self._left = {p for p in held if named is None or p in named}
        self._early: set[TopicPartition] = set()  # of these: stopped already, in the middle of the call
        self._sent: set[TopicPartition] = set()  # what the multis under way release
        self._answered = self._last = False  # the application; the multis under way acknowledge
        self._finals: dict[TopicPartition, int] = {}
        self._lookup: Lookup | None = None
        running = tuple(sorted(self._left & session.holdings.running))
        if running:
            session.call("stop", running)
        else:
            self.step, self._answered = Step.WRITE, True

    def partitions(self) -> set[TopicPartition]:
        """What this task is about."""
        return set(self._left)

    def called(self, done: CallDone) -> None:
        """The application stopped, all or a part, with final offsets; one that raised keeps what was committed."""
        holdings = self._session.holdings
        stopped, offsets = done.value if done.part else (self._left, done.value)
        stopped = self._left.intersection(stopped)
        if done.part:
            stopped &= holdings.running
            self._early |= stopped
        else:
            self._answered = True
        holdings.halt(stopped)
        if done.error is not None:
            why = f"{type(done.error).__name__}: {done.error}"
            self._session.event("stop_failed", {"partitions": sorted(self._left), "why": why, "level": "warning"})
        self._finals |= {p: offset for p, offset in dict(offsets or {}).items() if p in stopped}
        self._go_on()

    def _go_on(self) -> None:
        """What comes next while nothing is under way. Leaving, all is released together: the session's end tells."""
        if self.step in (Step.CALL, Step.WRITE):
            early = bool(self._early) and self.sequence is not None
            self.step = Step.WRITE if self._answered or early else Step.CALL

    def advance(self) -> None:
        """Do what can be done now."""
        if self.step is Step.VERIFY and self._lookup is not None and self._lookup.clean and self._session.channel_clean:
            self._verify(self._lookup)
        while self.step is Step.WRITE and self._session.may_write:
            self._write()

    def _write(self) -> None:
        session = self._session
        for partition in session.holdings.overwritten & self._finals.keys():
            del self._finals[partition]  # what was processed beyond a foreign offset is not committed
        self._last = self._answered
        self._sent = set(self._left if self._last else self._early)
        held = {p: session.holdings.held[p] for p in self._sent if p in session.holdings.held}
        if self.sequence is None:  # an unfinished range: the session's end frees it, at which the status is read
            unfinished = session.holdings.standing({}, session.holdings.batch)
            held = {p: mine for p, mine in held.items() if p not in unfinished or self._finishes(p)}
        done = None
        if self._last and self.sequence is not None and not session.acknowledged(self.sequence):
            rest = {p: mine for p, mine in session.holdings.held.items() if p not in self._left}
            done = session.acknowledgement([self.sequence], rest)
        transactions = member.release(session.paths, held, self._finals, done, tell=not self._last)
        if not transactions:
            self._end()
            return
        self.step = Step.SENT
        session.write("task", transactions)

    def _finishes(self, partition: TopicPartition) -> bool:
        mine = self._session.holdings.held[partition]
        return self._finals.get(partition, mine.offset) != mine.offset

    def written(self, outcomes: list[CommitDone]) -> None:
        """The releases were answered."""
        if all(done.outcome is Outcome.COMMITTED for done in outcomes):
            self._end()
            return
        self.step = Step.VERIFY
        self._lookup = self._session.lookup(TASK)
        self._lookup.begin(self._sent)

    def _verify(self, lookup: Lookup) -> None:
        holdings = self._session.holdings
        granted = self._sent & self._session.granted() & holdings.held.keys()
        gone, foreign = holdings.reconcile(self._sent - granted, self._finals, lookup)
        gone |= granted  # released, and given back: that owner's node may be another one, at the same version
        self._left -= gone
        self._early -= gone
        self._report(gone)
        for partition, offset in sorted(foreign.items()):
            final = self._finals.pop(partition, None)
            fields = {"partitions": [partition], "offset": offset, "own": final, "level": "warning"}
            self._session.event("foreign_offset", fields)
        lookup.end()
        self.step = Step.WRITE
        self._go_on()

    def _end(self) -> None:
        """What was sent is released."""
        self._report(self._sent)
        self._left -= self._sent
        self._early -= self._sent
        self.step = Step.DONE if self._last else Step.CALL
        self._go_on()

    def _report(self, released: set[TopicPartition]) -> None:
        """These are not held any more; where each was left is told."""
        holdings = self._session.holdings
        held = {p: holdings.held[p] for p in sorted(released) if p in holdings.held}
        offsets = {p: self._finals.get(p, mine.offset) for p, mine in held.items()}
        holdings.drop(offsets)
        if offsets:
            self._session.event("fetch_stopped", {"partitions": list(offsets), "offsets": offsets})


class RefuseTask:
    """Refuse a command that cannot be understood: neither read anything for it nor ask the application."""

    def __init__(self, session: MemberSession, command: Node, error: CorruptError) -> None:
        self.step = Step.WRITE
        self._session, self._command, self._error = session, command, error

    def partitions(self) -> set[TopicPartition]:
        """It is about no partition."""
        return set()

    def called(self, done: CallDone) -> None:
        """Nothing was asked."""

    def advance(self) -> None:
        """Send it."""
        if self.step is Step.WRITE and self._session.may_write:
            self.step = Step.SENT
            self._session.write("task", [member.refuse(self._session.paths, self._command, self._error)])

    def written(self, outcomes: list[CommitDone]) -> None:
        """Whatever came of it is read from the channel: a command that still stands is taken up again."""
        self.step = Step.DONE
