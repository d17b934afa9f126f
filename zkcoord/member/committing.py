"""Commits of a consumer's offsets: fenced by the registration, guarded by each offset's version. (And announcements,
which wait for the same turn.)

What is asked for while one commit is under way goes with the next. An unknown or refused commit is read again: an own
value at the next version was the own write; a foreign value becomes the partition's position, and is reported.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import Future
from typing import NamedTuple

from zkcoord.core.given import given_offsets
from zkcoord.core.model import TopicPartition
from zkcoord.errors import FencedError
from zkcoord.member.announcing import Announcing
from zkcoord.member.owned_partitions import Lookup
from zkcoord.member.session import MemberSession
from zkcoord.shell.ports import CommitDone, Outcome
from zkcoord.tree import member

Asked = tuple["Wanted", "Future[None]"]


class Wanted(NamedTuple):
    """What a request `commit` asks for: next offsets, and by which start each of these partitions ran when the
    application decided on them: the number of that call `start`, all of this consumer counted from 1 on. So no number
    comes twice, and nothing is to be remembered of a partition that does not run."""

    offsets: Mapping[TopicPartition, int]
    starts: Mapping[TopicPartition, int]


class Committing:
    """The commits of one registration."""

    def __init__(self, session: MemberSession) -> None:
        self._session = session
        self._queue: list[Asked] = []  # as the inbox bounded by the program's threads, which wait for their futures
        self._active: list[Asked] = []
        self._offsets: dict[TopicPartition, int] = {}  # what the multis under way set
        self._lookup: Lookup | None = None
        self.announcing = Announcing(session)

    def add(self, wanted: Wanted, future: Future[None]) -> None:
        """Commit these offsets; `future` ends with None or a FencedError. UsageError for what are no offsets."""
        self._queue.append((Wanted(given_offsets(wanted.offsets), wanted.starts), future))

    @property
    def asked(self) -> bool:
        """True while a commit or an announcement is asked for, or a commit's outcome is looked up."""
        return bool(self._queue) or self._lookup is not None or self.announcing.asked

    def fail(self, error: Exception) -> None:
        """Nothing can be committed any more."""
        for _, future in [*self._active, *self._queue]:
            future.set_exception(error)
        self._active, self._queue, self._offsets = [], [], {}
        self.announcing.fail(error)

    def lost(self, partitions: Collection[TopicPartition]) -> None:
        """The application must not read these any more: what it asked for before does not count, even should they be
        started again, from what is committed, while it waits."""
        waiting, self._queue = self._queue, []
        for wanted, future in waiting:
            spoiled = ", ".join(str(p) for p in sorted(wanted.offsets) if p in partitions)
            if spoiled:
                future.set_exception(FencedError(f"lost by this consumer before it was committed: {spoiled[:200]}"))
            else:
                self._queue.append((wanted, future))

    def advance(self) -> bool:
        """Do what can be done now; called only while no other write is under way. True: a commit became certain."""
        looked_up = self._lookup
        if looked_up is not None:
            if not looked_up.clean:
                return False
            self._verify(looked_up)
        if self._queue and not self._active:
            self._active, self._queue = self._queue, []
            self._send()
        if not self._session.writing:
            self.announcing.advance()
        return looked_up is not None

    def _send(self) -> None:
        """Send what is asked for and not yet so; who names a partition that does not run any more is told."""
        session, held = self._session, self._session.holdings.held
        mine = session.holdings.readable
        for (offsets, starts), future in self._active:
            missing = ", ".join(str(p) for p in sorted(offsets) if p not in mine)
            stale = ", ".join(str(p) for p in sorted(offsets) if starts.get(p, 0) != session.holdings.started(p))
            if missing:
                future.set_exception(FencedError(f"not held by this consumer any more: {missing[:200]}"))
            elif stale:
                future.set_exception(FencedError(f"decided before these were started again: {stale[:200]}"))
        self._active = [asked for asked in self._active if not asked[1].done()]
        wanted = {p: offset for (offsets, _), _ in self._active for p, offset in offsets.items()}
        self._offsets = {p: offset for p, offset in wanted.items() if held[p].offset != offset}
        if self._offsets:
            session.write("commit", member.commit(session.paths, held, self._offsets))
        elif self._active:
            self._succeed(wanted)

    def written(self, outcomes: list[CommitDone]) -> None:
        """The multis of the present commit were answered."""
        if all(done.outcome is Outcome.COMMITTED for done in outcomes):
            offsets, self._offsets = self._offsets, {}
            self._session.holdings.committed(offsets)
            self._succeed(offsets)
            return
        self._session.uncertain = True
        self._lookup = self._session.lookup("commit")
        self._lookup.begin(self._offsets)

    def _succeed(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._session.event("offsets_committed", {"offsets": dict(offsets)})
        for _, future in self._active:
            future.set_result(None)
        self._active = []

    def _verify(self, lookup: Lookup) -> None:
        session = self._session
        held = session.holdings.held
        before = {p: held[p].offset for p in self._offsets if p in held}
        gone, foreign = session.holdings.reconcile(self._offsets, self._offsets, lookup)
        lookup.end()
        self._lookup, session.uncertain = None, False
        session.holdings.drop(gone)
        if gone or foreign:
            self.lost(session.stop_running(gone | foreign.keys()))
        for partition, offset in sorted(foreign.items()):
            own = self._offsets[partition]
            session.event(
                "foreign_offset", {"partitions": [partition], "offset": offset, "own": own, "level": "warning"}
            )
        again, failed = [], set[TopicPartition]()
        for wanted, future in self._active:
            spoiled = sorted((gone | foreign.keys()) & wanted.offsets.keys())
            if spoiled:
                failed |= wanted.offsets.keys()
                names = ", ".join(map(str, spoiled[:5]))
                future.set_exception(FencedError(f"taken away, or set by somebody else, meanwhile: {names}"))
            else:
                again.append((wanted, future))
        moved = {p for p in failed & before.keys() & held.keys() - foreign.keys() if held[p].offset != before[p]}
        if moved:  # by a multi of a commit that failed in another: who is told so does not know where they stand now
            self.lost(session.stop_running(moved))
        self._active = again
        self._send()
