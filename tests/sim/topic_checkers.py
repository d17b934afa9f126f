"""Checkers of topics that are deleted or created again: which offsets are removed, and how marks are numbered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tests.sim.field import Facts, Field, parsed

OPERATOR = "operator"


def offsets_are_dropped_only_with_their_topic(facts: Facts, field: Field) -> Iterator[str]:
    """A coordinator removes a topic's offsets only when the topic is gone or is not the one in the mark, and nobody
    reads it."""
    if facts.session.process == OPERATOR:
        return
    for value in facts.offsets:
        if value.after is not None:
            continue
        group, topic = value.group, value.partition.topic
        if _is_deleted(field, group):
            continue
        mark = parsed(field.ensemble.data(field.mark(group, topic)) or b"")
        mark = next((old for g, t, old, _ in facts.marks if (g, t) == (group, topic)), mark)
        if _stands(field, topic, mark):
            yield f"the offset of {value.partition} was dropped, its topic is still the one that was marked"
        for (holding_group, partition), holding in field.holdings.items():
            reading = (group, holding.consumer) in field.registrations
            if reading and holding_group == group and partition.topic == topic:
                yield f"the offset of {value.partition} was dropped while {holding.consumer} reads {partition}"


def _stands(field: Field, topic: str, mark: Mapping[str, Any]) -> bool:
    """True when the topic of the mark exists: the ids are compared if both have one, else the nodes."""
    path = f"/brokers/topics/{topic}"
    stat, topic_id = field.ensemble.stat(path), parsed(field.ensemble.data(path) or b"").get("topic_id")
    if stat is not None and topic_id and mark.get("topic_id"):
        return bool(topic_id == mark["topic_id"])
    return stat is not None and str(stat.czxid) == mark.get("czxid")


def _is_deleted(field: Field, group: str) -> bool:
    """True when somebody requested the deletion of the group with its offsets, and the deletion has begun."""
    record = parsed(field.ensemble.data(f"/zkcoord/groups/{group}") or b"")
    request, done = ((record.get(name) or {}).get("delete") or {} for name in ("wish", "done"))
    return request.get("offsets") is True and done.get("state") == "deleting" and done.get("run") == request.get("run")


def incarnations_only_grow(facts: Facts, field: Field) -> Iterator[str]:
    """A mark's number stays while the topic is the same, and grows with each new topic of that name, even if the mark
    was removed in between."""
    if facts.session.process == OPERATOR:
        return
    for group, topic, old, new in facts.marks:
        if not new:
            continue
        number, highest = int(new["incarnation"]), field.incarnations.get((group, topic), 0)
        same = old.get("czxid") == new["czxid"] or old.get("root_czxid") != new["root_czxid"]
        if old.get("topic_id") and new["topic_id"]:
            same = old["topic_id"] == new["topic_id"]
        if not old and number <= highest:
            yield f"the mark of {topic} in {group} began again at {number}, after {highest}"
        elif old and number != int(old["incarnation"]) + (not same):
            yield f"the mark of {topic} in {group} went from {old} to {new}"


def of_another_topic(field: Field, group: str, topic: str) -> bool:
    """True when the group's mark is about an earlier topic of this name, or about one that is gone."""
    mark = parsed(field.ensemble.data(field.mark(group, topic)) or b"")
    return bool(mark) and not _stands(field, topic, mark)


def no_offset_outlives_its_topic(field: Field) -> Iterator[str]:
    """At rest there are no offsets of topics that are gone, except in a held group, which stops nothing."""
    topics = set(field.ensemble.names("/brokers/topics"))
    for group, partition in sorted(field.offsets):
        record = parsed(field.ensemble.data(f"/zkcoord/groups/{group}") or b"")
        held = (record.get("wish") or {}).get("hold")
        if topics and partition.topic not in topics and not held:
            yield f"the offset of {partition} in {group} is left, its topic is gone"
