"""Which command of the channel comes next, and how it is obeyed. A ping does not wait for others: it is answered at
once.

All other commands are taken in the order of writing. A command that cannot be understood is refused: it is neither
obeyed nor deleted, and later passed over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from zkcoord.core.command import Command, Option
from zkcoord.core.fast_replace import fast_replace
from zkcoord.core.member import starts, stops, switching
from zkcoord.core.member.decisions import AnswerPing, Decision, LookUp, RefuseCommand, Report
from zkcoord.core.member.memory import Memory
from zkcoord.core.member.status import ACKNOWLEDGED_BYTES_MAX, Sizes
from zkcoord.core.member.view import ANNOUNCED, MemberView, Received

NO_ROOM_MS = 5_000
"""ms for which a start waits for room in the status. It is far below any rebalance timeout."""

Step = tuple[list[Decision], Memory]


def answer_ping(view: MemberView, memory: Memory) -> Step:
    """Acknowledge a ping in the channel, with the status in the same multi."""
    if not view.commands or not view.may_write:
        return [], memory
    for sequence, received in sorted(view.commands.items()):
        if received is not None and received.asks(Option.PING):
            memory = fast_replace(memory, pinged=sequence, short_of_room=True)  # the sender may need room in the status
            status, memory = memory.saying(view)
            return [AnswerPing(commands={sequence: received.version}, status=status)], memory
    return [], memory


def sent_away(view: MemberView, memory: Memory) -> str | None:
    """Why this consumer must not register again by itself: a final reject was obeyed or is in its channel. None: it
    may."""
    standing = [received.command for received in view.commands.values() if received is not None]
    found = (command for command in (memory.rejected, *standing) if command is not None)
    return next((command.reason or "" for command in found if command.final), None)


def wake_at_ms(memory: Memory) -> int | None:
    """When a start that waits for room is refused."""
    return min(memory.waiting.values()) + NO_ROOM_MS if memory.waiting else None


def take_next(view: MemberView, memory: Memory, sizes: Sizes, now_ms: int) -> Step:
    """Take up the next command that can be obeyed now, or begin to leave. It does nothing while another command is
    being obeyed."""
    if memory.start is not None or memory.stop is not None or memory.cleaning:
        return [], memory
    if memory.switch is not None and not (view.leaving and switching.waits_for_kafka(memory)):
        return [], memory  # a change that waits for Kafka keeps nobody from leaving: old members may wait for that
    if not view.channel_read or view.writing or view.application.resuming:
        return [], memory
    if view.leaving:
        return stops.begin(view, memory, None, None)
    if memory.short_of_room:
        memory = fast_replace(memory, short_of_room=False)
        left = memory.left_over()
        if left:
            look = LookUp(name=ANNOUNCED, partitions=tuple(sorted(left)))
            return [look], fast_replace(memory, cleaning=True)
    if memory.waiting.keys() - view.commands.keys():
        waiting = {s: since_ms for s, since_ms in memory.waiting.items() if s in view.commands}
        memory = fast_replace(memory, waiting=waiting)
    for sequence, received in sorted(view.commands.items()) if view.commands else ():
        if received is None or received.asks(Option.PING) or (received.command is None and not received.error):
            continue  # not read, answered at once, or refused
        if wrong := _not_understood(view, memory, received):
            if view.refused_mark:
                continue  # the mark shows one refusal at a time
            return [RefuseCommand(sequence=sequence, why=wrong)] if view.may_write else [], memory
        decisions, memory = _take(view, memory, received, sizes, now_ms)
        if decisions or not (memory.start is None and memory.stop is None and memory.switch is None):
            return decisions, memory
    return [], memory


def _not_understood(view: MemberView, memory: Memory, received: Received) -> str:
    """Why a command is refused; "" if it is obeyed."""
    return received.error if received.command is None else switching.why_refused(view, memory, received.command)


def _take(view: MemberView, memory: Memory, received: Received, sizes: Sizes, now_ms: int) -> Step:
    """Begin to obey a command. It does nothing while the command must wait."""
    command, sequence = received.command, received.sequence
    if command is None:
        return [], memory
    if memory.waiting and command.option is Option.STOP_FETCHER and command.ownership is None:
        return [], memory  # it also concerns the starts that wait
    if command.option is Option.START_FETCHER:
        return _take_starts(view, memory, sequence, command, sizes, now_ms)
    memory = fast_replace(memory, generation=max(memory.generation, command.generation))
    match command.option:
        case Option.STOP_FETCHER:
            return stops.begin(view, memory, sequence, command.ownership)
        case Option.OFFSET_STORE:
            return [], switching.begin(memory, sequence, command)
        case Option.REJECT:
            told = Report(event="rejected", fields={"why": command.reason, "level": "warning"})
            decisions, memory = stops.begin(view, fast_replace(memory, rejected=command), None, None)
            return [told, *decisions], memory
        case Option.PING:
            return [], memory  # `answer_ping` answers it
        case _:
            assert_never(command.option)


def _take_starts(view: MemberView, memory: Memory, sequence: str, command: Command, sizes: Sizes, now_ms: int) -> Step:
    """Begin to obey a start, together with the starts right behind it. It does nothing while their acknowledgement has
    no room."""
    found = {sequence: command, **starts.starts_behind(view, sequence, command, sizes)}
    if _too_large(view, memory, found, sizes):
        found = {sequence: command}
        if size := _too_large(view, memory, found, sizes):
            return _await_room(view, memory, sequence, size, now_ms)
    if (store := switching.store_of(command)).name != memory.store.name:
        memory = fast_replace(memory, store=store)  # nothing is held
    generation = max(memory.generation, *(start.generation for start in found.values()))
    return starts.begin(view, fast_replace(memory, generation=generation), found)


def _too_large(view: MemberView, memory: Memory, found: Mapping[str, Command], sizes: Sizes) -> int:
    sent = sum(received.size for s in found if (received := view.commands.get(s)) is not None)
    return sizes.acknowledgement_bytes(found, sent, memory.held, memory.batch)


def _await_room(view: MemberView, memory: Memory, sequence: str, size: int, now_ms: int) -> Step:
    """Let a start wait whose acknowledgement is too large for now: commits make room. After NO_ROOM_MS it is refused as
    a whole, so that the coordinator keeps its ranges."""
    why = (
        f"its acknowledgement would take {size} bytes, {ACKNOWLEDGED_BYTES_MAX} are allowed: what it hands on and"
        " the announced ranges in the status are too many. The program must commit some; whoever runs the"
        " coordinator must have it hand on less (zkcoord's own do)"
    )
    since_ms = memory.waiting.get(sequence)
    if since_ms is None:
        memory = fast_replace(memory, waiting={**memory.waiting, sequence: now_ms}, short_of_room=True)
        return [Report(event="start_waits", fields={"why": why, "level": "warning"}, sequence=sequence)], memory
    if now_ms < since_ms + NO_ROOM_MS or view.refused_mark or not view.may_write:
        return [], memory
    return [RefuseCommand(sequence=sequence, why=why)], memory
