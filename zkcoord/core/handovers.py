"""Hand-overs of a group's partitions, as a coordinator sees them and as its members' statuses tell them.

`KeptHandOvers.after` must be called with each view that was decided on, and with the decisions. It looks only at
partitions that are under way, and at members whose first records are awaited. So a group at rest costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from zkcoord.core.decisions import Decision, GrantPartitions, StopFetching
from zkcoord.core.model import TopicPartition, consumer_of
from zkcoord.core.timing import Timing
from zkcoord.core.view import START, STOP, Channel, GroupView

MOMENTS = (
    "decided_ms",
    "sent_ms",
    "seen_ms",
    "stopped_ms",
    "committed_ms",
    "released_ms",
    "granted_ms",
    "start_seen_ms",
    "acknowledged_ms",
    "first_record_ms",
)
"""The times of a hand-over, in their order."""

STAGES = {
    "stop": ("decided_ms", "released_ms"),
    "grant": ("released_ms", "granted_ms"),
    "start": ("granted_ms", "acknowledged_ms"),
}
"""Stage of a hand-over -> the times at which it begins and ends."""

PARTS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "stop": dict(zip(("send", "see", "finish", "commit", "release"), pairwise(MOMENTS[:6]), strict=True)),
    "grant": {},
    "start": dict(zip(("start_see", "prepare"), pairwise(MOMENTS[6:9]), strict=True)),
}
"""Stage -> its parts, where the consumer tells them. Of a stop: it is sent and seen, the application finishes its
present work, a commit under way ends, and the release is written and seen. Of a start: it is seen, and the application
prepares."""


class Stage(NamedTuple):
    """A part of a hand-over that is over. `consumer` is the consumer that acted; "" is the coordinator."""

    name: str
    begun_ms: int
    ended_ms: int
    consumer: str
    parts: tuple[Stage, ...] = ()


class HandOver(NamedTuple):
    """One partition on its way to a reader. Times are ms of the coordinator's monotonic clock; None: not yet, or not
    known.

    `decided_ms` and the four times after it are None when nobody had to be stopped, because the partition was free or
    its reader had died. Then `released_ms` is the time of the grant. The consumers' times come from their statuses, and
    are None if a consumer does not tell them.
    """

    partition: TopicPartition
    giver: str = ""  # the consumer that was stopped; "": nobody had to be stopped
    taker: str = ""  # the consumer that was told to start; "": nobody yet
    generation: int = 0
    decided_ms: int | None = None  # when the stop was decided
    sent_ms: int | None = None  # when ZooKeeper had the stop, by its answer
    seen_ms: int | None = None  # when the giver had read the stop
    stopped_ms: int | None = None  # when the giver's application did not read the partition any more
    committed_ms: int | None = None  # when no commit delayed the release any more: the giver sent it
    released_ms: int | None = None  # when the coordinator saw the partition free
    granted_ms: int | None = None  # when the start was decided and sent
    start_seen_ms: int | None = None  # when the taker had read the start
    acknowledged_ms: int | None = None  # when the coordinator saw that the start was obeyed
    first_record_ms: int | None = None  # when the taker's application was handed a first record
    earlier: str = ""
    # the highest sequence in the consumer's channel when its command was decided; that command has a higher one

    @property
    def begun_ms(self) -> int:
        """When the hand-over began."""
        return next(t for t in (self.decided_ms, self.released_ms, self.granted_ms, 0) if t is not None)

    def stages(self) -> list[Stage]:
        """Return the stages that are over, each with its parts as far as they are known."""
        acting = {"stop": self.giver, "start": self.taker}
        found = []
        for name, moments in STAGES.items():
            for begun_ms, ended_ms in self._times({name: moments}).values():
                parts = self._times(PARTS[name]).items()
                consumer = acting.get(name, "")
                told = tuple(Stage(part, *times, "" if part == "send" else consumer) for part, times in parts)
                found.append(Stage(name, begun_ms, ended_ms, consumer, told))
        return found

    def _times(self, named: Mapping[str, Sequence[str]]) -> dict[str, tuple[int, int]]:
        times = {name: (getattr(self, begun), getattr(self, ended)) for name, (begun, ended) in named.items()}
        return {name: pair for name, pair in times.items() if None not in pair}

    @property
    def unowned_ms(self) -> int:
        """How long nobody read the partition, as far as this coordinator saw, in ms. 0: that is not over."""
        if self.acknowledged_ms is None or self.released_ms is None:
            return 0
        return self.acknowledged_ms - self.released_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    """Hand-overs to one consumer that wait for its first records, by the status that was read last."""

    version: int
    awaited: Mapping[TopicPartition, HandOver]


@dataclass(frozen=True, slots=True)
class KeptHandOvers:
    """The hand-overs of one group that are under way, and those that the last step completed or learned more about."""

    open: Mapping[TopicPartition, HandOver] = field(default_factory=dict)
    completed: tuple[HandOver, ...] = ()
    amended: tuple[HandOver, ...] = ()  # completed before, and now with their first record
    reading: Mapping[str, _Reading] = field(default_factory=dict)  # by the consumer that took them

    def after(self, view: GroupView, decisions: Sequence[Decision], now_ms: int) -> KeptHandOvers:
        """Return a copy that includes this view and the decisions on it."""
        moving = [d for d in decisions if isinstance(d, (StopFetching, GrantPartitions))]
        reading, amended = _read(self.reading, view, now_ms) if self.reading else (self.reading, ())
        if not self.open and not moving:
            if reading is self.reading and not self.completed and not self.amended:
                return self
            return KeptHandOvers({}, (), amended, reading)
        under_way: dict[TopicPartition, HandOver] = {}
        completed = []
        for partition, known in self.open.items():
            now = _seen(known, view, now_ms)
            if now is not None and now.acknowledged_ms is not None:
                completed.append(now)
            elif now is not None:
                under_way[partition] = now
        for decision in moving:
            earlier = _last_sequence(view.channels.get(decision.consumer_id))
            for partition in decision.partitions:
                known = under_way.get(partition, HandOver(partition))._replace(generation=view.state.generation)
                if isinstance(decision, GrantPartitions):
                    released_ms = now_ms if known.released_ms is None else known.released_ms
                    known = known._replace(taker=decision.consumer_id, earlier=earlier)
                    known = known._replace(granted_ms=now_ms, released_ms=released_ms)
                elif known.decided_ms is None:
                    known = known._replace(giver=decision.consumer_id, earlier=earlier, decided_ms=now_ms)
                under_way[partition] = known
        return KeptHandOvers(under_way, tuple(completed), amended, _awaiting(reading, completed, view))


def _seen(known: HandOver, view: GroupView, now_ms: int) -> HandOver | None:
    """Return the hand-over with what the view shows. None: there is nothing left to wait for."""
    partition = known.partition
    if partition.topic not in view.topics:
        return None
    owner = view.owners.get(partition)
    thread = owner.thread if owner is not None else ""
    if known.granted_ms is None:
        if known.released_ms is not None:
            return known
        if not thread or consumer_of(thread) not in view.members:
            return _released(known, view, now_ms)
        if not _named(view, known.giver, partition, STOP):
            return None  # the stop was refused or is over, and the reader still has the partition
        return known if known.sent_ms is not None else known._replace(sent_ms=now_ms)
    if _named(view, known.taker, partition, START):
        return known
    if thread and consumer_of(thread) == known.taker and known.taker in view.members:
        return _acknowledged(known, view, now_ms)
    if thread and consumer_of(thread) in view.members:
        return None  # somebody else has it: another coordinator granted it
    return known._replace(taker="", granted_ms=None)  # the start was refused, or its receiver has died


def _named(view: GroupView, consumer_id: str, partition: TopicPartition, option: str) -> bool:
    channel = view.channels.get(consumer_id)
    return channel is not None and any(c.option == option and c.names(partition) for c in channel.commands)


# read from statuses


def _last_sequence(channel: Channel | None) -> str:
    """The highest sequence that a channel is known to have had. The next command has a higher one."""
    if channel is None:
        return ""
    return max([*(c.sequence for c in channel.commands), *(each.sequence for each in channel.timing)], default="")


def _told(channel: Channel | None, known: HandOver, *, stops: bool, first: bool = False) -> Timing | None:
    """What the consumer tells about the command of a hand-over: the last entry about it."""
    for each in reversed(channel.timing if channel is not None else ()):
        about = each.stops is stops and (each.first_record_ms is not None) is first
        if about and each.sequence > known.earlier and each.names(known.partition):
            return each
    return None


def _written_ms(channel: Channel, told: Timing, begun_ms: int, now_ms: int) -> int:
    """When the status was written, on this coordinator's clock. The difference between command (`begun_ms`) and status
    is taken from ZooKeeper's clock. If that clock is not known or was set meanwhile, the answer is `now_ms`."""
    if not told.made_ms or not channel.written_ms:
        return now_ms
    written_ms = begun_ms + channel.written_ms - told.made_ms
    return written_ms if begun_ms <= written_ms <= now_ms else now_ms


