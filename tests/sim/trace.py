"""The last events, in short lines: a bounded ring, which is formatted only when it is shown."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from typing import Any

from tests.sim.zookeeper import Result
from zkcoord.shell.ports import CallDone, CommitDone, FromStore, LinkChanged, ReadDone, Request, SyncDone, WatchFired
from zkcoord.tree.snapshot import Kind, Node
from zkcoord.tree.writes import CheckNode, CreateNode, DeleteNode, SetNode, Transaction

LINES_VARIABLE = "ZKCOORD_SIM_TRACE"
"""The environment variable that says how many lines a failure shows."""

LINES_SHOWN = int(os.environ.get(LINES_VARIABLE, "150"))
LINES_KEPT_MAX = max(300, LINES_SHOWN)
LINE_CHARACTERS_MAX = 600


class Trace:
    """A ring of (virtual time, words)."""

    def __init__(self) -> None:
        self.ring: deque[tuple[int, tuple[Any, ...]]] = deque(maxlen=LINES_KEPT_MAX)

    def lines(self, count: int = LINES_SHOWN) -> list[str]:
        """The last lines, oldest first."""
        found = [f"{ms:>8} {' '.join(shown(word) for word in words)}" for ms, words in list(self.ring)[-count:]]
        return [line if len(line) <= LINE_CHARACTERS_MAX else f"{line[:LINE_CHARACTERS_MAX]} …" for line in found]


def shown(word: Any) -> str:
    """One word of a line: inputs and writes in a short form."""
    if isinstance(word, list | tuple) and type(word) in (list, tuple):
        return "[" + ", ".join(shown(each) for each in word) + "]"
    form = FORMS.get(type(word))
    return str(word) if form is None else form(word)


def _text(data: bytes) -> str:
    return data.decode(errors="replace")


def _node(node: Node) -> str:
    if node.stat is None:
        return f"{node.path} missing"
    if node.kind is Kind.CHILDREN:
        return f"{node.path} {list(node.children)}"
    return f"{node.path}@{node.stat.version} {_text(node.data)!r}"


def _commit(done: CommitDone) -> str:
    refusal = f" by {done.failed_at} {done.reason}" if done.reason else ""
    return f"commit {done.token} {done.outcome.value}{refusal}"


def _create(write: CreateNode) -> str:
    kind = ("e" if write.ephemeral else "") + ("s" if write.sequential else "")
    return f"create{'-' if kind else ''}{kind} {write.path} {_text(write.data)!r}"


FORMS: dict[type, Callable[[Any], str]] = {
    FromStore: lambda item: f"#{item.session} {shown(item.item)}",
    WatchFired: lambda w: f"fired {w.path}{' data' if w.data else ''}{' children' if w.children else ''}",
    ReadDone: lambda r: f"read {r.token} " + ("unread" if r.nodes is None else "; ".join(map(_node, r.nodes))),
    CommitDone: _commit,
    SyncDone: lambda s: f"sync {s.token} {'ok' if s.ok else 'broken'}",
    LinkChanged: lambda link: f"{link.link.value} {link.session_id:x}",
    CallDone: lambda c: f"called {c.token} {c.error or c.value}",
    Request: lambda r: f"request {r.name} {r.argument}",
    Transaction: lambda t: (f"({t.why}) " if t.why else "") + "; ".join(shown(write) for write in t.writes),
    CheckNode: lambda w: f"check {w.path}@{w.version}",
    CreateNode: _create,
    SetNode: lambda w: f"set {w.path}@{w.version} {_text(w.data)!r}",
    DeleteNode: lambda w: f"delete {w.path}@{w.version}",
    Result: lambda r: f"-> {r.reason} at {r.failed_at}" if r.reason else f"-> zxid {r.zxid}",
}
