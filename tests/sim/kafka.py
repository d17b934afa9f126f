"""A simulated Kafka as one process sees it: logs whose records are their offsets."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from tests.sim.application import Logs
from zkcoord.core.model import TopicPartition
from zkcoord.errors import UnknownPartitionError

if TYPE_CHECKING:
    from tests.sim.process import SimProcess


class SimKafka:
    """What a process asks of Kafka."""

    def __init__(self, process: SimProcess, logs: Logs) -> None:
        self._process, self._logs = process, logs

    def unknown(self, partitions: Collection[TopicPartition]) -> set[TopicPartition]:
        """Those whose topics are not there."""
        ensemble = self._process.world.ensemble
        return {each for each in partitions if ensemble.data(f"/brokers/topics/{each.topic}") is None}

    def reset(self, program: Any, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Where partitions without an offset start: at the end."""
        unknown = self.unknown(partitions)
        if unknown:
            raise UnknownPartitionError(f"Kafka does not know {sorted(unknown)}", unknown)
        found = {each: self._logs.end(each) for each in sorted(partitions)}
        for each, offset in found.items():
            program.note("reset", each, offset)
        return found
