"""The program `zkcoord`. It stands beside the package, since importing a part of that loads the package first."""

from __future__ import annotations

import gc
import os
import signal
import sys
from types import FrameType

INTERRUPTED = 130  # as a shell reports SIGINT


def main() -> None:
    """Load the command line, and run it. While it loads nothing is open yet, so Ctrl-C ends the process at once.

    Before that Python itself starts, which takes some 20 ms: a Ctrl-C then shows its own traceback.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # else it is ignored, as in a shell's background job
        signal.signal(signal.SIGINT, _end)
    gc.disable()  # what is loaded stays: looking for garbage among it takes a sixth of the time
    from zkcoord.cli.loading import load
    from zkcoord.cli.main import cli
    from zkcoord.cli.main import main as run

    load(cli, sys.argv[1:])
    gc.enable()
    signal.signal(signal.SIGINT, before)
    run()


def _end(_number: int, _frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
