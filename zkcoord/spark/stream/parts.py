"""What the consumer behind the streaming source is wired from: a real membership and Kafka, and Spark as `Handover`.

The membership's callbacks pass through here, since two things are known here alone: what an earlier process of this
query has read without committing it (Spark's checkpoint tells), and how far a query that shall end has to read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import count
from typing import Any

from zkcoord.core.model import Starting, TopicPartition
from zkcoord.errors import FencedError, UnavailableError, ZkcoordError
from zkcoord.spark.ports import (
    Isolation,
    Jobs,
    LogEnds,
    Membership,
    Meter,
    OnStop,
    Parts,
    Progress,
    Reader,
    Report,
    Stopped,
    Where,
)
from zkcoord.spark.progress import LogLines, log_event
from zkcoord.spark.ranges import OffsetRange, same_topic
from zkcoord.spark.stream.handover import Handover

Positions = Mapping[TopicPartition, int]


class StreamPositions:
    """Where the held partitions stand. The membership's worker, the loop and Spark's thread write it, a value each."""

    def __init__(self) -> None:
        self.ends: dict[TopicPartition, int] = {}  # of logs, as they were last heard
        self._reached: dict[TopicPartition, int] = {}  # held partitions
        self._targets: dict[TopicPartition, int] | None = None  # a query that shall end: the first end that was heard
        self._uncommitted: dict[TopicPartition, tuple[int, int]] = {}
        # held partitions whose complete range is not committed yet: its end, and the number of the start that found it
        self._done: dict[TopicPartition, OffsetRange] = {}  # by an earlier process, until a commit has passed it

    def recover(self, done: Iterable[OffsetRange]) -> None:
        """These ranges are complete, though perhaps not committed; called before anything is held."""
        self._done = {each.topic_partition: each for each in done}

    def started(self, starting: Starting) -> Starting:
        """Where these are read from: a complete range is passed over, if nobody has gone on from its beginning, and its
        topic was not created again.

        Each time, until that is committed: a partition may be lost before, and come back.
        """
        found = {}
        for each, position in starting.items():
            done = self._done.get(each)
            incarnation = starting.incarnations.get(each, 0)
            if done is not None and done.start == position and same_topic(done.incarnation, incarnation):
                found[each] = done.end
                self._uncommitted[each] = done.end, starting.number
            else:
                found[each] = position
                self._passed([each])
        self._reached |= found
        return Starting(found, starting.number, starting.incarnations)

    def lost(self, partitions: Collection[TopicPartition]) -> None:
        """They are not held any more."""
        for each in partitions:
            for kept in (self._reached, self._uncommitted, self.ends, self._targets or {}):
                kept.pop(each, None)

    def commit(self, membership: Membership) -> None:
        """Commit what was complete when its partition was started; nothing else of it may be announced before."""
        due = {each: found for each, found in self._uncommitted.copy().items() if membership.allowed(each)}
        if due and not self._committed(membership, due):
            for each, found in due.items():  # of one that was lost nobody tells the others, which are held on
                self._committed(membership, {each: found})

    def _committed(self, membership: Membership, due: Mapping[TopicPartition, tuple[int, int]]) -> bool:
        """False when several were refused, perhaps on account of one of them; a single one's reason is on its way."""
        try:
            membership.commit({p: at for p, (at, _) in due.items()}, {p: start for p, (_, start) in due.items()})
        except UnavailableError:
            return True  # later
        except FencedError as error:
            if len(due) > 1:
                return False
            log_event(logging.WARNING, "commit_refused", f"what the checkpoint has is not committed: {error}")
        else:
            self._passed(due)
        return True

    def _passed(self, partitions: Iterable[TopicPartition]) -> None:
        """The committed offset is not where their complete range begins (any more)."""
        for each in partitions:
            self._done.pop(each, None)
            self._uncommitted.pop(each, None)

    def heard(self, ends: Positions) -> None:
        """These are the logs' ends now."""
        self.ends |= ends
        if self._targets is not None:
            self._targets = {**ends, **self._targets}

    def done(self, ranges: Iterable[OffsetRange]) -> None:
        """A batch was committed."""
        for each in ranges:
            if each.topic_partition in self._reached:
                self._reached[each.topic_partition] = each.end
            self._passed([each.topic_partition])

    def end_at_present(self) -> None:
        """The query shall read what is there now."""
        self._targets = {}

    @property
    def held(self) -> bool:
        """There is a partition."""
        return bool(self._reached)

    @property
    def enough(self) -> bool:
        """A query that shall end has read what was there when each partition's end was first heard."""
        targets = self._targets
        if not targets:
            return False
        return all(at >= targets.get(each, at + 1) for each, at in self._reached.copy().items())


