"""Keeps a journal in numbered files of one folder. When a file is full it begins a new one, and it removes the
oldest."""

from __future__ import annotations

import fcntl
import json
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from zkcoord.errors import UsageError

FILE_BYTES_MAX = 64 * 1024 * 1024
"""Bytes of one file: some hours of a busy coordinator, and still quickly searched."""

FILES_MAX = 8
"""Number of files. Half a gigabyte in total is what a machine can spare without its owner's consent."""

PATTERN = "[0-9][0-9][0-9][0-9][0-9][0-9].jsonl"


def files_of(paths: Iterable[Path]) -> list[Path]:
    """Return these files, and for each folder its files in order. Raises UsageError if there is none, or one does not
    exist."""
    found: list[Path] = []
    asked = list(paths)
    for path in asked:
        if not path.exists():
            raise UsageError(f"{path} does not exist: name a journal's file, or its folder")
        found += sorted(path.glob(PATTERN)) if path.is_dir() else [path]
    if not found:
        names = ", ".join(map(str, asked))
        raise UsageError(f"{names}: no journal there: name a folder that was given to `zkcoord coordinator --journal`")
    return found


class JournalFiles:
    """The files of one coordinator's journal. A full disk ends the journal, never the coordinator."""

    def __init__(
        self,
        folder: Path,
        version: str,
        problem: Callable[[str], None],
        *,
        file_bytes_max: int = FILE_BYTES_MAX,
        files_max: int = FILES_MAX,
    ) -> None:
        """Raises UsageError if the folder cannot be written to, or another coordinator writes there."""
        self._folder, self._version, self._problem = folder, version, problem
        self._bytes_max, self._files_max = file_bytes_max, files_max
        self._file: IO[str] | None = None
        self._bytes = 0
        self._ended = False
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = (folder / "lock").open("w")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._lock.close()
            raise UsageError(f"another coordinator keeps its journal in {folder}: choose another folder") from error
        except OSError as error:
            raise UsageError(f"cannot keep a journal in {folder}: {error.strerror}: choose another folder") from error

    @property
    def turn(self) -> bool:
        """True when the next line must be a checkpoint."""
        return not self._ended and (self._file is None or self._bytes >= self._bytes_max)

    def checkpoint(self, line: dict[str, Any]) -> None:
        """Begin the next file, and remove the oldest one if there are too many."""
        try:
            if self._file is not None:
                self._file.close()
            known = sorted(self._folder.glob(PATTERN))
            for old in known[: max(0, len(known) + 1 - self._files_max)]:
                old.unlink()
            number = int(known[-1].stem) + 1 if known else 1
            self._file = (self._folder / f"{number:06}.jsonl").open("x", encoding="utf-8")
            self._bytes = 0
        except OSError as error:
            self._end(error)
        self.write({"journal": 1, "version": self._version, **line})

    def write(self, line: dict[str, Any]) -> None:
        """Add a line, with the wall clock's time for people."""
        if self._file is None or self._ended:
            return
        text = json.dumps({"time_ms": time.time_ns() // 1_000_000, **line}, separators=(",", ":")) + "\n"
        try:
            self._file.write(text)
            self._file.flush()
            self._bytes += len(text)
        except OSError as error:
            self._end(error)

    def close(self) -> None:
        """Stop writing."""
        self._ended = True
        if self._file is not None:
            with suppress(OSError):  # the disk is still full: the line that found no room is lost
                self._file.close()
        self._lock.close()

    def _end(self, error: OSError) -> None:
        self._ended = True
        self._problem(f"the journal in {self._folder} ends: {error.strerror or error}: make room and start anew")
