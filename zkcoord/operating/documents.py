"""What operators are told about a group: a sentence and remarks for people, and documents for programs."""

from __future__ import annotations

from typing import Any

from zkcoord.core.adoption import Adoption
from zkcoord.core.model import Phase
from zkcoord.core.stores import lagging
from zkcoord.core.view import GroupView, TopicChange
from zkcoord.core.words import count, some
from zkcoord.group_report import GroupReport, TreeReport
from zkcoord.operating.members import members_of
from zkcoord.operating.partitions import Ends, partitions_of
from zkcoord.operating.saying import Tone
from zkcoord.operating.waiting import requested_words, waits_for
from zkcoord.operating.words import at, cell
from zkcoord.tree.adoption import KEYS
from zkcoord.tree.request import document_of

CHANGED = {
    TopicChange.RECREATED: "was deleted and created again: its earlier owners and offsets are dropped before it starts",
    TopicChange.DELETED: "was deleted: its owners and offsets are dropped a minute later",
}

RESTING = (Phase.STABLE, Phase.EMPTY, Phase.OBSERVED)
"""The phases in which the group waits for nothing, and nobody has stopped it."""


def sentence(above: TreeReport, report: GroupReport) -> str:
    """Describe the group's state in one line."""
    view = report.view
    words = [
        f"Group {view.group}: {report.phase.value}",
        f"generation {view.state.generation}",
        f"coordinator {_coordinator(above)}",
        f"epoch {above.epoch}",
        f"{count(report.commands(), 'command')} outstanding",
        count(len(view.members), "member"),
    ]
    if view.state.failed is not None:
        words.append(f"FAILED: {view.state.failed.error}")
    return cell(", ".join([*words, *remarks(above, report)]))


def tone_of(report: GroupReport) -> Tone | None:
    """Return the tone of the group's line: BAD if somebody must act, MOVING if the group has not settled."""
    if report.view.state.failed is not None or report.view.unreadable is not None or report.problems:
        return Tone.BAD
    return Tone.MOVING if report.phase not in RESTING or report.commands() else None


def remarks(above: TreeReport, report: GroupReport) -> list[str]:
    """Return what the state alone does not tell."""
    view = report.view
    quarantined = [f"{partition} ({entry.why})" for partition, entry in sorted(view.state.quarantined.items())]
    words = ["DELETED: only its offsets were kept"] if report.deleted else []
    words += [f"this group {view.record.moved.where()}"] if view.record.moved is not None else []
    words += [f"NOT ADOPTED: `zkcoord group adopt {view.group}`"] if view.observed else []
    words += [f"{view.mode.mode.value}: {view.mode.why}"] if not (view.mode.coordinated or view.observed) else []
    words += [f"QUARANTINED: {'; '.join(quarantined)}"] if quarantined else []
    words += _store_remarks(view)
    words += [
        f"{requested_words(name, request)} by {request.who or 'somebody'}"
        for name, request in sorted(view.record.requests.items())
    ]
    if not report.paused:
        away = {name: waits_for(above, awaited) for name, awaited in report.awaited.items()}
        words += [f"static member {name} is away: {what}" for name, what in away.items()]
    words += [f"topic {topic} {what}" for topic, what in _changed(report).items()]
    return words + ([f"PROBLEM: {view.state.problem}"] if view.state.problem else [])


def _store_remarks(view: GroupView) -> list[str]:
    """Say where offsets are kept, and which consumers have not taken the step yet. Say nothing about a group that was
    never moved."""
    record, waits = view.record, lagging(view)
    words = [] if not record.store.tenured else [f"offset store {record.store_name} (step {record.store_step})"]
    if waits:
        first = some([f"{consumer} {why}" for consumer, why in waits.items()], 1)
        words.append(f"STEP TO {record.store_name} NOT DONE: {first}")
    return words


def _changed(report: GroupReport) -> dict[str, str]:
    """Return topic -> what has happened to it, for topics that were deleted or created again."""
    return {topic: CHANGED[change] for topic, change in sorted(report.view.changed.items()) if change in CHANGED}


def _coordinator(above: TreeReport) -> str:
    if above.coordinator is not None:
        return above.coordinator
    if above.epoch_since_ms is None or not above.epoch:
        return "NONE ELECTED"
    return f"NONE ELECTED (the last one was at {at(above.epoch_since_ms)})"


def document(above: TreeReport, report: GroupReport, ends: Ends) -> dict[str, Any]:
    """Return everything that is known about the group."""
    return {
        **state_of(above, report),
        "members": members_of(report),
        "partitions": partitions_of(report, ends),
        "problems": dict(sorted(report.problems.items())),
        "brokers": above.brokers,
        "adoption": _adoption(report.view.record.adoption),
    }


def _adoption(told: Adoption | None) -> dict[str, Any] | None:
    """Return what the adoption says about the group's old members; None: the group is not adopted."""
    return None if told is None else {key: getattr(told, key) for key in KEYS}


def state_of(above: TreeReport, report: GroupReport) -> dict[str, Any]:
    view = report.view
    return {
        "group": view.group,
        "state": report.phase.value,
        "settled": report.settled,
        "generation": view.state.generation,
        "coordinator": above.coordinator,
        "epoch": above.epoch,
        "commands": report.commands(),
        "member_count": len(view.members),
        "deleted": report.deleted,
        "failed": None if view.state.failed is None else view.state.failed.error,
        "quarantined": {str(partition): entry.why for partition, entry in sorted(view.state.quarantined.items())},
        "problem": view.state.problem,
        "offset_store": {
            "name": view.record.store_name,
            "step": view.record.store_step,
            "waits_for": lagging(view),
        },
        "mode": view.mode.mode.value,
        "mode_reason": view.mode.why or None,
        "old_members": sorted(view.mode.old),
        "changed_topics": _changed(report),
        "awaited": {
            name: {
                "consumer": awaited.consumer,
                "partitions": [str(partition) for partition in awaited.partitions],
                "hold_ms": awaited.hold_ms,
                "until_ms": awaited.until_ms(above),
            }
            for name, awaited in report.awaited.items()
        },
        "requests": {name: document_of(request) for name, request in view.record.requests.items()},
        "moved": None if view.record.moved is None else view.record.moved.where(),
    }
