"""Rules of a group with old members. What their code is known to do against these rules is named and counted.

One reader: a record is read under an owner node that the reader's own session made; meanwhile no other session can make
it. An old member reads on, as real ones do, in three cases: beyond its own session, after another member deleted its
node (deletions are unconditional), and on a node with equal data that another session made. A member of ours reads on
only until it sees that an old member deleted its node, and commits nothing then. Only old members, whose commits are
unconditional, move offsets backwards. Nothing is skipped: reading never starts beyond the records that were processed
without a gap.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from tests.sim.old_member import OldMember
from tests.sim.old_settings import OldSettings
from tests.sim.world import Entry, World
from tests.sim.zookeeper import Change, Session, Txn
from zkcoord.core.model import TopicPartition, consumer_of
from zkcoord.legacy.planning import OldGroup, plan_of
from zkcoord.tree.paths import BROKERS, TOPICS
from zkcoord.tree.topic_filter import INTERNAL
from zkcoord.tree.writes import CheckNode

BEYOND_SESSION = "read beyond its session"
NODE_DELETED = "read after its owner node was deleted by another old member"
EQUAL_DATA = "read on an owner node of another session with equal data"
LATE_COMMIT = "offset moved backwards by a late commit"
READ_BEFORE_CLAIM = "offset moved backwards by an owner that read it before its claim"
EXCEPTIONS = (BEYOND_SESSION, NODE_DELETED, EQUAL_DATA, LATE_COMMIT, READ_BEFORE_CLAIM)
OURS_NOT_SEEN = "a member of ours read before it saw that an old member had deleted its owner node"


def is_old(process: str) -> bool:
    """True of the name of a process that runs an old member."""
    return process.startswith("old")


class Claim(NamedTuple):
    """An existing owner node, and the session that made it."""

    session: Session
    thread: str


class OldRules:
    """The rules of one group of the layout legacy, from its first transaction on."""

    def __init__(self, world: World, group: str) -> None:
        self._world, self._group = world, group
        below = f"/consumers/{re.escape(group)}"
        self._owner = re.compile(rf"{below}/owners/([^/]+)/([0-9]+)$")
        self._offset = re.compile(rf"{below}/offsets/([^/]+)/([0-9]+)$")
        self._member = re.compile(rf"{below}/ids/([^/]+)$")
        self.excused: Counter[str] = Counter()
        self.registered: dict[str, Session] = {}  # consumer -> its session
        self.claims: dict[TopicPartition, Claim] = {}
        self.claimed: dict[tuple[str, TopicPartition], Session] = {}  # client -> the session of its last claim
        self.deleted: dict[tuple[str, TopicPartition], Session] = {}  # the session that deleted its node last
        self.of_another: set[tuple[str, TopicPartition]] = set()  # started on another session's node
        self.covered: dict[TopicPartition, int] = {}  # processed without a gap up to here
        self.in_kafka: dict[TopicPartition, set[int]] = {}  # offsets that old members committed there
        world.ensemble.on_applied.append(self._applied)
        world.on_journal.append(self._journaled)

    # -- transactions

    def _applied(self, txn: Txn) -> None:
        before = dict(self.claims) if len(txn.changes) > 1 else self.claims
        for change in txn.changes:
            if (found := self._member.match(change.path)) is not None:
                if change.after is None:
                    self.registered.pop(found[1], None)
                else:
                    self.registered[found[1]] = txn.session
            elif (found := self._owner.match(change.path)) is not None:
                self._take_owner(txn, TopicPartition(found[1], int(found[2])), change)
            elif (found := self._offset.match(change.path)) is not None:
                partition = TopicPartition(found[1], int(found[2]))
                self._take_offset(txn, partition, change, before.get(partition))

    def _take_owner(self, txn: Txn, partition: TopicPartition, change: Change) -> None:
        if change.before is not None and change.after is not None:  # ours set the node in the multi that creates it
            self.claims[partition] = Claim(self.claims[partition].session, change.after.data.decode())
            own = f"/consumers/{self._group}/ids/{consumer_of(self.claims[partition].thread)}"
            if not is_old(txn.session.process) and CheckNode(own, 0) not in txn.writes:
                self._world.fail(f"{txn.session.client} claimed {partition} without a check of {own}")
            return
        former, session = self.claims.pop(partition, None), txn.session
        if former is not None and former.session is not session:
            self.deleted[former.session.client, partition] = session
            stranger = not is_old(session.process) and not self._stolen(session, partition)
            if stranger and consumer_of(former.thread) in self.registered:
                self._world.fail(f"{session.client} deleted the owner node of {former.session.client}: {change.path}")
        if change.after is not None:
            self.claims[partition] = Claim(session, change.after.data.decode())
            self.claimed[session.client, partition] = session
            self.deleted.pop((session.client, partition), None)

    def _stolen(self, session: Session, partition: TopicPartition) -> bool:
        """True when somebody deleted the session's claim. Two claims look the same, so until the next claimer's
        acknowledgement has set the offset, writes under the earlier claim are applied."""
        operator = self._world.ensemble.operator
        return session is operator or self.deleted.get((session.client, partition)) is operator

    def _take_offset(self, txn: Txn, partition: TopicPartition, change: Change, claim: Claim | None) -> None:
        before, after = _number(change.before and change.before.data), _number(change.after and change.after.data)
        if after is None or txn.session is self._world.ensemble.operator:
            if after is not None:
                self.covered[partition] = after
            return
        if after > self.covered.get(partition, after):
            self._world.fail(f"offset {after} of {partition} is beyond what was processed: {self.covered[partition]}")
        own = claim is not None and claim.session is txn.session
        if not is_old(txn.session.process) and not own and not self._stolen(txn.session, partition):
            self._world.fail(f"{txn.session.client} wrote the offset of {partition} without a claim")
        if before is None or after >= before:
            return
        if after in self.in_kafka.get(partition, ()):
            return  # the offset in Kafka counts: an old member committed it after the node was written
        if not is_old(txn.session.process):
            self._world.fail(f"{txn.session.client} moved the offset of {partition} back from {before} to {after}")
        self.excused[READ_BEFORE_CLAIM if own else LATE_COMMIT] += 1

    # -- what programs read

    def _journaled(self, entry: Entry) -> None:
        if entry.group != self._group or entry.event not in ("start", "read"):
            return
        if entry.event == "start":
            self.covered.setdefault(entry.partition, entry.start)
            claim, key = self.claims.get(entry.partition), (entry.client, entry.partition)
            self.of_another.discard(key)
            if claim is not None and claim.session.client != entry.client:
                self.of_another.add(key)
            return
        if entry.start > self.covered.get(entry.partition, entry.start):
            skipped = self.covered[entry.partition]
            self._world.fail(f"{entry.client} reads {entry.partition} from {entry.start}: {skipped} is skipped")
        self.covered[entry.partition] = max(self.covered.get(entry.partition, 0), entry.end)
        why = self._why(entry.client, entry.partition)
        if why is None:
            return
        if not is_old(entry.process):
            if why != NODE_DELETED:
                self._world.fail(f"{entry.client}, a member of ours, {why}: {entry.partition}")
            why = OURS_NOT_SEEN
        self.excused[why] += 1

    def _why(self, client: str, partition: TopicPartition) -> str | None:
        """The reason why a member reads a partition without an owner node of its session; None: it has such a node."""
        claim, session = self.claims.get(partition), self.claimed.get((client, partition))
        if claim is not None and claim.session is session:
            return None
        if session is None or (client, partition) in self.of_another:
            return EQUAL_DATA
        if not session.alive:
            return BEYOND_SESSION
        by = self.deleted.get((client, partition))
        if by is None or not (is_old(by.process) or by is self._world.ensemble.operator):
            self._world.fail(f"{client} reads {partition}, whose owner node {by.client if by else 'itself'} deleted")
        return NODE_DELETED

    # -- at rest

    def members(self) -> dict[str, OldMember]:
        """The old members that are registered and run, by consumer id."""
        actors = [process.actor for process in self._world.processes.values() if process.running]
        return {a.consumer_id: a for a in actors if isinstance(a, OldMember) and a.consumer_id in self.registered}

    @property
    def mixed(self) -> bool:
        """True while a member is registered that is not one of ours."""
        return any(is_old(s.process) or s is self._world.ensemble.operator for s in self.registered.values())

    def partitions(self) -> list[TopicPartition]:
        """All partitions of the existing topics, without Kafka's internal ones."""
        topics = {topic: numbers for topic, numbers in self._topics().items() if topic not in INTERNAL}
        return [TopicPartition(topic, n) for topic, numbers in sorted(topics.items()) for n in numbers]

    def plan(self) -> dict[TopicPartition, str]:
        """Partition -> thread, as old members compute it from the tree as it is."""
        ensemble, ids = self._world.ensemble, f"/consumers/{self._group}/ids"
        settings = next((member.settings for member in self.members().values()), OldSettings())
        group = OldGroup(
            version=settings.old,
            assignor=settings.strategy,
            registrations={name: (ensemble.data(f"{ids}/{name}") or b"").decode() for name in ensemble.names(ids)},
            topics=self._topics(),
            exclude_internal=settings.exclude_internal,
        )
        return dict(plan_of(group).owners or {})

    def _topics(self) -> dict[str, tuple[int, ...]]:
        ensemble = self._world.ensemble
        texts = {topic: json.loads(ensemble.data(f"{TOPICS}/{topic}") or b"{}") for topic in ensemble.names(TOPICS)}
        return {topic: tuple(sorted(map(int, text.get("partitions", {})))) for topic, text in texts.items()}

    def unsettled(self) -> dict[TopicPartition, str]:
        """The partitions that their planned owner does not read to their ends, each with the reason. In a coordinated
        group any registered member may be the reader."""
        if not self._world.ensemble.names(BROKERS) or not self.registered:
            return {}
        plan = self.plan() if self.mixed else dict.fromkeys(self.partitions(), "")
        return {partition: why for partition, thread in sorted(plan.items()) for why in self._open(partition, thread)}

    def forgotten(self) -> dict[TopicPartition, str]:
        """The partitions whose owner node an old member made and does not know of, each with that member's name. No
        other member can own them until the old member's session ends.

        This happens when the member's claims cross an expiry: it makes them in the new session, and there it first
        forgets what it owned.
        """
        members = self.members()
        holders = {p: members.get(consumer_of(claim.thread)) for p, claim in self.claims.items()}
        return {p: m.name for p, m in holders.items() if m is not None and m.settled and p not in m.registry}

    def behind_forgotten(self) -> set[TopicPartition]:
        """The partitions that nobody reads until the member that forgot an owner node ends. These are the forgotten
        partitions that the plan gives to another member. If that other member is an old one, it gives up its whole
        share; one of ours reads the rest of its share."""
        plan, members = self.plan(), self.members()
        given = {p: consumer_of(plan[p]) for p in self.forgotten().keys() & plan.keys()}
        waiting = {p: name for p, name in given.items() if name != consumer_of(self.claims[p].thread)}
        failing = members.keys() & set(waiting.values())
        return {p for p, thread in plan.items() if p in waiting or consumer_of(thread) in failing}

    def _open(self, partition: TopicPartition, thread: str) -> Iterator[str]:
        claim = self.claims.get(partition)
        owner = consumer_of(thread or (claim.thread if claim is not None else ""))
        member, name = self.members().get(owner), owner
        if member is not None:
            name = member.name
            if not member.settled:
                yield f"{name} rebalances"
                return
            if member.gave_up:
                yield f"{name} gave up"
                return
            if claim is None and partition in member.registry:
                yield f"{name} does not notice that its owner node is gone"
                return
        if claim is None or (thread and claim.thread != thread) or owner not in self.registered:
            yield f"{name or 'nobody'} does not own it: {claim.thread if claim else 'nobody'} does"
            return
        process = self._world.processes.get(claim.session.process)
        application = process.application if process is not None and process.running else None
        lag = application.lag(partition) if application is not None else None
        if lag is None or (lag and self._world.draining):
            yield f"{name} owns it and reads it with lag {lag}"


def _number(data: bytes | None) -> int | None:
    text = (data or b"").decode().strip()
    return int(text) if text.lstrip("-").isdigit() else None
