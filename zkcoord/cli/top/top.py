"""`zkcoord top`: groups in the terminal, live. This module reads and draws; `screen` decides what is shown."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import click

from zkcoord.cli.kafka_options import kafka_side
from zkcoord.cli.options import Command, Settings, number_option, pass_settings
from zkcoord.cli.top.screen import Reading
from zkcoord.cli.watch import AGAIN_SECONDS, TOGETHER_SECONDS
from zkcoord.errors import UnavailableError, UsageError
from zkcoord.operating.kafka_side import KafkaSide
from zkcoord.operating.members import outstanding
from zkcoord.operating.watching import Follower
from zkcoord.signals import stopping

KAFKA_WAIT_MS = 2_000
"""Short, so that a Kafka that does not answer does not stop the screen."""


@click.command(cls=Command, example="zkcoord top --bootstrap-servers kafka1:9092")
@number_option("--interval-ms", default=2_000, text="Time between two readings.", least=100)
@pass_settings
def top(settings: Settings, interval_ms: int) -> None:
    """Show groups in the terminal, live: states, lag, owners, outstanding commands.

    Enter opens a group, and shows its partitions. Tab shows its members, then its commands. Esc goes back. s sorts by
    the next column, r reverses the order, q quits. Lag needs --bootstrap-servers. The command only reads.
    """
    if settings.json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(
            "top needs a terminal: `zkcoord group list --state` prints the same once, `zkcoord watch` goes on"
        )
    try:
        from zkcoord.cli.top.terminal import show
    except ImportError as error:
        raise UsageError(f"this Python has no curses ({error}): use `zkcoord group list --state`") from error
    reader = Reader(settings, interval_ms)
    with stopping() as asked:
        reader.start()
        try:
            with _log_in(reader.notices):
                show(lambda: reader.reading, lambda: asked.is_set() or reader.failed is not None)
        finally:
            reader.stop()
    if reader.failed is not None:
        raise reader.failed


class Reader(threading.Thread):
    """Reads the tree and Kafka again and again. `reading` is the last result."""

    def __init__(self, settings: Settings, interval_ms: int) -> None:
        super().__init__(name="zkcoord-top", daemon=True)
        self.reading = Reading()
        self.failed: Exception | None = None  # the error that has ended it
        self.notices: list[str] = []  # collected since the last reading
        self._settings, self._interval_ms = settings, interval_ms
        self._ended = threading.Event()
        self._follower = Follower(settings.zookeeper_address(), settings.tree, whole_every_ms=interval_ms)

    def stop(self) -> None:
        """End the thread, and wait for its end."""
        self._ended.set()
        self._follower.changed.set()
        self.join()

    def run(self) -> None:
        """Read until it is stopped."""
        try:
            with self._follower, kafka_side(self._settings, self.notices.append) as kafka:
                kafka.wait_ms = min(kafka.wait_ms, KAFKA_WAIT_MS)
                while not self._ended.is_set():
                    self._turn(kafka)
        except Exception as error:  # the main thread reports the error after the terminal is restored
            self.failed = error

    def _turn(self, kafka: KafkaSide) -> None:
        try:
            self.reading = self._read(kafka)
        except UnavailableError as error:
            if self.reading.sight is None:
                raise
            self.reading = replace(self.reading, notice=str(error))
            self._ended.wait(AGAIN_SECONDS)
            return
        if not self._ended.is_set() and self._follower.changed.wait(self._interval_ms / 1000):
            self._ended.wait(TOGETHER_SECONDS)

    def _read(self, kafka: KafkaSide) -> Reading:
        sight, tree = self._follower.read(), self._follower.tree
        reports = kafka.offsets(tree, sight.above.layout, list(sight.groups.values()))
        ends = kafka.ends(reports)
        commands = outstanding(tree, sight.above.layout, reports)
        notices, self.notices[:] = list(dict.fromkeys(self.notices)), []
        return Reading(
            sight=replace(sight, groups={report.view.group: report for report in reports}),
            ends=ends,
            commands=commands,
            now_ms=time.time_ns() // 1_000_000,
            notice="; ".join(notices),
        )


class _Notices(logging.Handler):
    """Collects the lines of the log while the screen is shown, because they would destroy it."""

    def __init__(self, notices: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._notices = notices

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the line for the next reading."""
        self._notices.append(record.getMessage())


@contextmanager
def _log_in(notices: list[str]) -> Iterator[None]:
    """Send the log to `notices` during the block."""
    root = logging.getLogger()
    before, root.handlers[:] = list(root.handlers), [_Notices(notices)]
    try:
        yield
    finally:
        root.handlers[:] = before
