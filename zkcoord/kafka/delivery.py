"""Brings messages from librdkafka to the user, in turns of the polling thread: follow positions, fetch, hand out.

Only that thread speaks to librdkafka. The owner of a partition fetches a message again that may not go out now.
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

BARRED_SLICE_SECONDS = 0.005  # how long a turn waits at most while a start waits for its acknowledgement: a few ms


class Delivery:
    """The turns of one consumer. `changed` guards `positions`; the membership's worker thread changes them, too."""

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
        self._beyond: set[TopicPartition] = set()  # at the last fetch their positions were outside of their logs
        self._renewed = False  # the client was replaced, and has not told yet of which cluster it is
        self.handed = 0  # messages handed out so far
        self.reach = Reach(group, fetcher)

    def turn(self, count: int, wait_seconds: float) -> list[Message]:
        """Return at most `count` messages, none when none came within about `wait_seconds`, or when closed.

        Questions to Kafka come before the fetch. An answer may take longer than a lease, and nobody checks again
        whether a message that is handed out may be read.
        """
        if (self._renewed or not self._resets.answered) and self.reach.error is None:
            self._resets.hear(self._fetcher.cluster_id)
            self._renewed = False
        heard = self._resets.answered and not self._renewed  # else nothing is fetched: whose records would they be?
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
        if self._fetcher.idle:  # nothing can come: wait for a start instead, but let librdkafka speak
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
        """False while it is not known whether these messages are of the cluster that is read: a connection has ended,
        and nobody tells yet where the brokers' names lead to now. UsageError if they are of another one."""
        if not fetched.messages or self._resets.cluster_id is None or not self._fetcher.doubtful:
            return True
        if not self._fetcher.answers(ANSWER_SECONDS):
            return False
        self._resets.hear(self._fetcher.cluster_id)
        self._fetcher.settle()
        return True

    def _hand_out(self, fetched: Fetched, sure: bool) -> list[Message]:
        """Return those that may go to the user now. The owner of a partition fetches the others again."""
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
                self._membership.report(self.handed, len(handed))  # what is in work is known to be left
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
            if isinstance(error, UnavailableError | UnknownPartitionError):  # if its topic is gone, it is taken away
                with self._changed:
                    self._positions.refetch(partition, epoch)
            return
        with self._changed:
            was = self._positions.refetch(partition, epoch)
            if was is None or log.start <= was <= log.end:  # gone meanwhile, or the log has caught up
                return
            self._positions.seek(partition, log.reset)
        LOG.warning(
            "offset %d of %s is outside of its log (%d to %d): going on at %d (%s)",
            *(was, partition, log.start, log.end, log.reset, self._resets.policy),
        )
