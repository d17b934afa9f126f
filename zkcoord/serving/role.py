"""The coordinator's role: it stands for election, follows topics and groups, and decides on each group that is clean.

A group is decided on only when none of its nodes, and none of its topics' nodes, is dirty. All groups share one loop. A
group is decided on at most once in a step, however many events came (the draft's "at most once in the queue").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from zkcoord.core.assignors import ASSIGNORS, Assignor
from zkcoord.core.coordinate import decide
from zkcoord.core.decisions import Decision, DropTopic, MarkTopic, RemoveGroup, RenewMark
from zkcoord.core.eligibility import PROTOCOLS
from zkcoord.core.memory import Memory
from zkcoord.core.retention import RETENTION_MS, Retention, asks_for_offsets
from zkcoord.errors import SchemaError, invariant
from zkcoord.serving.asker import Asker
from zkcoord.serving.candidates import follow_candidates
from zkcoord.serving.decided import DecidedGroup
from zkcoord.serving.election import Election
from zkcoord.serving.group_watch import GroupWatch
from zkcoord.serving.kafka_nodes import KafkaNodes
from zkcoord.serving.owner_rounds import OwnerRounds
from zkcoord.serving.reporting import Reporter
from zkcoord.serving.topic_mirror import MIRROR
from zkcoord.shell.loop import REOPEN_MS, Loop
from zkcoord.shell.ports import CallDone, CommitDone, Outcome, Request
from zkcoord.shell.role import Events
from zkcoord.tree.paths import CANDIDATES, EPOCH, RECORDS, ROOT, SCHEMA, Layout
from zkcoord.tree.plan import Term, plan
from zkcoord.tree.snapshot import Kind, Node
from zkcoord.tree.state import digest
from zkcoord.tree.topic import Mark
from zkcoord.tree.whole_view import Environment

ELECTION, GROUP = "election", "group"

DECISIONS_MAX = 10_000
"""Decisions of one group in one step. So at most about a second of a server's work is sent before the first answer."""


