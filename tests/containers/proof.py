"""Proves invariants 1 and 2 (docs/protocol.md) from the event logs of consumer processes, and from nothing else.

The logs are those of `zkcoord consume --log-format json -vv`; `mono_ms` is one machine's monotonic clock, so the lines
of several processes can be compared. A *tenure* is one process's reading of one partition, from `fetch_started` on.

    1. nobody hands a record out but in a tenure and while its lease lasts; no two tenures of a partition overlap, where
       one that ended by losing it, or not at all, counts until its lease ended
    2. the first record of a tenure is the one at which it started, and each is followed by the next; a tenure starts
       not before what was committed, and not beyond what was handed out before; commits never go back, nor beyond
       what was handed out

A process that is frozen between its look at the lease and its line in the log may hand out, when it goes on, what it
had fetched before: this alone is forgiven, at the moments that `resumed_ms` names, and what is committed is judged
all the same. A clean stop is logged when its multi was answered, and by then the next may have begun: so such a tenure
counts until the last record that it handed out, behind which its process has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

Event = Mapping[str, Any]

SLACK_MS = 200
"""Between a look at the lease and the line in the log a busy machine may run somebody else; T/3, which lies between a
lease's end and the session's, is much more in every test."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """One process's events in their order, and when it was let go on after it had been frozen."""

    name: str
    events: Sequence[Event]
    resumed_ms: Sequence[int] = ()


