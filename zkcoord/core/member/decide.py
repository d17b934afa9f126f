"""What a member does next: it takes view and memory, and returns decisions and the next memory.

This module holds the order of the parts; each part decides in a module of its own. The first part that decides
something ends the step, since that changes the view. Then the member decides again, until nothing is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from zkcoord.core.fast_replace import fast_replace
from zkcoord.core.member import commands, commits, handing_over, mirroring, resume, sharing, starts, stops, switching
from zkcoord.core.member.announcements import announced, announcements
from zkcoord.core.member.compare import compare
from zkcoord.core.member.decisions import Decision, Rejoin
from zkcoord.core.member.memory import Memory
from zkcoord.core.member.status import Sizes
from zkcoord.core.member.view import MemberView

GONE = "the registration or the channel is gone: evicted, or removed by somebody"


class Decided(NamedTuple):
    """One step of a member."""

    decisions: Sequence[Decision]  # in the order in which they are carried out
    memory: Memory  # for the next step
    wake_at_ms: int | None = None  # monotonic time at which to decide again at the latest


def decide(view: MemberView, memory: Memory, now_ms: int, sizes: Sizes) -> Decided:
    """What to do now. No argument is changed: the same arguments give the same answer."""
    if view.gone:
        return Decided(decisions=(Rejoin(why=GONE),), memory=memory)
    decisions, memory = _take_in(view, memory, now_ms)
    if not decisions and view.settled:
        decisions, memory = _act(view, memory, now_ms, sizes)
    wake_at_ms = commands.wake_at_ms(memory)
    for at_ms in (sharing.wake_at_ms(view, memory, now_ms), mirroring.wake_at_ms(view, memory, now_ms)):
        if at_ms is not None:
            wake_at_ms = at_ms if wake_at_ms is None else min(wake_at_ms, at_ms)
    return Decided(decisions=decisions, memory=memory.counting(view), wake_at_ms=wake_at_ms)


def _take_in(view: MemberView, memory: Memory, now_ms: int) -> tuple[list[Decision], Memory]:
    """Take in what was read and answered, and whether the lease has ended."""
    decisions: list[Decision] = []
    times = memory.times.seeing(view, now_ms)
    if view.firsts:
        times = times.reading(view, view.firsts)
    if times is not memory.times:
        memory = fast_replace(memory, times=times)
    for answer in view.application.answers:
        told: list[Decision] = []
        if answer.call.resumes:
            told, memory = resume.answered(memory, answer)
        elif answer.call.name == "stop":
            told, memory = stops.answered(memory, answer, now_ms)
        else:
            memory = starts.answered(view, memory, answer, now_ms)
        decisions += told
    if view.log is not None:
        told, memory = mirroring.take_in(view, memory, now_ms)
        decisions += told
    told, memory = compare(view, memory, now_ms)
    decisions += told
    memory = memory.counting(view).noting(view)
    if decisions:
        return decisions, memory
    if memory.announcement is not None:
        decisions, memory = announced(view, memory)
    if decisions:
        return decisions, memory
    return resume.lease_ended(view, memory)


def _act(view: MemberView, memory: Memory, now_ms: int, sizes: Sizes) -> tuple[list[Decision], Memory]:
    """What can be done now. A write is decided on only while no other write is under way."""
    decisions: list[Decision] = []
    if view.commands:
        decisions, memory = commands.answer_ping(view, memory)
    if not decisions and memory.restoring:
        decisions, memory = commits.restore(view, memory)
    if not decisions and memory.cleaning:
        decisions, memory = starts.cleaned(view, memory)
    late = not decisions and handing_over.late(view, memory, now_ms)
    if late:
        decisions, memory = sharing.give_up_starting(view, memory)
    if not decisions and memory.start is not None:
        decisions, memory = starts.advance(view, memory, now_ms)
    if not decisions and memory.stop is not None:
        decisions, memory = stops.advance(view, memory, now_ms)
    if not decisions and (view.commands or view.leaving or memory.short_of_room or memory.waiting):
        decisions, memory = commands.take_next(view, memory, sizes, now_ms)
        if not decisions and memory.stop is not None:  # a stop that asks nothing of the application
            decisions, memory = stops.advance(view, memory, now_ms)
    if not decisions and memory.switch is not None and memory.stop is None:
        decisions, memory = switching.advance(view, memory, sizes)
    if not decisions and view.neighbours.planned:
        decisions, memory = sharing.follow_plan(view, memory, sizes, now_ms)
        if not decisions and memory.stop is not None:
            decisions, memory = stops.advance(view, memory, now_ms)
    if not decisions and view.log is not None:
        decisions, memory = mirroring.follow(memory)
    if not decisions and view.log is not None:
        decisions, memory = mirroring.renew(view, memory, now_ms)
    if not decisions and memory.idle and not late:
        decisions, memory = resume.resume(view, memory)
    may_commit = memory.switch is None or memory.stop is not None  # a program may commit before it stops
    if not decisions and may_commit and (view.requests or memory.commit is not None):
        decisions, memory = commits.commits(view, memory, now_ms)
    if not decisions and view.requests:
        decisions, memory = announcements(view, memory, sizes)
    if not decisions and view.log is not None:
        decisions, memory = mirroring.mirror(view, memory, now_ms)
    return decisions, memory
