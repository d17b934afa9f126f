"""The stored inputs: `tests/data/fuzz_corpus.json`, each as text or, where it is none, in hex."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

FILE = Path(__file__).parents[1] / "data" / "fuzz_corpus.json"
REAL, GROWN = "real", "grown"
"""Inputs that a program has written, or may write in a later version; and those that `grow` made of them."""


def stored(kind: str) -> list[bytes]:
    """Return the inputs of one kind."""
    return [_bytes(each) for each in json.loads(FILE.read_text(encoding="utf-8"))[kind]]


def inputs() -> list[bytes]:
    """Return all of them."""
    return stored(REAL) + stored(GROWN)


def store(real: Iterable[bytes], grown: Iterable[bytes]) -> None:
    """Write the file anew, an input a line."""
    kinds = {REAL: list(map(_written, real)), GROWN: list(map(_written, grown))}
    parts = [f'"{kind}": [\n' + ",\n".join(map(json.dumps, found)) + "\n]" for kind, found in kinds.items()]
    FILE.write_text("{" + ",\n".join(parts) + "}\n", encoding="utf-8")


def _bytes(written: str | dict[str, str]) -> bytes:
    return written.encode() if isinstance(written, str) else bytes.fromhex(written["hex"])


def _written(data: bytes) -> str | dict[str, str]:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"hex": data.hex()}