@dataclass(slots=True, kw_only=True)
class Tenure:
    """One process reads one partition: [start_ms, end_ms] and the offsets that it told of."""

    process: str
    start_ms: int
    start: int
    end_ms: int | None = None  # None: it was never told to stop, and never lost it
    lost: bool = False
    lease_ms: int = -1
    last_ms: int = -1  # when it handed out its last record
    next: int = -1  # the record behind it
    commits: list[int] = field(default_factory=list)

    def may_read_until_ms(self) -> int:
        """The last moment at which it can have handed out a record."""
        if self.end_ms is None:
            return max(self.last_ms, self.lease_ms)
        return max(self.last_ms, min(self.end_ms, self.lease_ms)) if self.lost else max(self.last_ms, self.start_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What the group did with one partition: where it began, how far it read and committed, through whose hands."""

    first: int
    end: int
    committed: int
    processes: tuple[str, ...]  # of the tenures, in order


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """`wrong` says, a line each, what must never be; empty: proven."""

    wrong: tuple[str, ...]
    readings: Mapping[str, Reading]

    def offsets(self) -> dict[str, tuple[int, int]]:
        """Partition -> the first record that was handed out and the offset committed in the end."""
        return {partition: (reading.first, reading.committed) for partition, reading in self.readings.items()}


def judge(logs: Iterable[Log]) -> Verdict:
    """Whether these logs, which are all of a group's, show both invariants."""
    wrong: list[str] = []
    tenures: dict[str, list[Tenure]] = {}
    for log in logs:
        reader = _Reader(log, wrong)
        for event in log.events:
            reader.take(event)
        for partition, its in reader.tenures.items():
            tenures.setdefault(partition, []).extend(its)
    readings = {}
    for partition, its in sorted(tenures.items()):
        its.sort(key=lambda tenure: tenure.start_ms)
        wrong += [f"{partition}: {what}" for what in (*_overlaps(its), *_offsets(its))]
        readings[partition] = Reading(
            first=its[0].start,
            end=max(tenure.next for tenure in its),
            committed=max((offset for tenure in its for offset in tenure.commits), default=its[0].start),
            processes=tuple(tenure.process for tenure in its),
        )
    return Verdict(wrong=tuple(wrong), readings=readings)


class _Reader:
    """Follows one log: its tenures, and what it handed out outside of them or of its lease."""

    def __init__(self, log: Log, wrong: list[str]) -> None:
        self._log, self._wrong = log, wrong
        self._leases = _leases(log.events)
        self._open: dict[str, Tenure] = {}
        self.tenures: dict[str, list[Tenure]] = {}

    def take(self, event: Event) -> None:
        """The next line."""
        at_ms = event["mono_ms"]
        match event["event"]:
            case "fetch_started":
                for partition, offset in event["offsets"].items():
                    self._start(partition, offset, at_ms)
            case "fetch_stopped":
                for partition, offset in event["offsets"].items():
                    self._end(partition, at_ms, lost=False)
                    self._commit(partition, offset)
            case "fetch_lost" | "session_lost":
                for partition in event["partitions"]:
                    self._end(partition, at_ms, lost=True)
            case "lease_extended":
                for tenure in self._open.values():
                    tenure.lease_ms = max(tenure.lease_ms, event["lease_until_mono_ms"])
            case "offsets_committed":
                for partition, offset in event["offsets"].items():
                    self._commit(partition, offset)
            case "fetched":
                self._fetched(event["partition"], event["first"], event["last"], at_ms)

    def _start(self, partition: str, offset: int, at_ms: int) -> None:
        if partition in self._open:
            self._say(f"started at {at_ms}, which it reads already", partition)
        lease_ms = self._lease_ms(at_ms)
        tenure = Tenure(process=self._log.name, start_ms=at_ms, start=offset, lease_ms=lease_ms, next=offset)
        self._open[partition] = tenure
        self.tenures.setdefault(partition, []).append(tenure)

    def _end(self, partition: str, at_ms: int, *, lost: bool) -> None:
        tenure = self._open.pop(partition, None)
        if tenure is not None:  # else it was only about to start it
            tenure.end_ms, tenure.lost = at_ms, lost

    def _commit(self, partition: str, offset: int) -> None:
        """Perhaps answered after it lost the partition: of its last tenure all the same."""
        if partition in self.tenures:
            self.tenures[partition][-1].commits.append(offset)
        else:
            self._say(f"committed {offset} without having started", partition)

    def _fetched(self, partition: str, first: int, last: int, at_ms: int) -> None:
        if self._woken(at_ms) and (partition not in self._open or at_ms > self._lease_ms(at_ms)):
            return
        if at_ms > self._lease_ms(at_ms) + SLACK_MS:
            self._say(f"handed out {first} at {at_ms}, the lease ended at {self._lease_ms(at_ms)}", partition)
        tenure = self._open.get(partition)
        if tenure is None:
            its = self.tenures.get(partition, [])
            if not its or not its[-1].lost or at_ms > (its[-1].end_ms or 0) + SLACK_MS:
                self._say(f"handed out {first} at {at_ms}, which it does not hold", partition)
                return
            tenure = its[-1]
        if first != tenure.next:
            self._say(f"handed out {first} after {tenure.next - 1} at {at_ms}", partition)
        if last < first:
            self._say(f"handed out {first} to {last} at {at_ms}", partition)
        tenure.next, tenure.last_ms = last + 1, at_ms

    def _woken(self, at_ms: int) -> bool:
        return any(0 <= at_ms - resumed_ms <= SLACK_MS for resumed_ms in self._log.resumed_ms)

    def _lease_ms(self, at_ms: int) -> int:
        """Until when it might read, as far as it knew; an extension counts before its line is in the log."""
        return max((until_ms for known_ms, until_ms in self._leases if known_ms <= at_ms + SLACK_MS), default=-1)

    def _say(self, what: str, partition: str) -> None:
        self._wrong.append(f"{partition}: {self._log.name} {what}")


def _leases(events: Iterable[Event]) -> list[tuple[int, int]]:
    return [(e["mono_ms"], e["lease_until_mono_ms"]) for e in events if e["event"] == "lease_extended"]


def _overlaps(tenures: Sequence[Tenure]) -> Iterator[str]:
    """Invariant 1 over all processes."""
    until_ms, by = -1, ""
    for tenure in tenures:
        if tenure.start_ms < until_ms:
            yield f"{tenure.process} starts at {tenure.start_ms}, {by} may read until {until_ms}"
        if tenure.may_read_until_ms() > until_ms:
            until_ms, by = tenure.may_read_until_ms(), tenure.process


def _offsets(tenures: Sequence[Tenure]) -> Iterator[str]:
    """Invariant 2 over all processes."""
    committed = reached = tenures[0].start
    for tenure in tenures:
        who = f"{tenure.process} at {tenure.start_ms}"
        if tenure.start < committed:
            yield f"{who} starts at {tenure.start}, {committed} is committed"
        if tenure.start > reached:
            yield f"{who} starts at {tenure.start}, nobody has handed out {reached}"
        reached = max(reached, tenure.next)
        for before, offset in pairwise([max(committed, tenure.start), *tenure.commits]):
            if offset < before:
                yield f"{who} commits {offset} after {before}"
            if offset > reached:
                yield f"{who} commits {offset}, nobody has handed out {reached}"
        committed = max([committed, tenure.start, *tenure.commits])
