"""The dependencies of the consumer behind the streaming source: a real membership and Kafka, with `Handover` in place
of Spark.

The membership's callbacks pass through here. Only this module knows what an earlier process of the query has read
without a commit (from Spark's checkpoint), and how far a query that must end has to read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import count
from typing import Any, Unpack

from zkcoord.core.model import Starting, TopicPartition
from zkcoord.errors import FencedError, UnavailableError, ZkcoordError
from zkcoord.spark.ports import (
    Dependencies,
    Isolation,
    Jobs,
    LogEnds,
    MemberCallbacks,
    Membership,
    Meter,
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
    """Positions of the held partitions. The membership's worker, the loop and Spark's thread each replace values."""

    def __init__(self) -> None:
        self.ends: dict[TopicPartition, int] = {}  # logs' ends, as they were last told
        self.cluster_id: Callable[[], str | None] = lambda: None  # Kafka's cluster id, as it was first told
        self._reached: dict[TopicPartition, int] = {}  # held partitions
        self._targets: dict[TopicPartition, int] | None = None  # of a query that must end: the first end that was told
        self._uncommitted: dict[TopicPartition, tuple[int, int]] = {}
        # ends of complete ranges that must be committed, with the number of the start that found the range
        self._done: dict[TopicPartition, OffsetRange] = {}
        # complete ranges of an earlier process, until a commit has passed them

    def recover(self, done: Iterable[OffsetRange]) -> None:
        """Remember ranges that are complete but perhaps not committed. Call it before anything is held."""
        self._done = {each.topic_partition: each for each in done}

    def started(self, starting: Starting) -> Starting:
        """Return where to read from: after a complete range, if the committed offset is still the range's start and the
        topic was not created again.

        The range is remembered until it is committed, since its partition may be lost before, and come back.
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
        """Forget partitions that are not held any more."""
        for each in partitions:
            for kept in (self._reached, self.ends, self._targets or {}):
                kept.pop(each, None)

    def commit(self, membership: Membership) -> None:
        """Commit the ranges that were complete when their partitions were started. Until then no other range of them
        may be announced."""
        due = {each: found for each, found in self._uncommitted.copy().items() if membership.allowed(each)}
        if due and not self._committed(membership, due):
            # if one partition was lost, the others, which are held on, are not told apart
            for each, found in due.items():
                self._committed(membership, {each: found})

    def _committed(self, membership: Membership, due: Mapping[TopicPartition, tuple[int, int]]) -> bool:
        """Try to commit. False: several were refused, perhaps because of only one of them. A single refusal is
        explained by a command on its way."""
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
        """Forget complete ranges that the committed offset has passed."""
        for each in partitions:
            self._done.pop(each, None)
            self._uncommitted.pop(each, None)

    def heard(self, ends: Positions) -> None:
        """Note the logs' ends."""
        self.ends |= ends
        if self._targets is not None:
            self._targets = {**ends, **self._targets}

    def done(self, ranges: Iterable[OffsetRange]) -> None:
        """Note that a batch was committed."""
        for each in ranges:
            if each.topic_partition in self._reached:
                self._reached[each.topic_partition] = each.end
            self._passed([each.topic_partition])

    def end_at_present(self) -> None:
        """Let the query end with the present records."""
        self._targets = {}

    @property
    def held(self) -> bool:
        """True while a partition is held."""
        return bool(self._reached)

    @property
    def enough(self) -> bool:
        """True when a query that must end has reached the first known end of each partition."""
        targets = self._targets
        if not targets:
            return False
        return all(at >= targets.get(each, at + 1) for each, at in self._reached.copy().items())


