"""Filters librdkafka's log lines: each is marked as librdkafka's, and a repeated line is logged less often. (While a
broker is down, every attempt to reach it fails.)"""

from __future__ import annotations

import logging
import re
import threading

CONNECTION_LINES = ("FAIL ", "REQTMOUT ")  # beginnings of librdkafka's lines about connections
SAME_LINE_MS = 10_000
SAME_LINES_MAX = 100  # remembered texts: more than librdkafka has kinds of trouble with a few brokers
VARIES = re.compile(r"(?<=rdkafka#)[a-z]+-\d+| \(after \d+ms in state .*\)$")
"""The parts that vary between librdkafka's lines about the same trouble: the client, and how long and how often it has
lasted."""


class NativeLines(logging.Filter):
    """Marks librdkafka's lines as its own. A line about a connection becomes INFO, since an error or event tells the
    user about it, and says who must act."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Return True if the record passes. Its level may be lowered."""
        text = record.getMessage()
        record.msg, record.args = "librdkafka: %s", (text,)
        if not text.startswith(CONNECTION_LINES) or record.levelno <= logging.INFO:
            return True
        record.levelno, record.levelname = logging.INFO, logging.getLevelName(logging.INFO)
        return logging.getLogger(record.name).isEnabledFor(logging.INFO)


class LogThrottle(logging.Filter):
    """Lets the same text through once in SAME_LINE_MS. The next line says how many were left out."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[str, tuple[float, int]] = {}
        # text -> (when it last passed, in s; how many were left out since)
        self._lock = threading.Lock()  # clients log on threads of their own

    def filter(self, record: logging.LogRecord) -> bool:
        """Return True if the record passes. The count is added to the record."""
        text = record.getMessage()
        key = VARIES.sub("", text)
        with self._lock:
            passed_s, left_out = self._seen.pop(key, (None, 0))
            if passed_s is not None and 0 <= record.created - passed_s < SAME_LINE_MS / 1000:
                self._seen[key] = (passed_s, left_out + 1)
                return False
            self._seen[key] = (record.created, 0)
            while len(self._seen) > SAME_LINES_MAX:  # removes the text that was logged longest ago
                del self._seen[next(iter(self._seen))]
        if left_out:
            record.msg, record.args = "%s (and %d more like it since the last one)", (text, left_out)
        return True