class StreamParts:
    """`ports.Parts` for the consumer behind the streaming source: `parts`, but for what Spark does here itself."""

    def __init__(self, parts: Parts, group: str, handover: Handover, known: StreamPositions) -> None:
        self._parts = parts
        self._group = group
        self._handover = handover
        self._known = known
        self._membership: Membership | None = None
        self.limits = parts.limits

    def membership(
        self,
        *,
        on_start: Callable[[Starting], None],
        on_stop: OnStop,
        on_lost: Callable[[tuple[TopicPartition, ...]], None],
        on_replay: Callable[[Mapping[TopicPartition, tuple[int, int]]], None],
        reset: Callable[[tuple[TopicPartition, ...]], Positions],
    ) -> Membership:
        """A membership, not started, whose callbacks tell `StreamPositions`."""

        def start(starting: Starting) -> None:
            try:
                on_start(self._known.started(starting))
            except BaseException:  # they are not held: they start elsewhere, or here again
                self._known.lost(starting.keys())
                raise

        def lost(partitions: tuple[TopicPartition, ...]) -> None:
            self._known.lost(partitions)
            on_lost(partitions)

        def stop(partitions: tuple[TopicPartition, ...], stopped: Stopped) -> Positions:
            def early(some: Collection[TopicPartition], final: Positions) -> None:
                self._known.lost(some)
                stopped(some, final)

            final = on_stop(partitions, early)
            self._known.lost(partitions)
            return final

        membership = self._membership = self._parts.membership(
            on_start=start,
            on_stop=stop,
            on_lost=lost,
            on_replay=on_replay,
            reset=reset,
        )
        self._handover.allowed = membership.allowed
        return membership

    @property
    def joins(self) -> bool:
        """Kafka has answered: the group is being joined, or was."""
        return self._membership is not None

    @property
    def consumer_id(self) -> str | None:
        """Of the registration; None while there is none."""
        return None if self._membership is None else self._membership.consumer_id

    def log_ends(self) -> LogEnds:
        """A Kafka client whose answers are remembered; the caller closes it."""
        return HeardEnds(self._parts.log_ends(), self._known)

    def reader(self) -> Reader:
        """None: Spark reads by itself what it is handed."""
        return NoReader()

    def jobs(self) -> Jobs:
        """Spark, as far as a source can reach it."""
        return self._handover

    def meter(self) -> Meter:
        """Spark counts the rows of a stream by itself (`query.lastProgress`)."""
        return UnseenMeter()

    def progress(self) -> Progress:
        """The log, and the thread that waits for a batch."""
        return StreamProgress(LogLines(self._group), self._handover, self._known)

    def await_turn(self) -> None:
        """When Spark asks, and what an earlier process of the query has completed is committed."""
        self._handover.await_turn()
        if self._membership is not None:
            self._known.commit(self._membership)


class HeardEnds:
    """`ports.LogEnds` that tells `Known` of the ends it hears."""

    def __init__(self, client: LogEnds, known: StreamPositions) -> None:
        self._client = client
        self._known = known

    def ask_offsets(
        self, partitions: Collection[TopicPartition], which: Where, isolation: Isolation | None, timeout_ms: int | None
    ) -> tuple[Positions, Mapping[TopicPartition, ZkcoordError]]:
        """As `ports.LogEnds`."""
        found, failed = self._client.ask_offsets(partitions, which, isolation, timeout_ms)
        if which == "latest":
            self._known.heard(found)
        return found, failed

    def reset_positions(self, partitions: Collection[TopicPartition], policy: Where) -> Positions:
        """As `ports.LogEnds`."""
        return self._client.reset_positions(partitions, policy)

    def partitions(self) -> tuple[TopicPartition, ...]:
        """As `ports.LogEnds`."""
        return self._client.partitions()

    def close(self) -> None:
        """As `ports.LogEnds`."""
        self._client.close()


class NoReader:
    """`ports.Reader` whose DataFrame is nothing: Spark makes it from the ranges itself."""

    def read(self, ranges: Collection[OffsetRange]) -> Any:
        """As `ports.Reader`."""
        return None

    def lacks(self, error: Exception) -> str | None:
        """As `ports.Reader`."""
        return None

    def away(self, error: Exception) -> bool:
        """As `ports.Reader`: Spark keeps a batch's errors to itself."""
        return False


class UnseenMeter(Meter):
    """`ports.Meter` of what only Spark sees."""

    def __init__(self) -> None:
        self._looks = count()

    def activity(self, tag: str) -> object:
        """As `ports.Meter`: another value each time. A batch lasts until the next trigger, however little it does."""
        return next(self._looks)


class StreamProgress(Progress):
    """`ports.Progress` for the log, for `Known` and for who waits for a batch."""

    def __init__(self, log: LogLines, handover: Handover, known: StreamPositions) -> None:
        self._log = log
        self._handover = handover
        self._known = known

    def batch_done(self, report: Report) -> None:
        """A batch was committed."""
        self._known.done(report.batch.ranges)
        self._log.batch_done(report)

    def idle(self, lag: int) -> None:
        """There is nothing to read."""
        self._handover.idle()
