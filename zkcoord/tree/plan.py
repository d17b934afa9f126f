"""Turns decisions into writes: each transaction of a coordinator, with the version of every node from which it was
decided.

Each transaction begins with the same three checks (rule 5): of the epoch, so that a deposed coordinator is refused; of
the group's record, so that no plan made before an operator's request is carried out after it; of the group's state, so
that a plan cannot come before the raise of its generation. A decision that is too large for one transaction becomes
several.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from zkcoord.core.command import Command, Option
from zkcoord.core.decisions import (
    ChangeStore,
    Decision,
    DeleteClaims,
    DropTopic,
    EvictMember,
    FoundGroup,
    GrantPartitions,
    LookUpTopic,
    MarkTopic,
    PingMember,
    PokeMembers,
    PurgeChannel,
    RejectMember,
    ReleaseForDraftMember,
    RememberInstances,
    RemoveGroup,
    RemoveRefused,
    RenewMark,
    SetState,
    StopFetching,
    WriteResponse,
)
from zkcoord.core.model import TopicPartition
from zkcoord.core.record import DEFAULT_RECORD, DELETE
from zkcoord.core.requests import DONE
from zkcoord.core.state import GroupState
from zkcoord.tree.channel import delete_claims, evict, poke, purge, remove_refused
from zkcoord.tree.command import encode_command
from zkcoord.tree.drop import drop_topic
from zkcoord.tree.instance import encode_instance
from zkcoord.tree.paths import EPOCH, Layout
from zkcoord.tree.record import encode_record
from zkcoord.tree.request import responded
from zkcoord.tree.state import encode_state
from zkcoord.tree.topic import Mark, encode_mark
from zkcoord.tree.view import GroupNodes
from zkcoord.tree.writes import WRITE_BYTES, CheckNode, CreateNode, DeleteNode, SetNode, Transaction, Write, parts

NO_VERSIONS: Mapping[TopicPartition, int] = {}
Threads = Mapping[TopicPartition, str]
Replay = Mapping[TopicPartition, tuple[int, int]]
NO_REPLAY: Replay = {}

REASON_CHARS_MAX = 1_000
"""Characters of a reject's reason. The limit is needed since a reason may quote a registration of any length."""

MARK_BYTES = 150
"""Bytes of a mark, or of a parent that is created with it: path without the topic's name, numbers, JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """A coordinator's term of office: the epoch, the version of its node, and the data for marks."""

    epoch: int
    epoch_version: int
    marks: Mapping[str, Mark]
    # marks of the topics as they are now, for marks that must be written; their incarnation numbers are not used


def plan(decisions: Sequence[Decision], nodes: GroupNodes, term: Term, layout: Layout) -> list[Transaction]:
    """The transactions for one group's decisions, in the order in which they must be sent.

    All responses are written in the last transaction. The record has other writers, so its next version may be another
    program's. A later transaction that named this next version could be carried out after an edit that the plan does
    not know.
    """
    planner = _Planner(nodes, term, layout)
    transactions: list[Transaction] = []
    marks = [decision for decision in decisions if isinstance(decision, MarkTopic)]
    answers = [decision for decision in decisions if isinstance(decision, WriteResponse)]
    for decision in decisions:
        if marks and decision is marks[0]:
            transactions.extend(planner.marks(marks))
        elif not isinstance(decision, MarkTopic | WriteResponse):
            transactions.extend(planner.transactions(decision))
    return [*transactions, planner.answer(answers)] if answers else transactions


