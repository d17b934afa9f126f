"""Files that commands read and write, where `-` is a standard stream, and the progress of a long command."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from io import TextIOWrapper
from pathlib import Path
from typing import TextIO

from zkcoord.errors import UsageError
from zkcoord.operating.requesting import PROGRESS_SECONDS
from zkcoord.operating.saying import say

STANDARD = "-"


@contextmanager
def new_file(name: str) -> Iterator[TextIO]:
    """Open a file to write. It appears under its name when the block has ended without an error."""
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
        with naming(name), draft:
            yield draft  # type: ignore[misc]
            draft.flush()
            os.fsync(draft.fileno())
        Path(draft.name).rename(path)
    except BaseException:
        Path(draft.name).unlink(missing_ok=True)
        raise


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Put the file's name into an error of the block that has none. A full disk's error has none, and would look like
    one of standard output."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or name
        raise


def opened(name: str, option: str = "") -> TextIO:
    """Open a text file to read. Raise UsageError if it cannot be opened. `option`: the option that names the file, and
    a space."""
    try:
        return Path(name).open(encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise UsageError(f"{option}{name}: {error.strerror or error}; name a file that can be read") from None


def read_from(name: str) -> AbstractContextManager[TextIO]:
    """Open a text file that is read once, or standard input."""
    if name != STANDARD:
        return opened(name)
    if isinstance(sys.stdin, TextIOWrapper):  # read as a file is, whatever this machine's encoding
        sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")
    return nullcontext(sys.stdin)


class Progress:
    """Says every few seconds how many offsets a long command has handled."""

    def __init__(self, doing: str) -> None:
        self._doing, self._said, self._count = doing, time.monotonic(), 0

    def add(self, more: int) -> None:
        self._count += more
        if time.monotonic() - self._said >= PROGRESS_SECONDS:
            say("progress", f"{self._count} offsets {self._doing}")
            self._said = time.monotonic()
