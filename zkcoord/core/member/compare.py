"""Compares what was read of held partitions with what was known of them.

An own value at the next version is the member's own write. A lower offset may be the late commit of an old consumer
that had the partition before: it is overwritten. Any other value at another version is foreign: it becomes the
partition's position, work beyond it is not committed, and it is reported. An owner node that does not name this thread
in the known version means that the partition was released or lost (docs/protocol.md, section 7, "Committing").
"""

from __future__ import annotations

from collections.abc import Collection, Set
from typing import NamedTuple

from zkcoord.core.fast_replace import fast_replace
from zkcoord.core.member.application import CallKind
from zkcoord.core.member.decisions import AnswerRequest, Decision, LetGo, LosePartitions, Report
from zkcoord.core.member.memory import Memory
from zkcoord.core.member.requests import CommitRequest
from zkcoord.core.member.status import Held
from zkcoord.core.member.view import ANNOUNCED, STATUSES, MemberView
from zkcoord.core.model import TopicPartition
from zkcoord.errors import FencedError

DELETED = -1
"""Stands for an offset whose node somebody deleted. A held partition always has an offset."""


class Compared(NamedTuple):
    """What became of held partitions."""

    gone: set[TopicPartition]
    foreign: dict[TopicPartition, int]  # offsets that somebody else wrote
    moved: dict[TopicPartition, Held]  # changed partitions, as they are now
    late: dict[TopicPartition, int]  # offsets that an earlier owner's late commit overwrote


def compare(view: MemberView, memory: Memory, now_ms: int) -> tuple[list[Decision], Memory]:
    """Take in what was read of held partitions."""
    touched = view.fresh & memory.held.keys() if view.fresh else frozenset()
    if not touched:
        return [], _certain(view, memory)
    found = _compared(view, memory, touched, now_ms)
    before = memory
    if found.late:
        memory = fast_replace(memory, restoring={**memory.restoring, **found.late})
    if found.moved:
        memory = fast_replace(memory, held={**memory.held, **found.moved})
    if not found.gone and not found.foreign:
        return [], _certain(view, memory)
    spoiled = found.gone | found.foreign.keys()
    if memory.commit is not None:
        commit = fast_replace(memory.commit, spoiled=memory.commit.spoiled | spoiled)
        memory = fast_replace(memory, commit=commit)
    memory = fast_replace(memory, overwritten=memory.overwritten | found.foreign.keys())
    decisions = _foreign(view, before, found)
    decisions += lost(view, memory, spoiled)
    released, memory = let_go(memory, found.gone)
    return [*decisions, *released], _certain(view, memory)


def _compared(view: MemberView, memory: Memory, touched: Collection[TopicPartition], now_ms: int) -> Compared:
    found = Compared(set(), {}, {}, {})
    for partition in sorted(touched):
        known = memory.held[partition]
        owner, at = view.owners.get(partition), view.positions.get(partition)
        if owner is not None and owner != known.owner:
            found.gone.add(partition)  # an owner that names this consumer again is another grant
        elif at is None:
            continue
        elif at.version is None:
            found.foreign[partition] = DELETED
        elif at.version != known.offset_version or at.mzxid != known.mzxid:
            offset = known.offset if at.offset is None else at.offset
            own = at.version == known.offset_version + 1 and offset == memory.writing.get(partition)
            if not own and at.offset is not None:
                if offset < known.offset and view.neighbours.former.may_commit(partition, now_ms):
                    found.late[partition] = known.offset
                else:
                    found.foreign[partition] = offset
            thread, version, _, _, generation, incarnation, _ = known  # there are many: `_replace` takes twice as long
            found.moved[partition] = Held(thread, version, offset, at.version, generation, incarnation, at.mzxid)
    return found


def lost(view: MemberView, memory: Memory, spoiled: Set[TopicPartition]) -> list[Decision]:
    """Tell the application that it must not read these any more. If a call that resumes partitions names one of
    them, the whole call is lost, since it names earlier offsets; partitions of it that are still held are started
    once more."""
    running, resuming = view.application.running, view.application.resuming
    read = {p for p in spoiled if p in running}
    if spoiled.isdisjoint(resuming):
        return lose(view, memory, read)
    return lose(view, memory, read.union(resuming), CallKind.RESUME)


def _certain(view: MemberView, memory: Memory) -> Memory:
    """No own write is under way once everything held is known as it was read: a later value is somebody else's."""
    if memory.writing and at_rest(view, memory):
        return fast_replace(memory, writing={})
    return memory


def at_rest(view: MemberView, memory: Memory) -> bool:
    """True when everything held is known as it was read: no multi has an unknown outcome."""
    if not view.settled or view.writing:
        return False
    if not view.unread:
        return True
    mine = memory.start.name if memory.start is not None else ""
    return not view.unread - {mine, ANNOUNCED, STATUSES}


def _foreign(view: MemberView, memory: Memory, found: Compared) -> list[Decision]:
    """Report offsets that somebody else set while the program works on the partitions. (A partition at rest starts at
    the new offset in any case.)"""
    working = {*view.application.running, *view.application.resuming}
    if memory.stop is not None:
        working |= memory.stop.left
    return [
        Report(
            event="foreign_offset",
            fields={"partitions": [p], "offset": offset, "own": memory.writing.get(p), "level": "warning"},
        )
        for p, offset in sorted(found.foreign.items())
        if p in working
    ]


def let_go(memory: Memory, gone: Set[TopicPartition]) -> tuple[list[Decision], Memory]:
    """These partitions are not held any more. For those under a stop, report where each was left."""
    if not gone:
        return [], memory
    decisions: list[Decision] = []
    stop, held = memory.stop, memory.held
    stopped = sorted(stop.left & gone) if stop is not None else []
    if stop is not None and stopped:
        finals = memory.finals()
        offsets = {p: finals.get(p, held[p].offset) for p in stopped if p in held}
        decisions.append(Report(event="fetch_stopped", fields={"partitions": list(offsets), "offsets": offsets}))
        stop = fast_replace(stop, left=stop.left.difference(gone), early=stop.early.difference(gone))
    decisions.append(LetGo(partitions=tuple(sorted(gone))))
    return decisions, fast_replace(memory.without(gone), stop=stop)


def lose(
    view: MemberView, memory: Memory, partitions: Collection[TopicPartition], ignored: CallKind | None = None
) -> list[Decision]:
    """The application must not read these any more, and its answers to calls of the kind `ignored` do not count any
    more. Its earlier requests for the partitions do not count, even if they are started again, from the committed
    offset, while a request waits."""
    if not partitions:
        return []
    decisions: list[Decision] = [LosePartitions(partitions=tuple(sorted(partitions)), ignored=ignored)]
    sent = memory.commit.requests if memory.commit is not None else ()
    for number, request in view.requests:
        if number in sent or not isinstance(request, CommitRequest):
            continue
        spoiled = ", ".join(str(p) for p in sorted(request.offsets) if p in partitions)
        if spoiled:
            why = f"lost by this consumer before it was committed: {spoiled[:200]}"
            decisions.append(AnswerRequest(number=number, error=FencedError, why=why))
    return decisions
