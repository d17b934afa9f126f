"""The checks of one reading of a group. A check returns suspicions, each with the time that it may last. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from zkcoord.audit.seen import Seen
from zkcoord.core.model import Phase, TopicPartition, consumer_of
from zkcoord.core.severity import Severity
from zkcoord.core.topics import DELETED_MS
from zkcoord.core.view import START, GroupView

RESTING = (Phase.PAUSED, Phase.DEAD, Phase.OBSERVED, Phase.EMPTY)
"""In these phases no member has to read."""

DROPPED_WITHIN_MS = 2 * DELETED_MS
"""A coordinator drops the nodes of a deleted topic a minute after the deletion, once the topic's readers have
stopped."""


@dataclass(frozen=True, slots=True)
class Suspicion:
    """Something that is wrong if it lasts. The first three fields identify it from one reading to the next."""

    check: str
    group: str
    subject: str  # a partition, a consumer, a path
    what: str
    todo: str
    severity: Severity = Severity.ERR
    lasts: bool = True  # True: it may last as long as a hand-over; False: it is wrong if two readings in a row show it
    longer_ms: int = 0  # how much longer than a hand-over it may last

    @property
    def key(self) -> tuple[str, str, str]:
        """The identity of the suspicion."""
        return self.check, self.group, self.subject

    def document(self) -> dict[str, str | None]:
        """Return it for programs: what is wrong, and what to do."""
        return {
            "severity": self.severity.name,
            "check": self.check,
            "group": self.group,
            "subject": self.subject or None,
            "what": self.what,
            "todo": self.todo,
        }


def suspicions(seen: Seen) -> Iterator[Suspicion]:
    """Return all suspicions of one reading, except those about lag."""
    view = seen.report.view
    group = view.group
    if not seen.served:
        todo = "start one: `zkcoord coordinator`"
        yield Suspicion("no-coordinator", group, "", "no coordinator is elected", todo)
    for path, what in sorted(seen.report.problems.items()):
        yield Suspicion("unreadable", group, path, what, "mend the node, as this says", Severity.WARN)
    for path, what in sorted(seen.strays.items()):
        todo = "if nobody knows it, remove it by hand; a coordinator leaves it alone"
        longer_ms = DROPPED_WITHIN_MS if path in seen.dropped else 0
        yield Suspicion("orphan", group, path, what, todo, Severity.WARN, longer_ms=longer_ms)
    if view.observed or view.unreadable is not None:
        if view.unreadable is not None:
            yield Suspicion("unreadable", group, group, view.unreadable, "mend the node, as this says")
        return
    yield from _group(seen)
    yield from _owners(seen)
    yield from _commands(view)
    if view.mode.coordinated:
        yield from _readers(view)


def _group(seen: Seen) -> Iterator[Suspicion]:
    state, group = seen.report.view.state, seen.report.view.group
    see = f"see `zkcoord group describe {group} --state`"
    if state.failed is not None:
        yield Suspicion("failed", group, "", f"the group is marked failed: {state.failed.error}", see)
    if state.problem:
        yield Suspicion("assignment", group, "", state.problem, see, Severity.WARN)
    for partition, entry in sorted(state.quarantined.items()):
        todo = f"mend what breaks its consumers, then `zkcoord group rebalance {group}`"
        yield Suspicion("quarantined", group, str(partition), entry.why, todo)


def _owners(seen: Seen) -> Iterator[Suspicion]:
    """Suspect partitions that should have an owner and have none, and owners that are not registered."""
    report, view = seen.report, seen.report.view
    todo = f"see the NOTEs of `zkcoord group describe {view.group} --members`, and the coordinator's log"
    for partition, owner in sorted(view.owners.items()):
        consumer = consumer_of(owner.thread)
        if owner.thread and consumer not in view.members:
            what = f"it is owned by {owner.thread}, " + ("which is no thread" if not consumer else "who is not there")
            yield Suspicion("dead-owner", view.group, str(partition), what, todo)
    if report.phase in RESTING or report.paused or not view.members:
        return
    waiting = {p for awaited in report.awaited.values() for p in awaited.partitions}
    excused = waiting | view.state.quarantined.keys()
    for partition in sorted(report.target.keys() - excused):
        known = view.owners.get(partition)
        if known is None or not known.thread:
            yield Suspicion("no-owner", view.group, str(partition), "nobody owns it, and somebody should", todo)


def _commands(view: GroupView) -> Iterator[Suspicion]:
    for consumer in sorted(view.members):
        channel = view.channels.get(consumer)
        for command in channel.commands if channel is not None else ():
            subject = f"{consumer}/{command.sequence}"
            todo = f"look at {consumer}: its log, its callbacks; it is evicted after its rebalance timeout"
            yield Suspicion("old-command", view.group, subject, f"{command.option} is not obeyed", todo, Severity.WARN)


def _readers(view: GroupView) -> Iterator[Suspicion]:
    """Suspect members that report to read a partition that they do not own, and partitions that two members report."""
    said: dict[TopicPartition, list[str]] = defaultdict(list)
    telling = {c for c, m in view.members.items() if m.speaks_protocol and c in view.channels}
    for consumer in sorted(telling):
        for partition in view.channels[consumer].held:
            said[partition].append(consumer)
    for partition, consumers in sorted(said.items()):
        owner = view.owners.get(partition)
        holder = consumer_of(owner.thread) if owner is not None else ""
        if len(consumers) > 1:
            todo = "stop all but one of them; records since the last commit may be processed twice"
            names = " and ".join(consumers)
            yield Suspicion(
                "two-readers", view.group, str(partition), f"{names} say that they read it", todo, lasts=False
            )
        for consumer in consumers:
            if consumer != holder:
                what = f"{consumer} says that it reads it, and {holder or 'nobody'} owns it"
                todo = "restart that consumer; the coordinator stops it, unless it hangs"
                yield Suspicion("reads-unowned", view.group, f"{partition} {consumer}", what, todo)
    for partition, owner in sorted(view.owners.items()):
        holder = consumer_of(owner.thread)
        if holder in telling and holder not in said.get(partition, ()) and not _is_to_start(view, holder, partition):
            what = f"{holder} owns it, and does not say that it reads it"
            yield Suspicion("owned-unread", view.group, str(partition), what, f"restart {holder}")


def _is_to_start(view: GroupView, consumer: str, partition: TopicPartition) -> bool:
    commands = view.channels[consumer].commands
    return any(command.option == START and command.names(partition) for command in commands)
