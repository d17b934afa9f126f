"""The consumer's role: joins, drains its channel, obeys, keeps its lease, commits, leaves. One registration a session.

Commands are obeyed one after the other, in their order. At most one write of its own is under way at a time (the multis
of one release or commit count as one), so every write carries versions that only a stranger can have moved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from zkcoord.core.model import TopicPartition
from zkcoord.core.view import Wildcard
from zkcoord.errors import FencedError, SchemaError, ZkcoordError, invariant
from zkcoord.member.absences import Absences
from zkcoord.member.command_queue import CommandQueue
from zkcoord.member.committing import Committing
from zkcoord.member.joining import JOIN, Joining
from zkcoord.member.lease import Lease
from zkcoord.member.leaving import Parting, open_until_ms
from zkcoord.member.resuming import REVIVE, Resuming
from zkcoord.member.session import CHANNEL, WRITE, Calls, MemberSession
from zkcoord.member.start_task import StartTask
from zkcoord.member.tasks import UNWRITTEN, Step, StopTask, Task
from zkcoord.shell.loop import Events, Loop
from zkcoord.shell.ports import Callbacks, CallDone, CommitDone, Request
from zkcoord.tree.member import MemberPaths
from zkcoord.tree.paths import SCHEMA, layout_named
from zkcoord.tree.schema import decode_schema
from zkcoord.tree.snapshot import Node

FIRST = "first"  # the scope of the schema


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSettings:
    """What a consumer brings along. `registration` is given the negotiated session timeout in ms."""

    group: str
    new_id: Callable[[], str]
    registration: Callable[[int], bytes]
    topics: Sequence[str] = ()  # subscribed to by name: told of when they do not exist
    wildcard: Wildcard | None = None  # or so: told of when there is no such topic


class MembershipRole:
    """One consumer's membership over its sessions. `readable` and `lease` may be read from any thread."""

    def __init__(self, loop: Loop, settings: MemberSettings, callbacks: Callbacks, events: Events) -> None:
        self._loop, self._settings, self._events = loop, settings, events
        self._calls = Calls(callbacks)
        self._parting = Parting(loop, self._calls, lambda: self.may_join())
        self.said: tuple[int, int] | None = None  # progress and lag, as the application last reported them
        self.may_join: Callable[[], bool] = lambda: True  # asked at least whenever the lease is looked at
        self._absences = Absences(settings.group, settings.topics, settings.wildcard, events)
        self.generation = 0
        self.readable: frozenset[TopicPartition] = frozenset()
        self._forget()

    def _forget(self) -> None:
        self.readable = frozenset()
        self.lease: Lease | None = None
        self.session: MemberSession | None = None
        self.member = False
        self._session_id = 0
        self._joining: Joining | None = None
        self._committing: Committing | None = None
        self._draining: CommandQueue | None = None
        self._task: Task | None = None
        self._schema: Node | None = None
        self._reviving: Resuming | None = None
        self._told_waiting = False

    @property
    def consumer_id(self) -> str | None:
        """The id of the present registration; None while there is none."""
        return self.session.paths.consumer_id if self.session is not None and self.member else None

    def allowed(self, partition: TopicPartition, now_ms: int) -> bool:
        """True while the partition may be read, whatever the loop is at: it runs, and the lease holds."""
        lease = self.lease
        return partition in self.readable and lease is not None and lease.holds(now_ms)

    @property
    def _revived(self) -> tuple[TopicPartition, ...]:
        """What the application is starting again."""
        return self._reviving.starting if self._reviving is not None else ()

    # the session

    def session_opened(self, session_id: int, session_timeout_ms: int, now_ms: int) -> None:
        """A new session: read the schema first."""
        self._forget()
        self._session_id = session_id
        self.lease = Lease(session_timeout_ms)
        self._loop.tracker.want(SCHEMA, watch=True, scope=FIRST)
        self._absences.begin(self._loop.tracker)

    def session_resumed(self, session_timeout_ms: int, now_ms: int) -> None:
        """The same session again: everything is being read, after a sync that also tells the lease."""
        if self.lease is not None:
            self.lease.negotiated(session_timeout_ms)

    def session_suspended(self, now_ms: int) -> None:
        """Changes nothing until the lease ends (docs/protocol.md, section 7, "Lease")."""

    def session_lost(self, now_ms: int) -> None:
        """The session is over, and the registration with it."""
        self._lost("the session is over")
        self._parting.session_lost(now_ms)

    def ended(self, now_ms: int) -> int | None:
        """The loop is over: the session stays open while the application may still read, for a lease at most."""
        until_ms = open_until_ms(self.lease, self.session, now_ms)
        self._lost("the consumer has ended")
        return self._parting.last(until_ms, now_ms)

    def _lost(self, why: str) -> None:
        if self.session is not None:
            lost = self.session.stop_running(self._started())
            self.session.event("session_lost", {"why": why, "partitions": lost})
            if self._committing is not None:
                self._committing.fail(FencedError(f"{self.session.paths.consumer_id} lost its registration: {why}"))
        self._forget()

    def _rejoin(self, why: str, now_ms: int, error: BaseException | None = None) -> None:
        """Give registration and session up: wait (growing), register afresh; never when there is an error."""
        sent_away = self._draining.sent_away() if self._draining is not None else None
        if error is None and sent_away is not None:
            error = FencedError(f"evicted after it was sent away: {sent_away}")
        until_ms = open_until_ms(self.lease, self.session, now_ms)
        self._lost(why)
        self._parting.give_up(error, until_ms, now_ms)

    def _started(self) -> set[TopicPartition]:
        """All that the application was told to start and may be reading, or be about to."""
        session, task = self.session, self._task
        started = set(self._revived) | (session.holdings.running if session is not None else set())
        if isinstance(task, StartTask) and task.step is Step.CALL:
            started |= task.partitions()
        if isinstance(task, StopTask):
            started -= task.partitions()
        return started

    # what comes in

    def read(self, nodes: Sequence[Node], now_ms: int) -> None:
        """Take answers in."""
        session = self.session
        others = nodes if session is None else session.looked_up(nodes)
        for node in others:
            self._absences.take(node, self._loop.tracker)
            if node.path == SCHEMA:
                self._schema = node
            if self._joining is not None:
                self._joining.take(node)
        if session is not None:
            session.read(others)
            self._extend_lease(session)

    def committed(self, tag: Any, done: CommitDone, sent_ms: int, now_ms: int) -> None:
        """An outcome: one that a server gave counts for the lease; it goes to its writer when all of them are there."""
        if done.answered:
            self.synced(sent_ms, now_ms)
        if tag == JOIN and self._joining is not None:
            self._joining.answered(done.outcome)
        answer = self.session.written(done) if tag == WRITE and self.session is not None else None
        if answer is None:
            return
        writer, outcomes = answer
        if writer == "task" and self._task is not None:
            self._task.written(outcomes)
        elif writer == "commit" and self._committing is not None:
            self._committing.written(outcomes)
        elif writer == "announce" and self._committing is not None:
            self._committing.announcing.written(outcomes)

    def synced(self, sent_ms: int, now_ms: int) -> None:
        """The leader knew this session at some moment after `sent_ms`."""
        if self.lease is not None:
            self.lease.answered(sent_ms)
            if self.session is not None:
                self._extend_lease(self.session)

    def _extend_lease(self, session: MemberSession) -> None:
        """Let what was answered count, once the registration is seen to stand behind it."""
        if self.lease is not None and session.registration_stands and self.lease.extend():
            session.event("lease_extended", {"lease_until_mono_ms": self.lease.until_ms, "level": "debug"})

    def called(self, done: CallDone, now_ms: int) -> None:
        """The application answered; answers to an earlier registration's calls change nothing."""
        self._calls.answered(done.token)
        session = self.session
        waiting = session.calls.get(done.token) if session is not None else None
        if session is None or waiting is None:
            return
        if not done.part:
            del session.calls[done.token]
        if waiting == "task" and self._task is not None:
            self._task.called(done)
        elif waiting == REVIVE and self._reviving is not None:
            why = self._reviving.called(done, self.generation)
            if why is not None:
                self._rejoin(why, now_ms)

    def requested(self, request: Request, now_ms: int) -> None:
        """`commit`: offsets, fenced (its argument is a Wanted); `announce`: ranges (an Announced); `stop`: leave;
        `exit`: end with this error, by which a callback ends the program."""
        invariant(request.name in ("commit", "announce", "stop", "exit"), f"a consumer is asked to {request.name!r}")
        if request.name == "stop":
            self._parting.leave(request.future)
        elif request.name == "exit":
            self._rejoin("a callback ends the program", now_ms, request.argument)
            request.future.set_result(None)
        elif self._committing is None or not self.member:
            request.future.set_exception(FencedError("not a member of the group at present: nothing is written"))
        elif request.name == "announce":
            self._committing.announcing.add(request.argument, request.future)
        else:
            self._committing.add(request.argument, request.future)

    # what is decided

    def decide(self, now_ms: int) -> int | None:
        """Do what can be done now; returns when the lease must be looked at again."""
        if self._parting.under_way:
            return self._parting.advance(now_ms)
        if self._parting.leaving and not self._can_leave_cleanly(now_ms):
            self._lost("left without a word to ZooKeeper")
            self._parting.end(now_ms)
        lease, loop = self.lease, self._loop
        if lease is None:
            return None
        if loop.connected and lease.sync_due(now_ms):
            loop.sync(now_ms)
        try:
            if not self.member and self._able_to_join(now_ms) and self.may_join():
                self._join(now_ms)
        except SchemaError as error:
            self._loop.fail(error, now_ms)
            return None
        session = self.session
        if self.member and session is not None:
            session.now_ms, session.leased, session.holdings.said = now_ms, lease.holds(now_ms), self.said
            self._absences.member(loop.tracker, session.paths.layout, now_ms, idle=not session.holdings.held)
            self._decide_as_member(session, lease, now_ms)
        self._publish()
        if self.lease is None:
            return self._parting.advance(now_ms)
        return lease.wake_at_ms(now_ms, connected=loop.connected)

    def _can_leave_cleanly(self, now_ms: int) -> bool:
        """False when there is nothing to release, or no link and no lease: then the session's end does it."""
        return self.member and (self._loop.connected or (self.lease is not None and self.lease.holds(now_ms)))

    def _able_to_join(self, now_ms: int) -> bool:
        loop = self._loop
        return loop.settled and not loop.commits_in_flight and loop.ready(JOIN, now_ms) and not self._calls.full

    def _join(self, now_ms: int) -> None:
        tracker = self._loop.tracker
        if self.session is None and tracker.clean(FIRST):
            self._begin_joining()
        if self.session is None or self._joining is None or not self._joining.clean:
            return
        if self._joining.registered():
            self._joining.end()
            self.member = True
            self.session.follow_channel()
            self.session.event("registered", {})
            return
        if self._joining.spent:
            self._joining.end()
            self.session = self._joining = None
            self._join(now_ms)
            return
        transaction = self._joining.next_transaction(self.session.holdings.status({}, ""))
        if transaction is not None:
            self._loop.commit(transaction, JOIN, now_ms, JOIN)

    def _begin_joining(self) -> None:
        if self._schema is None or not self._schema.exists:
            if not self._told_waiting:
                why = f"no {SCHEMA} in the tree: start a coordinator, or run `zkcoord migrate upgrade`"
                self._events("waiting", {"why": why, "group": self._settings.group, "level": "warning"})
            self._told_waiting = True
            return
        try:
            layout = layout_named(decode_schema(self._schema.data).layout)
        except ZkcoordError as error:
            raise SchemaError(f"{SCHEMA}: {error}: an operator must restore it") from error
        settings = self._settings
        paths = MemberPaths(layout=layout, group=settings.group, consumer_id=settings.new_id())
        self.session = MemberSession(self._loop, paths, self._calls, self._events)
        timeout_ms = self.lease.timeout_ms if self.lease is not None else 0
        self._joining = Joining(paths, self._session_id, settings.registration(timeout_ms), self._loop.tracker)
        self._committing, self._draining = Committing(self.session), CommandQueue(self.session)
        self._reviving = Resuming(self.session)

    def _decide_as_member(self, session: MemberSession, lease: Lease, now_ms: int) -> None:
        if session.registration_gone:
            self._rejoin("the registration or the channel is gone: evicted, or removed by somebody", now_ms)
            return
        if not lease.holds(now_ms) and (session.holdings.running or self._revived):
            lost = session.stop_running(session.holdings.running | set(self._revived))
            if self._reviving is not None:
                self._reviving.give_up()
            if self._committing is not None:
                self._committing.lost(lost)
            session.event("fetch_lost", {"partitions": lost, "why": "the lease ended"})
        if not self._loop.settled or self._nothing_to_do(session):
            return
        if self._draining is not None and (self._task is None or self._task.step in UNWRITTEN):
            self._draining.answer_ping()
        for _ in range(2):  # a commit that became certain lets a waiting task go on
            self._work(session, now_ms)
            if not self.member:
                return
            self._revive(session, lease)
            may_commit = self._task is None or self._task.step in UNWRITTEN
            if self._committing is None or not may_commit or session.writing or not self._loop.ready(WRITE, now_ms):
                return
            if not self._committing.advance():
                return

    def _nothing_to_do(self, session: MemberSession) -> bool:
        """True when nothing was asked of it and all that it holds runs: so it is at most steps."""
        if self._task is not None or session.commands or session.short_of_room or self._parting.leaving:
            return False
        return not session.holdings.idle and (self._committing is None or not self._committing.asked)

    def _work(self, session: MemberSession, now_ms: int) -> None:
        """Take up commands and advance them until something has to be waited for."""
        while self._task is not None or self._take_up(session):
            task = self._task
            if task is None:
                return
            task.advance()
            if task.step is not Step.DONE:
                return
            self._task = None
            if isinstance(task, StopTask) and task.sequence is None:
                self._leave(session, now_ms)
                return
            if isinstance(task, StartTask) and task.in_vain is not None:
                self._rejoin(task.in_vain, now_ms)
                return
            if isinstance(task, StartTask) and session.holdings.held:
                self._parting.started()

    def _take_up(self, session: MemberSession) -> bool:
        """Take the next command, or begin to leave; False when there is nothing to do."""
        if not self._take_next(session):
            return False
        task = self._task
        if self._reviving is not None and task is not None:
            self._reviving.give_way(task.partitions())
        return True

    def _take_next(self, session: MemberSession) -> bool:
        draining = self._draining
        if draining is None or not self._loop.tracker.clean(CHANNEL) or session.writing or self._revived:
            return False
        if self._parting.leaving:
            self._task = StopTask(session, None, None)
        else:
            self._task = draining.next_task()
            self.generation = max(self.generation, draining.generation)
        return self._task is not None

    def _leave(self, session: MemberSession, now_ms: int) -> None:
        """Everything is released: end the session; after a reject register again later, or never if it is final."""
        sent_away = self._draining.sent_away() if self._draining is not None else None
        session.event("left", {})
        if self._committing is not None:
            self._committing.fail(FencedError("the consumer has left the group"))
        self._forget()
        if sent_away is not None and not self._parting.leaving:
            self._loop.fail(FencedError(f"{session.paths.consumer_id} was sent away: {sent_away}"), now_ms)
            return
        self._parting.released(now_ms)

    def _revive(self, session: MemberSession, lease: Lease) -> None:
        """Start again what is held but does not run, while nothing else is being done with it."""
        if self._reviving is None or not session.holdings.idle:
            return
        if not lease.holds(session.now_ms) or self._revived or session.writing or self._parting.leaving:
            return
        if self._calls.full:
            return
        under_task = self._task.partitions() if self._task is not None else set()
        idle = sorted(session.holdings.idle - under_task)
        why = self._reviving.advance(idle) if idle else None
        if why is not None:
            self._rejoin(why, session.now_ms)

    def _publish(self) -> None:
        self.readable = self.session.holdings.readable if self.session is not None and self.member else frozenset()
