"""A PostgreSQL server for the tests: it has a folder of its own, listens on no port, and ends with the tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from zkcoord.errors import ZkcoordError

DEADLINE_S = 60
WHERE = "/usr/lib/postgresql"  # where Debian has the programs, in a folder for each version that is not on the PATH


def postgres_programs() -> Path:
    """Return the folder of `initdb` and `postgres`; ZkcoordError if there is none."""
    found = shutil.which("initdb")
    folders = [Path(found).resolve().parent] if found else []
    folders += sorted(Path(WHERE).glob("*/bin"))
    for folder in reversed(folders):
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    raise ZkcoordError("no PostgreSQL server: apt install postgresql")


@contextmanager
def postgres_server() -> Iterator[str]:
    """Run a server, and give a driver's connection string. PostgreSQL refuses to run as root; then it runs as
    nobody."""
    programs = postgres_programs()
    run: dict[str, Any] = {"stdin": subprocess.DEVNULL, "timeout": DEADLINE_S, "check": True, "capture_output": True}
    folder = Path(tempfile.mkdtemp(prefix="zkcoord-postgres-"))  # short: a socket's path has 107 characters
    if os.geteuid() == 0:
        shutil.chown(folder, "nobody")
        run |= {"user": "nobody", "extra_groups": []}
    data = folder / "data"
    settings = f"-c listen_addresses= -c unix_socket_directories={folder} -c fsync=off"
    try:
        subprocess.run([programs / "initdb", "-D", data, "-U", "zkcoord", "-A", "trust", "--no-sync"], cwd="/", **run)
        control = [programs / "pg_ctl", "-D", data, "-w", "-t", str(DEADLINE_S)]
        subprocess.run([*control, "-l", folder / "log", "-o", settings, "start"], cwd="/", **run)
        try:
            yield f"host={folder} dbname=postgres user=zkcoord"
        finally:
            subprocess.run([*control, "-m", "immediate", "stop"], cwd="/", **run)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
