"""Which command of the channel comes next, and how it is obeyed. A ping waits behind nothing: it is answered at once.

Everything else is taken in the order of writing. A command that cannot be understood is refused, not obeyed and not
deleted; what was refused is passed over.
"""

from __future__ import annotations

from zkcoord.errors import CorruptError
from zkcoord.shell.desk import Desk
from zkcoord.shell.leftover import LeftOverTask
from zkcoord.shell.obeying import RefuseTask, StopTask, Task
from zkcoord.shell.starting import StartTask, starts_behind
from zkcoord.tree import member
from zkcoord.tree.command import Command, NotUnderstood, Option, decode_command, is_refused
from zkcoord.tree.snapshot import Node


class Draining:
    """The commands of one registration."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.generation = 0  # the highest among the commands taken up
        self.rejected: Command | None = None  # the reject that was taken up: nothing comes after it
        self._asked = False  # a ping was answered, and what is left over was not looked up since

    def next_task(self) -> Task | None:
        """The next command that can be obeyed now; None when there is none."""
        commands = self._desk.commands
        asked, self._asked = self._asked, False
        if asked and self._desk.holdings.left_over():
            return LeftOverTask(self._desk)
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
        desk = self._desk
        if not desk.commands or not desk.may_write:
            return
        for sequence, node in sorted(desk.commands.items()):
            if node is not None and _is_ping(node):
                desk.holdings.pinged, self._asked = sequence, True
                done = desk.acknowledgement([sequence], desk.holdings.held)
                desk.write("ping", [member.acknowledge(desk.paths, done)])
                return

    def sent_away(self) -> str | None:
        """Why this consumer must not register again by itself: a final reject was obeyed, or stands; else None."""
        standing = (_command(node) for node in self._desk.commands.values() if node is not None)
        found = (command for command in (self.rejected, *standing) if command is not None)
        return next((command.reason or "" for command in found if command.final), None)

    def _task_for(self, sequence: str, node: Node) -> Task | None:
        """How to obey a command; None while an earlier refusal stands: its mark tells of one at a time."""
        desk = self._desk
        try:
            command = decode_command(node.data)
            if command.option is Option.OFFSET_STORE:
                raise NotUnderstood("this consumer does not offer offset-store")
        except CorruptError as error:
            if desk.refused_mark:
                return None
            desk.event("command_refused", {"path": node.path, "why": str(error), "level": "warning"})
            return RefuseTask(desk, node, error)
        self.generation = max(self.generation, command.generation)
        if command.option is Option.START_FETCHER:
            starts = {sequence: command, **starts_behind(desk, sequence, command)}
            self.generation = max(self.generation, *(start.generation for start in starts.values()))
            return StartTask(desk, starts)
        if command.option is Option.STOP_FETCHER:
            return StopTask(desk, sequence, None if command.ownership is None else set(command.ownership))
        desk.event("rejected", {"why": command.reason, "level": "warning"})
        self.rejected = command
        return StopTask(desk, None, None)


def _is_ping(node: Node) -> bool:
    command = _command(node) if b'"ping"' in node.data else None
    return command is not None and command.option is Option.PING


def _command(node: Node) -> Command | None:
    try:
        return decode_command(node.data)
    except CorruptError:
        return None
