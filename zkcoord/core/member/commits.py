"""Commits of a member's offsets. They are fenced by the registration, and guarded by each offset's version.

Requests that come while a commit is under way go with the next one. The offsets show what became of a commit: unwritten
offsets are sent again, except those that were taken away, or set by somebody else, meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from zkcoord.core.fast_replace import fast_replace
from zkcoord.core.member import mirroring
from zkcoord.core.member.compare import at_rest, lose
from zkcoord.core.member.decisions import AnswerRequest, CommitOffsets, Decision, Report
from zkcoord.core.member.memory import Commit, Memory
from zkcoord.core.member.requests import CommitRequest
from zkcoord.core.member.status import MemberStatus
from zkcoord.core.member.view import MemberView
from zkcoord.core.model import TopicPartition
from zkcoord.errors import FencedError

Requests = Mapping[int, CommitRequest]


def commits(view: MemberView, memory: Memory, now_ms: int) -> tuple[list[Decision], Memory]:
    """Send the requested offsets that are not written yet, once the outcome of the last commit is certain."""
    commit = memory.commit
    if not view.requests and commit is None:
        return [], memory
    asked = {number: request for number, request in view.requests if isinstance(request, CommitRequest)}
    if not (asked or commit) or not view.ready or not at_rest(view, memory):
        return [], memory
    if commit is None:
        return _send(view, memory, asked, now_ms)
    failed = {n: spoiled for n in commit.requests if n in asked and (spoiled := _spoiled(commit, asked[n]))}
    if not failed:
        return _send(view, memory, {n: asked[n] for n in commit.requests if n in asked}, now_ms)
    decisions: list[Decision] = []
    for number, partitions in failed.items():
        names = ", ".join(map(str, partitions[:5]))
        why = f"taken away, or set by somebody else, meanwhile: {names}"
        decisions.append(AnswerRequest(number=number, error=FencedError, why=why))
    left = tuple(n for n in commit.requests if n not in failed)
    named = {p for n in failed for p in asked[n].offsets}
    # These were moved by one multi of a commit that failed in another multi. The program is told so, and does not know
    # these offsets. A partition that does not run is started again at its offset, or is about to be: losing it then
    # would leave it without a reader
    moved = [
        p
        for p, before in commit.before.items()
        if p in named and p not in commit.spoiled and p in memory.readable and memory.held[p].offset != before
    ]
    decisions += lose(view, memory, moved)
    return decisions, fast_replace(memory, commit=fast_replace(commit, requests=left) if left else None)


def restore(view: MemberView, memory: Memory) -> tuple[list[Decision], Memory]:
    """Overwrite late commits of an old consumer, for partitions that it had before."""
    if not memory.restoring or not view.may_write or not at_rest(view, memory):
        return [], memory
    held = memory.held
    offsets = {p: o for p, o in memory.restoring.items() if p in held and held[p].offset < o}
    if not offsets:
        return [], fast_replace(memory, restoring={})
    decisions: list[Decision] = [CommitOffsets(held={p: held[p] for p in offsets}, offsets=offsets)]
    return decisions, fast_replace(memory, writing=offsets)


def _spoiled(commit: Commit, request: CommitRequest) -> list[TopicPartition]:
    return sorted(commit.spoiled & request.offsets.keys())


def _send(view: MemberView, memory: Memory, active: Requests, now_ms: int) -> tuple[list[Decision], Memory]:
    """Commit these requests. A request that names a partition which does not run any more is answered with an error."""
    running, readable = view.application.running, memory.readable
    refused: list[Decision] = []
    for number, (offsets, starts) in active.items():
        if missing := [p for p in offsets if p not in readable]:
            refused.append(_fenced(number, "not held by this consumer any more", missing))
        elif stale := [p for p in offsets if starts.get(p, 0) != running.get(p, 0)]:
            refused.append(_fenced(number, "decided before these were started again", stale))
    if refused:
        told = {decision.number for decision in refused if isinstance(decision, AnswerRequest)}
        commit = memory.commit
        if commit is not None:
            left = tuple(number for number in commit.requests if number not in told)
            commit = fast_replace(commit, requests=left) if left else None
        return refused, fast_replace(memory, commit=commit)
    wanted = {p: offset for request in active.values() for p, offset in request.offsets.items()}
    held, commit = memory.held, memory.commit
    offsets = {p: offset for p, offset in wanted.items() if held[p].offset != offset}
    if offsets:
        before = {p: held[p].offset for p in offsets}
        if commit is not None:
            before |= commit.before
        sent = Commit(requests=tuple(active), offsets=offsets, before=before)
        in_kafka, in_nodes = mirroring.places(view, memory, offsets)
        if in_kafka:
            return mirroring.commit(view, fast_replace(memory, commit=sent), in_kafka, now_ms)
        if not in_nodes:
            return [], memory
        mine = {p: held[p] for p in in_nodes}
        status: MemberStatus | None = None
        if view.channel_read and memory.times.untold(view):  # an acknowledgement without a write of its own
            status, memory = memory.saying(view)
        memory = fast_replace(memory, commit=sent, writing=in_nodes)
        return [CommitOffsets(held=mine, offsets=in_nodes, status=status)], memory
    memory = fast_replace(memory, commit=None)
    if not active:
        return [], memory
    committed = wanted if commit is None else {p: offset for p, offset in wanted.items() if p in commit.before}
    done: list[Decision] = [Report(event="offsets_committed", fields={"offsets": committed})]
    return [*done, *(AnswerRequest(number=number) for number in active)], memory


def _fenced(number: int, what: str, partitions: Iterable[TopicPartition]) -> AnswerRequest:
    names = ", ".join(map(str, sorted(partitions)))
    return AnswerRequest(number=number, error=FencedError, why=f"{what}: {names[:200]}")
