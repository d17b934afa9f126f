"""Reads all groups again and again for the page, and reads one group immediately when a user opens it.

The page is a process of its own, and reads ZooKeeper and Kafka as every tool does, so its work takes no time of a
coordinator. It rests after each group, so that it uses a fifth of one core at most.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from zkcoord.audit.audit import Audit
from zkcoord.audit.auditor import Auditor
from zkcoord.audit.checks import Suspicion
from zkcoord.audit.seen import Seen
from zkcoord.clock import mono_ms
from zkcoord.errors import UnavailableError, ZkcoordError
from zkcoord.group_report import TreeReport, read_tree
from zkcoord.kafka.client import KafkaClient
from zkcoord.offsets.kafka_logs import known_logs
from zkcoord.offsets.kafka_store import KafkaCommits
from zkcoord.operating.coordinators import coordinator_documents
from zkcoord.operating.handovers import fetch_handovers
from zkcoord.operating.kafka_side import KafkaSide
from zkcoord.shell.zk.blocking import LastingTree, Tree

LOG = logging.getLogger("zkcoord.page")
INTERVAL_MS = 5_000
REST = 4
"""After each group nothing is read for REST times the time that reading the group took. The same holds after judging
all groups."""
PATIENCE_MS, WINDOW_MS = 60_000, 60_000
"""How long a hand-over may take, and the window over which lag is judged, as in `zkcoord audit`."""
LAGS_MAX = 720
"""The number of lags that are kept for a group: an hour of readings, if each takes less than a second."""
LOOK_MS = 1_000
"""All users who look at a group within this time share one reading of it."""
LOOKS_MAX = 200
"""The number of groups whose last look is kept; a group may have a hundred thousand partitions."""
HANDOVERS_LAST = 200
ANSWER_SECONDS = 2.0
KAFKA_WAIT_MS = 5_000
LOCKS = 16
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """All groups at one moment: `at_ms` by the wall clock. Commands: (group, consumer, sequence) -> first seen."""

    above: TreeReport
    coordinators: Sequence[Mapping[str, Any]]
    groups: Mapping[str, Seen]
    findings: Sequence[Suspicion]
    commands: Mapping[tuple[str, str, str], int]
    at_ms: int
    took_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One group at one moment: `at_ms` by the wall clock, `mono_ms` by the monotonic one. Reading it took `took_ms`."""

    above: TreeReport
    seen: Seen
    at_ms: int
    mono_ms: int
    took_ms: int = 0


@dataclass(frozen=True, slots=True)
class HandOvers:
    """The last hand-overs of a group, as `zkcoord group timeline` shows them. `why`: the reason if they are not
    known."""

    found: Sequence[Mapping[str, Any]]
    why: str | None
    mono_ms: int


