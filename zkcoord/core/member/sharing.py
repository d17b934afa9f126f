"""How a member follows the plan of a mixed group (layout `legacy`). Old members do not read commands, so a coordinator
sends none there.

Each member computes the old members' plan by itself. It keeps the partitions that do not move, releases those that the
plan gives to others, and claims those of its own share as they come free. The steps are those of a stop and a start,
without a command. No coordinator is needed for that.
"""

from __future__ import annotations

from zkcoord.core.command import Command, Option
from zkcoord.core.fast_replace import fast_replace
from zkcoord.core.member import handing_over, starts, stops
from zkcoord.core.member.application import CallKind
from zkcoord.core.member.compare import lose
from zkcoord.core.member.decisions import Decision
from zkcoord.core.member.memory import PLANNED, Memory
from zkcoord.core.member.status import Sizes, Store
from zkcoord.core.member.view import MemberView
from zkcoord.core.offset_store import STORES
from zkcoord.core.view import TAKEN

NOT_STARTED = f"{TAKEN}: the application did not start in time, and old members wait for partitions of this consumer"

Step = tuple[list[Decision], Memory]


def follow_plan(view: MemberView, memory: Memory, sizes: Sizes, now_ms: int) -> Step:
    """Release partitions that are held against the plan, or claim free partitions of the own share. It does nothing
    while a command is being obeyed, except that no release waits for a change of the offset store: the change may wait
    for Kafka, and old members wait for the release."""
    neighbours = view.neighbours
    if not neighbours.planned or view.leaving:
        return [], memory
    if memory.start is not None or memory.stop is not None or memory.cleaning:
        return [], memory
    if not view.channel_read or view.writing or view.application.resuming:
        return [], memory
    share = neighbours.share or {}
    moving = [p for p, held in memory.held.items() if share.get(p) != held.thread]
    if moving:
        return stops.begin(view, memory, PLANNED, moving)
    if memory.switch is not None:
        return [], memory
    free = [p for p in sorted(neighbours.free) if p not in memory.held and now_ms >= memory.put_off.get(p, 0)]
    wanted = {p: share[p] for p in free[: sizes.room(free)]} if free else {}
    if not wanted:
        return [], memory
    topics = {p.topic for p in wanted}
    command = Command(
        option=Option.START_FETCHER,
        ownership=wanted,
        generation=memory.generation,
        incarnations={topic: number for topic, number in neighbours.incarnations.items() if topic in topics},
    )
    if not memory.held and neighbours.store in STORES and view.log is not None:
        memory = fast_replace(memory, store=Store(neighbours.store, memory.store.step))  # nobody else names the store
    name = f"{PLANNED} {memory.plans}"  # its own: partitions that are held belong to earlier look-ups (F316)
    memory = fast_replace(memory, plans=memory.plans + 1)
    decisions, memory = starts.begin(view, memory, {name: command})
    start = memory.start
    return decisions, memory if start is None else fast_replace(memory, start=fast_replace(start, begun_ms=now_ms))


def give_up_starting(view: MemberView, memory: Memory) -> Step:
    """Stop waiting for what the application is starting. What a start has claimed is given back, and what belongs to
    the own share is claimed again. Held partitions are started again later."""
    start, application = memory.start, view.application
    decisions = lose(view, memory, application.resuming, CallKind.RESUME)
    if start is None or start.acknowledged:  # what is acknowledged is held, and stopped next
        return decisions, memory
    asked = application.waits_for("start") or application.waits_for("reset")
    told = [p for p in start.grants if asked or p in application.running]
    refused = {**dict.fromkeys(start.grants, NOT_STARTED), **start.refused}
    memory = fast_replace(memory, start=fast_replace(start, refused=refused, asking=0))
    return [*decisions, *lose(view, memory, told, CallKind.START)], memory


def wake_at_ms(view: MemberView, memory: Memory, now_ms: int) -> int | None:
    """When something is due that waits only for the time."""
    if not view.neighbours.planned:
        return None
    times = list(memory.put_off.values())
    if memory.start is not None or view.application.resuming or (memory.stop is not None and not memory.stop.answered):
        times.append(handing_over.awaited_by_ms(view, memory) or 0)
    if (ends_ms := handing_over.wake_at_ms(view, memory)) is not None:
        times.append(ends_ms)
    return min((at_ms for at_ms in times if at_ms > now_ms), default=None)
