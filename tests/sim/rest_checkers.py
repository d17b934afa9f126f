"""Rules of a calm world (docs/protocol.md, section 5): nobody waits, nothing is left over, everything is read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tests.sim.field import Field, consumer_of, parsed
from tests.sim.process import SimProcess
from tests.sim.topic_checkers import no_offset_outlives_its_topic, of_another_topic
from tests.sim.world import World
from zkcoord.core.model import TopicPartition

Complaints = Iterator[str]
INTERNAL = ("__consumer_offsets", "__transaction_state")


def record_of(field: Field, group: str) -> dict[str, Any]:
    """A group's record."""
    return parsed(field.ensemble.data(f"/zkcoord/groups/{group}") or b"")


def state_of(field: Field, group: str) -> dict[str, Any]:
    """A group's state."""
    return parsed(field.ensemble.data(f"/zkcoord/groups/{group}/state") or b"")


def at_rest(world: World, field: Field) -> Complaints:
    """Every partition that a living member wants is owned and read to its end. No command is outstanding."""
    for (group, consumer), commands in sorted(field.commands.items()):
        for sequence in sorted(commands) if not _stays(field, group, consumer) else ():
            yield f"command {sequence} ({commands[sequence].option}) of {consumer} in {group} is left"
    for group, consumer in sorted(field.channels - field.registrations.keys()):
        if not _stays(field, group, consumer):
            yield f"channel of {consumer} in {group} is left"
    yield from no_offset_outlives_its_topic(field)
    members = {registration.session.client for registration in field.registrations.values()}
    for process in world.processes.values():
        if process.running and process.group and not _has_left(process) and process.client not in members:
            yield f"{process.client} runs, and is no member of {process.group}"
    readers = {p.client: p.application for p in world.processes.values() if p.running and p.application is not None}
    for (group, partition), thread in sorted(field.owners.items()):
        if (group, consumer_of(thread)) in field.registrations and (record_of(field, group).get("wish") or {}).get(
            "pause"
        ):
            yield f"{partition} is owned by {thread}, but {group} is paused"
    for group in sorted({group for group, _ in field.registrations}):
        if state_of(field, group).get("deleted"):
            yield f"{group} has members, and its state says that it was deleted"
        for partition in _wanted(field, group):
            owner = field.owners.get((group, partition), "")
            registration = field.registrations.get((group, consumer_of(owner)))
            if registration is None:
                yield f"{partition} of {group} has the owner {owner!r}, who is not registered"
                continue
            application = readers.get(registration.session.client)
            lag = application.lag(partition) if application is not None else None
            if lag != 0:
                yield f"{partition} of {group} is owned by {owner}, who reads it with lag {lag}"


def _stays(field: Field, group: str, consumer: str) -> bool:
    """True when the channel of a consumer that is gone must stay.

    There are two reasons. It was evicted and still owns partitions, which nobody is granted during a pause. Or it
    announced ranges of a topic that no member reads now: the ranges wait in the channel for the next reader.
    """
    if (group, consumer) in field.registrations:
        return False
    evicted = field.ensemble.stat(f"{field.channel(group, consumer)}/evicted") is not None
    owns = any(group == of and consumer_of(thread) == consumer for (of, _), thread in field.owners.items())
    if evicted and owns and (record_of(field, group).get("wish") or {}).get("pause"):
        return True
    announced = parsed(field.ensemble.data(field.channel(group, consumer)) or b"").get("batch") or {}
    read = {partition.topic for partition in _wanted(field, group)}
    return any(name.rpartition("-")[0] not in read for name in announced)


def _has_left(process: SimProcess) -> bool:
    """True when the consumer's loop has ended by itself, because it was asked to leave or was refused."""
    loop = getattr(process.actor, "loop", None)
    return loop is not None and loop.finished


def _wanted(field: Field, group: str) -> list[TopicPartition]:
    """The partitions of every topic that a member subscribes to, except those that people or the group hold back."""
    ensemble = field.ensemble
    record, state = record_of(field, group), state_of(field, group)
    requests = record.get("wish") or {}
    if requests.get("pause") or requests.get("delete") or requests.get("reset") or state.get("failed"):
        return []
    topics = {}
    for topic in ensemble.names("/brokers/topics"):
        partitions = parsed(ensemble.data(f"/brokers/topics/{topic}") or b"").get("partitions", {})
        topics[topic] = sorted(int(number) for number in partitions)
    wanted = set()
    for (member_group, _), registration in field.registrations.items():
        if member_group == group:
            wanted.update(topic for topic in topics if _subscribes(registration.text, topic))
    if requests.get("hold"):  # a held group stops nothing, so a topic that was created again is not started anew
        wanted = {topic for topic in wanted if not of_another_topic(field, group, topic)}
    held_back = set(state.get("quarantined") or {})
    found = [TopicPartition(topic, number) for topic in sorted(wanted) for number in topics[topic]]
    return [partition for partition in found if str(partition) not in held_back]


def _subscribes(registration: dict[str, object], topic: str) -> bool:
    subscription, pattern = registration.get("subscription"), registration.get("pattern", "static")
    if not isinstance(subscription, dict):
        return False
    if pattern == "static":
        return topic in subscription
    if topic in INTERNAL:
        return False
    listed = any(re.fullmatch(regex.replace(",", "|"), topic) for regex in subscription)
    return listed if pattern == "white_list" else not listed