class Reader:
    """Makes readings, and holds the last one. `open_tree` opens a session. `client` None: no address of Kafka was
    given.
    `timelines` are addresses of coordinators' metrics."""

    def __init__(
        self,
        open_tree: Callable[[], Tree],
        address: str,
        *,
        client: KafkaClient | None = None,
        timelines: Sequence[str] = (),
        interval_ms: int = INTERVAL_MS,
    ) -> None:
        self._timelines, self._interval_ms = timelines, interval_ms
        self._tree = LastingTree(open_tree)
        self._auditor = Auditor(self._tree, address, Audit(PATIENCE_MS, WINDOW_MS))
        if client is not None:
            self._auditor.logs = known_logs(client, timeout_ms=KAFKA_WAIT_MS)
            self._auditor.commits = KafkaCommits(client)
        self._auditor.rest = self._rest
        self._worked_ms = 0  # when the last rest ended
        self._kafka = KafkaSide(client, KAFKA_WAIT_MS, tell=LOG.debug)
        self.address = address
        self.reading: Reading | None = None
        self.failed: str | None = None  # why the last reading failed; None if it succeeded
        self.first = threading.Event()  # set once the first reading has ended, even if it failed
        self._lags: dict[str, deque[tuple[int, int]]] = {}
        self._looks: dict[str, Look] = {}
        self._handovers: dict[str, HandOvers] = {}
        self._silence: tuple[int, str] | None = None  # when ZooKeeper last did not answer a look, and the error
        self._locks = [threading.Lock() for _ in range(LOCKS)]  # a group's lock is chosen by its hash
        self._keeping = threading.Lock()
        self._asked = threading.Event()  # set when all groups shall be read at once
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="zkcoord-page", daemon=True)

    def start(self) -> None:
        """Start the thread that reads."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread and the session. Idempotent."""
        self._ended.set()
        self._asked.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._tree.close()

    def _run(self) -> None:
        while not self._ended.is_set():
            self._asked.clear()
            began_ms = self._worked_ms = mono_ms()
            self._read_all(began_ms)
            self.first.set()
            self._asked.wait(max(self._interval_ms, REST * (mono_ms() - self._worked_ms)) / 1000)

    def _rest(self) -> None:
        """Rest, so that other programs can use ZooKeeper and the processor. There is no rest in the first reading, and
        none when a reading was asked for."""
        if self.reading is not None:
            self._asked.wait(REST * (mono_ms() - self._worked_ms) / 1000)
        self._worked_ms = mono_ms()

    def _read_all(self, began_ms: int) -> None:
        auditor, tree = self._auditor, self._tree
        try:
            auditor.read(mono_ms)
            above = read_tree(tree, self.address)
            coordinators = coordinator_documents(tree, above)
        except ZkcoordError as error:
            self.failed = str(error)
            return
        except Exception as error:  # the page goes on with its last reading, and shows that this is old
            LOG.exception("the page cannot read all groups")
            self.failed = f"a bug in zkcoord: {error!r}; please report it with the page's log"
            return
        groups = {seen.report.view.group: seen for seen in auditor.seen}
        at_ms = time.time_ns() // 1_000_000
        before = self.reading.commands if self.reading is not None else {}
        reading = Reading(
            above=above,
            coordinators=coordinators,
            groups=groups,
            findings=auditor.audit.findings,
            commands={key: before.get(key, at_ms) for key in command_keys(groups.values())},
            at_ms=at_ms,
            took_ms=mono_ms() - began_ms,
        )
        self._note_lags(reading)
        self.failed, self.reading = None, reading

    def _note_lags(self, reading: Reading) -> None:
        for group in self._lags.keys() - reading.groups.keys():
            del self._lags[group]
        for group, seen in reading.groups.items():
            lag = lag_of(seen)
            if lag is not None:
                self._lags.setdefault(group, deque(maxlen=LAGS_MAX)).append((reading.at_ms, lag))

    # called by requests, on any thread

    def read_again(self) -> None:
        """Read all groups now, since something was changed."""
        self._asked.set()

    def lags(self, group: str) -> list[tuple[int, int]]:
        """Return the group's lag over time: pairs of wall clock in ms and records."""
        return list(self._lags.get(group, ()))

    def look(self, group: str, age_ms: int = LOOK_MS) -> Look:
        """Return the group as it was at most `age_ms` ago; for a large group this may be longer (`REST`). 0: as it is
        now.

        UsageError if there is no such group. UnavailableError if ZooKeeper does not answer: all calls that wait for the
        group at that moment get this error together.
        """
        asked_ms = mono_ms()
        with self._locks[hash(group) % LOCKS]:
            known = self._looks.get(group)
            if known is not None and age_ms and mono_ms() - known.mono_ms <= max(age_ms, REST * known.took_ms):
                return known
            if self._silence is not None and self._silence[0] >= asked_ms:
                raise UnavailableError(self._silence[1])
            try:
                look = self._look(group)
            except UnavailableError as error:
                self._silence = mono_ms(), str(error)
                raise
            self._keep(self._looks, group, look)
            return look

    def _look(self, group: str) -> Look:
        began_ms = mono_ms()
        above, seen = self._auditor.look(group)
        (report,) = self._kafka.offsets(self._tree, above.layout, [seen.report])
        now_ms, at_ms = mono_ms(), time.time_ns() // 1_000_000
        seen = replace(seen, report=report)
        return Look(above=above, seen=seen, at_ms=at_ms, mono_ms=now_ms, took_ms=now_ms - began_ms)

    def last_look(self, group: str) -> Look | None:
        """Return the group's last look; None if there was none."""
        return self._looks.get(group)

    def handovers(self, group: str) -> HandOvers:
        """Return the group's last hand-overs, at most two seconds old, as the coordinators in `timelines` tell them."""
        if not self._timelines:
            return HandOvers((), "the page was told of no coordinator that keeps it (--from HOST:PORT)", 0)
        with self._locks[hash(group) % LOCKS]:
            known = self._handovers.get(group)
            if known is not None and mono_ms() - known.mono_ms <= 2 * LOOK_MS:
                return known
            try:
                told = fetch_handovers(self._timelines, group, HANDOVERS_LAST, ANSWER_SECONDS)
                found = HandOvers(told, None, mono_ms())
            except ZkcoordError as error:
                found = HandOvers((), str(error), mono_ms())
            self._keep(self._handovers, group, found)
            return found

    def _keep(self, kept: dict[str, T], group: str, value: T) -> None:
        """Keep the value. If there are more than LOOKS_MAX, remove the oldest."""
        with self._keeping:
            kept.pop(group, None)
            kept[group] = value
            while len(kept) > LOOKS_MAX:
                del kept[next(iter(kept))]


def command_keys(groups: Iterable[Seen]) -> list[tuple[str, str, str]]:
    """Return group, consumer and sequence of each outstanding command, in order."""
    return [
        (seen.report.view.group, consumer, command.sequence)
        for seen in groups
        for consumer, channel in sorted(seen.report.view.channels.items())
        for command in channel.commands
    ]


def lag_of(seen: Seen) -> int | None:
    """Return the group's lag: by Kafka's logs, for the partitions whose logs are known; if none is, as the members
    report it. None: the lag is not known."""
    known = [max(0, seen.logs[p].end - offset.offset) for p, offset in seen.offsets.items() if p in seen.logs]
    if known:
        return sum(known)
    view = seen.report.view
    told = [channel.lag for c, channel in view.channels.items() if c in view.members and channel.lag is not None]
    return sum(told) if told else None
