"""Brings messages from librdkafka to the user, in turns of the polling thread: follow the positions, fetch, hand out.

Only that thread calls librdkafka. A fetched message that must not be handed out now is fetched again by the partition's
owner.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from zkcoord import logs
from zkcoord.core.model import TopicPartition
from zkcoord.errors import UnavailableError, UnknownPartitionError, ZkcoordError
from zkcoord.kafka.client import Message
from zkcoord.kafka.fetch_positions import FetchPositions
from zkcoord.kafka.fetcher import Fetched, Fetcher
from zkcoord.kafka.ports import Membership
from zkcoord.kafka.reach import ANSWER_SECONDS, Reach
from zkcoord.kafka.resets import Resets

LOG = logging.getLogger("zkcoord.kafka")

# how long a turn may wait while a start waits for its acknowledgement, which takes a few ms
BARRED_SLICE_SECONDS = 0.005


class Delivery:
    """The turns of one consumer. `changed` guards `positions`, which the membership's worker thread changes, too."""

    def __init__(
        self,
        group: str,
        membership: Membership,
        fetcher: Fetcher,
        resets: Resets,
        positions: FetchPositions,
        changed: threading.Condition,
    ) -> None:
        self._group, self._membership, self._fetcher, self._resets = group, membership, fetcher, resets
        self._positions, self._changed = positions, changed
        self._beyond: set[TopicPartition] = set()
        # partitions whose positions were outside of their logs at the last fetch
        self._renewed = False  # True if the client was replaced, and has not told its cluster yet
        self.handed = 0  # number of messages handed out so far
        self.reach = Reach(group, fetcher)

    def turn(self, count: int, wait_seconds: float) -> list[Message]:
        """Return at most `count` messages. Empty if none came within about `wait_seconds`, or if closed.

        Questions to Kafka come before the fetch. The reason: an answer may take longer than a lease, and after the
        fetch nothing checks again whether the message may be read.
        """
        if (self._renewed or not self._resets.answered) and self.reach.error is None:
            self._resets.hear(self._fetcher.cluster_id)
            self._renewed = False
        # else nothing is fetched, since the records might be another cluster's
        heard = self._resets.answered and not self._renewed
        for partition in sorted(self._beyond):
            self._beyond.discard(partition)
            self._move_into_range(partition)
        with self._changed:
            for partition in self._positions.barred():
                if self._membership.allowed(partition):
                    self._positions.unbar(partition)
                else:
                    wait_seconds = min(wait_seconds, BARRED_SLICE_SECONDS)
            wanted = self._positions.wanted() if self._positions.dirty and heard else None
            self._positions.dirty = self._positions.dirty and not heard
        if wanted is not None:
            self._fetcher.apply(wanted)
        if self._fetcher.idle:  # no message can come: wait for a start instead, but let librdkafka call back
            with self._changed:
                self._changed.wait_for(
                    lambda: (self._positions.dirty and heard) or self._positions.closed, wait_seconds
                )
            wait_seconds = 0.0
        fetched = self._fetcher.fetch(count, wait_seconds)
        if self.reach.look(bool(fetched.messages), fetching=not self._fetcher.idle):
            self._fetcher.renew()
            self._renewed = True
            with self._changed:
                self._positions.dirty = True
        self._beyond.update(fetched.out_of_range)
        return self._hand_out(fetched, self._of_the_cluster(fetched))

    def _of_the_cluster(self, fetched: Fetched) -> bool:
        """False while it is unknown whether these messages come from the right cluster: a connection has ended, and no
        broker has answered since. Raises UsageError if they come from another one."""
        if not fetched.messages or self._resets.cluster_id is None or not self._fetcher.doubtful:
            return True
        if not self._fetcher.answers(ANSWER_SECONDS):
            return False
        self._resets.hear(self._fetcher.cluster_id)
        self._fetcher.settle()
        return True

    def _hand_out(self, fetched: Fetched, sure: bool) -> list[Message]:
        """Return the messages that may go to the user now. The partitions' owners fetch the others again."""
        if not fetched.messages:
            return []
        handed: list[Message] = []
        begun: set[TopicPartition] = set()
        known: dict[tuple[str, int], tuple[TopicPartition, int | None, bool]] = {}
        with self._changed:
            for message in fetched.messages:
                name = (message.topic(), message.partition())
                if name not in known:
                    partition = TopicPartition(*name)
                    allowed = sure and self._membership.allowed(partition)
                    known[name] = partition, self._fetcher.epoch_of(partition), allowed
                partition, epoch, allowed = known[name]
                if self._positions.hand_out(partition, epoch, message.offset(), allowed):
                    handed.append(message)
                    begun.add(partition)
            if handed:
                self._membership.report(self.handed, len(handed))  # so the messages in work are known to be left over
                self.handed += len(handed)
                self._membership.reading(begun)
            if handed and logs.EVENTS.isEnabledFor(logging.DEBUG):
                self._report(handed)  # before a stop can be answered
        return handed

    def _report(self, handed: Sequence[Message]) -> None:
        offsets: dict[TopicPartition, list[int]] = {}
        for message in handed:
            offsets.setdefault(TopicPartition(message.topic(), message.partition()), []).append(message.offset())
        who = {"group": self._group, "consumer": self._membership.consumer_id}
        for partition, found in offsets.items():
            logs.emit("fetched", partition=partition, first=found[0], last=found[-1], **who)

    def _move_into_range(self, partition: TopicPartition) -> None:
        """Apply the reset policy, and log it: the broker does not have our position."""
        epoch = self._fetcher.epoch_of(partition)
        if epoch is None:
            return
        try:
            log = self._resets.log_of(partition)
        except ZkcoordError as error:
            LOG.warning("%s has no message at its position, and its log cannot be asked: %s", partition, error)
            # if the topic is gone, the partition will be taken away
            if isinstance(error, UnavailableError | UnknownPartitionError):
                with self._changed:
                    self._positions.refetch(partition, epoch)
            return
        with self._changed:
            was = self._positions.refetch(partition, epoch)
            if was is None or log.start <= was <= log.end:  # it is gone meanwhile, or the log has caught up
                return
            self._positions.seek(partition, log.reset)
        LOG.warning(
            "offset %d of %s is outside of its log (%d to %d): going on at %d (%s)",
            *(was, partition, log.start, log.end, log.reset, self._resets.policy),
        )