def _released(known: HandOver, view: GroupView, now_ms: int) -> HandOver:
    known = known._replace(released_ms=now_ms)
    channel, decided_ms = view.channels.get(known.giver), known.decided_ms
    told = _told(channel, known, stops=True)
    if channel is None or told is None or decided_ms is None:
        return known
    if told.seen_ms is None or told.stopped_ms is None or told.committed_ms is None:
        return known
    written_ms = _written_ms(channel, told, decided_ms, now_ms)
    if known.sent_ms is not None:  # a command is not seen before it is sent, and was written later than it was decided
        written_ms = min(now_ms, max(written_ms, known.sent_ms + told.seen_ms))
    committed_ms = max(decided_ms, written_ms - told.committed_ms)
    stopped_ms = min(max(decided_ms, written_ms - told.stopped_ms), committed_ms)
    seen_ms = min(max(decided_ms, written_ms - told.seen_ms), stopped_ms)
    sent_ms = seen_ms if known.sent_ms is None else min(known.sent_ms, seen_ms)  # it was sent at the latest by then
    return known._replace(sent_ms=sent_ms, seen_ms=seen_ms, stopped_ms=stopped_ms, committed_ms=committed_ms)


def _acknowledged(known: HandOver, view: GroupView, now_ms: int) -> HandOver:
    known = known._replace(acknowledged_ms=now_ms)
    channel, granted_ms = view.channels.get(known.taker), known.granted_ms
    told = _told(channel, known, stops=False)
    if channel is None or told is None or told.seen_ms is None or granted_ms is None:
        return known
    seen_ms = max(granted_ms, _written_ms(channel, told, granted_ms, now_ms) - told.seen_ms)
    return _with_first_record(known._replace(start_seen_ms=seen_ms), channel, now_ms)


