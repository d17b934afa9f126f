"""The only place that writes and reads a journal's lines: inputs and outputs of a loop's step as JSON values, and back.

Bytes are text if they are UTF-8, else `{"base64": ...}`. A question is `[path, kind, watch]`. A node is `[path, kind,
stat, data, children]` with the fields of `Stat` in their order, or null if it does not exist.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Any, assert_never

from zkcoord.errors import CorruptError
from zkcoord.shell.journal import answers
from zkcoord.shell.ports import (
    CallDone,
    CommitDone,
    FromStore,
    Heard,
    Input,
    Link,
    LinkChanged,
    Outcome,
    ReadDone,
    Request,
    StoreInput,
    SyncDone,
    Unreadable,
    WatchFired,
)
from zkcoord.tree.snapshot import Kind, Node, Stat
from zkcoord.tree.writes import CheckNode, CreateNode, DeleteNode, SetNode, Transaction, Write


def of_input(item: Input) -> dict[str, Any]:
    """Return an input as JSON. Of a request it has only the name: the journal does not record the caller.

    >>> of_input(FromStore(1, SyncDone(7, True)))
    {'session': 1, 'synced': 7, 'ok': True}
    """
    match item:
        case FromStore(session, inner):
            return {"session": session, **_of_store(inner)}
        case Request():
            return {"request": item.name}
        case CallDone():
            return answers.of_done(item)
        case _:
            assert_never(item)


def _of_store(item: StoreInput) -> dict[str, Any]:
    match item:
        case WatchFired():
            return {"fired": item.path, "data": item.data, "children": item.children}
        case ReadDone():
            line = {"answered": item.token, "nodes": None if item.nodes is None else [_of_node(n) for n in item.nodes]}
            refused = [[u.path, u.kind.value, u.why, u.breaks_link] for u in item.unreadable]
            return {**line, "unreadable": refused} if refused else line
        case CommitDone():
            done: dict[str, Any] = {
                "committed": item.token,
                "outcome": item.outcome.value,
                "versions": list(item.versions),
                "failed_at": item.failed_at,
                "reason": item.reason,
                "made": list(item.made),
                "zxid": item.zxid,
            }
            return {**done, "alone": list(item.alone)} if item.alone else done
        case SyncDone():
            return {"synced": item.token, "ok": item.ok}
        case Heard():
            return {"heard": True}
        case LinkChanged():
            return {"link": item.link.value, "id": item.session_id, "timeout_ms": item.session_timeout_ms}
        case _:
            assert_never(item)


def to_input(line: dict[str, Any]) -> Input:
    """Return the input of a line. Raises CorruptError if the line holds none.

    >>> to_input(of_input(FromStore(1, Heard())))
    FromStore(session=1, item=Heard())
    """
    match line:
        case {"session": session, "fired": path}:
            return FromStore(session, WatchFired(path, line["data"], line["children"]))
        case {"session": session, "answered": token, "nodes": nodes}:
            read = None if nodes is None else tuple(_to_node(n) for n in nodes)
            refused = tuple(Unreadable(p, Kind(kind), why, cut) for p, kind, why, cut in line.get("unreadable", ()))
            return FromStore(session, ReadDone(token, read, refused))
        case {"session": session, "committed": token}:
            outcome, versions = Outcome(line["outcome"]), tuple(line["versions"])
            made, zxid, alone = tuple(line.get("made", ())), line.get("zxid", 0), tuple(line.get("alone", ()))
            done = CommitDone(token, outcome, versions, line["failed_at"], line["reason"], made, zxid, alone)
            return FromStore(session, done)
        case {"session": session, "synced": token, "ok": ok}:
            return FromStore(session, SyncDone(token, ok))
        case {"session": session, "heard": True}:
            return FromStore(session, Heard())
        case {"session": session, "link": link}:
            return FromStore(session, LinkChanged(Link(link), line["id"], line["timeout_ms"]))
        case {"request": name}:
            return Request(name, RuntimeError("asked to end") if name == "abandon" else None)
        case {"called": _}:
            return answers.to_done(line)
        case _:
            raise CorruptError(f"no input of a coordinator's loop: {line!r}")


def of_reads(token: int, reads: Any) -> dict[str, Any]:
    """Return a request for nodes as JSON. The questions are sorted, since their order has no meaning."""
    return {"read": token, "nodes": sorted([read.path, read.kind.value, read.watch] for read in reads)}


def of_commit(token: int, transaction: Transaction) -> dict[str, Any]:
    """Return a multi as JSON: its reason, and each of its writes as `[verb, path, ...]`."""
    return {"commit": token, "why": transaction.why, "writes": [_of_write(write) for write in transaction.writes]}


def _of_write(write: Write) -> list[Any]:
    match write:
        case CheckNode():
            return ["check", write.path, write.version]
        case CreateNode():
            return ["create", write.path, _of_bytes(write.data), write.ephemeral, write.sequential]
        case SetNode():
            return ["set", write.path, _of_bytes(write.data), write.version]
        case DeleteNode():
            return ["delete", write.path, write.version]
        case _:
            assert_never(write)


def _of_node(node: Node) -> list[Any]:
    stat = None if node.stat is None else list(node.stat)
    return [node.path, node.kind.value, stat, _of_bytes(node.data), list(node.children)]


def _to_node(line: list[Any]) -> Node:
    path, kind, stat, data, children = line
    return Node(path, Kind(kind), None if stat is None else Stat(*stat), _to_bytes(data), tuple(children))


def _of_bytes(data: bytes) -> Any:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode("ascii")}


def _to_bytes(line: Any) -> bytes:
    return b64decode(line["base64"]) if isinstance(line, dict) else line.encode("utf-8")
