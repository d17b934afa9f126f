"""The consumer's role over its sessions: it joins, keeps its lease, advances its registration, and leaves. Each session
has one registration at a time.

`core.member` decides what a member does. Commands are obeyed one after the other, in their order. At most one write is
under way at a time (the multis of one release or commit count as one). So only somebody else's write can have changed a
version that a write carries.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from zkcoord.core.given import given_offsets, given_ranges
from zkcoord.core.member.application import FirstRecords
from zkcoord.core.member.decisions import Rejoin
from zkcoord.core.member.log import CHECKPOINT_MS, CommitLog
from zkcoord.core.member.neighbours import ALONE
from zkcoord.core.member.requests import AnnounceRequest, CommitRequest
from zkcoord.core.member.status import MemberStatus
from zkcoord.core.model import TopicPartition
from zkcoord.core.offset_store import STORES, ZOOKEEPER
from zkcoord.core.view import Wildcard
from zkcoord.errors import FencedError, SchemaError, ZkcoordError, invariant
from zkcoord.member.absences import Absences
from zkcoord.member.calls import Calls
from zkcoord.member.cluster_check import ClusterCheck
from zkcoord.member.joining import JOIN, Joining
from zkcoord.member.lease import Lease
from zkcoord.member.leaving import Parting, open_until_ms
from zkcoord.member.log_calls import LogCalls
from zkcoord.member.neighbourhood import Neighbourhood
from zkcoord.member.registered import Registered
from zkcoord.shell.loop import Loop
from zkcoord.shell.ports import Callbacks, CallDone, CommitDone, Request
from zkcoord.shell.role import Events
from zkcoord.tree.member import MemberPaths
from zkcoord.tree.member_plan import encode_member_status
from zkcoord.tree.paths import SCHEMA
from zkcoord.tree.schema import decode_schema
from zkcoord.tree.snapshot import Node

FIRST = "first"  # the scope of the schema


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSettings:
    """The settings of one consumer. `registration` takes the negotiated session timeout in ms."""

    group: str
    new_id: Callable[[], str]
    registration: Callable[[int], bytes]
    topics: Sequence[str] = ()  # subscribed by name; the user is told if one does not exist
    wildcard: Wildcard | None = None  # or subscribed by wildcard; the user is told if it takes no topic
    log_patience_ms: int = 20_000  # how long to wait for Kafka's answer about commits
    checkpoint_ms: int = CHECKPOINT_MS  # the age at which a commit in Kafka is committed again
    cluster_id: Callable[[], str | None] | None = None  # id of the brokers' cluster, once they have told it
    bootstrap_servers: str = ""  # their addresses


class MembershipRole:
    """One consumer's membership over its sessions. Any thread may read `readable` and `lease`."""

    def __init__(
        self,
        loop: Loop,
        settings: MemberSettings,
        callbacks: Callbacks,
        events: Events,
        log: Callbacks | None = None,
    ) -> None:
        """`log` reads and writes the group's commits in Kafka (`core.member.log`), on threads of its own. None: commits
        are in ZooKeeper only."""
        self._loop, self._settings, self._events, self._log = loop, settings, events, log
        self._calls = Calls(callbacks)
        self._parting = Parting(loop, self._calls, lambda: self.may_join())
        self.said: tuple[int, int] | None = None  # progress and lag, as the application last reported them
        self.firsts: deque[FirstRecords] = deque()  # first records that the application was handed; any thread adds
        self.may_join: Callable[[], bool] = lambda: True  # called at least whenever the lease is looked at
        self._absences = Absences(settings.group, settings.topics, settings.wildcard, events)
        self.cluster = ClusterCheck(settings.cluster_id, settings.bootstrap_servers)
        self.stop_needs_ms = 0
        # how long the application's stop takes; the consumer does not join beside old members that wait less
        self.generation = 0
        self._waited = False  # True once the user was told why this consumer could not register
        self.readable: frozenset[TopicPartition] = frozenset()
        self._forget()

    def _forget(self) -> None:
        self.readable = frozenset()
        self.lease: Lease | None = None
        self.registered: Registered | None = None  # a present or future registration
        self.member = False
        self._session_id = 0
        self._joining: Joining | None = None
        self._schema: Node | None = None
        self._renamed = False  # True when commits in Kafka name an earlier id of the tree
        self._told_waiting: str | None = None
        self._neighbourhood: Neighbourhood | None = None  # only where groups may have old members
        self._neighbours = ALONE  # the neighbours as they were last known

    @property
    def consumer_id(self) -> str | None:
        """The id of the present registration; None while there is none."""
        return self.registered.paths.consumer_id if self.registered is not None and self.member else None

    def allowed(self, partition: TopicPartition, now_ms: int) -> bool:
        """True while the partition may be read, whatever the loop is doing: it runs, and the lease holds."""
        lease = self.lease
        here = partition in self.readable and lease is not None and lease.holds(now_ms)
        return here and self.cluster.error is None

    @property
    def stop_within_ms(self) -> int | None:
        """How long old members wait for a stop. None: there can be no old members, or this is not known now. Any thread
        may ask."""
        return self._neighbours.stop_within_ms

    # the session

    def session_opened(self, session_id: int, session_timeout_ms: int, now_ms: int) -> None:
        """A new session: read the schema first."""
        self._forget()
        self._session_id = session_id
        self.lease = Lease(session_timeout_ms)
        self._loop.tracker.want(SCHEMA, watch=True, scope=FIRST)
        self.cluster.begin(self._loop.tracker, FIRST)
        self._absences.begin()

    def session_resumed(self, session_timeout_ms: int, now_ms: int) -> None:
        """The same session goes on. Everything is read again, after a sync that also extends the lease."""
        if self.lease is not None:
            self.lease.negotiated(session_timeout_ms)

    def session_suspended(self, now_ms: int) -> None:
        """Changes nothing until the lease ends (docs/protocol.md, section 7, "Lease")."""

    def session_lost(self, now_ms: int) -> None:
        """The session is over, and the registration with it."""
        self._lost("the session is over")
        self._parting.session_lost(now_ms)

    def ended(self, now_ms: int) -> int | None:
        """The loop is over. The session stays open while the application may still read, for one lease at most."""
        until_ms = open_until_ms(self.lease, self.registered, now_ms)
        self._lost("the consumer has ended")
        return self._parting.last(until_ms, now_ms)

    def _lost(self, why: str) -> None:
        if self.registered is not None:
            self.registered.lost(why)
        self._forget()

    def _rejoin(self, why: str, now_ms: int, error: BaseException | None = None) -> None:
        """Give up registration and session, wait (longer each time), and register again; never if there is an error."""
        registered = self.registered
        sent_away = registered.sent_away() if registered is not None else None
        if error is None and sent_away is not None:
            error = FencedError(f"evicted after it was sent away: {sent_away}")
        until_ms = open_until_ms(self.lease, registered, now_ms)
        self._lost(why)
        self._parting.give_up(error, until_ms, now_ms)

    # what comes in

    def read(self, nodes: Sequence[Node], now_ms: int) -> None:
        """Take answers in."""
        registered, others = self.registered if self.member else None, self._neighbourhood
        if others is not None:
            nodes = [node for node in nodes if not self._of_others(others, node, now_ms)]
        for node in nodes if registered is None else registered.read(nodes):
            self._absences.take(node, self._loop.tracker)
            self.cluster.take(node)
            if node.path == SCHEMA:
                self._schema = node
                self._tree_named(node)
            if self._joining is not None:
                self._joining.take(node)
        if registered is not None:
            self._extend_lease(registered)

    def _of_others(self, others: Neighbourhood, node: Node, now_ms: int) -> bool:
        self._absences.take_record(node)
        return others.take(node, now_ms)

    def _tree_named(self, schema: Node) -> None:
        """Take in the tree's id, which a migration may set while members are registered. A schema that cannot be read
        changes nothing."""
        if self.registered is None or not schema.exists:
            return
        try:
            named = decode_schema(schema.data)
            self._renamed = not self.registered.tree_named(named.tree_id)
            if self._neighbourhood is not None:
                self._neighbourhood.topics_from(named.place)
        except ZkcoordError:
            return

    def committed(self, tag: Any, done: CommitDone, sent_ms: int, now_ms: int) -> None:
        """Take in an outcome. If a server gave it, it counts for the lease. Whether the write took effect is learned by
        reading."""
        if done.answered:
            self.synced(sent_ms, now_ms)
        if tag == JOIN and self._joining is not None:
            self._joining.answered(done.outcome)

    def synced(self, sent_ms: int, now_ms: int) -> None:
        """The leader knew this session at some moment after `sent_ms`."""
        if self.lease is not None:
            self.lease.answered(sent_ms)
            if self.registered is not None:
                self._extend_lease(self.registered)

    def _extend_lease(self, registered: Registered) -> None:
        """Let answered requests extend the lease, once the registration is seen to exist after them."""
        if self.lease is not None and registered.watch.stands and self.lease.extend():
            registered.event("lease_extended", {"lease_until_mono_ms": self.lease.until_ms, "level": "debug"})

    def called(self, done: CallDone, now_ms: int) -> None:
        """The application answered. An answer to an earlier registration's call changes nothing."""
        self._calls.answered(done.token)
        if self.registered is not None:
            self.registered.called(done)

    def requested(self, request: Request, now_ms: int) -> None:
        """Take in a request of the program. `commit`: write offsets (a CommitRequest). `announce`: write ranges (an
        AnnounceRequest). `stop`: leave. `exit`: end with the error with which a callback ends the program."""
        invariant(request.name in ("commit", "announce", "stop", "exit"), f"a consumer is asked to {request.name!r}")
        if request.name == "stop":
            self._parting.leave(request.future)
        elif request.name == "exit":
            self._rejoin("a callback ends the program", now_ms, request.argument)
            request.future.set_result(None)
        elif self.registered is None or not self.member:
            request.future.set_exception(FencedError("not a member of the group at present: nothing is written"))
        else:
            asked = request.argument
            given = (
                AnnounceRequest(given_ranges(asked.ranges), asked.starts)
                if request.name == "announce"
                else CommitRequest(given_offsets(asked.offsets), asked.starts)
            )
            self.registered.ask(given, request.future)

    # what is decided

    def decide(self, now_ms: int) -> int | None:
        """Do everything that can be done now. Returns when the lease must be looked at again."""
        if self._parting.under_way:
            return self._parting.advance(now_ms)
        if (confused := self.cluster.error) is not None:
            self._loop.fail(confused, now_ms)
            return None
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
        if self._renamed and not self._parting.leaving:
            self._rejoin("the tree has another id than the one that its commits in Kafka name", now_ms)
        registered, wake_at_ms = self.registered, None
        if self.member and registered is not None:
            while self.firsts:
                registered.reading(self.firsts.popleft())
            idle = not registered.memory.held
            self._absences.member(loop.tracker, registered.paths.layout, now_ms, idle=idle)
            wake_at_ms = self._decide_as_member(registered, lease, now_ms)
        self._publish()
        if self.lease is None:
            return self._parting.advance(now_ms)
        lease_ms = lease.wake_at_ms(now_ms, connected=loop.connected)
        if wake_at_ms is None or lease_ms is None:
            return lease_ms if wake_at_ms is None else wake_at_ms
        return min(wake_at_ms, lease_ms)

    def _can_leave_cleanly(self, now_ms: int) -> bool:
        """False when there is nothing to release, or there is neither link nor lease. Then the session's end releases
        everything."""
        return self.member and (self._loop.connected or (self.lease is not None and self.lease.holds(now_ms)))

    def _able_to_join(self, now_ms: int) -> bool:
        loop = self._loop
        return loop.settled and not loop.commits_in_flight and loop.ready(JOIN, now_ms) and not self._calls.full

    def _join(self, now_ms: int) -> None:
        tracker = self._loop.tracker
        if self.registered is None and tracker.clean(FIRST):
            self._begin_joining()
        if self.registered is None or self._joining is None or not self._joining.clean:
            return
        if self._joining.registered():
            self._joining.end()
            self.member = True
            self.registered.watch.begin()
            if self._neighbourhood is not None:
                self._neighbourhood.begin()
            self.registered.event("registered", {"level": "notice"} if self._waited else {})
            self._waited = False
            return
        if self._joining.spent:
            self._joining.end()
            self.registered = self._joining = None
            self._join(now_ms)
            return
        transaction = self._joining.next_transaction(encode_member_status(MemberStatus(store="", said=self.said)))
        obstacle = self._joining.waits_for
        if transaction is not None and self._neighbourhood is not None:
            neighbours = self._neighbourhood.now(self.registered.paths.consumer_id, now_ms)
            if neighbours is None:
                return
            obstacle = neighbours.obstacle or neighbours.too_hasty(self.stop_needs_ms)
            obstacle = obstacle and (self._absences.elsewhere or obstacle)
        self._tell_waiting(obstacle)
        if transaction is not None and obstacle is None:
            self._loop.commit(transaction, JOIN, now_ms, JOIN)

    def _begin_joining(self) -> None:
        if self._schema is None or not self._schema.exists:
            self._tell_waiting(f"no {SCHEMA} in the tree: start a coordinator, or run `zkcoord migrate upgrade`")
            return
        try:
            schema = decode_schema(self._schema.data)
            layout = schema.place
        except ZkcoordError as error:
            raise SchemaError(f"{SCHEMA}: {error}: an operator must restore it") from error
        settings = self._settings
        self._absences.join(self._loop.tracker, layout)
        consumer_id = layout.consumer_id(settings.new_id())
        paths = MemberPaths(layout=layout, group=settings.group, consumer_id=consumer_id)
        log = None if self._log is None else LogCalls(self._log, self._calls, self._commit_log(schema.tree_id))
        self.registered = Registered(self._loop, paths, self._calls, self._events, self.generation, log)
        if layout.adopts and self._neighbourhood is None:
            stores = (ZOOKEEPER,) if self._log is None else STORES
            self._neighbourhood = Neighbourhood(layout, settings.group, self._loop.tracker, stores)
        if self._neighbourhood is not None:
            self._neighbourhood.own = paths.registration
        timeout_ms = self.lease.timeout_ms if self.lease is not None else 0
        self._joining = Joining(paths, self._session_id, settings.registration(timeout_ms), self._loop.tracker)

    def _commit_log(self, tree: str) -> CommitLog:
        settings = self._settings
        return CommitLog(tree=tree, patience_ms=settings.log_patience_ms, checkpoint_ms=settings.checkpoint_ms)

    def _tell_waiting(self, why: str | None) -> None:
        """Report once why this consumer cannot register, and who must act."""
        if why is not None and why != self._told_waiting:
            self._waited = True
            self._events("waiting", {"why": why, "group": self._settings.group, "level": "warning"})
        self._told_waiting = why

    def _decide_as_member(self, registered: Registered, lease: Lease, now_ms: int) -> int | None:
        starting = registered.memory.start
        leased, leaving = lease.holds(now_ms), self._parting.leaving
        if self._neighbourhood is not None:
            consumer_id, held = registered.paths.consumer_id, registered.memory.held.keys()
            self._neighbours = self._neighbourhood.now(consumer_id, now_ms, held) or self._neighbours
        neighbours = self._neighbours
        wake_at_ms, end = registered.advance(
            now_ms, leased=leased, leaving=leaving, said=self.said, neighbours=neighbours
        )
        memory = registered.memory
        self.generation = max(self.generation, memory.generation)
        begun = memory.start.name if memory.start is not None else None
        if starting is not None and begun != starting.name and memory.held:
            self._parting.started()
        if isinstance(end, Rejoin):
            self._rejoin(end.why, now_ms)
        elif end is not None:
            self._leave(registered, now_ms)
        return wake_at_ms

    def _leave(self, registered: Registered, now_ms: int) -> None:
        """Everything is released: end the session. After a reject, register again later, or never if the reject is
        final."""
        sent_away = registered.sent_away()
        registered.fail(FencedError("the consumer has left the group"))
        self._forget()
        if sent_away is not None and not self._parting.leaving:
            self._loop.fail(FencedError(f"{registered.paths.consumer_id} was sent away: {sent_away}"), now_ms)
            return
        self._parting.released(now_ms)

    def _publish(self) -> None:
        readable = self.member and self.registered is not None
        self.readable = self.registered.memory.readable if readable and self.registered is not None else frozenset()
