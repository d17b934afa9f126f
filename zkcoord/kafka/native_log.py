"""librdkafka's log lines go to the logger `zkcoord.kafka.librdkafka`. Some of them also report the state of connections
to a client's owner."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from zkcoord.kafka.log_throttle import LogThrottle, NativeLines

# A child logger. Its NullHandler keeps Python from printing the lines when logging is not configured. A handler of
# `zkcoord.kafka` gets them together with zkcoord's own.
NATIVE_LOG = logging.getLogger("zkcoord.kafka.librdkafka")
NATIVE_LOG.addHandler(logging.NullHandler())
NATIVE_LOG.addFilter(NativeLines())
NATIVE_LOG.addFilter(LogThrottle())

UNHEARD = logging.Logger("zkcoord.kafka.unheard")  # for a client that only checks its settings
UNHEARD.addHandler(logging.NullHandler())

BROKEN = ("FAIL ", "CLUSTERID ")
"""Beginnings of librdkafka's lines that report the end of a connection, or another cluster than before. (Its error
callback misses most connections that end.)"""


class NativeLog:
    """The logger of one client. The client's own calls, such as `poll`, deliver the lines."""

    def __init__(self, broken: Callable[[], None]) -> None:
        """`broken` is called after the end of a connection."""
        self._broken = broken

    def log(self, level: int, text: str, *values: object) -> None:
        """Log a line as `logging.Logger.log` does."""
        if (text % values).startswith(BROKEN):
            self._broken()
        NATIVE_LOG.log(level, text, *values)


def is_mute(config: Mapping[str, str]) -> bool:
    """True if these settings of librdkafka keep it from reporting the end of a connection.

    >>> is_mute({"log_level": "3"}), is_mute({"log.connection.close": "false"}), is_mute({})
    (True, True, False)
    """
    level, told = str(config.get("log_level", "6")), str(config.get("log.connection.close", "true"))
    return told.lower() == "false" or not level.isdigit() or int(level) < 6
