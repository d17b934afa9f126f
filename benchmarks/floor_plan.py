"""The floor's plans: the assignment, and every version that the multis need. They are made from the tree before an
event.

This module has all decisions and all JSON of the floor. Its time is not measured.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from common import GROUP, TOPIC

from zkcoord.core.assignors import ASSIGNORS, AssignorInput
from zkcoord.core.command import Command, Option
from zkcoord.core.model import Subscriber, TopicPartition, consumer_of
from zkcoord.core.state import GroupState
from zkcoord.shell.zk.blocking import Tree
from zkcoord.tree.command import encode_command
from zkcoord.tree.member import MemberPaths
from zkcoord.tree.offset import encode_offset
from zkcoord.tree.paths import DRAFT, EPOCH
from zkcoord.tree.snapshot import Node, Read
from zkcoord.tree.state import digest, encode_state
from zkcoord.tree.topic import Mark, encode_mark
from zkcoord.tree.writes import CheckNode, CreateNode, SetNode, Write

Share = dict[TopicPartition, str]


@dataclass(slots=True)
class Prepared:
    """A member's answer to one command: for a start the offsets to read first, then one multi, which also deletes the
    command."""

    partitions: tuple[TopicPartition, ...]
    writes: tuple[Write, ...]
    reads: tuple[Read, ...] = ()
    stops: bool = False


@dataclass(slots=True)
class Release:
    """What the coordinator does when a source's channel is empty again: it reads the owners, then sends the grants."""

    reads: tuple[Read, ...]
    grants: list[tuple[Write, ...]]


@dataclass(slots=True)
class Plan:
    """One event."""

    first: list[tuple[Write, ...]] = field(default_factory=list)  # the coordinator's multis when it sees the event
    releases: dict[str, Release] = field(default_factory=dict)  # a source's channel -> what follows its release
    answers: dict[str, dict[bytes, Prepared]] = field(default_factory=dict)  # consumer -> command -> answer


def paths(consumer: str) -> MemberPaths:
    """Return the paths of a member's nodes."""
    return MemberPaths(layout=DRAFT, group=GROUP, consumer_id=consumer)


def clicks(partitions: int) -> list[TopicPartition]:
    """The topic's partitions."""
    return [TopicPartition(TOPIC, number) for number in range(partitions)]


