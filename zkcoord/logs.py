"""The log: events with fields, as text for people or as JSON lines for programs (docs/operations.md, "The log").

`emit` is how the product reports what happened; without `configure` (a library does not configure logging) it goes to
the logger `zkcoord.events`, for whoever listens. The message of a warning holds the fields: where nobody set logging up
Python prints it bare. In JSON every line of standard error is one object with `event`,
`time_ms` (wall), `mono_ms` (monotonic) and the event's fields; what other loggers say has the event `log`.
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
"""The level of the end of an outage that a warning told: commands show it, as they show warnings, and it is none."""

logging.addLevelName(NOTICE, "NOTICE")
DEBUG_EVENTS = frozenset({"fetched"})  # one for each batch of messages
FORMATS = ("text", "json")
SHOWN_MAX = (12, 6, 3, 1)  # partitions or entries that a line for people spells out: fewer, if it would be too long
TEXT_MAX = (128, 96, 72, 56, 44, 32, 24, 16)  # characters of a field with text: all, or these, if a line is too long
SENTENCE_MAX = 165  # characters of an event for people; with date, time and level before it a line has less than 200
WHY_MAX = 400  # characters of a warning's reason, which come on top: it says at its end what to do
_PLAIN = re.compile(r"[^\s\"'=]+")


def emit(event: str, /, **fields: Any) -> None:
    """Report an event now; see `emit_fields`."""
    emit_fields(event, fields)


def emit_fields(event: str, fields: Mapping[str, Any]) -> None:
    """Report an event now. Its level is INFO, of `fetched` DEBUG; a field `level` ("warning", "notice") says
    another.

    Fields may hold partitions, mappings with partitions as keys, collections (sets come out sorted) and enums. A field
    `mono_ms` is kept: the caller knows better when it happened.
    """
    level = logging.getLevelNamesMapping().get(str(fields.get("level", "")).upper())
    if level is None:
        level = logging.DEBUG if event in DEBUG_EVENTS else logging.INFO
    if EVENTS.isEnabledFor(level):
        known = {"mono_ms": mono_ms(), **{key: value for key, value in fields.items() if key != "level"}}
        message = event if level < NOTICE else sentence(event, known)
        EVENTS.log(level, "%s", message, extra={"zkcoord_event": event, "zkcoord_fields": known})


def plain(value: Any) -> Any:
    """The value as JSON has it; partitions as "topic-0", wherever they stand.

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
        """The line of an event, or of any other record as the event `log`."""
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
    """A line for people: date and time, the event, its fields as key=value; warnings say so."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, with the traceback below it if there is one."""
        event, fields = _event(record)
        words = [time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created)) + f".{int(record.msecs):03d}"]
        if record.levelno >= logging.WARNING:
            words.append(f"{record.levelname}:")
        whole = "why" if record.levelno >= logging.WARNING else ""
        words.append(str(fields["message"]) if event == "log" else sentence(event, fields, TEXT_MAX, whole))
        line = " ".join(words)
        return line if not record.exc_info else f"{line}\n{self.formatException(record.exc_info)}"


def configure(log_format: str, level: int, stream: TextIO | None = None) -> logging.Handler:
    """Send the log to `stream` (standard error), in one of FORMATS; replaces what an earlier call configured.

    Returns the handler that writes it.

    `level` is zkcoord's own; other libraries are heard from WARNING on, in the same format.
    """
    root = logging.getLogger()
    for handler in [handler for handler in root.handlers if isinstance(handler.formatter, JsonLines | Text)]:
        root.removeHandler(handler)
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines() if log_format == "json" else Text())
    root.addHandler(handler)
    logging.getLogger("zkcoord").setLevel(level)
    logging.captureWarnings(True)  # a line that is no JSON would break the reader
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
    """The event for people: its name, and the fields that are known as key=value.

    Long collections are cut so that the text has SENTENCE_MAX characters. Where that does not do, long texts lose their
    middle: they have the most of `cuts` with which it fits. Without `cuts` they are whole. `whole`: a field that has
    WHY_MAX characters beside the rest.
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
    """A field for people: of collections the first `most`, text with spaces is quoted, nothing breaks the line.

    `longest`: so many characters of each text.
    """
    if isinstance(known, dict):
        known = [f"{key}:{_short(item, most, longest)}" for key, item in known.items()]
    if isinstance(known, list):
        more = f",… ({len(known)} in all)" if len(known) > most else ""
        return ",".join(_short(item, most, longest) for item in known[:most]) + more
    text = str(known) if longest is None else shortened(str(known), longest)
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)
