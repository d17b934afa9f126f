"""The only place that reads and writes candidates' nodes (`/zkcoord/coordinators/<id>`).

    {"host":"a","pid":71,"version":"0.1.0","since":"2026-11-21T05:00:00+00:00","protocols":"1-1",
     "assignors":["range","sticky"],"controllers_silent":true,"resign":{"who":"ann@b","run":"5f1c"}}

A candidate writes its own node; a tool adds `resign`. The serving coordinator adds `controllers_silent` while Kafka's
brokers are being moved and no KRaft controller writes to ZooKeeper. Other coordinators read `protocols`. Tools also
read `assignors` and `controllers_silent`. Everything else is for people. An unreadable field counts as missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from zkcoord.core.eligibility import in_common
from zkcoord.errors import CorruptError
from zkcoord.tree.codec import compact, read_document
from zkcoord.tree.registration import read_protocols
from zkcoord.tree.snapshot import Node

_WHAT = "candidate"


def encode_candidate(process: Mapping[str, Any], protocols: tuple[int, int], assignors: Iterable[str]) -> bytes:
    """A candidate's node. `process` holds the fields for people.

    >>> encode_candidate({"host": "a", "pid": 71}, (1, 2), ["sticky", "range"])
    b'{"host":"a","pid":71,"protocols":"1-2","assignors":["range","sticky"]}'
    """
    lowest, highest = protocols
    return compact({**process, "protocols": f"{lowest}-{highest}", "assignors": sorted(assignors)})


def describe(data: bytes) -> dict[str, Any]:
    """The fields of a candidate's node; empty if they cannot be read.

    >>> describe(b'{"host":"a","pid":71}'), describe(b"7")
    ({'host': 'a', 'pid': 71}, {})
    """
    try:
        return dict(read_document(_WHAT, data).fields) if data else {}
    except CorruptError:
        return {}


@lru_cache(maxsize=64)  # called for all candidates whenever one of them is read
def protocols_of(data: bytes) -> tuple[int, int]:
    """The lowest and the highest protocol that a candidate speaks; 1 to 1 if its node does not say so, or cannot be
    read.

    >>> protocols_of(b'{"protocols":"1-2"}'), protocols_of(b'{"host":"a"}'), protocols_of(b'{"protocols":"two"}')
    ((1, 2), (1, 1), (1, 1))
    """
    try:
        return read_protocols(read_document(_WHAT, data))
    except CorruptError:
        return (1, 1)


def assignors_of(data: bytes) -> frozenset[str] | None:
    """The names of a candidate's assignors. None: its node does not say so, or cannot be read.

    >>> sorted(assignors_of(b'{"assignors":["sticky","mine"]}') or ()), assignors_of(b'{"assignors":7}')
    (['mine', 'sticky'], None)
    """
    try:
        return frozenset(read_document(_WHAT, data).texts("assignors")) or None
    except CorruptError:
        return None


def in_charge(candidates: Iterable[Node], serving: str) -> list[Node]:
    """Candidates' nodes in the order in which they count: the serving one first, then the oldest first."""
    found = [node for node in candidates if node.stat is not None]
    return sorted(found, key=lambda n: (_name(n) != serving, n.stat.czxid if n.stat else 0, _name(n)))


def protocol_range(candidates: Sequence[Node], own: tuple[int, int]) -> tuple[int, int]:
    """The protocols that these candidates share: those of the first one, narrowed by the others. `own` if there are no
    candidates."""
    if not candidates:
        return own
    first, *others = candidates
    return in_common(protocols_of(first.data), [(_name(node), protocols_of(node.data)) for node in others])[0]


def _name(node: Node) -> str:
    return node.path.rpartition("/")[2]


@lru_cache(maxsize=8)  # called at each step, for one node
def asked_to_resign(data: bytes) -> str | None:
    """The person that asks the candidate to resign. None: nobody asks.

    >>> asked_to_resign(b'{"resign":{"who":"ann"}}'), asked_to_resign(b'{"resign":{}}'), asked_to_resign(b'{}')
    ('ann', 'somebody', None)
    """
    asked = describe(data).get("resign")
    if not isinstance(asked, dict):
        return None
    return str(asked.get("who") or "somebody")


@lru_cache(maxsize=8)  # called at each step, for one node
def says_silent(data: bytes) -> bool:
    """True when the candidate says that the KRaft controllers are silent.

    >>> says_silent(b'{"controllers_silent":true}'), says_silent(b'{"controllers_silent":1}'), says_silent(b'{}')
    (True, False, False)
    """
    return describe(data).get("controllers_silent") is True


def with_silent(data: bytes, *, silent: bool) -> bytes:
    """The node's data with that statement, or without it.

    >>> with_silent(b'{"host":"a"}', silent=True), with_silent(b'{"host":"a","controllers_silent":true}', silent=False)
    (b'{"host":"a","controllers_silent":true}', b'{"host":"a"}')
    """
    fields = describe(data)
    fields.pop("controllers_silent", None)
    return compact(fields | ({"controllers_silent": True} if silent else {}))


def with_resign(data: bytes, asked: Mapping[str, Any]) -> bytes:
    """The node's data with the request."""
    return compact({**describe(data), "resign": dict(asked)})
