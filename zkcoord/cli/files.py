"""Files that commands read and write, where `-` is a standard stream, and the progress of a long command."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from io import TextIOWrapper
from pathlib import Path
from typing import TextIO

from zkcoord.errors import UsageError
from zkcoord.operating.requesting import PROGRESS_SECONDS
from zkcoord.operating.saying import say

STANDARD = "-"
OPEN_FILES = Path("/proc/self/fd")
THERE = "the file is there already; name another one"


def check_beside(name: str, option: str) -> None:
    """Raise UsageError if a command cannot make this file beside its result, which is on standard output. Call it
    before anything that takes long. Nothing is made. `option`: the option that names the file, and a space."""
    if name == STANDARD:
        raise UsageError(f"{option}{name}: standard output has the result of the command; name a file")
    number, hidden = _draft(name, option)
    os.close(number)
    if hidden is not None:
        hidden.unlink()


@contextmanager
def new_file(name: str, option: str = "") -> Iterator[TextIO]:
    """Open a file to write. It appears under its name when the block has ended without an error. Only its owner may
    read it. `option`: as for `check_beside`."""
    if name == STANDARD:
        yield sys.stdout
        return
    number, hidden = _draft(name, option)
    try:
        with naming(name), os.fdopen(number, "w+", encoding="utf-8") as draft:
            yield draft
            draft.flush()
            os.fsync(number)
            if not _appear(number, hidden, Path(name)):
                raise UsageError(f"{option}{name}: {THERE}")
    except BaseException:
        if hidden is not None:
            hidden.unlink(missing_ok=True)
        raise


def _draft(name: str, option: str) -> tuple[int, Path | None]:
    """Open a file in the folder of the file `name`, and return its descriptor. It has no name, so nothing is left of it
    if the program is killed. Where the file system has no such files (NFS, for example), it has the hidden name that is
    returned. Raise UsageError if the file `name` is there, or can never be made."""
    path = Path(name)
    try:
        with suppress(FileNotFoundError, NotADirectoryError):
            path.lstat()  # it also tells that the name is too long, before all the work is done
            raise UsageError(f"{option}{name}: {THERE}")
        if not path.parent.is_dir():
            raise UsageError(f"{option}{name}: there is no such folder; make it, or name another one")
        if hasattr(os, "O_TMPFILE") and OPEN_FILES.is_dir():  # on Linux
            with suppress(OSError):
                return os.open(path.parent, os.O_RDWR | os.O_TMPFILE, 0o600), None
        number, hidden = tempfile.mkstemp(dir=path.parent, prefix=".zkcoord.")
    except OSError as error:
        raise UsageError(f"{option}{name}: {error.strerror or error}; name a file that can be made") from None
    return number, Path(hidden)


def _appear(number: int, hidden: Path | None, path: Path) -> bool:
    """Give a draft its name. Return False if another file has it."""
    if hidden is not None:
        try:
            os.link(hidden, path)
        except FileExistsError:
            return False
        except OSError:  # the file system has no second names
            if os.path.lexists(path):
                return False
            hidden.rename(path)
        hidden.unlink(missing_ok=True)
        return True
    try:  # Python follows the link only with a folder's descriptor, whose value does not matter here
        os.link(OPEN_FILES / str(number), path, src_dir_fd=number, follow_symlinks=True)
    except FileExistsError:
        return False
    return True


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
