"""Files that commands read and write, `-` for the standard streams among them; and how far a long one has come."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TextIO

from zkcoord.errors import UsageError
from zkcoord.operating.requesting import PROGRESS_SECONDS
from zkcoord.operating.saying import say

STANDARD = "-"


@contextmanager
def new_file(name: str) -> Iterator[TextIO]:
    """A file that appears when it is whole."""
    if name == STANDARD:
        yield sys.stdout
        return
    path = Path(name)
    if path.exists():
        raise UsageError(f"{name}: the file is there already; name another one")
    try:
        draft = tempfile.NamedTemporaryFile(  # noqa: SIM115 - it is renamed or removed below
            "w+", encoding="utf-8", dir=path.absolute().parent, prefix=f".{path.name}.", delete=False
        )
    except OSError as error:
        raise UsageError(f"{name}: {error.strerror or error}; name a file that can be made") from None
    try:
        with draft:
            yield draft  # type: ignore[misc]
            draft.flush()
            os.fsync(draft.fileno())
        Path(draft.name).rename(path)
    except BaseException:
        Path(draft.name).unlink(missing_ok=True)
        raise


def opened(name: str, option: str = "") -> TextIO:
    """Open a text file to read; UsageError if nobody can. `option`: the one that names the file, with a space."""
    try:
        return Path(name).open(encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise UsageError(f"{option}{name}: {error.strerror or error}; name a file that can be read") from None


def read_from(name: str) -> AbstractContextManager[TextIO]:
    """A text file that is read once, or standard input."""
    return nullcontext(sys.stdin) if name == STANDARD else opened(name)


class Progress:
    """Says now and then how far a long command has come."""

    def __init__(self, doing: str) -> None:
        self._doing, self._said, self._count = doing, time.monotonic(), 0

    def add(self, more: int) -> None:
        self._count += more
        if time.monotonic() - self._said >= PROGRESS_SECONDS:
            say("progress", f"{self._count} offsets {self._doing}")
            self._said = time.monotonic()