class CoordinatorRole:
    """One coordinator, which stands by or serves. It forgets what it knows of the tree when its session ends."""

    def __init__(
        self,
        loop: Loop,
        layout: Layout,
        candidate: Mapping[str, Any],
        events: Events,
        assignors: Mapping[str, Assignor] = ASSIGNORS,
        *,
        retention_ms: int = RETENTION_MS,
        asker: Asker | None = None,
    ) -> None:
        """`candidate`: the fields of Election that the program gives (wanted id, description, first revision). `asker`
        asks Kafka, if its address was given."""
        self._asker = asker
        self._assignors, self._retention_ms = assignors, retention_ms
        self._loop, self._layout, self._given, self._report = loop, layout, candidate, Reporter(events)
        self._election: Election | None = None
        self.term: Term | None = None
        self._session_timeout_ms = 0
        self._reset()

    def _reset(self) -> None:
        self._groups: dict[str, GroupWatch] = {}
        self._listed, self._memory = dict[str, frozenset[str]](), dict[str, Memory]()  # children of each list; by group
        self._pending: set[str] = set()  # groups to decide on
        self.decided: list[DecidedGroup] = []  # of the last step, for metrics
        self._wake_at_ms: dict[str, int] = {}
        self._protocols = PROTOCOLS  # spoken by all coordinators
        self.kafka: KafkaNodes | None = None  # set once this coordinator serves, or is about to serve
        self._root_czxid = 0
        self._rounds = OwnerRounds()
        self._report.reset()

    @property
    def groups(self) -> frozenset[str]:
        """The groups that this coordinator follows. Any thread may ask."""
        return frozenset(tuple(self._groups))

    # the session

    def session_opened(self, session_id: int, session_timeout_ms: int, now_ms: int) -> None:
        """Stand for election in this session."""
        self._reset()
        self.term = None
        self._election = Election(layout=self._layout, session_id=session_id, **self._given)
        self._session_timeout_ms = session_timeout_ms
        for path, kind, watch in self._election.wants():
            self._loop.tracker.want(path, kind, watch=watch)
        self._loop.tracker.want(CANDIDATES, Kind.CHILDREN, watch=True, scope=CANDIDATES)
        for path in self._layout.group_lists:
            self._loop.tracker.want(path, Kind.CHILDREN, watch=True, scope=RECORDS if path == RECORDS else "")

    def session_resumed(self, session_timeout_ms: int, now_ms: int) -> None:
        """Does nothing: everything is read again anyway."""

    def session_suspended(self, now_ms: int) -> None:
        """Does nothing: no decision is made until everything has been read again."""

    def session_lost(self, now_ms: int) -> None:
        """End the term and forget all state (draft, "new session")."""
        self._end_term("the session is over")
        self._election = None
        self._reset()

    def ended(self, now_ms: int) -> None:
        """The loop is over. Its session may be closed at once."""
        self.session_lost(now_ms)

    # what comes in

    def read(self, nodes: Sequence[Node], now_ms: int) -> None:
        """Sort nodes by what they are about. Those about groups are kept until the step has taken all its inputs."""
        for node in nodes:
            address = self._layout.parse(node.path)
            if address is None:
                self._read_other(node)
            elif (group := self._groups.get(address.group)) is not None:
                group.add(address, node)
                self._pending.add(address.group)

    def _read_other(self, node: Node) -> None:
        """Take in a node about no group: one of the election, a topic, a broker, or a list of groups."""
        if node.path == ROOT:
            self._root_czxid = node.stat.czxid if node.stat else 0
        if self._election is not None and self._election.take(node):
            if node.path.startswith(CANDIDATES):
                protocols = follow_candidates(self._election, node, self._loop.tracker, self._report.problem)
                if protocols != self._protocols:
                    self._protocols = protocols
                    self._pending |= self._groups.keys()
            elif node.path in (SCHEMA, EPOCH):
                for path, what in self._election.problems().items():
                    self._report.problem(path, what)
        elif self.kafka is not None and (concerned := self.kafka.take(node)) is not None:
            self._pending |= concerned
            if node.path == self._layout.topics:
                table, whole = self.kafka.topics, node.kind is Kind.DATA  # `whole` may have become true with this node
                self._pending |= {g for g, f in self._groups.items() if whole or table.misses(f.nodes.marks.keys())}
        elif node.path in self._layout.group_lists:
            self._listed[node.path] = frozenset(node.children)
            self._read_groups()

    def committed(self, tag: Any, done: CommitDone, sent_ms: int, now_ms: int) -> None:
        """A refusal by the epoch ends the term. Every other outcome is learned by reading."""
        if tag in (GROUP, MIRROR) and done.outcome is Outcome.REFUSED and done.failed_at == 0 and self.term is not None:
            self._end_term("the epoch is not this coordinator's any more")
            self._loop.end_session(now_ms, reopen_in_ms=REOPEN_MS)
            self._election = None

    def synced(self, sent_ms: int, now_ms: int) -> None:
        """Does nothing: a coordinator has no lease. ZooKeeper refuses its writes when another one serves."""

    def called(self, done: CallDone, now_ms: int) -> None:
        """Take in an answer of Kafka. A coordinator has no other callbacks."""
        if self.kafka is not None:
            self.kafka.called(done)

    def requested(self, request: Request, now_ms: int) -> None:
        """`stop`: end the session. A standby takes over at once."""
        invariant(request.name == "stop", f"a coordinator is asked to {request.name!r}")
        self._end_term("stopped")
        self._election = None
        self._loop.end_session(now_ms, reopen_in_ms=None)
        request.future.set_result(None)

    # what is decided

    def decide(self, now_ms: int) -> int | None:
        """Begin to serve, or decide on every group that is clean. Returns the next moment at which a wait ends."""
        self.decided = []
        for group in sorted(self._pending & self._groups.keys()):
            self._groups[group].read_added()
        if self._election is None or not self._loop.settled:
            return None
        if self._resigned(self._election, now_ms):
            return None
        try:
            if self.term is None:
                self._run(self._election, now_ms)
            elif self._loop.tracker.clean("") and not self._election.serves(self.term.epoch):
                why = "the coordinator's node is another's, or the epoch is not this coordinator's any more"
                self._stand_again(why, now_ms, REOPEN_MS)
        except SchemaError as error:
            self._loop.fail(error, now_ms)
        if self.term is None:
            return None
        for group, at_ms in list(self._wake_at_ms.items()):
            if now_ms >= at_ms:
                del self._wake_at_ms[group]
                self._pending.add(group)
        for group in sorted(self._pending):
            if self._loop.ready(f"group {group}", now_ms) and self._complete(group, now_ms):
                self._pending.discard(group)
                self._decide_group(self._groups[group], now_ms)
        times = [*self._wake_at_ms.values(), *self._report.taken_over(now_ms)]
        times.append(self._rounds.advance(self._groups, self._loop.tracker, now_ms))
        schema = self._election.schema_seen() if self._election is not None else None
        if self.kafka is not None and schema is not None:
            poll_ms = self.kafka.advance(self.term, schema, now_ms)
            times += [] if poll_ms is None else [poll_ms]
        return min(times)

    def _resigned(self, election: Election, now_ms: int) -> bool:
        """True when a tool asked it to resign. It begins nothing new, and ends its session once no write is under way.

        Another one serves at once. This one does not stand for one session timeout (docs/protocol.md, section 8).
        """
        who = election.asked_to_resign()
        if who is None:
            return False
        if not self._loop.commits_in_flight:
            self._report.event("resigned", {"coordinator": election.candidate_id, "why": f"{who} asked for it"})
            self._stand_again(f"resigned: {who} asked for it", now_ms, self._session_timeout_ms)
        return True

    def _stand_again(self, why: str, now_ms: int, in_ms: int) -> None:
        """End the session, and with it the coordinator's node. Stand again with another session after `in_ms`."""
        self._end_term(why)
        self._election = None
        self._loop.end_session(now_ms, reopen_in_ms=in_ms)

    def _run(self, election: Election, now_ms: int) -> None:
        loop = self._loop
        scopes = ("", CANDIDATES, election.own_path)
        if not all(map(loop.tracker.clean, scopes)) or loop.commits_in_flight or not loop.ready(ELECTION, now_ms):
            return
        if any(election.problems().values()):  # it was reported; the nodes are watched
            return
        if election.schema() is not None:
            if election.serves() and not election.won():
                self._stand_again("the epoch was raised since the election", now_ms, REOPEN_MS)
                return
            if election.serves():
                self._serve(election, now_ms)
                return
            if election.candidate_id is None or (election.id_taken() and election.wanted_id is None):
                self._loop.tracker.want(election.choose_id(), watch=True)
                return
            self._report.problem(election.own_path, election.id_problem(), event="id_taken")
            if election.id_taken():
                return
        if (why := election.obstacle()) is not None:
            self._report.problem(CANDIDATES, why)
        self._report.standing_by(election.candidate_id, election.standby_to())
        if looking := election.look_for_old_consumers():
            loop.tracker.want_all(looking, "")
            return
        preparation = election.preparation()
        multi = election.election() if preparation is None else None
        if (transaction := preparation or multi) is not None:
            loop.commit(transaction, ELECTION, now_ms, ELECTION)
        if multi is not None:
            self._follow_tree(election)  # these reads follow right behind the election, and count if it succeeds
        elif election.standby_to() is not None:
            self._leave_tree()

    def _serve(self, election: Election, now_ms: int) -> None:
        epoch, version = election.epoch()
        self.term = Term(epoch=epoch, epoch_version=version, marks={})
        self._follow_tree(election)
        self._report.problem(CANDIDATES, None)
        self._report.elected(election.candidate_id, epoch, self._groups, now_ms)

    def _follow_tree(self, election: Election) -> None:
        """Follow what decisions depend on. Nothing is decided before the election is seen to have succeeded."""
        if self.kafka is not None:
            return
        tracker = self._loop.tracker
        tracker.want(ROOT)
        tracker.touch(ROOT)  # somebody else may have created it since it was read for the election
        self.kafka = KafkaNodes(self._loop, self._layout, self._report.problem, self._asker, election)
        self._read_groups()

    def _leave_tree(self) -> None:
        """Another coordinator was elected: stop following everything but the election."""
        if self.kafka is None:
            return
        for group in sorted(self._groups):
            self._leave_group(group)
        self.kafka.end()
        self.kafka = None

    def _end_term(self, why: str) -> None:
        if self.term is not None:
            candidate = self._election.candidate_id if self._election else None
            self._report.event("deposed", {"coordinator": candidate, "epoch": self.term.epoch, "why": why})
        self.term = None

    # topics and groups

    def _read_groups(self) -> None:
        """Follow each group that has a folder or a record. An old tool removes only the folder (F44)."""
        if self.kafka is None:
            return
        present = frozenset[str]().union(*self._listed.values())
        for group in sorted(self._groups.keys() - present):
            self._leave_group(group)
        for group in sorted(present - self._groups.keys()):
            self._groups[group] = GroupWatch.begin(group, self._layout, self._loop.tracker)
            self._memory[group] = Memory(retention=Retention(retention_ms=self._retention_ms))

    def _leave_group(self, group: str) -> None:
        self._groups.pop(group).end()
        self._memory.pop(group, None)
        self._wake_at_ms.pop(group, None)
        self._report.forget(group)
        self._pending.discard(group)
        if self.kafka is not None:
            self.kafka.forget(group)

    def _complete(self, group: str, now_ms: int) -> bool:
        """Complete the group's view with the nodes that were read, and read the missing ones.

        Returns True when nothing is missing, and the group may be decided on.
        """
        tracker, watch = self._loop.tracker, self._groups.get(group)
        if watch is None or self.kafka is None or not self.kafka.whole:
            return False
        table, brokers = self.kafka.topics, self.kafka.brokers
        watch.read_when_adopted()
        if watch.nodes.view.observed:
            self._pending.discard(group)
            self._report.problems(group, watch.problems())
            if watch.whole:  # it was released: its nodes no longer count
                self._leave_group(group)
                self._read_groups()
            return False
        if tracker.clean(""):
            watch.subscribe(table)  # of the members read so far: topics are read together with the owners
        if not tracker.clean(group) or not tracker.clean(""):
            return False
        brokers.use(group, wanted=watch.needs.racked)
        if watch.read_again():
            table.read_again(watch.needs.topics)
            brokers.read_again()
            return False
        if not table.clean(watch.needs.topics, listing=bool(watch.wildcards)):
            return False
        if watch.needs.racked and not brokers.known():
            return False
        environment = Environment(
            topics=table,
            racks=brokers.racks,
            rack_changes=brokers.changes,
            root_czxid=self._root_czxid,
            protocols=self._protocols,
        )
        watch.complete(environment, now_ms)
        watch.channels.look_again(watch.nodes)
        if not tracker.clean(group):  # these calls asked for nodes: wait for them
            return False
        return watch.nodes.view.record_version is not None or group in self._listed.get(self._layout.groups, ())

    def _decide_group(self, watch: GroupWatch, now_ms: int) -> None:
        group, term = watch.group, self.term
        if term is None or self.kafka is None:
            return
        view = watch.nodes.view
        decided = decide(view, self._memory[group], now_ms, digest, self._assignors)
        memory = self._memory[group] = decided.memory
        decisions = decided.decisions[:DECISIONS_MAX]  # the rest is decided again after the writes of these
        self._wake_at_ms.pop(group, None)
        if decided.wake_at_ms is not None:
            self._wake_at_ms[group] = decided.wake_at_ms
        watch.sending(decisions)
        if decisions:
            marked = Term(epoch=term.epoch, epoch_version=term.epoch_version, marks=self._marks(decisions))
            for transaction in plan(decisions, watch.nodes, marked, self._layout):
                self._loop.commit(transaction, GROUP, now_ms, f"group {group}")
            for decision in decisions:
                watch.sent(decision)
                self._report.decision(group, decision)
        if any(isinstance(decision, RemoveGroup) for decision in decisions):
            watch.list_everything()
        elif asks_for_offsets(view, memory.retention, now_ms):
            watch.list_offsets()
        elif watch.listing:  # the group was not removed, or is a new one: the listing is out of date
            watch.end()
            self._groups[group] = GroupWatch.begin(group, self._layout, self._loop.tracker)
        self._report.problems(group, watch.problems())
        if view.state_version is not None and view.unreadable is None:
            self.decided.append(DecidedGroup(view, memory, decisions, now_ms))
            self._report.decided(self.decided[-1])
            self._rounds.started(watch, now_ms)

    def _marks(self, decisions: Sequence[Decision]) -> dict[str, Mark]:
        """The marks that these decisions write, of the topics as they are now."""
        topics = [d.topic for d in decisions if isinstance(d, (MarkTopic, RenewMark, DropTopic))]
        return self.kafka.topics.marks(topics, self._root_czxid) if self.kafka is not None else {}
