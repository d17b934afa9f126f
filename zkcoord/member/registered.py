"""One registration at work: nodes that were read become the view, and decisions become calls, multis, reads and
answers.

A new registration is a new object. It takes nothing over from the earlier one, except what it reads from the tree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from itertools import count
from operator import is_
from typing import Any, assert_never

from zkcoord.core.fast_replace import fast_replace
from zkcoord.core.member.application import Application, Call, CallKind, FirstRecords
from zkcoord.core.member.commands import sent_away
from zkcoord.core.member.decide import decide
from zkcoord.core.member.decisions import (
    AcknowledgeStarts,
    Announce,
    AnswerPing,
    AnswerRequest,
    AskCommits,
    AskReset,
    AskStart,
    AskStop,
    ClaimPartitions,
    CommitOffsets,
    CommitToKafka,
    Decision,
    Leave,
    LetGo,
    LookUp,
    LosePartitions,
    ReadAgain,
    ReadStatuses,
    RefuseCommand,
    Rejoin,
    ReleasePartitions,
    Report,
    SwitchStore,
    WatchOffsets,
    Write,
)
from zkcoord.core.member.memory import Memory
from zkcoord.core.member.neighbours import ALONE, Neighbours
from zkcoord.core.member.requests import AnnounceRequest, Asked, CommitRequest
from zkcoord.core.member.starts import started
from zkcoord.core.member.view import MemberView
from zkcoord.core.model import Starting, TopicPartition
from zkcoord.errors import FencedError, ZkcoordError
from zkcoord.member.calls import Calls
from zkcoord.member.log_calls import LogCalls
from zkcoord.member.member_watch import MemberWatch
from zkcoord.member.statuses import Statuses
from zkcoord.shell.loop import Loop
from zkcoord.shell.ports import CallDone
from zkcoord.shell.role import Events
from zkcoord.tree.member import MemberPaths
from zkcoord.tree.member_plan import MemberSizes, encode_member_status, plan
from zkcoord.tree.snapshot import Node

WRITE = "write"  # tag and lane of a consumer's multis

STEPS_MAX = 50
"""Number of decisions that may follow each other in one step. No more than about ten ever do; the limit ends an endless
loop."""


class Registered:
    """One registration, from the choice of its name on."""

    def __init__(
        self,
        loop: Loop,
        paths: MemberPaths,
        calls: Calls,
        events: Events,
        generation: int,
        log: LogCalls | None = None,
    ) -> None:
        self._loop, self._calls, self._events = loop, calls, events
        self.paths = paths
        self.watch = MemberWatch(paths, loop.tracker)
        self.statuses = Statuses(paths, loop.tracker)
        self.memory = Memory(generation=generation)
        self.application = Application()
        self._log = log
        self._sizes = MemberSizes(paths)
        below = paths.layout.owners(paths.group), paths.layout.offsets(paths.group)
        self._mine = (paths.registration, paths.channel, *below)
        # every path that `MemberWatch` reads begins with one of these
        self._numbers = count(1)
        self._asked: tuple[Asked, ...] = ()
        # bounded by the number of the program's threads, which wait for their futures
        self._futures: dict[int, Future[None]] = {}
        self._firsts: tuple[FirstRecords, ...] = ()  # first records that no decision has seen yet
        self._rested: tuple[object, ...] = ()  # inputs of the last step, if it decided nothing; else ()
        self._wake_at_ms: int | None = None  # the wake-up time of that step

    # what comes in

    def read(self, nodes: Sequence[Node]) -> list[Node]:
        """Take in the nodes that were read. Returns those that are about something else."""
        others = [node for node in nodes if not node.path.startswith(self._mine)]
        self.watch.read([node for node in nodes if node.path.startswith(self._mine)] if others else nodes)
        return [node for node in others if not self.statuses.take(node)] if others else others

    def tree_named(self, tree: str) -> bool:
        """Commits in Kafka name this tree from now on. Returns False if some of them name another tree: those do not
        count any more."""
        if self._log is None or self._log.log.tree == tree:
            return True
        if self.memory.mirror.acked or self.memory.mirror.exchange is not None:
            return False
        self._log.named(tree)
        return True

    def called(self, done: CallDone) -> None:
        """The application answered. An answer to an earlier registration's call changes nothing."""
        self.application = self.application.answered(done.token, done.value, done.error, part=done.part)
        if self._log is not None:
            self._log.answered(done)

    def ask(self, request: CommitRequest | AnnounceRequest, future: Future[None]) -> None:
        """The program asks for a write. `future` ends with None, a FencedError, or another ZkcoordError."""
        number = next(self._numbers)
        self._asked = (*self._asked, Asked(number, request))
        self._futures[number] = future

    def reading(self, first: FirstRecords) -> None:
        """The application was handed first records. The next write says so in the status."""
        self._firsts = (*self._firsts, first)

    # what is decided

    def view(
        self, now_ms: int, *, leased: bool, leaving: bool, said: tuple[int, int] | None, neighbours: Neighbours = ALONE
    ) -> MemberView:
        """The member as it is now, for a decision."""
        loop, watch = self._loop, self.watch
        if self.application.full is not self._calls.full:
            self.application = fast_replace(self.application, full=self._calls.full)
        return fast_replace(
            watch.nodes.view,
            unread=watch.unread(),
            channel_read=watch.channel_read,
            settled=loop.settled,
            writing=loop.commits_in_flight > 0,
            ready=loop.ready(WRITE, now_ms),
            leased=leased,
            application=self.application,
            log=None if self._log is None else self._log.log,
            requests=self._asked,
            leaving=leaving,
            said=said,
            neighbours=neighbours,
            announced=self.statuses.found,
            holders=self.statuses.holders,
            firsts=self._firsts,
        )

    def advance(
        self, now_ms: int, *, leased: bool, leaving: bool, said: tuple[int, int] | None, neighbours: Neighbours = ALONE
    ) -> tuple[int | None, Rejoin | Leave | None]:
        """Do everything that can be done now. Returns when to decide again, and how the registration ends, if it
        does."""
        flags = (leased, leaving, said, neighbours)
        if self._at_rest(now_ms, *flags):
            return self._wake_at_ms, None
        for _ in range(STEPS_MAX):
            view = self.view(now_ms, leased=leased, leaving=leaving, said=said, neighbours=neighbours)
            before = self.memory
            decided = decide(view, before, now_ms, self._sizes)
            self.memory = decided.memory
            self.watch.taken_in(decided.memory.held)
            self.application = self.application.heard()
            self._firsts = ()
            if self._log is not None:
                self._log.heard()
            for decision in decided.decisions:
                if isinstance(decision, (Rejoin, Leave)):
                    return None, decision
                self._carry_out(decision, now_ms)
            if not decided.decisions:
                settled = decided.memory is before and not self._loop.tracker.unclean()
                self._rested = self._inputs(now_ms, *flags) if settled else ()
                self._wake_at_ms = decided.wake_at_ms
                return decided.wake_at_ms, None
        return now_ms, None

    def _at_rest(self, now_ms: int, *flags: object) -> bool:
        """True when the last step decided nothing with everything read, and its inputs have not changed since. Most
        steps are such: they are about the lease only, or they name nodes to read again, which allows no decision."""
        if not self._rested or self._rested[0] is not self.watch.nodes:
            return False
        if self._wake_at_ms is not None and now_ms >= self._wake_at_ms:
            return False
        return all(map(is_, self._rested, self._inputs(now_ms, *flags)))

    def _inputs(self, now_ms: int, *flags: object) -> tuple[object, ...]:
        """Everything that a decision depends on while nothing is being read. Each is another object once it changes."""
        loop, ready = self._loop, self._loop.ready(WRITE, now_ms)
        about_loop = (loop.settled, loop.commits_in_flight > 0, ready, self._calls.full)
        log = None if self._log is None else self._log.log
        return (self.watch.nodes, self.application, log, self._asked, self.memory, *about_loop, *flags)

    def _carry_out(self, decision: Decision, now_ms: int) -> None:
        match decision:
            case LookUp():
                self.watch.look_up(decision)
            case ReadAgain():
                self.watch.read_again(decision)
            case WatchOffsets():
                self.watch.watch_offsets(decision)
            case LetGo():
                self.watch.let_go(decision)
            case ReadStatuses():
                self.statuses.look_up()
            case AskReset(partitions=partitions):
                self._call(Call("reset", partitions), partitions)
            case AskCommits() | CommitToKafka():
                if self._log is not None:  # else nothing of the kind is decided
                    self._log.call(decision)
            case AskStart():
                self._start(decision)
            case AskStop(partitions=partitions):
                self._call(Call("stop", partitions), partitions)
            case LosePartitions(partitions=partitions, ignored=ignored):
                self._lose(partitions, ignored)
            case ClaimPartitions():
                self.watch.claiming(decision)
                self._write(decision, now_ms)
            case ReleasePartitions():
                self.watch.releasing(decision.held)
                self._write(decision, now_ms)
            case AcknowledgeStarts() | AnswerPing() | Announce():
                self._write(decision, now_ms)
            case CommitOffsets() | SwitchStore():
                self._write(decision, now_ms)
            case RefuseCommand(sequence=sequence, why=why):
                self.event("command_refused", {"path": self.paths.command(sequence), "why": why, "level": "warning"})
                self._write(decision, now_ms)
            case AnswerRequest(number=number, error=error, why=why):
                self._answer(number, None if error is None else error(why))
            case Report(event=event, fields=fields, sequence=sequence):
                self.event(event, {"path": self.paths.command(sequence), **fields} if sequence else fields)
            case Rejoin() | Leave():
                pass  # the role ends the session
            case _:
                assert_never(decision)

    def _call(self, call: Call, argument: Any) -> None:
        self.application = self.application.asked(self._calls.ask(call.name, argument), call)

    def _start(self, decision: AskStart) -> None:
        if decision.replay:
            self._calls.ask("replay", decision.replay)
        starting = Starting(decision.positions, self._calls.next_start(), decision.incarnations)
        self._call(Call("start", tuple(starting), starting.number, decision.resumes), starting)

    def _lose(self, partitions: Sequence[TopicPartition], ignored: CallKind | None) -> None:
        self.application = self.application.lost(partitions, ignored)
        self._calls.ask("lost", tuple(partitions))

    def _write(self, decision: Write, now_ms: int) -> None:
        status = getattr(decision, "status", None)
        data = b"" if status is None else encode_member_status(status, now_ms)
        if status is not None:
            self.watch.saying(data, status)
        for transaction in plan(decision, self.watch.nodes, data):
            self._loop.commit(transaction, WRITE, now_ms, WRITE)

    def _answer(self, number: int, error: Exception | None) -> None:
        future = self._futures.pop(number, None)
        if future is None:
            return
        self._asked = tuple(asked for asked in self._asked if asked.number != number)
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)

    # its end

    def lost(self, why: str) -> None:
        """The registration is over: tell the application, and complete the futures that wait for a write."""
        lost = sorted(started(self.application, self.memory))
        if lost:
            self._lose(lost, None)
        self.event("session_lost", {"why": why, "partitions": lost})
        self.fail(FencedError(f"{self.paths.consumer_id} lost its registration: {why}"))

    def fail(self, error: ZkcoordError) -> None:
        """Nothing can be written any more: fail all futures with this error."""
        for number in list(self._futures):
            self._answer(number, error)

    def sent_away(self) -> str | None:
        """Why this consumer must not register again by itself. None: it may."""
        return sent_away(self.watch.nodes.view, self.memory)

    def event(self, name: str, fields: Mapping[str, Any]) -> None:
        """Report an event, with the group and the consumer."""
        self._events(name, {**fields, "group": self.paths.group, "consumer": self.paths.consumer_id})
