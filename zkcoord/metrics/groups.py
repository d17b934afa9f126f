"""The metrics of a coordinator's groups: gauges are computed at each request, events are counted when they happen."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, islice

from zkcoord.core.ack_timeouts import ack_timeout_ms
from zkcoord.core.decisions import EvictMember
from zkcoord.core.handovers import HandOver, KeptHandOvers
from zkcoord.core.model import Phase, TopicPartition, consumer_of
from zkcoord.core.view import GroupView
from zkcoord.metrics import names
from zkcoord.metrics.families import Instruments
from zkcoord.metrics.names import Sample
from zkcoord.serving.decided import DecidedGroup

HANDOVERS_MAX = 10_000
"""The number of a group's hand-overs that are kept for its timeline."""

FIRST_RECORD = "first_record"
"""The stage after a hand-over: from its acknowledgement until the application gets the first record."""

OF_A_GROUP = (names.UNOWNED_TIME, names.HANDOVER, names.STAGE, names.RETRIES, names.EVICTIONS)


@dataclass(slots=True)
class _Group:
    """The last decision about one group, and its hand-overs."""

    last: DecidedGroup
    handovers: KeptHandOvers = field(default_factory=KeptHandOvers)
    done: deque[HandOver] = field(default_factory=lambda: deque(maxlen=HANDOVERS_MAX))  # the last ones, oldest first
    amended: dict[tuple[TopicPartition, int | None], HandOver] = field(default_factory=dict)
    # by partition and acknowledgement: completed hand-overs whose first record became known later, the last
    # HANDOVERS_MAX of them
    unowned: Mapping[TopicPartition, int] = field(default_factory=dict)  # partition without a living owner -> since
    retried: dict[tuple[str, str], int] = field(default_factory=dict)  # outstanding command -> periods counted so far


class GroupMetrics:
    """Metrics of all groups of a coordinator. The loop calls `decided` and `reset`; any thread may call `samples`."""

    def __init__(self, instruments: Instruments) -> None:
        self._instruments = instruments
        self._groups: dict[str, _Group] = {}
        self._lock = threading.Lock()

    def reset(self) -> None:
        """Forget all groups: this coordinator does not serve."""
        with self._lock:
            self._groups = {}

    def keep(self, groups: Collection[str]) -> None:
        """Forget all groups but these, with their counters: the other groups were removed."""
        with self._lock:
            gone = self._groups.keys() - set(groups)
            for group in gone:
                del self._groups[group]
        for group in gone:
            for each in OF_A_GROUP:
                self._instruments.forget(each, group)

    def decided(self, of: DecidedGroup) -> None:
        """Take in the result of one decision about a group."""
        group = of.view.group
        with self._lock:
            known = self._groups.get(group)
            if known is None:
                known = self._groups[group] = _Group(of)
                for each in (names.UNOWNED_TIME, names.RETRIES, names.EVICTIONS):
                    self._instruments.count(each, group, by=0)
            known.last = of
            known.handovers = known.handovers.after(of.view, of.decisions, of.now_ms)
            known.unowned = _unowned(of, known.unowned)
            self._count_retries(group, known, of.now_ms)
            for done in known.handovers.completed:
                self._completed(group, done)
            known.done.extend(known.handovers.completed)
            for read in known.handovers.amended:
                self._first_record(group, read)
                known.amended[read.partition, read.acknowledged_ms] = read
            for oldest in list(islice(known.amended, max(0, len(known.amended) - HANDOVERS_MAX))):
                del known.amended[oldest]
        for decision in of.decisions:
            if isinstance(decision, EvictMember):
                self._instruments.count(names.EVICTIONS, group)

    def _completed(self, group: str, done: HandOver) -> None:
        if done.acknowledged_ms is None or done.granted_ms is None:
            return
        measure = self._instruments.observe
        measure(names.HANDOVER, (done.acknowledged_ms - done.begun_ms) / 1000, group)
        self._instruments.count(names.UNOWNED_TIME, group, by=done.unowned_ms / 1000)
        for stage in done.stages():
            for each in (stage, *stage.parts):
                measure(names.STAGE, (each.ended_ms - each.begun_ms) / 1000, group, each.name)
        self._first_record(group, done)

    def _first_record(self, group: str, of: HandOver) -> None:
        if of.first_record_ms is not None and of.acknowledged_ms is not None:
            seconds = (of.first_record_ms - of.acknowledged_ms) / 1000
            self._instruments.observe(names.STAGE, seconds, group, FIRST_RECORD)

    def _count_retries(self, group: str, known: _Group, now_ms: int) -> None:
        """Count each further period that was given to an outstanding command once."""
        before, known.retried = known.retried, {}
        for key, first_ms in known.last.memory.ack_timeouts.commands.items():
            periods = known.retried[key] = _periods(known.last.view, key[0], now_ms - first_ms)
            if (more := periods - before.get(key, 0)) > 0:
                self._instruments.count(names.RETRIES, group, by=more)

    def handovers(self, group: str, last: int | None = None) -> list[HandOver] | None:
        """Return the last `last` hand-overs of the group (None: all): completed ones, then those under way.

        None if there is no such group here.
        """
        with self._lock:
            known = self._groups.get(group)
            if known is None:
                return None
            under_way = list(known.handovers.open.values())
            newest_first = list(islice(chain(reversed(under_way), reversed(known.done)), last))
            return [known.amended.get((each.partition, each.acknowledged_ms), each) for each in newest_first[::-1]]

    def samples(self, now_ms: int) -> Iterator[Sample]:
        """Return the present values."""
        with self._lock:
            for group, known in self._groups.items():
                self._count_retries(group, known, now_ms)
            seen = [(group, known.last, known.unowned) for group, known in sorted(self._groups.items())]
        for group, last, unowned in seen:
            yield from _of_group(group, last, unowned, now_ms)