class StreamDependencies:
    """`ports.Dependencies` for the consumer behind the streaming source: the given ones, except that Spark reads by
    itself."""

    def __init__(self, dependencies: Dependencies, group: str, handover: Handover, known: StreamPositions) -> None:
        self._dependencies, self._group, self._handover, self._known = dependencies, group, handover, known
        self._membership: Membership | None = None
        self.limits = dependencies.limits

    def membership(self, **callbacks: Unpack[MemberCallbacks]) -> Membership:
        """Make a membership, not started, whose callbacks also inform `StreamPositions`."""

        def start(starting: Starting) -> None:
            try:
                callbacks["on_start"](self._known.started(starting))
            except BaseException:  # they are not held: they start elsewhere, or here again
                self._known.lost(starting.keys())
                raise

        def lost(partitions: tuple[TopicPartition, ...]) -> None:
            self._known.lost(partitions)
            callbacks["on_lost"](partitions)

        def stop(partitions: tuple[TopicPartition, ...], stopped: Stopped) -> Positions:
            def early(some: Collection[TopicPartition], final: Positions) -> None:
                self._known.lost(some)
                stopped(some, final)

            final = callbacks["on_stop"](partitions, early)
            self._known.lost(partitions)
            return final

        told: MemberCallbacks = {**callbacks, "on_start": start, "on_stop": stop, "on_lost": lost}
        membership = self._membership = self._dependencies.membership(**told)
        self._handover.allowed = membership.allowed
        return membership

    @property
    def joins(self) -> bool:
        """True once Kafka has answered, and the group is being joined."""
        return self._membership is not None

    @property
    def consumer_id(self) -> str | None:
        """The id of the registration. None: there is none."""
        return None if self._membership is None else self._membership.consumer_id

    def incarnations(self, topics: Collection[str]) -> Mapping[str, int]:
        """Ask the real dependencies."""
        return self._dependencies.incarnations(topics)

    def tree_cluster(self) -> str | None:
        """Ask the real dependencies."""
        return self._dependencies.tree_cluster()

    def log_ends(self) -> LogEnds:
        """Make a Kafka client whose answers are remembered. The caller closes it."""
        client = HeardEnds(self._dependencies.log_ends(), self._known)
        self._known.cluster_id = lambda: client.cluster_id
        return client

    def reader(self) -> Reader:
        """Return no reader: Spark reads by itself."""
        return NoReader()

    def jobs(self) -> Jobs:
        """Return the hand-over in place of Spark's jobs, since a source cannot cancel them."""
        return self._handover

    def meter(self) -> Meter:
        """Return no counter: Spark counts a stream's rows itself (`query.lastProgress`)."""
        return UnseenMeter()

    def progress(self) -> Progress:
        """Return the object that informs the log, and the thread that waits for a batch."""
        return StreamProgress(LogLines(self._group), self._handover, self._known)

    def await_turn(self) -> None:
        """Wait until Spark asks. Then commit what an earlier process of the query has completed."""
        self._handover.await_turn()
        if self._membership is not None:
            self._known.commit(self._membership)


class HeardEnds(LogEnds):
    """Informs `StreamPositions` of the ends."""

    def __init__(self, client: LogEnds, known: StreamPositions) -> None:
        self._client, self._known = client, known

    def ask_offsets(
        self, partitions: Collection[TopicPartition], which: Where, isolation: Isolation | None, timeout_ms: int | None
    ) -> tuple[Positions, Mapping[TopicPartition, ZkcoordError]]:
        found, failed = self._client.ask_offsets(partitions, which, isolation, timeout_ms)
        if which == "latest":
            self._known.heard(found)
        return found, failed

    def reset_positions(self, partitions: Collection[TopicPartition], policy: Where) -> Positions:
        return self._client.reset_positions(partitions, policy)

    def partitions(self) -> tuple[TopicPartition, ...]:
        return self._client.partitions()

    @property
    def cluster_id(self) -> str | None:
        return self._client.cluster_id

    def confirm(self, topic: str, timeout_ms: int) -> None:
        self._client.confirm(topic, timeout_ms)

    def look_anew(self, topic: str, timeout_ms: int) -> None:
        self._client.look_anew(topic, timeout_ms)

    def close(self) -> None:
        self._client.close()


class NoReader(Reader):
    """Spark makes the DataFrame from the ranges, and does not pass a batch's errors on."""

    def read(self, ranges: Collection[OffsetRange]) -> Any:
        return None


class UnseenMeter(Meter):
    """Only Spark sees what its tasks read."""

    def __init__(self) -> None:
        self._looks = count()

    def activity(self, tag: str) -> object:
        """Another value at each call: a batch lasts until the next trigger, however little it does."""
        return next(self._looks)


class StreamProgress(Progress):
    """`ports.Progress` for the log, for `StreamPositions`, and for the thread that waits for a batch."""

    def __init__(self, log: LogLines, handover: Handover, known: StreamPositions) -> None:
        self._log, self._handover, self._known = log, handover, known

    def batch_done(self, report: Report) -> None:
        """A batch was committed."""
        self._known.done(report.batch.ranges)
        self._log.batch_done(report)

    def idle(self, lag: int) -> None:
        """Tell the thread that waits for a batch."""
        self._handover.idle()
