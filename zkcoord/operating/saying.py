"""What a tool says besides its result: lines on standard error for people, or events for programs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from enum import Enum
from typing import Any, TextIO

from zkcoord.logs import emit, json_log
from zkcoord.operating.words import printable


class Tone(Enum):
    """What a line means for people. The value is the number of its colour on a terminal."""

    BAD = 31  # red: somebody must act
    MOVING = 33  # yellow: something is in progress, or a warning


def coloured(stream: TextIO) -> bool:
    """Return True if the stream takes colours: a terminal that has them, unless NO_COLOR (no-color.org) forbids
    them."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def toned(text: str, tone: Tone | None, stream: TextIO | None = None) -> str:
    """Return the text in the tone's colour if `stream` (or standard output) takes colours."""
    if tone is None or not coloured(sys.stdout if stream is None else stream):
        return text
    return f"\x1b[{tone.value}m{text}\x1b[0m"


def warn(text: str) -> None:
    """Print a line on standard error about something that does not end the command."""
    say("warning", text)


def would_be_refused(why: str) -> str:
    """Return what a dry run says about an obstacle. The obstacle says who must act."""
    return f"as it is now, this would be refused: {why}"


class Anew:
    """Tells each finding of a repeated look once. It tells the finding again only after a look without it.

    >>> anew = Anew(print)
    >>> anew("nobody answers"); anew.look(); anew("nobody answers"); anew.look(); anew.look(); anew("nobody answers")
    nobody answers
    nobody answers
    """

    def __init__(self, tell: Callable[[str], None] = warn) -> None:
        self._tell = tell
        self._before: set[str] = set()
        self._now: set[str] = set()

    def look(self) -> None:
        """Begin the next look."""
        self._before, self._now = self._now, set()

    def __call__(self, text: str) -> None:
        """Note that this look has found `text`."""
        if text not in self._now and text not in self._before:
            self._tell(text)
        self._now.add(text)


def say(kind: str, text: str, **fields: Any) -> None:
    """Print `kind: text` on standard error. If the log is JSON, emit the event `kind` with the text and these fields
    instead.

    Further lines of the text are indented below the first.
    """
    if json_log():
        emit(kind, level=kind, message=text, **fields)
        return
    lines = [printable(line.expandtabs()).rstrip() for line in text.strip().splitlines()]
    tone = Tone.BAD if kind == "error" else Tone.MOVING if kind == "warning" else None
    named = toned(f"{kind}:", tone, sys.stderr)
    print("\n  ".join([f"{named} {lines[0] if lines else ''}", *lines[1:]]), file=sys.stderr, flush=True)
