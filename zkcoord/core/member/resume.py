"""Held partitions that do not run are started again at their offset: the lease had ended, or somebody set the offset.

A command that is being obeyed and concerns some of them comes first.
"""

from __future__ import annotations

from zkcoord.core.fast_replace import fast_replace
from zkcoord.core.member.application import Answer, CallKind
from zkcoord.core.member.compare import at_rest, lose
from zkcoord.core.member.decisions import Decision, Rejoin, Report
from zkcoord.core.member.memory import Memory
from zkcoord.core.member.mirroring import unsettled
from zkcoord.core.member.replaying import ask_start
from zkcoord.core.member.starts import fetch_started
from zkcoord.core.member.view import MemberView


def lease_ended(view: MemberView, memory: Memory) -> tuple[list[Decision], Memory]:
    """Stop reading at once, and keep the partitions."""
    application = view.application
    if view.leased or not (application.running or application.resuming):
        return [], memory
    lost = sorted({*application.running, *application.resuming})
    told = Report(event="fetch_lost", fields={"partitions": lost, "why": "the lease ended"})
    return [*lose(view, memory, lost, CallKind.RESUME), told], memory


def resume(view: MemberView, memory: Memory) -> tuple[list[Decision], Memory]:
    """Have the application start the partitions that do not run, while nothing else is being done with them."""
    application = view.application
    if not memory.idle or not view.leased or view.leaving or application.resuming or application.full:
        return [], memory
    if not at_rest(view, memory):
        return [], memory
    stopping = memory.stop.left if memory.stop is not None else ()
    idle = sorted(p for p in memory.idle if p not in stopping)  # partitions that a start names are not held
    deleted = [str(p) for p in idle if view.deleted(p)]
    if deleted:  # only a start can apply the reset policy
        return [Rejoin(why=f"somebody deleted the offsets of {', '.join(deleted[:5])}")], memory
    if not idle or not unsettled(memory).isdisjoint(idle):
        return [], memory
    held = memory.held
    offsets = {p: held[p].offset for p in idle}
    return [ask_start(memory, offsets, {p: held[p].incarnation for p in idle}, resumes=True)], memory


def answered(memory: Memory, answer: Answer) -> tuple[list[Decision], Memory]:
    """The application has started the partitions, or could not."""
    if answer.error is not None:
        return [Rejoin(why=f"could not start again what it holds: {answer.error}")], memory
    offsets = {p: memory.held[p].offset for p in answer.call.partitions if p in memory.held}
    memory = fast_replace(memory, overwritten=memory.overwritten.difference(answer.call.partitions))
    return [fetch_started(offsets, memory.generation)], memory
