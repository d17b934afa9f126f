"""The file of a backup: JSON lines. The first line describes the tree. The last line has the number of nodes and a
digest."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, TextIO

from zkcoord.errors import CorruptError, UsageError
from zkcoord.tree.codec import compact, read_document

KEY, VERSION = "zkcoord_backup", 1
OTHER = "name a file as `zkcoord backup` has written it (`zkcoord offsets import` takes an export)"
LINE_MAX = 64 * 1024 * 1024
"""Characters of one line: enough for a node of 10 MiB (ZooKeeper's limit is 1 MiB unless it was raised), since JSON may
write one byte as six characters. A longer line does not belong to a backup."""


class Saved(NamedTuple):
    """One persistent node."""

    path: str
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """A backup's origin: the tree's revision and layout, when it was made, and by whom."""

    revision: str
    layout: str
    made: str
    who: str


class BackupWriter:
    """Writes a backup, node by node. Only `end` makes it complete."""

    def __init__(self, file: TextIO, header: Header) -> None:
        self._file, self.nodes, self._digest = file, 0, hashlib.sha256()
        named = {"revision": header.revision, "layout": header.layout, "made": header.made, "who": header.who}
        self._write({KEY: VERSION, **named})

    def add(self, saved: Saved) -> None:
        """Write one node."""
        self.nodes += 1
        try:
            text = {"text": saved.data.decode("utf-8")}
        except UnicodeDecodeError:
            text = {"base64": base64.b64encode(saved.data).decode("ascii")}
        self._write({"path": saved.path, **text})

    def end(self) -> None:
        """Write the last line."""
        self._file.write(compact({"nodes": self.nodes, "sha256": self._digest.hexdigest()}).decode("ascii") + "\n")

    def _write(self, document: dict[str, object]) -> None:
        line = compact(document) + b"\n"
        self._digest.update(line)
        self._file.write(line.decode("ascii"))


def check(file: TextIO, name: str) -> Header:
    """Read a complete backup, and return its header. Raises UsageError for any other file."""
    if not file.seekable():
        raise UsageError(f"{name} is a pipe, and a backup is read several times: unpack it into a file, and name that")
    file.seek(0)
    digest, nodes = hashlib.sha256(), -1  # the header does not count as a node
    first = last = ""
    while line := file.readline(LINE_MAX):
        if last:
            digest.update(last.encode("utf-8", "surrogateescape"))
            nodes += 1
        first, last = first or line, line
    if not first:
        raise UsageError(f"{name} is no whole backup: it is empty; {OTHER}")
    try:
        header = read_document("backup", first.encode("utf-8", "surrogateescape"))
        if header.integer(KEY, default=0) != VERSION:
            raise UsageError(f"{name} is no backup of zkcoord that this program can read; {OTHER}")
        end = read_document("backup", last.encode("utf-8", "surrogateescape"))
        whole = end.integer("nodes", default=-1 if end.fields.get("nodes") is None else None) == nodes
        whole = whole and end.text("sha256", default="") == digest.hexdigest()
        found = Header(
            revision=header.text("revision"),
            layout=header.text("layout"),
            made=header.text("made", default=""),
            who=header.text("who", default=""),
        )
    except CorruptError as error:
        raise UsageError(f"{name} is no whole backup: {error}; {OTHER}") from None
    if not whole:
        raise UsageError(f"{name} is no whole backup, or was changed: its last line does not fit the others; {OTHER}")
    return found


def nodes(file: TextIO) -> Iterator[Saved]:
    """The nodes of a checked backup, in the order of the file: a parent comes before its children."""
    file.seek(0)
    file.readline(LINE_MAX)
    while line := file.readline(LINE_MAX):
        document = read_document("backup", line.encode("utf-8", "surrogateescape"))
        if "path" not in document.fields:
            return
        plain = "text" in document.fields
        data = document.text("text").encode("utf-8") if plain else _bytes(document.text("base64"))
        yield Saved(document.text("path"), data)


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise CorruptError(f"bad backup: {error}") from None
