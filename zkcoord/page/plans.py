"""The plan of an action on a group. It is shown before it is confirmed, and compared again when it is confirmed.
Pure."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from zkcoord.core.model import consumer_of
from zkcoord.core.record import HOLD, PAUSE, REBALANCE
from zkcoord.group_report import GroupReport
from zkcoord.offsets.targets import Move, Targets

RESUME, RESET = "resume", "reset"
ROWS_MAX = 100
STAMP_DIGITS = 16
MOVES = ("Partition", "From", "To")


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """An action on a group: its verb, and what it does."""

    verb: str
    does: str


ACTIONS: dict[str, Action] = {
    HOLD: Action(
        verb="Hold",
        does="The group stays as it is until it is resumed: nothing is stopped, free partitions are still given out.",
    ),
    PAUSE: Action(
        verb="Pause",
        does="All consumers of the group stop and are given nothing until it is resumed. They stay members.",
    ),
    RESUME: Action(
        verb="Resume",
        does="Ends a hold and a pause of the group, and a reset of its offsets that has not ended.",
    ),
    REBALANCE: Action(
        verb="Rebalance",
        does="Asks the assignor again, and forgets a failure. Nothing moves if the group is in balance.",
    ),
    RESET: Action(
        verb="Reset the offsets of",
        does="Sets the group's offsets. Its consumers are stopped for that, stay members, and go on from the new ones.",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The changes of an action: the first rows of a table, and the number of all. Another plan has another `stamp`."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    number: int
    nothing: str
    stamp: str
    notes: Sequence[str] = ()


def plan_of(action: str, report: GroupReport) -> Plan:
    """Return the plan of an action other than a reset."""
    if action == PAUSE:
        return _stops(report)
    if action == RESUME:
        return _requests(report)
    rows = [(partition, old or "nobody", new or "nobody") for partition, old, new in report.moves()]
    if action == HOLD:
        return _plan("What is kept from moving", MOVES, rows, "Nothing is about to move.", report)
    return _plan("What would move", MOVES, rows, "Nothing would move: all is as the assignor wants it.", report)


def _stops(report: GroupReport) -> Plan:
    living = report.view.living_threads()
    owned = [owner.thread for owner in report.view.owners.values() if owner.thread in living]
    rows = sorted(Counter(consumer_of(thread) for thread in owned).items())
    return _plan("Who is stopped", ("Consumer", "Partitions"), rows, "Nobody reads anything.", report)


def _requests(report: GroupReport) -> Plan:
    rows = [(name, each.who or None, each.when or None) for name, each in sorted(report.view.record.requests.items())]
    return _plan("What is ended", ("Request", "By", "Since"), rows, "It is neither held nor paused.", report)


def _plan(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], nothing: str, report: GroupReport) -> Plan:
    told = [title, str(report.view.record_version), *("\t".join(map(str, row)) for row in rows)]
    return Plan(
        title=title, columns=columns, rows=rows[:ROWS_MAX], number=len(rows), nothing=nothing, stamp=_stamp(told)
    )


def plan_of_reset(asked: Sequence[str], changed: Sequence[Move], found: Targets) -> Plan:
    """Return the plan of a reset. Logs and offsets change all the time, so they do not change the stamp: it depends
    only on the form's fields and on the partitions."""
    rows = [(change.partition, change.before, change.after) for change in changed]
    return Plan(
        title="Which offsets change",
        columns=("Partition", "Offset now", "New offset"),
        rows=rows[:ROWS_MAX],
        number=len(rows),
        nothing="Every offset is there already.",
        stamp=_stamp([*asked, *map(str, sorted(found.offsets))]),
        notes=found.notes,
    )


def _stamp(told: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(told).encode("utf-8", "surrogateescape")).hexdigest()[:STAMP_DIGITS]
