"""The log: events with fields, as text for people or as JSON lines for programs (docs/operations.md, "The log").

zkcoord reports events with `emit`. Without `configure` (a library does not configure logging) they go to the logger
`zkcoord.events`, to which a program can add handlers. The message of a warning has the fields in it, since Python
prints only the message if logging is not configured. In JSON every line of standard error is one object with `event`,
`time_ms` (wall), `mono_ms` (monotonic) and the event's fields. Records of other loggers have the event `log`.
"""

from __future__ import annotations

import json
import logging
import math
import re
import sys
import time
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, TextIO

from zkcoord.clock import mono_ms
from zkcoord.core.model import TopicPartition
from zkcoord.core.words import shortened

EVENTS = logging.getLogger("zkcoord.events")
NOTICE = 25
"""The level of an event that ends an outage after a warning. Commands show it, as they show warnings."""

logging.addLevelName(NOTICE, "NOTICE")
DEBUG_EVENTS = frozenset({"fetched"})  # this event comes with each batch of messages
FORMATS = ("text", "json")
SHOWN_MAX = (12, 6, 3, 1)  # partitions or entries that a line for people names; the next value if the line is too long
TEXT_MAX = (128, 96, 72, 56, 44, 32, 24, 16)  # characters of a text field, in turn, if the line is still too long
SENTENCE_MAX = 165  # characters of an event for people; with date, time and level before it a line has less than 200
WHY_MAX = 400  # further characters for a warning's reason, since its end says what to do
_PLAIN = re.compile(r"[^\s\"'=]+")


def emit(event: str, /, **fields: Any) -> None:
    """Report an event now; see `emit_fields`."""
    emit_fields(event, fields)


def emit_fields(event: str, fields: Mapping[str, Any]) -> None:
    """Report an event now. A field `level` ("warning", "notice") sets its level; the default is INFO, for `fetched`
    DEBUG.

    Fields may hold partitions, mappings with partitions as keys, collections (sets are sorted) and enums. A field
    `mono_ms` is kept: it is the time of the event that the caller knows.
    """
    level = logging.getLevelNamesMapping().get(str(fields.get("level", "")).upper())
    if level is None:
        level = logging.DEBUG if event in DEBUG_EVENTS else logging.INFO
    if EVENTS.isEnabledFor(level):
        known = {"mono_ms": mono_ms(), **{key: value for key, value in fields.items() if key != "level"}}
        message = event if level < NOTICE else sentence(event, known)
        EVENTS.log(level, "%s", message, extra={"zkcoord_event": event, "zkcoord_fields": known})


def plain(value: Any) -> Any:
    """Return the value as JSON has it; every partition in it becomes "topic-0".

    >>> plain({TopicPartition("clicks", 0): 7, "p": {TopicPartition("clicks", 1)}})
    {'clicks-0': 7, 'p': ['clicks-1']}
    """
    if isinstance(value, TopicPartition):
        return str(value)
    if value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, Mapping):
        return {str(plain(key)): plain(item) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return [plain(item) for item in sorted(value)]
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return str(value)


class JsonLines(logging.Formatter):
    """One ASCII JSON object a line; `event`, `time_ms` and `mono_ms` come first."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of an event; any other record becomes the event `log`."""
        event, fields = _event(record)
        line: dict[str, Any] = {"event": event, "time_ms": int(record.created * 1000)}
        line["mono_ms"] = fields.get("mono_ms", mono_ms())
        line |= {key: plain(value) for key, value in fields.items()}
        if record.levelno >= logging.WARNING or event == "log":
            line.setdefault("level", record.levelname.lower())
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, separators=(",", ":"))


class Text(logging.Formatter):
    """A line for people: date and time, the level from WARNING on, the event, and its fields as key=value."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, and below it the traceback if there is one."""
        event, fields = _event(record)
        words = [time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created)) + f".{int(record.msecs):03d}"]
        if record.levelno >= logging.WARNING:
            words.append(f"{record.levelname}:")
        whole = "why" if record.levelno >= logging.WARNING else ""
        words.append(str(fields["message"]) if event == "log" else sentence(event, fields, TEXT_MAX, whole))
        line = " ".join(words)
        return line if not record.exc_info else f"{line}\n{self.formatException(record.exc_info)}"


def configure(log_format: str, level: int, stream: TextIO | None = None) -> logging.Handler:
    """Send the log to `stream` (None: standard error), in one of FORMATS; an earlier call's handler is removed.

    Returns the handler that writes the log.

    `level` is the level of zkcoord's loggers. Other libraries are logged from WARNING on, in the same format.
    """
    root = logging.getLogger()
    for handler in [handler for handler in root.handlers if isinstance(handler.formatter, JsonLines | Text)]:
        root.removeHandler(handler)
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines() if log_format == "json" else Text())
    root.addHandler(handler)
    logging.getLogger("zkcoord").setLevel(level)
    logging.captureWarnings(True)  # a warning that is not JSON would break programs that read the log
    return handler


def json_log() -> bool:
    """True when standard error takes JSON lines only."""
    return any(isinstance(handler.formatter, JsonLines) for handler in logging.getLogger().handlers)


def _event(record: logging.LogRecord) -> tuple[str, Mapping[str, Any]]:
    event = getattr(record, "zkcoord_event", None)
    if event is None:
        return "log", {"logger": record.name, "message": record.getMessage()}
    fields: Mapping[str, Any] = record.__dict__["zkcoord_fields"]
    return str(event), fields


def sentence(event: str, fields: Mapping[str, Any], cuts: Sequence[int] = (), whole: str = "") -> str:
    """Return the event for people: its name, and the fields that are not None as key=value.

    Long collections are cut so that the text has at most SENTENCE_MAX characters. If that is not enough, long texts
    lose their middle: each keeps the first number of `cuts` characters with which the text fits. Without `cuts` texts
    are not cut. `whole`: the name of a field that may have WHY_MAX characters in addition.
    """
    shown = {key: plain(value) for key, value in fields.items() if key not in ("mono_ms", "message", "logger")}
    known = {key: value for key, value in shown.items() if value is not None}
    spared = {whole: _short(known[whole], SHOWN_MAX[0], WHY_MAX)} if isinstance(known.get(whole), str) else {}
    room = SENTENCE_MAX + sum(map(len, spared.values()))
    for most, longest in [*((most, None) for most in SHOWN_MAX), *((SHOWN_MAX[-1], longest) for longest in cuts)]:
        parts = {key: spared.get(key) or _short(value, most, longest) for key, value in known.items()}
        text = " ".join([event, *(f"{key}={part}" for key, part in parts.items())])
        if len(text) <= room:
            return text
    return shortened(text, room) if cuts else text


def _short(known: Any, most: int, longest: int | None = None) -> str:
    """Return a field for people, without line breaks. A collection shows its first `most` entries; text with spaces is
    quoted.

    `longest`: the limit for the characters of each text (None: none).
    """
    if isinstance(known, dict):
        known = [f"{key}:{_short(item, most, longest)}" for key, item in known.items()]
    if isinstance(known, list):
        more = f",… ({len(known)} in all)" if len(known) > most else ""
        return ",".join(_short(item, most, longest) for item in known[:most]) + more
    text = str(known) if longest is None else shortened(str(known), longest)
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)