def _with_first_record(known: HandOver, channel: Channel, now_ms: int) -> HandOver:
    told = _told(channel, known, stops=False, first=True)
    if told is None or told.first_record_ms is None or known.granted_ms is None or known.acknowledged_ms is None:
        return known
    at_ms = _written_ms(channel, told, known.granted_ms, now_ms) - told.first_record_ms
    return known._replace(first_record_ms=max(known.acknowledged_ms, at_ms))


def _awaiting(
    reading: Mapping[str, _Reading], completed: Sequence[HandOver], view: GroupView
) -> Mapping[str, _Reading]:
    """Return `reading` with those completed hand-overs whose consumers tell times, and whose first record is not
    known."""
    fresh: dict[str, dict[TopicPartition, HandOver]] = {}
    for each in completed:
        if each.start_seen_ms is not None and each.first_record_ms is None:
            fresh.setdefault(each.taker, {})[each.partition] = each
    if not fresh:
        return reading
    known = {consumer_id: reading[consumer_id].awaited for consumer_id in fresh if consumer_id in reading}
    return {
        **reading,
        **{
            consumer_id: _Reading(
                version=view.channels[consumer_id].version, awaited={**known.get(consumer_id, {}), **awaited}
            )
            for consumer_id, awaited in fresh.items()
        },
    }


def _read(
    reading: Mapping[str, _Reading], view: GroupView, now_ms: int
) -> tuple[Mapping[str, _Reading], tuple[HandOver, ...]]:
    """Take in the first records from statuses that were read since. Returns the same mapping when there is none."""
    left, amended = dict(reading), list[HandOver]()
    for consumer_id, of in reading.items():
        channel = view.channels.get(consumer_id)
        if channel is None or consumer_id not in view.members:
            del left[consumer_id]
        elif channel.version != of.version:
            looked = [_with_first_record(each, channel, now_ms) for each in of.awaited.values()]
            amended += [each for each in looked if each.first_record_ms is not None]
            awaited = {e.partition: e for e in looked if e.first_record_ms is None and _owns(view, e)}
            left[consumer_id] = _Reading(version=channel.version, awaited=awaited)
            if not awaited:
                del left[consumer_id]
    return (reading, ()) if left == reading else (left, tuple(amended))


def _owns(view: GroupView, of: HandOver) -> bool:
    owner = view.owners.get(of.partition)
    return owner is not None and consumer_of(owner.thread) == of.taker
