"""The only place that reads and writes registrations (`ids/<consumerId>`), those of old clients and zkcoord's.

Every old client parses the registration of *every* member, and an unreadable one breaks its rebalance. So only what all
of Kafka 0.8 to 1.1 can read is written: ASCII without spaces, only strings and small integers, one document. The reader
accepts what at least one of them reads: the newest one (1.1) accepts long numbers, floats and text after the document;
the oldest ones wrote backslashes unescaped. Text that none of them reads raises `CorruptError` with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from zkcoord.core.assignors.legacy.java_order import immutable_order
from zkcoord.core.given import shown
from zkcoord.core.view import REBALANCE_TIMEOUT_MS, SESSION_TIMEOUT_MS
from zkcoord.errors import CorruptError, UsageError, invariant
from zkcoord.tree.codec import INT32_MAX, Document, compact, corrupt, parse_json, text_of
from zkcoord.tree.scala_json import parse_scala_json
from zkcoord.tree.topic_filter import normal_filter, topic_pattern

MARKER = "zkcoord/1"
POKE = "zpoke"
"""Follows `<group>_` at the beginning of a poke's name. A poke is a registration without topics, and counts as
nobody."""

TOMBSTONE = "zkcoord-moved"
"""A registration that no old consumer can read. While it exists, no old consumer can rebalance, and so none reads. It
is in the place from which a group is moved to another tree."""

_MOVED_TO = "zkcoord moved this group to "

STATIC, WHITE_LIST, BLACK_LIST = "static", "white_list", "black_list"
THREADS_MAX = 65_536  # threads of one consumer and topic; with more, one registration could fill every reader's memory
_WHAT = "registration"
_OLD_WILDCARD = re.compile(r"[*!][0-9]+[*!].*", re.DOTALL)
_INSTANCE = re.compile(r"[^/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff]{1,255}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """One member as it registered. Without `coordination` it is an old client, and all fields after it have their
    defaults."""

    subscription: Mapping[str, int]  # topic -> threads; under a wildcard pattern one regex -> threads
    pattern: str = STATIC
    timestamp: str = ""
    coordination: str | None = None  # "zkcoord/1"; None for an old client
    instance: str | None = None
    assignors: tuple[str, ...] = ()
    rebalance_timeout_ms: int = REBALANCE_TIMEOUT_MS
    session_timeout_ms: int = SESSION_TIMEOUT_MS
    protocols: tuple[int, int] = (1, 1)
    offers: frozenset[str] = frozenset()
    hold_ms: int = 0
    rack: str | None = None
    capacity: int | None = None
    offsets: tuple[str, ...] | None = None  # stores that it can use; None: any store of the group
    replaces: str | None = None

    @property
    def wildcard(self) -> str | None:
        """The regex of a wildcard subscription; None for a static one, and for an empty one."""
        return None if self.pattern == STATIC else next(iter(self.subscription), None)

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that are named, in order; empty for a wildcard."""
        return tuple(sorted(self.subscription)) if self.pattern == STATIC else ()


def encode_registration(registration: Registration) -> bytes:
    """The registration's znode data. Raises UsageError for one that readers would refuse (a count of 0, a broken
    regex).

    >>> encode_registration(Registration(subscription={"clicks": 2}, timestamp="1416335000123"))
    b'{"version":1,"subscription":{"clicks":2},"pattern":"static","timestamp":"1416335000123"}'
    """
    document: dict[str, Any] = {
        "version": 1,
        "subscription": dict(registration.subscription),
        "pattern": registration.pattern,
        "timestamp": registration.timestamp,
    }
    if registration.coordination is not None:
        document |= _own_keys(registration)
    wildcard = registration.wildcard
    if wildcard is not None and normal_filter(wildcard) != wildcard:
        raise UsageError(
            f"no client would read the wildcard {wildcard!r} as it stands: write {normal_filter(wildcard)!r}"
        )
    data = compact(document)
    try:
        back = decode_registration(data)
    except CorruptError as error:
        raise UsageError(f"no client could read this registration: {error}") from None
    invariant(back == registration, f"a registration reads back as another: {registration} as {back}")
    return data


def _own_keys(registration: Registration) -> dict[str, Any]:
    low, high = registration.protocols
    keys: dict[str, Any] = {
        "coordination": registration.coordination,
        "instance": registration.instance,
        "assignors": list(registration.assignors) or None,
        "rebalance_timeout_ms": str(registration.rebalance_timeout_ms),
        "session_timeout_ms": str(registration.session_timeout_ms),
        "protocols": None if (low, high) == (1, 1) else f"{low}-{high}",
        "offers": sorted(registration.offers) or None,
        "hold_ms": None if registration.hold_ms == 0 else str(registration.hold_ms),
        "rack": registration.rack,
        "capacity": None if registration.capacity is None else str(registration.capacity),
        "offsets": None if registration.offsets is None else list(registration.offsets),
        "replaces": registration.replaces,
    }
    return {key: value for key, value in keys.items() if value is not None}


