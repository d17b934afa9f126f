"""Reports a consumer's batches: as log lines, as a live line on a terminal, and as sums for a monitoring system.

There is no live line if the log itself goes to a terminal.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from typing import TextIO

from zkcoord.spark.ports import Progress, Report

LOG = logging.getLogger("zkcoord.spark")
# warnings of these loggers may come while the live line is shown
LOGS = (LOG, logging.getLogger("zkcoord.events"), logging.getLogger("zkcoord.zk"))
CLEARED = "\r\x1b[K"  # clears the cursor's line
REDRAW_MS = 100  # more than ten times a second would not be seen
TIMES = ("drain_ms", "plan_ms", "process_ms", "commit_ms", "acknowledge_ms")  # of a report
BAR = "spark.ui.showConsoleProgress"
"""The setting of Spark's own progress bar. Spark's shells, and so PySpark, switch it on."""

SAME_MS = 1_000  # an unchanged line is drawn again after this time, since Spark's own line may have overwritten it


def log_event(level: int, event: str, text: str, **fields: object) -> None:
    """Log one event (`zkcoord.logs`). Its record also contains `text`, for programs that have not configured
    logging."""
    shown = fields if level == logging.INFO else {**fields, "why": text}  # at INFO the fields are enough
    LOG.log(level, "%s", text, extra={"zkcoord_event": event, "zkcoord_fields": shown})


def progress_to(stream: TextIO | None, group: str) -> Progress:
    """Return the log; with a live line if `stream` is a terminal and the log's lines go elsewhere."""
    if stream is None or not stream.isatty() or _lines_on_terminal():
        return LogLines(group)
    return LiveLine(stream, group)


@cache
def warn_of_bar() -> None:
    """Log, once in a process, that Spark's bar and the live line overwrite each other."""
    why = f"Spark's own bar runs into the consumer's line: build the session with {BAR}=false"
    log_event(logging.WARNING, "progress_bar_on", why)


def _lines_on_terminal() -> bool:
    """True if a handler writes a batch's log line to a terminal."""
    logger: logging.Logger | None = LOG
    while logger is not None and LOG.isEnabledFor(logging.INFO):
        for each in logger.handlers:
            if each.level <= logging.INFO and isinstance(each, logging.StreamHandler) and each.stream.isatty():
                return True
        logger = logger.parent if logger.propagate else None
    return False


def tell_in_vain(group: str, consumer_id: str | None, waited_ms: int) -> None:
    """Log `nothing_held`: the run ends without ever having had a partition. There may be records to read."""
    text = in_vain(consumer_id, waited_ms)
    log_event(logging.WARNING, "nothing_held", text, group=group, consumer=consumer_id, waited_ms=waited_ms)


def in_vain(consumer_id: str | None, waited_ms: int) -> str:
    """Tell a person what may be missing. `consumer_id` is None if the consumer is not registered."""
    from zkcoord.subscription import why_nothing_is_held

    return f"nothing was read: waited {waited_ms} ms in vain for a partition; {why_nothing_is_held(consumer_id)}"


class LogLines(Progress):
    """Logs the event `batch_done` for each batch. (The loop logs why a batch was lost.)"""

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
            **{name: getattr(report, name) for name in ("rows", "bytes", "lag", *TIMES)},
        )


class LiveLine(Progress):
    """In addition to the log, shows one line that is overwritten, at most every REDRAW_MS. It makes room for a
    warning."""

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
        """Count the dropped batch. The log says why."""
        self._lost += 1

    def idle(self, lag: int) -> None:
        """Say that there is nothing to read."""
        self._draw(f"{self._last or 'no batch yet'} · lag {lag:,} · waiting")

    def unheld(self) -> None:
        """Say that it waits for a partition."""
        self._draw(f"{self._last or 'no batch yet'} · no partition · waiting")

    def close(self) -> None:
        """End the line with a sum, so that later output begins on a line of its own."""
        for each in LOGS:
            each.removeFilter(self._make_room)
        seconds = (time.monotonic_ns() - self._began_ns) / 1e9
        self._drawn_ns = 0
        lost = f", {_count(self._lost)} dropped" if self._lost else ""
        self._draw(f"{_count(self._batches)}, {self._offsets:,} offsets in {seconds:.1f} s{lost}")
        self._show("\n")

    def _make_room(self, record: logging.LogRecord) -> bool:
        """Let every record pass, as a filter does. Clear the line before a record that will be printed."""
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
        """Write to the terminal. The terminal may be closed at any time; the consumer goes on."""
        with suppress(OSError, ValueError):
            self._stream.write(text)
            self._stream.flush()


def _count(batches: int) -> str:
    return f"{batches:,} batch{'' if batches == 1 else 'es'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """Sums since the consumer was made. `lag` is the last one seen. Times are in ms."""

    batches: int = 0
    lost: int = 0  # dropped batches: a partition was lost, or the drop was requested
    offsets: int = 0
    rows: int = 0  # of the batches whose rows are known
    bytes: int = 0
    lag: int = 0
    drain_ms: int = 0
    plan_ms: int = 0
    process_ms: int = 0
    commit_ms: int = 0
    acknowledge_ms: int = 0


class Reports(Progress):
    """Passes each report to the sums, to the line or log of the present run, and to the user's own function."""

    def __init__(self, on_report: Callable[[Report], object] | None) -> None:
        self._on_report = on_report
        self.shown = Progress()  # of the present run
        self.metrics = Metrics()  # frozen, so any thread may read it; the batch thread replaces it

    def batch_done(self, report: Report) -> None:
        """Add the batch to the sums, and pass the report on. An error of the user's function ends the run; the batch
        stays committed."""
        now = self.metrics
        sums = {
            name: getattr(now, name) + (getattr(report, name) or 0) for name in ("offsets", "rows", "bytes", *TIMES)
        }
        self.metrics = replace(now, batches=now.batches + 1, lag=report.lag, **sums)
        self.shown.batch_done(report)
        if self._on_report is not None:
            self._on_report(report)

    def batch_lost(self) -> None:
        """Count the batch."""
        self.metrics = replace(self.metrics, lost=self.metrics.lost + 1)
        self.shown.batch_lost()

    def idle(self, lag: int) -> None:
        """Remember the lag."""
        self.metrics = replace(self.metrics, lag=lag)
        self.shown.idle(lag)

    def unheld(self) -> None:
        """Pass it on."""
        self.shown.unheld()

    def close(self) -> None:
        """The run is over."""
        self.shown.close()
