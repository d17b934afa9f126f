"""librdkafka's log lines go to the logger `zkcoord.kafka.librdkafka`, and tell a client's owner of its connections."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from zkcoord.kafka.log_throttle import LogThrottle, NativeLines

# A child logger, whose NullHandler keeps Python from printing the lines when nobody configured logging; whoever listens
# to `zkcoord.kafka` gets them with zkcoord's own.
NATIVE_LOG = logging.getLogger("zkcoord.kafka.librdkafka")
NATIVE_LOG.addHandler(logging.NullHandler())
NATIVE_LOG.addFilter(NativeLines())
NATIVE_LOG.addFilter(LogThrottle())

UNHEARD = logging.Logger("zkcoord.kafka.unheard")  # what is said to a client that only looks at its settings
UNHEARD.addHandler(logging.NullHandler())

BROKEN = ("FAIL ", "CLUSTERID ")
"""How librdkafka's lines begin that tell of the end of a connection, or of another cluster than before. (Its callback
for errors hears nothing of most connections that end.)"""


class NativeLog:
    """The logger of one client. The client's own calls, as `poll`, hand the lines over."""

    def __init__(self, broken: Callable[[], None]) -> None:
        """`broken` is called when a connection has ended."""
        self._broken = broken

    def log(self, level: int, text: str, *values: object) -> None:
        """As `logging.Logger.log`."""
        if (text % values).startswith(BROKEN):
            self._broken()
        NATIVE_LOG.log(level, text, *values)


def is_mute(config: Mapping[str, str]) -> bool:
    """True if these settings of librdkafka's keep it from telling of the end of a connection.

    >>> is_mute({"log_level": "3"}), is_mute({"log.connection.close": "false"}), is_mute({})
    (True, True, False)
    """
    level, told = str(config.get("log_level", "6")), str(config.get("log.connection.close", "true"))
    return told.lower() == "false" or not level.isdigit() or int(level) < 6