def decode_registration(data: bytes) -> Registration:
    """The member that registered with `data`. Raises CorruptError if no old client reads it either, or zkcoord's own
    keys are bad.

    >>> decode_registration(b'{"subscription":{"t":1},"pattern":"static"}').subscription
    {'t': 1}
    >>> decode_registration(b"*4*white.*")
    Traceback (most recent call last):
    ...
    zkcoord.errors.CorruptError: bad registration '*4*white.*': a Kafka 0.7 wildcard, which no later client reads
    """
    document = Document(what=_WHAT, data=data, fields=_read(data))
    pattern = _pattern(document)
    subscription = _subscription(document, wildcard=pattern != STATIC)
    written = document.fields.get("timestamp")
    timestamp = written if isinstance(written, str) else str(written) if type(written) is int else ""
    marker = _marker(document)
    if marker is None:
        return Registration(subscription=subscription, pattern=pattern, timestamp=timestamp)
    return Registration(
        subscription=subscription,
        pattern=pattern,
        timestamp=timestamp,
        coordination=marker,
        instance=_instance(document),
        assignors=document.texts("assignors"),
        rebalance_timeout_ms=document.integer("rebalance_timeout_ms", low=1, default=REBALANCE_TIMEOUT_MS),
        session_timeout_ms=document.integer("session_timeout_ms", low=1, high=INT32_MAX, default=SESSION_TIMEOUT_MS),
        protocols=read_protocols(document),
        offers=frozenset(document.texts("offers")),
        hold_ms=document.integer("hold_ms", default=0),
        rack=document.optional_text("rack"),
        capacity=document.optional_integer("capacity", low=1, high=INT32_MAX),
        offsets=None if document.fields.get("offsets") is None else document.texts("offsets"),
        replaces=document.optional_text("replaces"),
    )


def _read(data: bytes) -> Mapping[str, Any]:
    text = text_of(_WHAT, data)
    if not text.strip():
        raise corrupt(_WHAT, data, "empty (its client may be about to write it)")
    value = _read_by_any(text, data)
    if not isinstance(value, dict):
        raise corrupt(_WHAT, data, "not a JSON object")
    if value and "subscription" not in value and "pattern" not in value and _all_counts(value):
        raise corrupt(_WHAT, data, "a Kafka 0.7 topic map, which no later client reads")
    return value


def _read_by_any(text: str, data: bytes) -> Any:
    """The value that the newest old client reads, or else an older one. Raises CorruptError if none reads it."""
    why = ""
    for read in (as_1_1, with_backslashes_doubled, parse_scala_json):
        try:
            return read(text)
        except ValueError as error:
            why = why or _why_no_json(text, error)
    raise corrupt(_WHAT, data, why)


def as_1_1(text: str) -> Any:
    """Parse the text as Jackson does, which ignores everything after the value."""
    return parse_json(text, trailing=True)


def with_backslashes_doubled(text: str) -> Any:
    """Parse the text as 0.8.0 and 0.8.1 wrote it, with unescaped backslashes in a regex."""
    return parse_json(text.replace("\\", "\\\\"), trailing=True)


def _why_no_json(text: str, error: ValueError) -> str:
    if _OLD_WILDCARD.fullmatch(text.strip()):
        return "a Kafka 0.7 wildcard, which no later client reads"
    if re.fullmatch(r"[a-zA-Z0-9._-]+", text.strip()):
        return "a bare topic name (pykafka's balanced consumer), no registration"
    return f"no JSON ({error})"


def _all_counts(value: Mapping[str, Any]) -> bool:
    return all(type(count) is int for count in value.values())


def _pattern(document: Document) -> str:
    if "pattern" in document.fields and document.fields["pattern"] is None:
        return STATIC  # 0.8 to 0.11 read it so
    pattern = document.text("pattern")
    return pattern if pattern in (WHITE_LIST, BLACK_LIST) else STATIC


def _subscription(document: Document, *, wildcard: bool) -> dict[str, int]:
    if document.fields.get("subscription") is None:
        raise document.error("subscription", "is missing")
    counts = dict(document.section("subscription").fields)
    if wildcard and counts:
        first = immutable_order(counts)[0]  # of several the old clients use one: the head of Scala's map
        regex = normal_filter(first)  # each reader does so, since not every foreign client did it before
        try:
            topic_pattern(regex)
        except CorruptError as error:
            raise document.error("subscription", f"holds a {error}") from None
        counts = {regex: counts[first]}
    for name, count in counts.items():
        if type(count) is not int:
            raise document.error("subscription", f"gives {shown(name)} the count {shown(count)}, which is no integer")
        if not 1 <= count <= THREADS_MAX:
            raise document.error("subscription", f"gives {shown(name)} {shown(count)} threads, not 1 to {THREADS_MAX}")
    return counts


def _marker(document: Document) -> str | None:
    marker = document.fields.get("coordination")
    if marker == MARKER:
        return MARKER
    if isinstance(marker, str) and marker.startswith("zkcoord/"):
        raise document.wrong("coordination", marker, f'"{MARKER}"')
    return None  # another program's key


def legal_instance(name: str) -> bool:
    """True when a consumer may have this instance name, which becomes a part of a path."""
    return name not in (".", "..") and _INSTANCE.fullmatch(name) is not None


def _instance(document: Document) -> str | None:
    instance = document.optional_text("instance")
    if instance is not None and not legal_instance(instance):
        raise document.wrong("instance", instance, "a name that can stand in a path")
    return instance


def read_protocols(document: Document) -> tuple[int, int]:
    """The lowest and the highest protocol that a registration or a candidate names."""
    text = document.text("protocols", default="1-1")
    match = re.fullmatch(r"([1-9][0-9]{0,4})-([1-9][0-9]{0,4})", text)
    if match is None or int(match[1]) > int(match[2]):
        raise document.wrong("protocols", text, '"<lowest>-<highest>"')
    return int(match[1]), int(match[2])


def encode_tombstone(address: str) -> bytes:
    """Return the data of TOMBSTONE. `address` is that of the other tree, for people.

    >>> moved_to(encode_tombstone("zk2:2181/kafka"))
    'zk2:2181/kafka'
    """
    return f"{_MOVED_TO}{address}\n".encode()


def moved_to(data: bytes) -> str:
    """Return the address in the data of TOMBSTONE; any other text as it is."""
    return data.decode("utf-8", "replace").strip().removeprefix(_MOVED_TO)
