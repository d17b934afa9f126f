"""What must hold in a group with old members, and what their code is known to do against it, named and counted.

One reader: a record is read under an owner node of the reader's own session, which no other can make meanwhile. An old
member reads on, as real ones do, beyond its own session, after another one deleted its node (deletions are
unconditional), and on a node of another session that had equal data. Offsets go backwards by old members only, whose
commits are unconditional. Nothing is skipped: reading goes on at most at what was processed without a gap.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from tests.sim.old_member import OldMember
from tests.sim.world import Entry, World
from tests.sim.zookeeper import Change, Session, Txn
from zkcoord.core.model import TopicPartition
from zkcoord.legacy.planning import OldGroup, plan_of
from zkcoord.tree.paths import BROKERS, TOPICS

BEYOND_SESSION = "read beyond its session"
NODE_DELETED = "read after its owner node was deleted by another old member"
EQUAL_DATA = "read on an owner node of another session with equal data"
LATE_COMMIT = "offset moved backwards by a late commit"
READ_BEFORE_CLAIM = "offset moved backwards by an owner that read it before its claim"
EXCEPTIONS = (BEYOND_SESSION, NODE_DELETED, EQUAL_DATA, LATE_COMMIT, READ_BEFORE_CLAIM)


def is_old(process: str) -> bool:
    """True of the name of a process that runs an old member."""
    return process.startswith("old")


class Claim(NamedTuple):
    """An owner node as it stands: whose session made it."""

    session: Session
    thread: str


class OldRules:
    """The rules of one group of the legacy layout, from its first transaction on."""

    def __init__(self, world: World, group: str) -> None:
        self._world, self._group = world, group
        below = f"/consumers/{re.escape(group)}"
        self._owner = re.compile(rf"{below}/owners/([^/]+)/([0-9]+)$")
        self._offset = re.compile(rf"{below}/offsets/([^/]+)/([0-9]+)$")
        self.excused: Counter[str] = Counter()
        self.claims: dict[TopicPartition, Claim] = {}
        self.claimed: dict[tuple[str, TopicPartition], Session] = {}  # client -> the session of its last claim
        self.deleted: dict[tuple[str, TopicPartition], Session] = {}  # whose node was last deleted by whom
        self.of_another: set[tuple[str, TopicPartition]] = set()  # started on a node that another session had made
        self.covered: dict[TopicPartition, int] = {}  # processed without a gap up to here
        world.ensemble.on_applied.append(self._applied)
        world.on_journal.append(self._journaled)

    # -- transactions

    def _applied(self, txn: Txn) -> None:
        for change in txn.changes:
            if (found := self._owner.match(change.path)) is not None:
                self._take_owner(txn, TopicPartition(found[1], int(found[2])), change)
            elif (found := self._offset.match(change.path)) is not None:
                self._take_offset(txn, TopicPartition(found[1], int(found[2])), change)

    def _take_owner(self, txn: Txn, partition: TopicPartition, change: Change) -> None:
        former = self.claims.pop(partition, None)
        if former is not None and former.session is not txn.session:
            self.deleted[former.session.client, partition] = txn.session
            if not is_old(txn.session.process) and txn.session is not self._world.ensemble.operator:
                self._world.fail(
                    f"{txn.session.client} deleted the owner node of {former.session.client}: {change.path}"
                )
        if change.after is not None:
            self.claims[partition] = Claim(txn.session, change.after.data.decode())
            self.claimed[txn.session.client, partition] = txn.session

    def _take_offset(self, txn: Txn, partition: TopicPartition, change: Change) -> None:
        before, after = _number(change.before and change.before.data), _number(change.after and change.after.data)
        if after is None or txn.session is self._world.ensemble.operator:
            if after is not None:
                self.covered[partition] = after
            return
        if after > self.covered.get(partition, after):
            self._world.fail(f"offset {after} of {partition} is beyond what was processed: {self.covered[partition]}")
        if before is None or after >= before:
            return
        if not is_old(txn.session.process):
            self._world.fail(f"{txn.session.client} moved the offset of {partition} back from {before} to {after}")
        claim = self.claims.get(partition)
        own = claim is not None and claim.session is txn.session
        self.excused[READ_BEFORE_CLAIM if own else LATE_COMMIT] += 1

    # -- what programs do

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
        if is_old(entry.process):
            why = self._why(entry.client, entry.partition)
            if why is not None:
                self.excused[why] += 1

    def _why(self, client: str, partition: TopicPartition) -> str | None:
        """Why an old member reads a partition without an owner node of its session; None: it has one."""
        claim, session = self.claims.get(partition), self.claimed.get((client, partition))
        if claim is not None and claim.session is session:
            return None
        if session is None or (client, partition) in self.of_another:
            return EQUAL_DATA
        if not session.alive:
            return BEYOND_SESSION
        if (client, partition) not in self.deleted:
            self._world.fail(f"{client} reads {partition}, whose owner node it released itself")
        return NODE_DELETED

    # -- at rest

    def members(self) -> dict[str, OldMember]:
        """The old members that are registered, by consumer id."""
        ensemble = self._world.ensemble
        ids = set(ensemble.names(f"/consumers/{self._group}/ids"))
        actors = [process.actor for process in self._world.processes.values() if process.running]
        return {a.consumer_id: a for a in actors if isinstance(a, OldMember) and a.consumer_id in ids}

    def plan(self) -> dict[TopicPartition, str]:
        """Partition -> thread, as the members compute it from the tree as it is."""
        ensemble, members = self._world.ensemble, self.members()
        if not members:
            return {}
        settings = next(iter(members.values())).settings
        ids = f"/consumers/{self._group}/ids"
        topics = {topic: json.loads(ensemble.data(f"{TOPICS}/{topic}") or b"{}") for topic in ensemble.names(TOPICS)}
        group = OldGroup(
            version=settings.old,
            assignor=settings.strategy,
            registrations={name: (ensemble.data(f"{ids}/{name}") or b"").decode() for name in ensemble.names(ids)},
            topics={topic: tuple(sorted(map(int, text.get("partitions", {})))) for topic, text in topics.items()},
            exclude_internal=settings.exclude_internal,
        )
        return dict(plan_of(group).owners or {})

    def unsettled(self) -> dict[TopicPartition, str]:
        """The partitions that are not read to their ends by whom the plan names, each with the reason."""
        return dict(self._unsettled())

    def _unsettled(self) -> Iterator[tuple[TopicPartition, str]]:
        members = self.members()
        if not self._world.ensemble.names(BROKERS):
            return
        for partition, thread in sorted(self.plan().items()):
            claim = self.claims.get(partition)
            member = members.get(thread.rpartition("-")[0])
            if member is None:
                yield partition, "planned for a member that does not run"
            elif not member.settled:
                yield partition, f"{member.name} rebalances"
            elif member.gave_up:
                yield partition, f"{member.name} gave up"
            elif claim is None and partition in member.registry:
                yield partition, f"{member.name} does not notice that its owner node is gone"
            elif claim is None or claim.thread != thread:
                yield partition, f"{member.name} does not own it: {claim.thread if claim else 'nobody'} does"
            elif (lag := member.lag(partition)) is None or (lag and self._world.draining):
                yield partition, f"{member.name} owns it and reads it with lag {lag}"


def _number(data: bytes | None) -> int | None:
    text = (data or b"").decode().strip()
    return int(text) if text.lstrip("-").isdigit() else None
