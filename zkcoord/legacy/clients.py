"""Recognises the client library that wrote a registration, and its versions, as far as id and bytes show them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from typing import Any, NamedTuple

from zkcoord.tree.codec import INT32_MAX, is_topic
from zkcoord.tree.registration import MARKER, WHITE_LIST, as_1_1, with_backslashes_doubled
from zkcoord.tree.scala_json import parse_scala_json

_UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_HOST_UUID = re.compile(f"[^:]+:{_UUID}")
_OLD_WILDCARD = re.compile(r"[*!][0-9]+[*!].*", re.DOTALL)
_SPACED = re.compile(r'"subscription"\s*:\s*\{ ')


class Library(Enum):
    """A client library; the value is how people call it."""

    KAFKA = "kafka"
    KAFKA_0_7 = "kafka 0.7"
    ZKCOORD = "zkcoord"
    POKE = "zkcoord poke"
    PYKAFKA = "pykafka"
    KAZOO_GO = "kazoo-go"
    KAFKA_NODE = "kafka-node"
    POSEIDON = "poseidon_cluster"
    UNKNOWN = "unknown"


MIXES = frozenset({Library.KAFKA, Library.ZKCOORD, Library.POKE})
"""The libraries whose members compute the same plan. With a member of another library in the group, partitions are read
twice, or by nobody."""


class Client(NamedTuple):
    """A library, its versions (`None`: nothing shows them), and how it was recognised (`why`)."""

    library: Library
    versions: str | None
    why: str


def client_of(group: str, consumer_id: str, data: bytes, times_set: int = 0) -> Client:
    """Return the library that wrote this registration.

    `times_set`: the version of the node. Most libraries create the node together with its data, so their version is 0.

    >>> client_of("g", "g_h-1416335000123-1a2b3c4d", b'{"version":1,"subscription":{"t":1},"pattern":"static",'
    ...           b'"timestamp":"1416335000123"}').versions
    '0.8.0-1.1.1'
    """
    text = data.decode("utf-8", "replace")
    if not text.strip():
        return Client(Library.UNKNOWN, None, "its node is empty (kafka-node fills it a moment after it made it)")
    if _OLD_WILDCARD.fullmatch(text.strip()):
        return Client(Library.KAFKA_0_7, "0.7", "a wildcard as 0.7 writes it")
    document, valid = _document(text)
    if document is None:
        if is_topic(text.strip()):
            why = "a bare topic name" + (", and an id of host and uuid" if _HOST_UUID.fullmatch(consumer_id) else "")
            return Client(Library.PYKAFKA, None, why)
        return Client(Library.UNKNOWN, None, "no JSON")
    if document.get("coordination") == MARKER:
        poke = not document.get("subscription")
        return Client(Library.POKE if poke else Library.ZKCOORD, None, f'"coordination":"{MARKER}"')
    return _foreign(group, consumer_id, document, times_set) or _old(group, consumer_id, text, document, valid)


def _document(text: str) -> tuple[dict[str, Any] | None, bool]:
    """Return the object that any version of the old consumer reads in the text, and whether the text is valid JSON."""
    for parse, valid in ((as_1_1, True), (parse_scala_json, False), (with_backslashes_doubled, False)):
        try:
            found = parse(text)
        except ValueError:
            continue
        return (found, valid) if isinstance(found, dict) else (None, valid)
    return None, False


def _foreign(group: str, consumer_id: str, document: Mapping[str, Any], times_set: int) -> Client | None:
    """Return the library if id or data show that it is not Kafka's own; else None."""
    if not document:
        return Client(Library.POSEIDON, None, "an empty object")
    counts, pattern = document.get("subscription"), document.get("pattern")
    if counts is None and pattern is None and all(type(count) is int for count in document.values()):
        return Client(Library.KAFKA_0_7, "0.7", "a bare map from topic to threads")
    timestamp = document.get("timestamp")
    seconds = type(timestamp) is int and 0 < timestamp <= INT32_MAX
    if seconds or _HOST_UUID.fullmatch(consumer_id):
        by = "a timestamp in seconds" if seconds else "an id of host and uuid"
        return Client(Library.KAZOO_GO, None, by)
    several = pattern == WHITE_LIST and isinstance(counts, dict) and len(counts) > 1
    if several or re.fullmatch(f"{re.escape(group)}_{_UUID}", consumer_id) or (times_set and pattern == WHITE_LIST):
        by = "a white list of several" if several else "an id with a whole uuid" if not times_set else "filled later"
        return Client(Library.KAFKA_NODE, None, by)
    return None


def _old(group: str, consumer_id: str, text: str, document: Mapping[str, Any], valid: bool) -> Client:
    """Return Kafka's own consumer with the versions that write such text; an unknown library if it is none of them."""
    if not isinstance(document.get("subscription"), dict) or "pattern" not in document:
        missing = "pattern" if "pattern" not in document else "subscription"
        return Client(Library.UNKNOWN, None, f"JSON without a {missing}")
    if not consumer_id.startswith(f"{group}_"):
        return Client(Library.UNKNOWN, None, f"an id that does not begin with {group}_")
    if not valid and "\\" in text:
        return Client(Library.KAFKA, "0.8.0-0.8.1", "an unescaped backslash")
    if "timestamp" not in document:
        return Client(Library.KAFKA, "0.8.0-beta1", "no timestamp")
    if _SPACED.search(text):
        return Client(Library.KAFKA, "0.8.0", "spaces in its subscription")
    if "\\\\\\\\" in text:
        return Client(Library.KAFKA, "1.0.1-1.1.1", "a backslash escaped twice")
    if "\\\\" in text:
        return Client(Library.KAFKA, "0.8.2-1.0.0", "a backslash escaped once")
    return Client(Library.KAFKA, "0.8.0-1.1.1", "nothing in it differs between versions")
