"""Shapes librdkafka's log lines: each says whose it is, and a repeated one comes less often. (A broker that is away
fails every attempt to reach it.)"""

from __future__ import annotations

import logging
import re
import threading

CONNECTION_LINES = ("FAIL ", "REQTMOUT ")  # what librdkafka calls lines about connections
SAME_LINE_MS = 10_000
SAME_LINES_MAX = 100  # texts that are remembered: more than librdkafka has kinds of trouble with some brokers
VARIES = re.compile(r"(?<=rdkafka#)[a-z]+-\d+| \(after \d+ms in state .*\)$")
"""What differs in librdkafka's lines on one trouble: the client, and how long and how often it has seen it itself."""


class NativeLines(logging.Filter):
    """Marks librdkafka's lines as its own. One about a connection becomes INFO: an error or event tells the user, and
    says who must act."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Return True if the record passes, at its level now."""
        text = record.getMessage()
        record.msg, record.args = "librdkafka: %s", (text,)
        if not text.startswith(CONNECTION_LINES) or record.levelno <= logging.INFO:
            return True
        record.levelno, record.levelname = logging.INFO, logging.getLevelName(logging.INFO)
        return logging.getLogger(record.name).isEnabledFor(logging.INFO)


class LogThrottle(logging.Filter):
    """Lets the same text through once in SAME_LINE_MS. The next one says how many were left out."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[str, tuple[float, int]] = {}  # text -> when it passed, in seconds; how many did not since
        self._lock = threading.Lock()  # clients log on threads of their own

    def filter(self, record: logging.LogRecord) -> bool:
        """Return True if the record passes; adds the count to it."""
        text = record.getMessage()
        key = VARIES.sub("", text)
        with self._lock:
            passed_s, left_out = self._seen.pop(key, (None, 0))
            if passed_s is not None and 0 <= record.created - passed_s < SAME_LINE_MS / 1000:
                self._seen[key] = (passed_s, left_out + 1)
                return False
            self._seen[key] = (record.created, 0)
            while len(self._seen) > SAME_LINES_MAX:  # the one that was heard of longest ago
                del self._seen[next(iter(self._seen))]
        if left_out:
            record.msg, record.args = "%s (and %d more like it since the last one)", (text, left_out)
        return True
