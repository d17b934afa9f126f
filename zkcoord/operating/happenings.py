"""What has happened to groups between two readings of the tree, as events for `zkcoord watch`. Pure.

A change that was undone between the two readings leaves no event. Every event is a fact about the nodes that were read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from zkcoord.core.model import TopicPartition, consumer_of
from zkcoord.core.ownership import given_back
from zkcoord.core.stores import lagging
from zkcoord.core.view import GroupView, QueuedCommand
from zkcoord.group_report import GroupReport, TreeReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """One reading: the serving coordinator, and the groups that were not deleted."""

    above: TreeReport
    groups: Mapping[str, GroupReport]


class Happening(NamedTuple):
    """An event of a group. `group` None: an event of the tree."""

    event: str
    group: str | None
    fields: Mapping[str, Any]


def seen_first(sight: Sight) -> list[Happening]:
    """Return the events of a first reading: the serving coordinator, and one event for each group."""
    above = sight.above
    serving = Happening("coordinator_seen", None, {"coordinator": above.coordinator, "epoch": above.epoch})
    return [serving, *(_appeared("group_seen", report) for _, report in sorted(sight.groups.items()))]


def happenings(before: Sight, after: Sight) -> list[Happening]:
    """Return the differences: first those of the tree, then those of each group, sorted by group."""
    found = list(_coordinator(before.above, after.above))
    for group in sorted(before.groups.keys() | after.groups.keys()):
        was, now = before.groups.get(group), after.groups.get(group)
        if was is None and now is not None:
            found.append(_appeared("group_appeared", now))
        elif now is None:
            found.append(Happening("group_removed", group, {}))
        elif was is not None and was != now:
            found += [Happening(event, group, fields) for event, fields in _changes(was, now)]
    return found


Change = tuple[str, dict[str, Any]]


def _appeared(event: str, report: GroupReport) -> Happening:
    view = report.view
    fields = {
        "state": report.phase.value,
        "generation": view.state.generation,
        "members": len(view.members),
        "partitions": len(report.partitions()),
        "commands": report.commands(),
    }
    return Happening(event, view.group, fields)


def _coordinator(was: TreeReport, now: TreeReport) -> Iterator[Happening]:
    if was.coordinator is not None and now.coordinator is None:
        yield Happening("coordinator_gone", None, {"coordinator": was.coordinator, "epoch": now.epoch})
    elif now.coordinator is not None and (was.coordinator, was.epoch) != (now.coordinator, now.epoch):
        yield Happening("coordinator_elected", None, {"coordinator": now.coordinator, "epoch": now.epoch})


def _changes(was: GroupReport, now: GroupReport) -> Iterator[Change]:
    yield from _members(was, now)
    yield from _generation(was.view, now.view)
    yield from _commands(was.view, now.view)
    yield from _owners(was.view, now.view)
    yield from _people(was, now)
    yield from _topics(was.view, now.view)
    yield from _problems(was, now)
    if was.phase is not now.phase:
        yield "state_changed", {"from": was.phase.value, "to": now.phase.value}


def _members(was: GroupReport, now: GroupReport) -> Iterator[Change]:
    for consumer in sorted(was.view.members.keys() - now.view.members.keys()):
        owned = [p for p, owner in sorted(was.view.owners.items()) if consumer_of(owner.thread) == consumer]
        why = _why_gone(consumer, owned, now.view)
        yield "member_gone", {"consumer": consumer, "why": why, "partitions": list(map(str, owned))}
    returned = set()
    for consumer in sorted(now.view.members.keys() - was.view.members.keys()):
        member = now.view.members[consumer]
        back = member.instance is not None and member.instance in was.awaited
        returned |= {member.instance} if back else set()
        topics = dict(sorted(member.threads.items()))
        fields: dict[str, Any] = {"consumer": consumer, "instance": member.instance, "topics": topics}
        yield ("member_returned" if back else "member_joined"), fields
    for instance in sorted(now.awaited.keys() - was.awaited.keys()):
        awaited = now.awaited[instance]
        fields = {"consumer": awaited.consumer, "instance": instance, "hold_ms": awaited.hold_ms}
        yield "member_awaited", {**fields, "partitions": list(map(str, awaited.partitions))}
    for instance in sorted(was.awaited.keys() - now.awaited.keys() - returned):
        yield "member_not_awaited", {"instance": instance, "consumer": was.awaited[instance].consumer}


def _why_gone(consumer: str, owned: Sequence[TopicPartition], now: GroupView) -> str | None:
    """Tell an eviction, a death and a leave apart by what the member has left behind; None if that does not tell.

    `owned`: the member's partitions at the earlier reading. A member that leaves releases them all before.
    """
    channel = now.channels.get(consumer)
    if channel is not None and channel.evicted_ms is not None:
        return "evicted"
    if any(consumer_of(owner.thread) == consumer for owner in now.owners.values()):
        return "died"
    if owned and not given_back(now, owned):
        return None
    return "left"


def _generation(was: GroupView, now: GroupView) -> Iterator[Change]:
    if was.state.generation != now.state.generation:
        yield "generation_raised", {"from": was.state.generation, "to": now.state.generation}
    if was.mode.mode is not now.mode.mode:
        yield "mode_changed", {"from": was.mode.mode.value, "to": now.mode.mode.value, "why": now.mode.why or None}
    if now.state.failed is not None and was.state.failed is None:
        yield "group_failed", {"why": now.state.failed.error}
    if was.state.failed is not None and now.state.failed is None:
        yield "group_not_failed", {}
    for partition, entry in sorted(now.state.quarantined.items()):
        if partition not in was.state.quarantined:
            yield "quarantined", {"partition": str(partition), "why": entry.why}
    for partition in sorted(was.state.quarantined.keys() - now.state.quarantined.keys()):
        yield "not_quarantined", {"partition": str(partition)}


def _outstanding(view: GroupView) -> dict[tuple[str, str], QueuedCommand]:
    channels = sorted(view.channels.items())
    return {(consumer, command.sequence): command for consumer, c in channels for command in c.commands}


def _commands(was: GroupView, now: GroupView) -> Iterator[Change]:
    before, after = _outstanding(was), _outstanding(now)
    for (consumer, sequence), command in before.items():
        if (consumer, sequence) not in after:
            why = None if consumer in now.members else "its consumer is gone"
            fields = {"consumer": consumer, "sequence": sequence, "option": command.option, "why": why}
            yield ("command_done" if why is None else "command_dropped"), fields
    for (consumer, sequence), command in after.items():
        known = before.get((consumer, sequence))
        named = {"consumer": consumer, "sequence": sequence, "option": command.option}
        if known is None:
            partitions = None if command.threads is None else list(map(str, sorted(command.threads)))
            yield "command_sent", {**named, "generation": command.generation, "partitions": partitions}
        if command.error is not None and (known is None or known.error is None):
            yield "command_refused", {**named, "why": command.error}


def _owners(was: GroupView, now: GroupView) -> Iterator[Change]:
    """Yield the partitions whose owner has changed, together those with the same old and new owner. None: no owner."""
    ways: dict[tuple[str, str], list[TopicPartition]] = {}
    for partition in sorted(was.owners.keys() | now.owners.keys()):
        before, after = was.owners.get(partition), now.owners.get(partition)
        way = ("" if before is None else before.thread, "" if after is None else after.thread)
        if way[0] != way[1]:
            ways.setdefault(way, []).append(partition)
    for (source, goal), partitions in sorted(ways.items()):
        event = "partitions_moved" if source and goal else "partitions_granted" if goal else "partitions_released"
        yield event, {"from": source or None, "to": goal or None, "partitions": list(map(str, partitions))}


def _people(was: GroupReport, now: GroupReport) -> Iterator[Change]:
    """Yield what people and tools have requested or decided."""
    before, after = was.view.record, now.view.record
    for name, request in sorted(after.requests.items()):
        if name not in before.requests:
            yield "requested", {"request": name, "who": request.who or None}
    for name in sorted(before.requests.keys() - after.requests.keys()):
        yield "request_ended", {"request": name}
    if (before.store_name, before.store_step) != (after.store_name, after.store_step):
        step = {"from": before.store_name, "to": after.store_name, "step": after.store_step}
        yield "offset_store_changed", step
    if lagging(was.view) and not lagging(now.view):
        yield "offset_store_taken", {"store": after.store_name, "step": after.store_step}
    decided = ("assignor", "rebalance", "policy", "weights", "racks")
    changed = [key for key in decided if getattr(before, key) != getattr(after, key)]
    if changed:
        yield "config_changed", {"keys": changed}
    if (before.adoption is None) is not (after.adoption is None):
        yield ("adopted" if after.adoption is not None else "released_to_old_members"), {}


def _topics(was: GroupView, now: GroupView) -> Iterator[Change]:
    for topic in sorted(was.topics.keys() | now.topics.keys()):
        before, after = len(was.topics.get(topic, ())), len(now.topics.get(topic, ()))
        if before != after:
            yield "topic_changed", {"topic": topic, "from": before, "to": after}


def _problems(was: GroupReport, now: GroupReport) -> Iterator[Change]:
    for path, what in sorted(now.problems.items()):
        if was.problems.get(path) != what:
            yield "problem", {"path": path, "what": what}
    for path in sorted(was.problems.keys() - now.problems.keys()):
        yield "problem_over", {"path": path}