class _Planner:
    """Makes the transactions. It knows the group's versions, and that an earlier raise in the plan changes the state's
    version."""

    def __init__(self, nodes: GroupNodes, term: Term, layout: Layout) -> None:
        self._nodes, self._view, self._term, self._layout = nodes, nodes.view, term, layout
        self._state_version = nodes.view.state_version
        self._state, self._parents = nodes.view.state, set(nodes.parents)
        self._owned: dict[str, list[TopicPartition]] = {}  # by topic; computed once a topic is dropped
        self._incarnations: dict[str, int] = {}  # numbers of topics that are marked in this plan

    def marks(self, decisions: Sequence[MarkTopic]) -> Iterator[Transaction]:
        """The transactions of all marks of a step. A wildcard may take thousands of topics at once."""
        for part in parts(decisions, lambda d: 4 * (MARK_BYTES + len(d.topic))):
            yield self._guarded([write for d in part for write in self._mark(d)], part[0].why)

    def transactions(self, decision: Decision) -> Iterator[Transaction]:
        """The transactions of one decision."""
        match decision:
            case FoundGroup():
                yield self._found_group(decision)
            case SetState():
                self._state = replace(decision.state, incarnations=self._state.incarnations)
                yield self._set_state(decision.why)
            case ReleaseForDraftMember():
                for named in self._parts(dict.fromkeys(decision.partitions, "")):
                    owners = [(self._layout.owner(self._view.group, p), self._view.owners[p].version) for p in named]
                    yield self._guarded([self._layout.ownership.free(*owner) for owner in owners], decision.why)
            case PokeMembers():
                yield self._guarded(poke(self._view.group, self._term.epoch, self._layout), decision.why)
            case RemoveGroup():
                yield from self._remove_group(decision.why)
            case WriteResponse():
                yield self.answer([decision])
            case MarkTopic():
                yield from self.marks([decision])
            case RenewMark():
                yield self._guarded([self._renew(decision)], decision.why)
            case LookUpTopic():
                pass  # it reads, and writes nothing
            case DropTopic():
                yield from self._drop(decision)
            case StopFetching():
                for part in self._parts(decision.partitions):
                    command = self._command(decision.consumer_id, Option.STOP_FETCHER, part)
                    yield self._guarded([*self._halt(decision.consumer_id, part), command], decision.why)
            case GrantPartitions():
                for part in self._parts(decision.partitions, decision.replay):
                    yield self._guarded(self._grant(decision.consumer_id, part, decision.replay), decision.why)
            case RejectMember():
                why = decision.why[:REASON_CHARS_MAX]
                command = self._control(decision.consumer_id, Option.REJECT, why, final=decision.final)
                yield self._guarded([command], why)
            case RememberInstances():
                yield from self._remember(decision)
            case PingMember():
                yield self._guarded([self._control(decision.consumer_id, Option.PING)], decision.why)
            case ChangeStore():
                yield self._guarded([self._change_store(decision)], decision.why)
            case EvictMember():
                yield self._guarded(evict(decision, self._view, self._layout), decision.why)
            case DeleteClaims():
                for some in parts(sorted(decision.partitions), self._weight):
                    yield self._guarded(delete_claims(decision, some, self._view, self._layout), decision.why)
            case PurgeChannel():
                gone = self._view.channels[decision.consumer_id]
                for piece in purge(gone, self._view.group, self._layout):
                    yield self._guarded(piece, decision.why)
            case RemoveRefused():
                yield self._guarded(remove_refused(decision, self._view, self._layout), decision.why)
            case _:
                assert_never(decision)

    def _parts(self, partitions: Threads, replay: Replay = NO_REPLAY) -> Iterator[dict[TopicPartition, str]]:
        """The mapping cut into parts such that neither a part's grant nor its release is too large for a multi."""
        room = len(self._layout.owner(self._view.group, TopicPartition("", 0)))

        def weight(item: tuple[TopicPartition, str]) -> int:
            announced = len(item[0].topic) + WRITE_BYTES if item[0] in replay else 0
            return 2 * (room + len(item[1])) + 3 * len(item[0].topic) + WRITE_BYTES + announced

        return map(dict, parts(partitions.items(), weight))

    def _weight(self, partition: TopicPartition) -> int:
        group, layout = self._view.group, self._layout
        return len(layout.owner(group, partition)) + 2 * len(layout.offset(group, partition)) + WRITE_BYTES

    def _guarded(self, writes: Sequence[Write], why: str) -> Transaction:
        group = self._view.group
        guards: list[Write] = [CheckNode(EPOCH, self._term.epoch_version)]
        if self._view.record_version is not None:
            guards.append(CheckNode(self._layout.record(group), self._view.record_version))
        if self._state_version is not None:
            guards.append(CheckNode(self._layout.state(group), self._state_version))
        return Transaction(writes=(*guards, *writes), why=f"{group}: {why}")

    def _set_state(self, why: str) -> Transaction:
        group, version = self._view.group, self._state_version or 0
        transaction = Transaction(
            writes=(
                CheckNode(EPOCH, self._term.epoch_version),
                CheckNode(self._layout.record(group), self._view.record_version or 0),
                SetNode(self._layout.state(group), encode_state(self._state), version),
            ),
            why=f"{group}: {why}",
        )
        self._state_version = version + 1
        return transaction

    def answer(self, decisions: Sequence[WriteResponse]) -> Transaction:
        """Write the record with a step's responses. A deletion that kept the offsets is also noted in the state."""
        group, record = self._view.group, self._view.record
        for decision in decisions:
            record = responded(record, decision)
        deleted = any(d.request == DELETE and d.state == DONE for d in decisions)
        if deleted:
            record = record.kept
        writes: list[Write] = [
            CheckNode(EPOCH, self._term.epoch_version),
            SetNode(
                self._layout.record(group),
                b"" if deleted and record == DEFAULT_RECORD else encode_record(record),
                self._view.record_version or 0,
            ),
        ]
        if self._state_version is not None:
            path, version = self._layout.state(group), self._state_version
            told = deleted and not self._view.members  # after a join meanwhile the group has a member again
            state = encode_state(replace(self._state, deleted=True))
            writes.append(SetNode(path, state, version) if told else CheckNode(path, version))
        return Transaction(writes=tuple(writes), why=f"{group}: {'; '.join(d.why for d in decisions)}")

    def _remove_group(self, why: str) -> Iterator[Transaction]:
        """Delete the listed nodes, the deepest first; then state and record, and the folder if nobody is in it."""
        group, view, layout, found = self._view.group, self._view, self._layout, self._nodes.leftover_versions
        if found is None:
            return
        last = {layout.group(group), layout.ids(group), layout.channels_of(group)}
        last |= {layout.state(group), layout.record(group)}
        nodes = sorted((path for path in found if path not in last), key=lambda path: (-path.count("/"), path))
        yield from self._keep_numbers(self._nodes.marks, why)  # meanwhile somebody may join, or take the request back
        for part in parts(nodes, lambda path: len(path) + WRITE_BYTES):
            yield self._guarded([DeleteNode(path, found[path]) for path in part], why)
        orphans = view.channels.keys() - view.members.keys()
        if orphans:
            return  # their channels are purged first
        folder = () if view.members else (layout.ids(group), layout.channels_of(group), layout.group(group))
        writes: list[Write] = [CheckNode(EPOCH, self._term.epoch_version)]
        writes += [DeleteNode(path, found[path]) for path in folder if path in found]
        writes.append(DeleteNode(layout.state(group), self._state_version or 0))
        writes.append(DeleteNode(layout.record(group), self._view.record_version or 0))
        yield Transaction(writes=tuple(writes), why=f"{group}: {why}")

    def _found_group(self, decision: FoundGroup) -> Transaction:
        writes: list[Write] = [CheckNode(EPOCH, self._term.epoch_version)]
        record = self._layout.record(self._view.group)
        if self._view.record_version is None:
            writes.append(CreateNode(record, encode_record(DEFAULT_RECORD)))
        else:
            writes.append(CheckNode(record, self._view.record_version))
        if self._view.state_version is None:
            writes.append(CreateNode(self._layout.state(self._view.group), encode_state(GroupState())))
        return Transaction(writes=tuple(writes), why=f"{self._view.group}: {decision.why}")

    def _mark(self, decision: MarkTopic) -> list[Write]:
        """Write the mark, and create the parents of the topic's offsets: else all its first readers would create them
        at once."""
        group, topic = self._view.group, decision.topic
        path = self._layout.mark(group, topic)
        above = [path.rpartition("/")[0], self._layout.offsets(group), self._layout.topic_offsets(group, topic)]
        above += self._layout.above_claims(group, [topic])
        missing = [parent for parent in above if parent not in self._parents]
        writes: list[Write] = [CreateNode(parent, shared=self._layout.shared(parent)) for parent in missing]
        self._parents.update(above)
        mark = replace(self._term.marks[topic], incarnation=self._state.incarnations + 1)
        self._incarnations[topic] = mark.incarnation
        seen = self._nodes.marks.get(topic)
        data = encode_mark(mark)
        return [*writes, CreateNode(path, data) if seen is None else SetNode(path, data, seen.version)]

    def _renew(self, decision: RenewMark) -> SetNode:
        seen = self._nodes.marks[decision.topic]
        incarnation = seen.mark.incarnation if seen.mark is not None else 1
        mark = replace(self._term.marks[decision.topic], incarnation=incarnation)
        return SetNode(self._layout.mark(self._view.group, decision.topic), encode_mark(mark), seen.version)

    def _keep_numbers(self, topics: Iterable[str], why: str) -> Iterator[Transaction]:
        """Keep the numbers of removed marks in the state, so that the next topic of such a name gets a higher one."""
        marks = [self._nodes.marks[topic].mark for topic in topics]
        highest = max((mark.incarnation for mark in marks if mark is not None), default=0)
        if highest > self._state.incarnations:
            self._state = replace(self._state, incarnations=highest)
            yield self._set_state(why)

    def _drop(self, decision: DropTopic) -> Iterator[Transaction]:
        if not decision.again:
            yield from self._keep_numbers([decision.topic], decision.why)
        if not self._owned:
            for partition in self._view.owners:
                self._owned.setdefault(partition.topic, []).append(partition)
        owned, mark = self._owned.get(decision.topic, []), self._term.marks.get(decision.topic)
        for piece in drop_topic(decision, self._nodes, owned, mark, self._layout):
            yield self._guarded(piece, decision.why)

    def _command(
        self,
        consumer_id: str,
        option: Option,
        partitions: Mapping[TopicPartition, str],
        owner_versions: Mapping[TopicPartition, int] = NO_VERSIONS,
        replay: Replay = NO_REPLAY,
    ) -> CreateNode:
        starting = option is Option.START_FETCHER
        command = Command(
            option=option,
            ownership=partitions,
            owner_versions=owner_versions,
            generation=self._state.generation,
            epoch=self._term.epoch,
            offsets=self._view.record.store_name if starting else None,
            replay={p: replay[p] for p in partitions if p in replay} if replay else NO_REPLAY,
            incarnations={
                topic: number
                for topic in (sorted({p.topic for p in partitions}) if starting else ())
                if (number := self._incarnation(topic)) is not None
            },
        )
        return CreateNode(self._layout.channel(self._view.group, consumer_id), encode_command(command), sequential=True)

    def _incarnation(self, topic: str) -> int | None:
        """The number of the topic's incarnation, by its mark, or by a mark in this plan."""
        seen = self._nodes.marks.get(topic)
        planned = self._incarnations.get(topic)
        return planned if seen is None or seen.mark is None else seen.mark.incarnation

    def _grant(self, consumer_id: str, partitions: Threads, replay: Replay) -> list[Write]:
        group, owners, layout = self._view.group, self._view.owners, self._layout
        writes: list[Write] = []
        versions: dict[TopicPartition, int] = {}  # after this multi, if it is committed
        for partition, thread in partitions.items():
            path = layout.owner(group, partition)
            granted, version = layout.ownership.grant(path, thread, owners.get(partition))
            if version is not None:
                versions[partition] = version
            writes += granted
        writes.append(self._command(consumer_id, Option.START_FETCHER, partitions, versions, replay))
        return writes

    def _halt(self, consumer_id: str, partitions: Mapping[TopicPartition, str]) -> list[Write]:
        """Mark the owners of a draft-only consumer that is told to stop, since it cannot release them."""
        if self._view.members[consumer_id].speaks_protocol:
            return []
        owners = [(self._layout.owner(self._view.group, p), self._view.owners[p]) for p in sorted(partitions)]
        return [self._layout.ownership.halt(path, owner) for path, owner in owners]

    def _remember(self, decision: RememberInstances) -> Iterator[Transaction]:
        group, known = self._view.group, self._view.instances
        writes: list[CreateNode | SetNode] = []
        for name, instance in sorted(decision.known.items()):
            path, data = self._layout.instance(group, name), encode_instance(instance)
            before = known.get(name)
            writes.append(CreateNode(path, data) if before is None else SetNode(path, data, before.version))
        forgotten = [(self._layout.instance(group, name), known[name].version) for name in decision.forgotten]
        parent = self._layout.instances(group)
        above = [CreateNode(parent)] if writes and parent not in self._parents else []
        self._parents.add(parent)
        for part in parts([*above, *writes], lambda write: WRITE_BYTES + len(write.path) + len(write.data)):
            yield self._guarded(part, decision.why)
        for gone in parts(forgotten, lambda each: WRITE_BYTES + len(each[0])):
            yield self._guarded([DeleteNode(path, version) for path, version in gone], decision.why)

    def _change_store(self, decision: ChangeStore) -> CreateNode:
        command = Command(
            option=Option.OFFSET_STORE,
            generation=self._state.generation,
            epoch=self._term.epoch,
            offsets=decision.store,
            step=decision.step,
        )
        path = self._layout.channel(self._view.group, decision.consumer_id)
        return CreateNode(path, encode_command(command), sequential=True)

    def _control(
        self, consumer_id: str, option: Option, reason: str | None = None, *, final: bool = False
    ) -> CreateNode:
        command = Command(
            option=option, generation=self._state.generation, epoch=self._term.epoch, reason=reason, final=final
        )
        path = self._layout.channel(self._view.group, consumer_id)
        return CreateNode(path, encode_command(command), sequential=True)
