"""A simulated program around `zkcoord.kafka.KafkaConsumer`: it polls, works, commits, and is closed by one of its
threads."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from tests.sim.actors import GROUP
from tests.sim.programs import ZOOKEEPER, Program
from zkcoord import settings as defaults
from zkcoord.consumer import Consumer
from zkcoord.core.model import TopicPartition
from zkcoord.errors import UsageError, ZkcoordError
from zkcoord.kafka.consumer import STOP_WAIT_SHARE, KafkaConsumer

Bites = list[tuple[TopicPartition, int, int]]


class BrokenError(Exception):
    """An error of the user's code."""


class PollProgram(Program):
    """Its user code is not told of a loss: it works on its records until they are done. The checkers look at what its
    consumer is told (`told`)."""

    consumer: KafkaConsumer | None = None
    outside = False
    closed_outside = False
    """Whether another thread closes it."""

    def run(self) -> None:
        """Poll until the program is told to leave, the membership has ended, or the user's code fails."""
        timeout_ms = self.settings.get("rebalance_timeout_ms", defaults.REBALANCE_TIMEOUT_MS)
        self.patience_ms = int(timeout_ms * STOP_WAIT_SHARE)
        self.closed_outside = not self.leaving and (self.outside or self.draw() < 0.5)
        self.in_work: Bites = []
        self.consumer = KafkaConsumer(
            ZOOKEEPER, "kafka:9092", GROUP, dict(self.topics), membership=self._membership, **self.settings
        )
        self.member = self.consumer._membership  # type: ignore[assignment]
        try:
            with self.consumer:
                while not self.leaving or self.closed_outside:
                    self._turn(self.consumer)
        except UsageError:
            if not self.leaving:
                raise
        except (ZkcoordError, BrokenError) as error:
            self.world.trace(self.process.client, "program ends:", error)

    def _membership(self, *args: Any, on_lost: Callable[[tuple[TopicPartition, ...]], None], **fields: Any) -> Consumer:
        def lost(partitions: tuple[TopicPartition, ...]) -> None:
            self._tell(partitions)
            on_lost(partitions)

        return Consumer(*args, on_lost=lost, **fields)

    def stop(self) -> None:
        """Called on another thread. It may close the consumer without waiting for records in work; otherwise the
        polling thread sees that it is to leave."""
        if self.consumer is None:
            self.closed_outside = False
        elif self.closed_outside:
            self._tell({bite[0] for bite in self.in_work})
            self.consumer.close()

    def _tell(self, partitions: Collection[TopicPartition]) -> None:
        """Note that these partitions are lost: their records in work will be read again elsewhere."""
        for bite in self.in_work:
            if bite[0] in partitions:
                self.note("told", *bite)

    def _turn(self, consumer: KafkaConsumer) -> None:
        count = 1 + int(self.draw() * 30)
        bites = self._handed(consumer.poll_many(count, self.draw() * 2))
        if not bites:
            return
        if self.world.stormy and self.draw() < self.world.options.start_raises_rate / 10:
            self._over("broken")
            raise BrokenError
        self.work()
        self._over("processed")
        try:
            if self.draw() < 0.2:
                consumer.commit()
            elif self.draw() < 0.2:
                consumer.commit({partition: end for partition, _, end in bites})
        except ZkcoordError as error:
            self.world.trace(self.process.client, "commit:", error)

    def _handed(self, messages: Sequence[Any]) -> Bites:
        """The records that user code has now, as one range for each partition."""
        ranges: dict[TopicPartition, tuple[int, int]] = {}
        for message in messages:
            at, offset = TopicPartition(message.topic(), message.partition()), message.offset()
            start, end = ranges.get(at, (offset, offset))
            assert end == offset, f"{at} is handed out with a gap: {offset} follows {end}"
            ranges[at] = start, offset + 1
        bites = [(at, *span) for at, span in sorted(ranges.items())]
        self.in_work = bites
        for bite in bites:
            self.handed(*bite)
        return bites

    def _over(self, event: str) -> None:
        """No records are in work any more."""
        bites, self.in_work = self.in_work, []
        for bite in bites:
            self.note(event, *bite)
