"""Announcements: the ranges of a batch stand in the member's status before any of it is processed.

So whoever comes after a death, or after a stop in the middle of a batch, is given exactly these ranges. The write is
the status in one multi with the fence; one that was refused or whose outcome is unknown is simply made again, since it
says the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import NamedTuple

from zkcoord.core.given import given_ranges
from zkcoord.core.model import TopicPartition
from zkcoord.errors import FencedError, UnavailableError, UsageError
from zkcoord.member.session import MemberSession
from zkcoord.shell.ports import CommitDone, Outcome
from zkcoord.tree import member
from zkcoord.tree.status import ANNOUNCED_BYTES_MAX

Ranges = Mapping[TopicPartition, tuple[int, int]]


class Announced(NamedTuple):
    """What a request `announce` asks for: ranges, and by which start each of these partitions ran when the application
    decided on them (as `Wanted.starts`)."""

    ranges: Ranges
    starts: Mapping[TopicPartition, int]


class Announcing:
    """The announcements of one registration."""

    def __init__(self, session: MemberSession) -> None:
        self._session = session
        self._queue: list[tuple[Announced, Future[None]]] = []  # bounded by the program's threads, which wait

    def add(self, announced: Announced, future: Future[None]) -> None:
        """Announce these ranges; `future` ends with None, a FencedError, a UsageError, or an UnavailableError.

        UsageError for what are no ranges.
        """
        self._queue.append((Announced(given_ranges(announced.ranges), announced.starts), future))

    @property
    def asked(self) -> bool:
        """True while something is to be announced."""
        return bool(self._queue)

    def fail(self, error: Exception) -> None:
        """Nothing can be announced any more."""
        for _, future in self._queue:
            future.set_exception(error)
        self._queue.clear()

    def advance(self) -> None:
        """Send the first that is asked for; called only while no other write is under way."""
        session = self._session
        while self._queue and session.may_write:
            announced, future = self._queue[0]
            wrong = self._wrong(announced)
            if wrong is None:
                status = session.holdings.announce(announced.ranges, session.store_name)
                if len(status) <= ANNOUNCED_BYTES_MAX:
                    session.write("announce", [member.announce(session.paths, status, session.status_version)])
                    return
                if session.holdings.announces(announced.ranges):  # handed on, by several members perhaps
                    self._queue.pop(0)
                    future.set_result(None)
                    continue
                wrong = self._no_room(announced.ranges, len(status))
            self._queue.pop(0)
            session.stop_running(self._strayed(announced))
            future.set_exception(wrong)

    def _no_room(self, ranges: Ranges, status_bytes: int) -> Exception:
        """Why there is no room for these: they are too many, or others stand in the status that will leave it."""
        session, holdings = self._session, self._session.holdings
        alone = len(holdings.announce(ranges, session.store_name, alone=True))
        allowed = f"{ANNOUNCED_BYTES_MAX} are allowed"
        if alone > ANNOUNCED_BYTES_MAX:
            return UsageError(
                f"the status would have {alone} bytes with this announcement, {allowed}: announce fewer partitions"
            )
        session.short_of_room = True  # what is over leaves the status
        left = len(holdings.left_over())
        held = len(holdings.standing({}, holdings.batch).keys() - holdings.left_over() - ranges.keys())
        return UnavailableError(
            f"the status would have {status_bytes} bytes with this announcement, {allowed}, as other announced ranges"
            f" stand in it: {held} of partitions held here, which this program must process first, and {left} that it"
            " left unfinished, which stay until somebody else is given their partitions"
        )

    def _strayed(self, announced: Announced) -> list[TopicPartition]:
        """Those of which the program believes that another offset is committed, as after a commit that it gave up: it
        is told where they stand by another start."""
        session = self._session
        return [
            partition
            for partition, (start, _) in announced.ranges.items()
            if partition in session.holdings.running
            and announced.starts.get(partition, 0) == session.holdings.started(partition)
            and (mine := session.holdings.held.get(partition)) is not None
            and mine.offset != start
        ]

    def _wrong(self, announced: Announced) -> Exception | None:
        """Why these cannot be announced now: not held, started again since, or not from the committed offset on."""
        session = self._session
        for partition, (start, _) in sorted(announced.ranges.items()):
            mine = session.holdings.held.get(partition)
            if mine is None or partition not in session.holdings.running:
                return FencedError(f"not held by this consumer any more: {partition}")
            if announced.starts.get(partition, 0) != session.holdings.started(partition):
                return FencedError(f"decided before it was started again: {partition}")
            if start != mine.offset:
                return FencedError(f"{partition} is announced from {start}, its committed offset is {mine.offset}")
        return None

    def written(self, outcomes: list[CommitDone]) -> None:
        """The announcement under way was answered; if that is not certain it is decided on again."""
        if self._queue and all(done.outcome is Outcome.COMMITTED for done in outcomes):
            announced, future = self._queue.pop(0)
            self._session.announced(announced.ranges)
            future.set_result(None)
