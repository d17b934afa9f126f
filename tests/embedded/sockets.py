"""Where a process listens, read from /proc."""

import contextlib
from pathlib import Path

LOOPBACK = "0100007F"  # 127.0.0.1, little-endian
LISTEN = "0A"  # TCP_LISTEN in /proc/net/tcp


def listening(pid: int) -> set[str]:
    """The addresses `HEX:PORT` on which a process listens."""
    targets = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed since the folder was read
            targets.add(str(link.readlink()))
    rows = [
        line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()
    ]
    return {row[1] for row in rows if row[3] == LISTEN and f"socket:[{row[9]}]" in targets}
