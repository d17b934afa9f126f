"""How a member obeys stops, and how it leaves: the application stops, then final offsets and releases are written, and
the command is deleted.

When the application has stopped a part, that part is released at once, and the command stays.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from zkcoord.core.fast_replace import fast_replace
from zkcoord.core.member.application import Answer, CallKind
from zkcoord.core.member.compare import at_rest, let_go, lose
from zkcoord.core.member.decisions import AskStop, CommitOffsets, Decision, Leave, ReleasePartitions, Report
from zkcoord.core.member.handing_over import hand_over, late, over
from zkcoord.core.member.memory import PLANNED, Memory, Stop
from zkcoord.core.member.mirroring import awaited, follow_unanswered
from zkcoord.core.member.ownership import freed_by_session
from zkcoord.core.member.status import standing
from zkcoord.core.member.view import MemberView
from zkcoord.core.model import TopicPartition


def begin(
    view: MemberView, memory: Memory, sequence: str | None, named: Collection[TopicPartition] | None
) -> tuple[list[Decision], Memory]:
    """Take up a stop. `sequence` None: no command asked for it. `named` None: everything held."""
    left = frozenset(memory.held) if named is None else frozenset(p for p in named if p in memory.held)
    running = tuple(sorted(p for p in left if p in view.application.running))
    memory = fast_replace(memory, stop=Stop(sequence=sequence, left=left, answered=not running))
    return [AskStop(partitions=running)] if running else [], memory


def answered(memory: Memory, answer: Answer, now_ms: int) -> tuple[list[Decision], Memory]:
    """The application stopped all or a part, with final offsets. If it raised, the committed offsets stay."""
    stop = memory.stop
    if stop is None:
        return [], memory
    stopped, offsets = answer.value if answer.part else (stop.left, answer.value)
    # it knows nothing of partitions that it was not asked about
    mine = stop.left.intersection(stopped, answer.call.partitions)
    finals = {p: offset for p, offset in dict(offsets or {}).items() if p in mine}
    stop = fast_replace(
        stop,
        early=stop.early | mine if answer.part else stop.early,
        answered=stop.answered or not answer.part,
        finals={**stop.finals, **finals},
        rested={**dict.fromkeys(mine, now_ms), **stop.rested},
    )
    decisions: list[Decision] = []
    if answer.error is not None:
        why = f"{type(answer.error).__name__}: {answer.error}"
        fields = {"partitions": sorted(stop.left), "why": why, "level": "warning"}
        decisions.append(Report(event="stop_failed", fields=fields))
    return decisions, fast_replace(memory, stop=stop)


def overdue(view: MemberView, memory: Memory, now_ms: int) -> tuple[list[Decision], Memory]:
    """Stop waiting for the application when old members would give up. Partitions that it stops later are released
    without a commit, and its later answer does not count. Old members may also wait for others than those of the stop:
    these are stopped next."""
    stop = memory.stop
    if stop is None or stop.answered or not late(view, memory, now_ms):
        return [], memory
    left = sorted(stop.left - stop.early)
    why = "the application did not stop in time: old members would give up what is theirs now"
    told = Report(event="stop_failed", fields={"partitions": left, "why": why, "level": "warning"})
    running = [p for p in left if p in view.application.running]
    decisions = lose(view, memory, running, CallKind.STOP)
    return [*decisions, told], fast_replace(memory, stop=fast_replace(stop, answered=True))


def advance(view: MemberView, memory: Memory, now_ms: int) -> tuple[list[Decision], Memory]:
    """Write what can be written now of the stop that is being obeyed, or end it."""
    given_up, memory = overdue(view, memory, now_ms)
    stop = memory.stop
    if given_up or stop is None or not view.may_write or not at_rest(view, memory):
        return given_up, memory
    # when leaving, the session's end releases everything
    early = stop.early if stop.sequence is not None else frozenset()
    if not (stop.answered or early):
        return [], memory
    if stop.released:  # after a release and a new grant the owner node may be another one, at the same version
        given_back = stop.left & view.granted()
        if given_back:
            return let_go(memory, given_back)
    released = stop.left if stop.answered else early
    waits, committed, memory = hand_over(view, memory, released, now_ms)
    if waits:
        return committed, memory
    if memory.mirror.exchange is not None:
        if not over(view, memory, now_ms) and not awaited(view, memory, now_ms).isdisjoint(released):
            return [], memory
        followed, memory = follow_unanswered(view, memory, released)
        if followed:
            return followed, memory
    held = {p: memory.held[p] for p in released}
    finals = {p: offset for p, offset in memory.finals().items() if p in held}
    if stop.sequence is None and freed_by_session(view, memory):
        return _write_finals(memory, stop, finals)
    if stop.sequence is None:  # an unfinished range: the session's end frees it, and then the status is read
        unfinished = standing(memory.held, memory.batch)
        held = {p: mine for p, mine in held.items() if p not in unfinished or finals.get(p, mine.offset) != mine.offset}
        finals = {p: offset for p, offset in finals.items() if p in held}
    received = view.commands.get(stop.sequence) if stop.sequence is not None else None
    if not held and not (received is not None and stop.answered):
        return _end(memory, stop)
    memory = fast_replace(memory, writing=finals, stop=fast_replace(stop, released=True))
    release = ReleasePartitions(held=held, offsets=finals, tenured=memory.store.tenured)
    if stop.sequence is None or (received is None and stop.answered and stop.sequence != PLANNED):
        return [release], memory
    if stop.sequence != PLANNED:
        rested = {p: stop.rested.get(p) for p in held}
        times = memory.times.stopped(view, stop.sequence, rested, now_ms)
        memory = fast_replace(memory, times=times)
    status, memory = memory.saying(view, memory.without(held).held)
    if received is None or not stop.answered:
        return [fast_replace(release, status=status)], memory
    commands = {received.sequence: received.version}
    return [fast_replace(release, commands=commands, status=status)], memory


def _write_finals(memory: Memory, stop: Stop, finals: Mapping[TopicPartition, int]) -> tuple[list[Decision], Memory]:
    """Write the final offsets, and release nothing."""
    held = {p: mine for p, mine in memory.held.items() if finals.get(p, mine.offset) != mine.offset}
    if not held:
        return _end(memory, stop)
    offsets = {p: finals[p] for p in held}
    return [CommitOffsets(held=held, offsets=offsets)], fast_replace(memory, writing=offsets)


def _end(memory: Memory, stop: Stop) -> tuple[list[Decision], Memory]:
    """Everything is released."""
    decisions, memory = let_go(memory, stop.left)
    memory = fast_replace(memory, stop=None)
    if stop.sequence is None:
        return [*decisions, Report(event="left"), Leave()], memory
    return decisions, memory