class Planner:
    """Reads the tree once and plans one event for these members and partitions."""

    def __init__(self, tree: Tree, partitions: int, *, merged: bool = True) -> None:
        self._all = clicks(partitions)
        self._merged = merged
        owners = [Read(DRAFT.owner(GROUP, p)) for p in self._all]
        offsets = [Read(DRAFT.offset(GROUP, p)) for p in self._all]
        guards = [Read(EPOCH), Read(DRAFT.record(GROUP)), Read(DRAFT.state(GROUP))]
        nodes = tree.read([*guards, *owners, *offsets])
        self._guards = [_version(node) for node in nodes[:3]]
        rest = nodes[3:]
        self._owners = dict(zip(self._all, rest[:partitions], strict=True))
        self._offsets = dict(zip(self._all, rest[partitions:], strict=True))

    def cold(self, members: Iterable[str]) -> Plan:
        """Plan the appearance of the topic: the raise, the topic's mark, a start for each member."""
        target = self._target(members, {})
        plan = Plan(first=[self._raise(target), self._mark()])
        plan.first += [self._start(plan, consumer, share) for consumer, share in _shares(target).items()]
        return plan

    def death(self, members: Iterable[str], victim: str) -> Plan:
        """Plan the death of a member: the raise, a start for each member that gets a partition of it."""
        owned = self.owned()
        living = {p: thread for p, thread in owned.items() if consumer_of(thread) != victim}
        target = self._target([m for m in members if m != victim], living)
        moving = {p: thread for p, thread in target.items() if owned.get(p) != thread}
        plan = Plan(first=[self._raise(target)])
        plan.first += [self._start(plan, consumer, share) for consumer, share in _shares(moving).items()]
        return plan

    def join(self, members: Iterable[str], joiner: str) -> Plan:
        """Plan the joining of a member: the raise, a stop for each source; then one start, or one after each
        release."""
        owned = self.owned()
        target = self._target([*members, joiner], owned)
        moving = {p: thread for p, thread in target.items() if owned.get(p) != thread}
        plan = Plan(first=[self._raise(target)])
        sources: dict[str, Share] = defaultdict(dict)
        for partition, thread in moving.items():
            sources[consumer_of(owned[partition])][partition] = thread
        for source, share in sources.items():
            plan.first.append(self._stop(plan, source, share))
            reads = tuple(Read(DRAFT.owner(GROUP, p)) for p in share)
            grants = [] if self._merged else [self._start(plan, joiner, share, released=True)]
            plan.releases[paths(source).channel] = Release(reads, grants)
        if self._merged:
            plan.releases[""] = Release((), [self._start(plan, joiner, moving, released=True)])
        return plan

    def idle(self, consumer: str) -> tuple[tuple[Write, ...], bytes, Plan]:
        """Return a command without effect: the multi that sends it, its data, and the member's answer."""
        data = encode_command(Command(option=Option.STOP_FETCHER, ownership={}, generation=1, epoch=1))
        answer = Prepared((), (paths(consumer).check(),), stops=True)
        plan = Plan(answers={consumer: {data: answer}})
        return (*self.checks(0), CreateNode(paths(consumer).channel, data, sequential=True)), data, plan

    def owned(self) -> Share:
        """Return the owners."""
        return {p: node.data.decode() for p, node in self._owners.items() if node.data}

    def checks(self, raised: int) -> tuple[Write, ...]:
        """The three checks of rule 5."""
        epoch, record, state = self._guards
        return (
            CheckNode(EPOCH, epoch),
            CheckNode(DRAFT.record(GROUP), record),
            CheckNode(DRAFT.state(GROUP), state + raised),
        )

    def _target(self, members: Iterable[str], owned: Mapping[TopicPartition, str]) -> Share:
        subscribers = tuple(Subscriber(consumer_id=m, threads={TOPIC: 1}) for m in sorted(members))
        partitions = {TOPIC: tuple(range(len(self._all)))}
        given = AssignorInput(subscribers=subscribers, partitions=partitions, owned=owned)
        return ASSIGNORS["sticky"](given)

    def _raise(self, target: Share) -> tuple[Write, ...]:
        epoch, record, _ = self.checks(0)
        state = GroupState(generation=self._guards[2] + 1, target=digest(target))
        return (epoch, record, SetNode(DRAFT.state(GROUP), encode_state(state), self._guards[2]))

    def _mark(self) -> tuple[Write, ...]:
        mark = encode_mark(Mark(incarnation=1, topic_id=None, czxid=1, root_czxid=1))
        parents = (DRAFT.owners(GROUP), DRAFT.offsets(GROUP), f"{DRAFT.offsets(GROUP)}/{TOPIC}")
        return (*self.checks(1), *map(CreateNode, parents), CreateNode(DRAFT.mark(GROUP, TOPIC), mark))

    def _command(self, option: Option, share: Share) -> bytes:
        start = option is Option.START_FETCHER
        return encode_command(
            Command(
                option=option,
                ownership=share,
                generation=self._guards[2] + 1,
                epoch=1,
                offsets="zookeeper" if start else None,
                incarnations={TOPIC: 1} if start else {},
            )
        )

    def _start(self, plan: Plan, consumer: str, share: Share, *, released: bool = False) -> tuple[Write, ...]:
        data = self._command(Option.START_FETCHER, share)
        offsets = {p: DRAFT.offset(GROUP, p) for p in share}
        first = [CreateNode(path, encode_offset(0)) for p, path in offsets.items() if not self._offsets[p].exists]
        writes = (paths(consumer).check(), *first)
        answer = Prepared(tuple(share), writes, reads=tuple(map(Read, offsets.values())))
        plan.answers.setdefault(consumer, {})[data] = answer
        owners: list[Write] = []
        for partition, thread in share.items():
            path, node = DRAFT.owner(GROUP, partition), self._owners[partition]
            value = thread.encode()
            owners.append(SetNode(path, value, _version(node) + released) if node.exists else CreateNode(path, value))
        return (*self.checks(1), *owners, CreateNode(paths(consumer).channel, data, sequential=True))

    def _stop(self, plan: Plan, consumer: str, share: Share) -> tuple[Write, ...]:
        data = self._command(Option.STOP_FETCHER, share)
        writes: list[Write] = [paths(consumer).check()]
        for p in share:
            offset = self._offsets[p]
            writes.append(SetNode(DRAFT.offset(GROUP, p), encode_offset(int(offset.data) + 1), _version(offset)))
            writes.append(SetNode(DRAFT.owner(GROUP, p), b"", _version(self._owners[p])))
        plan.answers.setdefault(consumer, {})[data] = Prepared(tuple(share), tuple(writes), stops=True)
        return (*self.checks(1), CreateNode(paths(consumer).channel, data, sequential=True))


def _shares(target: Share) -> dict[str, Share]:
    shares: dict[str, Share] = defaultdict(dict)
    for partition, thread in target.items():
        shares[consumer_of(thread)][partition] = thread
    return dict(shares)


def _version(node: Node) -> int:
    return node.stat.version if node.stat is not None else -1
