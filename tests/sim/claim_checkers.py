"""Checkers of the layout `legacy`, where owners are claims: which member may claim a partition, and how offsets are
fenced."""

from __future__ import annotations

from collections.abc import Iterator

from tests.sim.field import START, Facts, Field, consumer_of
from zkcoord.core.model import TopicPartition
from zkcoord.tree.writes import CheckNode, CreateNode, DeleteNode, SetNode

OPERATOR = "operator"
Complaints = Iterator[str]


def claims_are_made_as_told(facts: Facts, field: Field) -> Complaints:
    """A member claims a partition only for itself, with a check of its registration, and only if a start in its channel
    names the partition. The claim is ephemeral and has version 1. (In a group with old members it follows their plan
    instead.)"""
    if not field.claims or facts.session.process == OPERATOR:
        return
    for group, partition, before, after in facts.owners:
        if not after:
            continue
        consumer = consumer_of(after)
        if not field.owned_by(facts.session, group, consumer):
            yield f"{facts.session.client} made a claim of {partition} for {consumer}"
            continue
        if "coordination" not in field.registrations[group, consumer].text:
            continue  # an old member
        if before is not None or not facts.checks_exists(field.registration(group, consumer)):
            yield f"{facts.session.client} claimed {partition} over {before!r}, or without a check of its registration"
        stat = field.ensemble.stat(owner_path(group, partition))
        if stat is not None and (stat.version, stat.ephemeral_owner) != (1, facts.session.id):
            yield f"the claim of {partition} by {consumer} is of {stat.ephemeral_owner:#x}, at version {stat.version}"
        starts = [c for c in field.commands.get((group, consumer), {}).values() if c.option == START]
        if not any(partition in (c.partitions or ()) for c in starts) and not _mixed(field, group):
            yield f"{consumer} claimed {partition}, which no start in its channel names"


def starts_name_what_no_other_start_names(facts: Facts, field: Field) -> Complaints:
    """A start reserves its partitions for its receiver while that is registered: no other member is sent a start of
    one of them before the first start is obeyed."""
    if not field.claims:
        return
    over = {(command.group, command.consumer, command.sequence) for command in facts.gone_commands}
    begun = [
        (group, consumer, command)
        for (group, consumer), commands in field.commands.items()
        if (group, consumer) in field.registrations
        for command in commands.values()
        if command.option == START and command.understood and (group, consumer, command.sequence) not in over
    ]
    for command in facts.made_commands if begun else ():
        for group, consumer, known in begun if command.option == START and command.partitions else ():
            both = (command.partitions or frozenset()) & (known.partitions or frozenset())
            if both and group == command.group and consumer != command.consumer:
                yield f"{command.consumer} is sent a start of {min(both)}, which {consumer} has not obeyed yet"


def claims_fence_offsets(facts: Facts, field: Field) -> Complaints:
    """A member that writes an offset checks or deletes its claim in the same multi. A member that deletes a claim sets
    or checks the offset in the same multi."""
    if not field.claims or facts.session.process == OPERATOR or facts.txn.kind != "multi":
        return
    versioned = [w for w in facts.txn.writes if getattr(w, "version", 0) >= 0]
    fenced = {write.path for write in versioned if not isinstance(write, DeleteNode)}
    gone = {write.path for write in versioned if isinstance(write, DeleteNode)}
    if facts.session is not field.epoch_session and not _is_old(facts, field):
        for group, partition, _, _ in facts.offsets:
            if owner_path(group, partition) not in fenced | gone:
                yield f"{facts.session.client} set the offset of {partition} without a check of its claim"
    for group, partition, before, after in facts.owners:
        if before and after is None and offset_path(group, partition) not in fenced and not _is_old(facts, field):
            yield f"{facts.session.client} deleted the claim of {partition} whatever its offset is"


def acknowledgements_set_offsets(facts: Facts, field: Field) -> Complaints:
    """A member that acknowledges a start checks each claim that it keeps and sets its offset. This fences earlier
    claims."""
    if not field.claims:
        return
    writes = {write.path: write for write in facts.txn.writes}
    given_back = {(v.group, v.partition) for v in facts.owners if not v.after}
    for command in facts.gone_commands:
        if command.option != START or not field.owned_by(facts.session, command.group, command.consumer):
            continue
        for partition in sorted(command.partitions or ()):
            key = command.group, partition
            if key in given_back or consumer_of(field.owners.get(key, "")) != command.consumer:
                continue
            offset = writes.get(offset_path(*key))
            check = writes.get(owner_path(*key))
            if not isinstance(offset, SetNode | CreateNode) or not isinstance(check, CheckNode) or check.version != 1:
                yield f"{command.consumer} acknowledged {partition}, and did not set its offset under its claim"


def offset_path(group: str, partition: TopicPartition) -> str:
    """The path of a partition's offset."""
    return f"/consumers/{group}/offsets/{partition.topic}/{partition.partition}"


def owner_path(group: str, partition: TopicPartition) -> str:
    """The path of a partition's claim."""
    return f"/consumers/{group}/owners/{partition.topic}/{partition.partition}"


def _mixed(field: Field, group: str) -> bool:
    return any(g == group and "coordination" not in r.text for (g, _), r in field.registrations.items())


def _is_old(facts: Facts, field: Field) -> bool:
    """True of an old member's session, which has no fence."""
    return any(r.session is facts.session and "coordination" not in r.text for r in field.registrations.values())
