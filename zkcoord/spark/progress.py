"""How a batch is reported: one structured log line a batch, and one live line where a person looks at a terminal.

Where the log itself goes to a terminal there is no live line between its lines.
"""

from __future__ import annotations

import logging
import shutil
import time
from contextlib import suppress
from typing import TextIO

from zkcoord.spark.ports import Progress, Report

LOG = logging.getLogger("zkcoord.spark")
LOGS = (LOG, logging.getLogger("zkcoord.events"), logging.getLogger("zkcoord.zk"))  # whose warnings come between
CLEARED = "\r\x1b[K"  # the line that the cursor is in
REDRAW_MS = 100  # ten times a second is as much as an eye follows
SAME_MS = 1_000  # what has not changed is drawn again for who wrote over it: Spark's own line is on this terminal, too


def log_event(level: int, event: str, text: str, **fields: object) -> None:
    """One event of the log (`zkcoord.logs`) whose record also says `text`, for who configured no logging at all."""
    shown = fields if level == logging.INFO else {**fields, "why": text}  # at INFO the fields say it all
    LOG.log(level, "%s", text, extra={"zkcoord_event": event, "zkcoord_fields": shown})


def progress_to(stream: TextIO | None, group: str) -> Progress:
    """The log; if `stream` is a terminal, and the log's lines do not come on one, a live line beside it."""
    if stream is None or not stream.isatty() or _lines_on_terminal():
        return LogLines(group)
    return LiveLine(stream, group)


def _lines_on_terminal() -> bool:
    """Whether a handler writes a batch's line to a terminal."""
    logger: logging.Logger | None = LOG
    while logger is not None and LOG.isEnabledFor(logging.INFO):
        for each in logger.handlers:
            if each.level <= logging.INFO and isinstance(each, logging.StreamHandler) and each.stream.isatty():
                return True
        logger = logger.parent if logger.propagate else None
    return False


class LogLines:
    """Event `batch_done` for each batch."""

    def __init__(self, group: str) -> None:
        self._group = group

    def batch_done(self, report: Report) -> None:
        """Log the batch."""
        batch = report.batch
        log_event(
            logging.INFO,
            "batch_done",
            f"batch {batch.seq} of group {self._group}: {report.offsets:,} offsets in {len(batch.ranges)} ranges, "
            f"plan {report.plan_ms} ms, process {report.process_ms} ms, commit {report.commit_ms} ms, "
            f"lag {report.lag:,}",
            group=self._group,
            batch=batch.id,
            seq=batch.seq,
            generation=batch.generation,
            ranges=[str(each) for each in batch.ranges],
            replayed=batch.replayed,
            offsets_count=report.offsets,
            rows=report.rows,
            bytes=report.bytes,
            lag=report.lag,
            drain_ms=report.drain_ms,
            plan_ms=report.plan_ms,
            process_ms=report.process_ms,
            commit_ms=report.commit_ms,
            acknowledge_ms=report.acknowledge_ms,
        )

    def batch_lost(self) -> None:
        """Nothing: the loop has logged why."""

    def idle(self, lag: int) -> None:
        """Nothing: a log tells what happened."""

    def close(self) -> None:
        """Nothing is left open."""


class LiveLine:
    """Beside the log, one line that is written over, at most every REDRAW_MS, and makes room for a warning."""

    def __init__(self, stream: TextIO, group: str) -> None:
        self._stream = stream
        self._group = group
        self._log = LogLines(group)
        self._began_ns = time.monotonic_ns()
        self._drawn_ns, self._drawn = 0, ""
        self._batches = 0
        self._lost = 0
        self._offsets = 0
        self._last = ""
        for each in LOGS:
            each.addFilter(self._make_room)

    def batch_done(self, report: Report) -> None:
        """Count the batch in, draw and log."""
        offsets = report.offsets
        self._batches += 1
        self._offsets += offsets
        spent_ms = max(1, report.plan_ms + report.process_ms + report.commit_ms)
        self._last = (
            f"batch {report.batch.seq}: {offsets:,} offsets in {spent_ms} ms ({offsets * 1000 // spent_ms:,}/s)"
        )
        self._draw(f"{self._last} · lag {report.lag:,} · generation {report.batch.generation}")
        self._log.batch_done(report)

    def batch_lost(self) -> None:
        """Count it; the log says why."""
        self._lost += 1

    def idle(self, lag: int) -> None:
        """Say that there is nothing to read."""
        self._draw(f"{self._last or 'no batch yet'} · lag {lag:,} · waiting")

    def close(self) -> None:
        """End the line with a sum, so that what comes next stands on its own."""
        for each in LOGS:
            each.removeFilter(self._make_room)
        seconds = (time.monotonic_ns() - self._began_ns) / 1e9
        self._drawn_ns = 0
        lost = f", {_count(self._lost)} dropped" if self._lost else ""
        self._draw(f"{_count(self._batches)}, {self._offsets:,} offsets in {seconds:.1f} s{lost}")
        self._show("\n")

    def _make_room(self, record: logging.LogRecord) -> bool:
        """A filter that lets everything pass: what is printed now begins at the line's beginning."""
        if record.levelno >= logging.WARNING:
            self._show(CLEARED)
        return True

    def _draw(self, text: str) -> None:
        now = time.monotonic_ns()
        if now - self._drawn_ns < (SAME_MS if text == self._drawn else REDRAW_MS) * 1_000_000:
            return
        self._drawn_ns, self._drawn = now, text
        width = shutil.get_terminal_size().columns - 1
        self._show(f"{CLEARED}{self._group} · {text}"[: width + len(CLEARED)])

    def _show(self, text: str) -> None:
        """A terminal may be closed at any time, which is nothing to a consumer that runs on."""
        with suppress(OSError, ValueError):
            self._stream.write(text)
            self._stream.flush()


def _count(batches: int) -> str:
    return f"{batches:,} batch{'' if batches == 1 else 'es'}"
