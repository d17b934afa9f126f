"""Which command of the channel comes next, and how it is obeyed. A ping waits behind nothing: it is answered at once.

Everything else is taken in the order of writing. A command that cannot be understood is refused, not obeyed and not
deleted; what was refused is passed over.
"""

from __future__ import annotations

from zkcoord.core.command import Command, Option
from zkcoord.errors import CorruptError
from zkcoord.member.multi_size import ACKNOWLEDGED_BYTES_MAX, too_large
from zkcoord.member.replay_cleanup import ReplayCleanup
from zkcoord.member.session import MemberSession
from zkcoord.member.start_task import StartTask, starts_behind
from zkcoord.member.tasks import RefuseTask, StopTask, Task
from zkcoord.tree import member
from zkcoord.tree.command import NotUnderstood, decode_command, is_refused
from zkcoord.tree.snapshot import Node

NO_ROOM_MS = 5_000
"""So long a start waits for room in the status: far below any rebalance timeout."""


class CommandQueue:
    """The commands of one registration."""

    def __init__(self, session: MemberSession) -> None:
        self._session = session
        self.generation = 0  # the highest among the commands taken up
        self.rejected: Command | None = None  # the reject that was taken up: nothing comes after it
        self._without_room: dict[str, int] = {}  # starts that wait for room in the status: sequence -> since when

    def next_task(self) -> Task | None:
        """The next command that can be obeyed now; None when there is none."""
        commands = self._session.commands
        short, self._session.short_of_room = self._session.short_of_room, False
        if short and self._session.holdings.left_over():
            return ReplayCleanup(self._session)
        for gone in self._without_room.keys() - commands.keys() if self._without_room else ():
            del self._without_room[gone]
        for sequence in sorted(commands):
            node = commands[sequence]
            if node is None or is_refused(node.data) or _is_ping(node):
                continue
            task = self._task_for(sequence, node)
            if task is not None:
                return task
        return None

    def answer_ping(self) -> None:
        """Acknowledge a ping that stands, with the status in the same multi; called while no task writes."""
        session = self._session
        if not session.commands or not session.may_write:
            return
        for sequence, node in sorted(session.commands.items()):
            if node is not None and _is_ping(node):
                session.holdings.pinged, session.short_of_room = (
                    sequence,
                    True,
                )  # who asks may lack room for others' ranges
                done = session.acknowledgement([sequence], session.holdings.held)
                session.write("ping", [member.acknowledge(session.paths, done)])
                return

    def sent_away(self) -> str | None:
        """Why this consumer must not register again by itself: a final reject was obeyed, or stands; else None."""
        standing = (_command(node) for node in self._session.commands.values() if node is not None)
        found = (command for command in (self.rejected, *standing) if command is not None)
        return next((command.reason or "" for command in found if command.final), None)

    def _task_for(self, sequence: str, node: Node) -> Task | None:
        """How to obey a command; None while an earlier refusal stands: its mark tells of one at a time."""
        session = self._session
        try:
            command = decode_command(node.data)
            if command.option is Option.OFFSET_STORE:
                raise NotUnderstood("this consumer does not offer offset-store")
        except CorruptError as error:
            return self._refuse(node, error)
        if self._without_room and command.option is Option.STOP_FETCHER and command.ownership is None:
            return None  # it is about what waits, too
        starts = {sequence: command}
        if command.option is Option.START_FETCHER:
            starts |= starts_behind(session, sequence, command)
            if too_large(session, starts):
                starts = {sequence: command}
                if size := too_large(session, starts):
                    return self._await_room(sequence, node, size)
        self.generation = max(self.generation, command.generation)
        if command.option is Option.START_FETCHER:
            self.generation = max(self.generation, *(start.generation for start in starts.values()))
            return StartTask(session, starts)
        if command.option is Option.STOP_FETCHER:
            return StopTask(session, sequence, None if command.ownership is None else set(command.ownership))
        session.event("rejected", {"why": command.reason, "level": "warning"})
        self.rejected = command
        return StopTask(session, None, None)

    def _refuse(self, node: Node, error: CorruptError) -> Task | None:
        if self._session.refused_mark:
            return None
        self._session.event("command_refused", {"path": node.path, "why": str(error), "level": "warning"})
        return RefuseTask(self._session, node, error)

    def _await_room(self, sequence: str, node: Node, size: int) -> Task | None:
        """A start whose acknowledgement is too large for now: what is committed meanwhile makes room. After NO_ROOM_MS
        it is refused as a whole, so that the coordinator keeps its ranges."""
        session = self._session
        waiting = self._without_room
        why = (
            f"its acknowledgement would take {size} bytes, {ACKNOWLEDGED_BYTES_MAX} are allowed: what it hands on and"
            " the announced ranges in the status are too many. The program must commit some; whoever runs the"
            " coordinator must have it hand on less (zkcoord's own do)"
        )
        if sequence not in waiting:
            waiting[sequence] = session.now_ms
            session.short_of_room = True
            session.event("start_waits", {"path": node.path, "why": why, "level": "warning"})
        if session.now_ms < waiting[sequence] + NO_ROOM_MS:
            return None
        return self._refuse(node, NotUnderstood(why))


def _is_ping(node: Node) -> bool:
    command = _command(node) if b'"ping"' in node.data else None
    return command is not None and command.option is Option.PING


def _command(node: Node) -> Command | None:
    try:
        return decode_command(node.data)
    except CorruptError:
        return None
