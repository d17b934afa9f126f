"""Programs of others that a suite needs: each is installed once into a folder of its own below `ZKCOORD_CACHE`."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from zkcoord.embedded.java import cache_dir
from zkcoord.errors import UnavailableError

INSTALL_S = 600


def folder_for(name: str, what: bytes) -> Path:
    """Return the folder for this content."""
    return cache_dir() / f"{name}-{hashlib.sha256(what).hexdigest()[:8]}"


def is_installed(folder: Path) -> bool:
    """True when all of it is there."""
    return _mark(folder).exists()


def install_once(folder: Path, install: Callable[[Path], None]) -> None:
    """Call `install` with the empty folder, unless another process has done so."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not is_installed(folder):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            install(folder)
            _mark(folder).touch()


def _mark(folder: Path) -> Path:
    return folder / "complete"


def run(name: str, command: Sequence[str | Path], environment: Mapping[str, str] | None = None) -> None:
    """Run a command that installs `name`. UnavailableError says why it failed."""
    settings = {**os.environ, **(environment or {})}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S, env=settings)
    except subprocess.TimeoutExpired:
        raise UnavailableError(f"{name} could not be installed within {INSTALL_S} s") from None
    if done.returncode:
        why = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise UnavailableError(f"{name} could not be installed: {' '.join(why)}")