def _of_group(group: str, last: DecidedGroup, unowned: Mapping[TopicPartition, int], now_ms: int) -> Iterator[Sample]:
    view, state, phase = last.view, last.view.state, last.phase
    for each in Phase:
        yield names.STATE, (group, each.value), float(each is phase)
    yield names.GENERATION, (group,), state.generation
    yield names.MEMBERS, (group,), len(view.members)
    yield names.PARTITIONS, (group,), sum(map(len, view.topics.values()))
    yield names.UNOWNED, (group,), len(unowned)
    yield names.UNOWNED_AGE, (group,), max(0, now_ms - min(unowned.values(), default=now_ms)) / 1000
    commands = last.memory.ack_timeouts.commands
    ages_ms = [now_ms - first_ms for (consumer_id, _), first_ms in commands.items() if consumer_id in view.members]
    yield names.COMMANDS, (group, "0"), len(ages_ms)
    for seconds in names.AGES_SECONDS:
        yield names.COMMANDS, (group, str(seconds)), sum(age_ms >= seconds * 1000 for age_ms in ages_ms)
    yield names.COMMAND_AGE, (group,), max(ages_ms, default=0) / 1000
    lags = [channel.lag for c, channel in view.channels.items() if c in view.members and channel.lag is not None]
    yield names.REPORTED_LAG, (group,), sum(lags)
    for problem, holds in (
        ("failed", state.failed is not None),
        ("assignment", bool(state.problem)),
        ("quarantined", bool(state.quarantined)),
    ):
        yield names.PROBLEM, (group, problem), float(holds)


def _unowned(of: DecidedGroup, before: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
    """Return each partition that should have an owner and has no living one -> when that was first seen."""
    lacking = of.memory.difference.value.lacking
    if not lacking or not of.view.members:
        return {}
    owners, members = of.view.owners, of.view.members
    return {
        partition: before.get(partition, of.now_ms)
        for partition, _ in lacking
        if (owner := owners.get(partition)) is None or not owner.thread or consumer_of(owner.thread) not in members
    }


def _periods(view: GroupView, consumer_id: str, age_ms: int) -> int:
    """Return how many further periods a member was given to obey a command of this age."""
    member = view.members.get(consumer_id)
    if member is None:
        return 0
    most = view.record.policy.max_rebalance_retries
    return sum(age_ms >= ack_timeout_ms(member.rebalance_timeout_ms, n) for n in range(most))
