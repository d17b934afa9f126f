"""Lets something happen in the middle of a program's own thread, as a signal's handler does: at its n-th call."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def at_call(number: int, files: Collection[str], act: Callable[[], None]) -> Iterator[list[str]]:
    """Call `act` when this thread, within the block, enters its `number`th function (from 1 on) that is defined in one
    of these files. The list then has the function's name.

    Python runs a signal's handler there, among other places. Functions that a function named `give`, `take` or `lose`
    calls do not count: these play the membership's own thread.
    """
    found: list[str] = []
    seen = 0

    def trace(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal seen
        if not frame.f_code.co_filename.endswith(tuple(files)) or _of_the_membership(frame):
            return
        seen += 1
        if seen == number:
            sys.settrace(before)
            found.append(f"{frame.f_code.co_name} in line {frame.f_lineno}")
            act()

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield found
    finally:
        sys.settrace(before)


def _of_the_membership(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code.co_name not in ("give", "take", "lose"):
        frame = frame.f_back
    return frame is not None
