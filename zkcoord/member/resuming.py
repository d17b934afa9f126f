"""What is held but does not run starts again from its offset: the lease had ended, or somebody set the offset.

Owners and offsets are read first: what is not owned any more is let go. A task that changes some of it comes first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from zkcoord.core.model import TopicPartition
from zkcoord.member.owned_partitions import Lookup
from zkcoord.member.session import MemberSession
from zkcoord.shell.ports import CallDone

REVIVE = "revive"  # the scope of what it looks up; who waits for the application's answer


class Resuming:
    """The revivals of one registration, one at a time. A method's answer is why there must be another one; None: no."""

    def __init__(self, session: MemberSession) -> None:
        self._session = session
        self._lookup: Lookup | None = None
        self.starting: tuple[TopicPartition, ...] = ()  # by the application, which has not answered
        self._number = 0  # of the call `start` for these

    def advance(self, idle: Sequence[TopicPartition]) -> str | None:
        """Do what can be done now for these, which no task is about; nothing of them is `starting`."""
        session = self._session
        if self._lookup is None:
            self._lookup = session.lookup(REVIVE)
            self._lookup.begin(idle)
        elif self._lookup.clean:
            looked_up, self._lookup = self._lookup, None
            gone, foreign = session.holdings.reconcile(idle, {}, looked_up)
            deleted = sorted(p for p, offset in foreign.items() if offset < 0)
            if deleted:  # only a start can apply the reset policy
                return f"somebody deleted the offsets of {', '.join(map(str, deleted[:5]))}"
            session.holdings.drop(gone)
            self.starting = tuple(p for p in idle if p in looked_up.partitions and p not in gone)
            looked_up.end()
            if self.starting:
                offsets = self._offsets(self.starting)
                numbers = {p: session.holdings.held[p].incarnation for p in offsets}
                self._number = session.call_start(offsets, numbers, waiting=REVIVE)
        return None

    def called(self, done: CallDone, generation: int) -> str | None:
        """The application has started them, in this generation, or could not."""
        if not self.starting:
            return None
        revived, self.starting = self.starting, ()
        if done.error is not None:
            return f"could not start again what it holds: {done.error}"
        self._session.holdings.run((p for p in revived if p in self._session.holdings.held), self._number)
        self._session.fetch_started(self._offsets(revived), generation)
        return None

    def give_way(self, partitions: Set[TopicPartition]) -> None:
        """A task is about to change these: what was read of them does not count."""
        if self._lookup is not None and self._lookup.partitions & partitions:
            self._lookup.end()
            self._lookup = None

    def give_up(self) -> None:
        """They must not run: what the application answers to that start does not count any more, nor for the next."""
        self.starting = ()
        self._session.disown(REVIVE)

    def _offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        held = self._session.holdings.held
        return {p: held[p].offset for p in partitions if p in held}
