"""The offset log of a simulated Kafka: one group's commits, kept by brokers that answer late, in part, or not at all.

`OffsetLog` is the brokers' state of the group, and what strangers do to it. `LogClient` is one process's connection to
it, as the `Callbacks` port that a member is given: `read` and `commit`, one request at a time, in their order.
`LogStore` is the `GroupStore` of a tool, and has no faults. A read is never stale: it shows every commit that was
applied before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from random import Random
from typing import Any, NamedTuple

from tests.sim.actors import GROUP
from tests.sim.process import SimProcess
from tests.sim.world import World
from zkcoord.core.model import TopicPartition
from zkcoord.core.tenure import CommitOutcome, KafkaCommit
from zkcoord.errors import UnavailableError, UnknownPartitionError, UsageError
from zkcoord.offsets.ports import Commits, ReadCommits
from zkcoord.shell.ports import CallDone

NETWORK_MS = 20
TIMEOUT_MS = 2_500
"""So long a client waits for an answer: less than a third of the rebalance timeout of most scenes, 8 s."""
LATE_MS_MAX = 12_000
"""So long after its sending a commit may still land whose client has given it up."""


class Fate(Enum):
    """The outcome of one request. A read has an answer only if its fate is DONE."""

    DONE = "done"
    REPLY_LOST = "reply lost"  # it lands, but its client is not told
    LATE = "late"  # it lands after its client has given it up
    LOST = "lost"  # it never lands
    PARTIAL = "partial"  # each partition has one of these fates, or is refused


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFaults:
    """Fault rates per request in a storm, and how many strange events a storm has."""

    lost_rate: float = 0.0
    reply_lost_rate: float = 0.0
    late_rate: float = 0.0
    partial_rate: float = 0.0
    expiries: int = 0  # the commits of some partitions are removed
    strangers: int = 0  # somebody commits without zkcoord's metadata, behind or ahead
    intruders: int = 0  # a consumer of Kafka's own protocol uses the group id for a while
    absences: int = 0  # no broker answers for a while

    @classmethod
    def drawn(cls, seed: int) -> LogFaults:
        """A world's faults: some kinds often, others not at all. The seed's other draws stay the same."""
        choice = Random(f"offset log {int(seed)}").choice
        return cls(
            lost_rate=choice((0.0, 0.0, 0.1)),
            reply_lost_rate=choice((0.0, 0.05, 0.2)),
            late_rate=choice((0.0, 0.05, 0.2)),
            partial_rate=choice((0.0, 0.0, 0.1)),
            expiries=choice((0, 0, 2, 8)),
            strangers=choice((0, 0, 2, 8)),
            intruders=choice((0, 0, 1)),
            absences=choice((0, 0, 1, 3)),
        )


class Change(NamedTuple):
    """A change of one partition's commit. `client`: the process's incarnation; "" for a stranger or a tool."""

    how: str  # commit | acknowledged | old | stranger | expired | deleted
    client: str
    partition: TopicPartition
    before: KafkaCommit | None
    after: KafkaCommit | None


class OffsetLog:
    """The brokers' state of one group. `on_change` is called after each change."""

    def __init__(self, world: World, group: str = GROUP, faults: LogFaults | None = None) -> None:
        self.world, self.group, self.faults = world, group, faults or LogFaults()
        self.commits: dict[TopicPartition, KafkaCommit] = {}
        self.committed_ms: dict[TopicPartition, int] = {}
        self.retention_ms: int | None = None  # commits that are older are removed
        self.on_change: list[Callable[[Change], None]] = []
        self.fates: list[tuple[str, str, Fate]] = []  # scripted: process, `read` or `commit`, fate of its next request
        self.requests: list[tuple[int, str, str, Any]] = []  # arrived: time, client, name and argument
        self._intruded_until_ms = self._away_until_ms = 0

    # -- what people and brokers do

    def intrude(self, until_ms: int) -> None:
        """A consumer of Kafka's own protocol uses the group id: Kafka refuses all other commits."""
        self.world.trace("a consumer of Kafka's own protocol uses the group id until", until_ms)
        self._intruded_until_ms = until_ms

    def go_away(self, until_ms: int) -> None:
        """No broker answers."""
        self.world.trace("no broker answers until", until_ms)
        self._away_until_ms = until_ms

    def heal(self) -> None:
        """All brokers answer, and no stranger uses the group id."""
        self._intruded_until_ms = self._away_until_ms = 0

    @property
    def in_use(self) -> bool:
        """True while Kafka refuses commits of programs that are not members of the group."""
        return self.world.now_ms < self._intruded_until_ms

    @property
    def away(self) -> bool:
        """True while no broker answers."""
        return self.world.now_ms < self._away_until_ms

    def stranger_commits(self, partition: TopicPartition, offset: int) -> None:
        """Another program commits: Kafka's own reset tool, or a consumer that somebody started to look at the topic."""
        self._put("stranger", "", partition, KafkaCommit(offset=offset))

    def old_member_commits(self, client: str, offsets: Mapping[TopicPartition, int]) -> None:
        """An old member commits, without zkcoord's metadata."""
        for partition, offset in sorted(offsets.items()):
            self._put("old", client, partition, KafkaCommit(offset=offset))

    def expire(self, partitions: Collection[TopicPartition]) -> None:
        """The brokers remove these commits because of their age."""
        for partition in sorted(partitions):
            self._put("expired", "", partition, None)

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Somebody removes these commits."""
        for partition in sorted(partitions):
            self._put("deleted", "", partition, None)

    def delete_topic(self, topic: str) -> None:
        """The brokers remove the commits of a deleted topic."""
        self.forget([p for p in self.commits if p.topic == topic])

    def trouble(self, from_ms: int, until_ms: int, partitions: Collection[TopicPartition]) -> None:
        """Plan the strange events of a storm at random moments between these two."""
        random, world, some = self.world.rng.random, self.world, sorted(partitions)

        def at_random(action: Callable[[], None]) -> None:
            world.at(from_ms + int(random() * (until_ms - from_ms)), action)

        for _ in range(self.faults.expiries):
            at_random(lambda: self.expire([p for p in sorted(self.commits) if random() < 0.3]))
        for _ in range(self.faults.strangers):
            at_random(lambda: self._stranger_somewhere(some))
        for _ in range(self.faults.intruders):
            at_random(lambda: self.intrude(self._a_while()))
        for _ in range(self.faults.absences):
            at_random(lambda: self.go_away(self._a_while()))
        world.at(until_ms, self.heal)

    def _a_while(self) -> int:
        return self.world.now_ms + 1 + int(self.world.rng.random() * 3 * TIMEOUT_MS)

    def _stranger_somewhere(self, partitions: Collection[TopicPartition]) -> None:
        random = self.world.rng.random
        for partition in partitions:
            if random() < 0.3:
                known = self.commits.get(partition)
                offset = known.offset if known is not None else 500
                self.stranger_commits(partition, max(0, offset + int((random() - 0.5) * 1_000)))

    # -- requests that arrive

    def read(self, partitions: Collection[TopicPartition] | None = None) -> dict[TopicPartition, KafkaCommit]:
        """The commits of these partitions, or of all."""
        self._expire_by_age()
        return {p: c for p, c in sorted(self.commits.items()) if partitions is None or p in partitions}

    def commit(self, client: str, commits: Commits) -> CommitOutcome:
        """Take these commits, unless the group id is in use."""
        if self.in_use:
            error = UsageError("Kafka refused to commit: consumers of Kafka's own protocol use the group id")
            return CommitOutcome(refused=dict.fromkeys(commits, error))
        for partition in sorted(commits):
            self._put("commit", client, partition, commits[partition])
        return CommitOutcome(done=frozenset(commits))

    def told_done(self, client: str, commits: Commits, outcome: CommitOutcome) -> None:
        """This process has learned which of its commits are done."""
        for partition in sorted(outcome.done):
            self._tell(Change("acknowledged", client, partition, None, commits[partition]))

    def fate(self, process: SimProcess, name: str) -> Fate:
        """The fate of this process's request: the scripted one, or else one drawn by the storm's faults."""
        for scripted in self.fates:
            if scripted[:2] == (process.name, name):
                self.fates.remove(scripted)
                return scripted[2]
        if not self.world.stormy:
            return Fate.DONE
        draw, faults = self.world.rng.random(), self.faults
        rates = {Fate.LOST: faults.lost_rate, Fate.REPLY_LOST: faults.reply_lost_rate}
        if name == "commit":
            rates |= {Fate.LATE: faults.late_rate, Fate.PARTIAL: faults.partial_rate}
        for fate, rate in rates.items():
            if draw < rate:
                return fate
            draw -= rate
        return Fate.DONE

    def _expire_by_age(self) -> None:
        if self.retention_ms is not None:
            oldest_ms = self.world.now_ms - self.retention_ms
            self.expire([p for p, at_ms in self.committed_ms.items() if at_ms < oldest_ms])

    def _put(self, how: str, client: str, partition: TopicPartition, after: KafkaCommit | None) -> None:
        before = self.commits.pop(partition, None)
        self.committed_ms.pop(partition, None)
        if after is not None:
            self.commits[partition], self.committed_ms[partition] = after, self.world.now_ms
        if before is not None or after is not None:
            self._tell(Change(how, client, partition, before, after))

    def _tell(self, change: Change) -> None:
        self.world.trace("offset log:", change)
        for hook in self.on_change:
            hook(change)


class LogClient:
    """The connection of one incarnation of a process, as the Callbacks port of its member. A request that was sent
    arrives even if its sender is paused or killed. A request that is not sent yet is sent when the process goes on, if
    it ever does."""

    def __init__(self, process: SimProcess, log: OffsetLog) -> None:
        self._process, self._log, self._world = process, log, process.world
        self._client, self._incarnation = process.client, process.incarnation
        self._calls: deque[tuple[int, str, Any]] = deque()

    @property
    def waiting(self) -> int:
        """How many requests have no answer yet."""
        return len(self._calls)

    def call(self, token: int, name: str, argument: Any) -> None:
        """`name` is `read` (of partitions) or `commit` (of commits). Each call is answered by one CallDone, in
        order."""
        self._calls.append((token, name, argument))
        if len(self._calls) == 1:
            self._process.after(self._draw(NETWORK_MS), self._send)

    def tell(self, done: CallDone, commits: Commits | None) -> None:
        """Hand an answer to the process."""
        self._process.inbox.put(done)
        self.told(done, commits)

    def told(self, done: CallDone, commits: Commits | None) -> None:
        """The process has taken the answer."""
        if commits is not None:
            self._log.told_done(self._client, commits, done.value)

    def _draw(self, most_ms: int) -> int:
        return int(self._world.rng.random() * (most_ms + 1))

    def _send(self) -> None:
        _, name, argument = self._calls[0]
        fate = Fate.LOST if self._log.away else self._log.fate(self._process, name)
        sent_ms = self._world.now_ms
        arrives = partial(self._arrive_read if name == "read" else self._arrive_commit, fate, sent_ms, argument)
        self._world.at(sent_ms + self._draw(NETWORK_MS), arrives)

    def _arrive_read(self, fate: Fate, sent_ms: int, partitions: Collection[TopicPartition]) -> None:
        self._log.requests.append((self._world.now_ms, self._client, "read", partitions))
        if fate is Fate.DONE:
            self._answer(self._log.read(partitions))
        else:
            self._give_up(sent_ms, error=UnavailableError("no broker tells the offsets"))

    def _arrive_commit(self, fate: Fate, sent_ms: int, commits: Commits) -> None:
        self._log.requests.append((self._world.now_ms, self._client, "commit", commits))
        outcome = CommitOutcome()
        for one, part in self._parts(fate, commits):
            outcome = _joined(outcome, self._landed(one, part, sent_ms))
        if outcome.unknown:
            self._give_up(sent_ms, commits, outcome)
        else:
            self._answer(outcome, commits)

    def _parts(self, fate: Fate, commits: Commits) -> list[tuple[Fate | None, Commits]]:
        """The commits with the fate of each part; None: refused."""
        if fate is not Fate.PARTIAL:
            return [(fate, commits)]
        fates = (None, Fate.DONE, Fate.DONE, Fate.REPLY_LOST, Fate.LATE, Fate.LOST)
        return [(fates[self._draw(len(fates) - 1)], {p: commits[p]}) for p in sorted(commits)]

    def _landed(self, fate: Fate | None, commits: Commits, sent_ms: int) -> CommitOutcome:
        """Apply commits by their fate. Returns the outcome that the client is told."""
        if fate is None:
            return CommitOutcome(refused=dict.fromkeys(commits, UnknownPartitionError("no such partition")))
        if fate is Fate.DONE:
            return self._log.commit(self._client, commits)
        if fate is Fate.REPLY_LOST:
            self._log.commit(self._client, commits)
        elif fate is Fate.LATE:
            late_ms = sent_ms + TIMEOUT_MS + 1 + self._draw(LATE_MS_MAX - TIMEOUT_MS)
            self._world.at(late_ms, lambda: self._log.commit(self._client, commits) and None)
        return CommitOutcome(unknown=dict.fromkeys(commits, UnavailableError("no broker answers the commit")))

    def _give_up(
        self, sent_ms: int, commits: Commits | None = None, outcome: Any = None, error: UnavailableError | None = None
    ) -> None:
        """The client has no answer until its timeout; the answer says so then."""
        at_ms = max(self._world.now_ms, sent_ms + TIMEOUT_MS)
        self._world.at(at_ms, lambda: self._answer(outcome, commits, error))

    def _answer(self, value: Any, commits: Commits | None = None, error: UnavailableError | None = None) -> None:
        """Send the answer; only this incarnation takes it."""
        if self._process.incarnation == self._incarnation:
            self._process.after(self._draw(NETWORK_MS), partial(self._done, value, commits, error))

    def _done(self, value: Any, commits: Commits | None, error: UnavailableError | None) -> None:
        token, _, _ = self._calls.popleft()
        self.tell(CallDone(token, value, error), commits)
        if self._calls:
            self._process.after(self._draw(NETWORK_MS), self._send)


def _joined(one: CommitOutcome, other: CommitOutcome) -> CommitOutcome:
    return replace(
        one,
        done=one.done | other.done,
        refused={**one.refused, **other.refused},
        unknown={**one.unknown, **other.unknown},
    )


class LogStore:
    """The `GroupStore` of a tool, for the one group of a log. Each call takes effect at once."""

    def __init__(self, log: OffsetLog) -> None:
        self._log = log

    def read(self, groups: Collection[str]) -> ReadCommits:
        """All commits of these groups."""
        return self._told({group: self._log.read() if group == self._log.group else {} for group in groups})

    def commit(self, group: str, commits: Commits) -> CommitOutcome:
        """Commit, as no member of the group."""
        assert group == self._log.group, group
        if self._log.away:
            return CommitOutcome(unknown=dict.fromkeys(commits, UnavailableError("no broker answers")))
        return self._log.commit("", commits)

    def users(self, group: str) -> list[str]:
        """The consumers of Kafka's own protocol that use the group id."""
        if self._log.away:
            raise UnavailableError("no broker answers")
        return ["console-consumer on host"] if self._log.in_use else []

    def forget(self, group: str) -> None:
        """Remove all commits of the group."""
        assert group == self._log.group, group
        self._log.forget(sorted(self._log.commits))

    def _told(self, found: dict[str, dict[TopicPartition, KafkaCommit]]) -> ReadCommits:
        if self._log.away:
            return ReadCommits(found={}, unknown=dict.fromkeys(found, UnavailableError("no broker answers")))
        return ReadCommits(found=found, unknown={})
