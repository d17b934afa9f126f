"""Draws the screen of `zkcoord top` with curses, and reads keys. No other module imports curses."""

from __future__ import annotations

import curses
import locale
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from zkcoord.cli.top.screen import ABOVE, BELOW, Line, Reading, Screen, Style, frame, pressed
from zkcoord.errors import UsageError

KEY_WAIT_MS = 100
"""How often the screen looks for a new reading while no key is pressed."""

ESCAPE_WAIT_MS = 25
"""Bytes that follow an escape within this time belong to the same key."""

KEYS: Mapping[int, str] = {
    curses.KEY_UP: "up",
    curses.KEY_DOWN: "down",
    curses.KEY_PPAGE: "page up",
    curses.KEY_NPAGE: "page down",
    curses.KEY_HOME: "home",
    curses.KEY_END: "end",
    curses.KEY_ENTER: "enter",
    curses.KEY_BACKSPACE: "escape",
    curses.KEY_LEFT: "escape",
    curses.KEY_RIGHT: "enter",
    10: "enter",
    13: "enter",
    9: "tab",
    27: "escape",
    127: "escape",
}
COLOURS = {Style.MOVING: curses.COLOR_YELLOW, Style.BAD: curses.COLOR_RED}
ATTRIBUTES = {
    Style.TITLE: curses.A_BOLD,
    Style.HEADER: curses.A_REVERSE,
    Style.CHOSEN: curses.A_REVERSE | curses.A_BOLD,
    Style.BAD: curses.A_BOLD,
    Style.HINT: curses.A_DIM,
}


def show(reading: Callable[[], Reading], over: Callable[[], bool]) -> None:
    """Draw each new reading and obey keys, until the user ends it or `over` is true. Raise UsageError if this terminal
    cannot show it."""
    os.environ.setdefault("ESCDELAY", str(ESCAPE_WAIT_MS))
    with suppress(locale.Error):  # the variables name a locale that this machine does not have
        locale.setlocale(locale.LC_ALL, "")  # curses writes in the encoding of this locale
    try:
        curses.wrapper(lambda window: _loop(window, reading, over))
    except curses.error as error:
        raise UsageError(f"this terminal cannot show it ({error}): set TERM, or use `zkcoord group list`") from error


def _loop(window: curses.window, reading: Callable[[], Reading], over: Callable[[], bool]) -> None:
    attributes = _attributes()
    with suppress(curses.error):  # some terminals cannot hide the cursor
        curses.curs_set(0)
    window.timeout(KEY_WAIT_MS)
    screen, drawn = Screen(), None
    while not (screen.over or over()):
        height, width = window.getmaxyx()
        shown = (screen, reading(), height, width)
        if shown != drawn:
            _draw(window, frame(screen, shown[1], width, height), attributes)
            drawn = shown
        code = window.getch()
        key = KEYS.get(code) or (chr(code) if 0 <= code < 256 else "")
        screen = pressed(screen, key, shown[1], page=max(1, height - ABOVE - BELOW))


def _attributes() -> dict[Style, int]:
    """Return how each style is drawn here. Colours are used only if the terminal has them and NO_COLOR does not forbid
    them."""
    found = dict(ATTRIBUTES)
    if curses.has_colors() and not os.environ.get("NO_COLOR"):
        curses.use_default_colors()
        for number, (style, colour) in enumerate(COLOURS.items(), 1):
            curses.init_pair(number, colour, -1)
            found[style] = found.get(style, 0) | curses.color_pair(number)
    return found


def _draw(window: curses.window, lines: Sequence[Line], attributes: Mapping[Style, int]) -> None:
    window.erase()
    for number, line in enumerate(lines):
        text = line.text.encode(window.encoding, "replace").decode(window.encoding)
        with suppress(curses.error):  # the cursor cannot stand after the last character of the screen
            window.addstr(number, 0, text, attributes.get(line.style, curses.A_NORMAL))
    window.refresh()
