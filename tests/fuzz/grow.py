"""Adds inputs to the corpus that make some decoder take a path that no stored input made it take.

    python -m tests.fuzz.grow [SECONDS]

Inputs that break a decoder are printed, and added too. The exit code is 1 if there are any.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

import zkcoord
from tests.fuzz.breaking import broken_by
from tests.fuzz.corpus import GROWN, REAL, store, stored
from tests.fuzz.mutate import mutated

CODE = str(Path(zkcoord.__file__).parent)
GROWN_BYTES_MAX = 400
"""Longer inputs are not kept: what they show, shorter ones show too."""

Step = tuple[str, int, int]
"""A file, and two lines of it that were run one after the other in one call."""


def path_of(data: bytes) -> tuple[set[Step], list[str]]:
    """Return the steps that the decoders take, and which of them break."""
    steps: set[Step] = set()
    last: dict[FrameType, int] = {}

    def local(frame: FrameType, event: str, _argument: Any) -> Any:
        if event == "line":
            steps.add((frame.f_code.co_filename, last.get(frame, 0), frame.f_lineno))
            last[frame] = frame.f_lineno
        elif event == "return":
            last.pop(frame, None)
        return local

    def called(frame: FrameType, _event: str, _argument: Any) -> Any:
        return local if frame.f_code.co_filename.startswith(CODE) else None

    sys.settrace(called)
    try:
        return steps, broken_by(data)
    finally:
        sys.settrace(None)


def grow(seconds: float, draw: Random) -> int:
    """Grow the corpus for so long; the exit code."""
    real, grown = stored(REAL), stored(GROWN)
    known: set[Step] = set()
    for data in (*real, *grown):
        known |= path_of(data)[0]
    pool, failed = real + grown, 0
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        data = mutated(draw, draw.choice(pool), pool)
        if len(data) > GROWN_BYTES_MAX:
            continue
        steps, broken = path_of(data)
        if broken:
            print(data, broken)
            failed = 1
        if broken or steps - known:
            known |= steps
            pool.append(data)
            grown.append(data)
    store(real, grown)
    print(f"{len(real)} real and {len(grown)} grown inputs, {len(known)} steps")
    return failed


if __name__ == "__main__":
    sys.exit(grow(float(sys.argv[1]) if len(sys.argv) > 1 else 60.0, Random()))
