"""The only place that reads and writes group states (`/zkcoord/groups/<g>/state`), which only the coordinator writes.

`hashlib` is imported for `digest`, which must be the same in every process; `hash()` of a text is not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from zkcoord.core.mode import Mode
from zkcoord.core.model import TopicPartition
from zkcoord.core.state import Announced, Failure, GroupState, Quarantine
from zkcoord.tree.broker import broker_id
from zkcoord.tree.codec import INT32_MAX, Document, compact, partition_of, read_document
from zkcoord.tree.ranges import partitions_in, ranges_by_topic
from zkcoord.tree.status import RANGE_NUMBERS, range_fields

_WHAT = "group state"


def encode_state(state: GroupState) -> bytes:
    """The state's znode data.

    >>> encode_state(GroupState(generation=7, target="ab"))
    b'{"version":1,"generation":7,"target":"ab","stopping":false,"refused":{},"failed":null,"quarantined":{}}'
    """
    failed = state.failed
    document: dict[str, Any] = {
        "version": 1,
        "generation": state.generation,
        "target": state.target,
        "stopping": state.stopping,
        "refused": dict(state.refused),
        "failed": None if failed is None else {"error": failed.error, "since_generation": failed.since_generation},
        "quarantined": {str(p): {"why": q.why, "czxid": str(q.czxid)} for p, q in sorted(state.quarantined.items())},
    }
    if state.replay:
        replay = sorted(state.replay.items())
        document["replay"] = {str(p): range_fields(announced) for p, announced in replay}
    if state.incarnations:
        document["incarnations"] = state.incarnations
    if state.until is not None:
        document["until"] = str(state.until)
    if state.mode is not Mode.COORDINATED:
        document["mode"] = state.mode.value
    if state.problem is not None:
        document["problem"] = state.problem
    if state.empty_ms:
        document["empty_ms"] = str(state.empty_ms)
    if state.deleted:
        document["deleted"] = True
    if state.brokers:
        document["brokers"] = {str(broker): rack for broker, rack in sorted(state.brokers.items())}
    if state.forgiven:
        document["forgiven"] = dict(sorted(state.forgiven.items()))
    if state.old:
        document["old"] = ranges_by_topic(state.old)
    if state.old_as_of:
        document["old_as_of"] = state.old_as_of
    return compact(document)


def decode_state(data: bytes) -> GroupState:
    """The state in `data`. Empty data is a group's first state. The generation must be present, since it must never
    fall."""
    if not data:
        return GroupState()
    document = read_document(_WHAT, data)
    document.version()
    failed = document.section("failed")
    replay, quarantined = document.section("replay"), document.section("quarantined")
    return GroupState(
        generation=document.integer("generation"),
        target=document.text("target", default=""),
        stopping=document.flag("stopping"),
        refused=document.section("refused").all_texts(),
        empty_ms=document.integer("empty_ms", default=0),
        deleted=document.flag("deleted"),
        failed=None
        if document.fields.get("failed") is None
        else Failure(error=failed.text("error"), since_generation=failed.integer("since_generation")),
        quarantined=quarantined.by_partition(lambda key: _quarantine(quarantined.section(key))),
        incarnations=document.integer("incarnations", default=0, high=INT32_MAX),
        replay=replay.by_partition(lambda key: Announced(*replay.offsets(key, *RANGE_NUMBERS))),
        until=_until(document),
        mode=_mode(document),
        problem=document.optional_text("problem"),
        brokers={
            number: rack
            for name, rack in document.section("brokers").all_texts().items()
            if (number := broker_id(name)) is not None
        },
        forgiven=document.section("forgiven").all_texts(),
        old=partitions_in(document.section("old").all_texts()),
        old_as_of=document.integer("old_as_of", default=0, high=INT32_MAX),
    )


def _quarantine(section: Document) -> Quarantine:
    return Quarantine(section.text("why", default=""), section.integer("czxid"))


def _mode(document: Document) -> Mode:
    text = document.text("mode", default=Mode.COORDINATED.value)
    known = {mode.value: mode for mode in Mode}
    if text not in known:
        raise document.wrong("mode", text, " or ".join(known))
    return known[text]


def _until(document: Document) -> TopicPartition | None:
    text = document.optional_text("until")
    partition = None if text is None else partition_of(text)
    if text is not None and partition is None:
        raise document.wrong("until", text, "<topic>-<partition>")
    return partition


def digest(assignment: Mapping[TopicPartition, str]) -> str:
    """16 hex digits that distinguish assignments. They are the same in every process, and for every order of the
    mapping.

    >>> digest({}) == digest({}), len(digest({TopicPartition("t", 0): "c-0"}))
    (True, 16)
    """
    lines = sorted(f"{p[0]}-{p[1]}\0{thread}\0" for p, thread in assignment.items())
    return hashlib.sha256("".join(lines).encode("utf-8", "surrogatepass")).hexdigest()[:16]
