"""Explains failures of `process` that are not its author's fault: Kafka could not be reached, or the records are
gone."""

from __future__ import annotations

import logging

from zkcoord.errors import UsageError
from zkcoord.spark.driver.outlog import OutOfLog
from zkcoord.spark.ports import Isolation, Reader
from zkcoord.spark.progress import log_event
from zkcoord.spark.ranges import Batch


class Failures:
    """Judges the failures of one run. For the batch thread."""

    def __init__(self, reader: Reader, out_of_log: OutOfLog, isolation: Isolation, group: str, away_max: int) -> None:
        self._reader, self._out_of_log = reader, out_of_log
        self._isolation, self._group, self._away_max = isolation, group, away_max
        self._away_batches = 0  # failed batches in a row because Kafka could not be reached

    def committed(self) -> None:
        """Note a batch that did not fail."""
        self._away_batches = 0

    def unreachable(self, batch: Batch, error: Exception) -> bool:
        """Return True if the batch failed because Kafka could not be reached. It is repeated once Kafka tells its logs'
        ends.

        Raises UsageError for a batch that failed because its records were another cluster's.
        """
        elsewhere = self._reader.elsewhere(error)
        if elsewhere is not None:
            raise UsageError(elsewhere) from error
        if self._away_batches == self._away_max or not self._reader.away(error):
            return False
        self._away_batches += 1
        self._tell("batch_failed", f"batch {batch.seq} failed since Kafka is away: {error_line(error)}")
        return True

    def explained(self, batch: Batch, error: Exception) -> bool:
        """Return True if the batch failed because its records are gone. Then positions were moved, and reading
        continues.

        Raises UsageError for positions that must not be moved, and for a topic that is gone.
        """
        try:
            partitions = [each.topic_partition for each in batch.ranges]
            explained = self._out_of_log.explains(partitions, self._isolation)
        except UsageError as told:
            raise told from error
        except Exception as unknown:
            self._tell("explaining_failed", f"the log could not be compared: {unknown}", logging.DEBUG)
            return False
        if explained:
            self._tell("records_gone", f"batch {batch.seq} failed since its records are gone: {error}")
        return explained

    def _tell(self, event: str, text: str, level: int = logging.WARNING) -> None:
        log_event(level, event, text, group=self._group)


def error_line(error: Exception) -> str:
    """Return the line that names the error. (The text may be a whole Java trace.)

    >>> error_line(RuntimeError("while calling o1.save\\n: java.net.ConnectException: refused\\n  at a.B"))
    ': java.net.ConnectException: refused'
    """
    lines = [line.strip() for line in str(error).splitlines()]
    return next((line for line in lines if "Error" in line or "Exception" in line), lines[0] if lines else "")
