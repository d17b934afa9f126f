"""A member's writes: joining, acknowledging, releasing, committing. Each checks its own registration first (rule 1).

Each registration has a name of its own: while `ids/<c>` exists, it belongs to the same incarnation of the same
consumer. So the check fences everything that a consumer writes, and late writes of a dead consumer are refused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from zkcoord.core.member.decisions import Versions
from zkcoord.core.member.status import Held
from zkcoord.core.model import TopicPartition
from zkcoord.tree.command import refusal
from zkcoord.tree.offset_writes import ZOOKEEPER_OFFSETS, OffsetWrites
from zkcoord.tree.paths import REFUSED_MARK, RELEASED_MARK, Layout
from zkcoord.tree.snapshot import Node, parents
from zkcoord.tree.writes import WRITE_BYTES, CheckNode, CreateNode, DeleteNode, SetNode, Transaction, Write, parts


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberPaths:
    """The paths of one registration's nodes, and the way in which its offsets are kept."""

    layout: Layout
    group: str
    consumer_id: str
    offset_writes: OffsetWrites = ZOOKEEPER_OFFSETS
    registration: str = field(init=False)  # the ephemeral node that makes the consumer a member
    channel: str = field(init=False)  # the consumer's queue of commands

    def __post_init__(self) -> None:
        object.__setattr__(self, "registration", self.layout.registration(self.group, self.consumer_id))
        object.__setattr__(self, "channel", self.layout.channel(self.group, self.consumer_id))

    def command(self, sequence: str) -> str:
        """The path of one command in the channel."""
        return f"{self.channel}/{sequence}"

    def owner(self, partition: TopicPartition) -> str:
        """The partition's owner node."""
        return self.layout.owner(self.group, partition)

    def offset(self, partition: TopicPartition) -> str:
        """The partition's offset node."""
        return self.layout.offset(self.group, partition)

    def free(self, partition: TopicPartition, version: int) -> Write:
        """The write that gives the partition back."""
        return self.layout.ownership.free(self.owner(partition), version)

    def guard(self, partition: TopicPartition, version: int) -> Sequence[Write]:
        """The checks that go with each write of a held partition's offset."""
        return self.layout.ownership.guard(self.owner(partition), version)

    def guard_free(self, partition: TopicPartition, offset_version: int | None) -> Sequence[Write]:
        """The writes that go with `free` if the partition's offset is not written."""
        return self.layout.ownership.guard_free(self.offset(partition), offset_version)

    def parent(self, path: str) -> CreateNode:
        """The write that creates a parent."""
        return CreateNode(path, shared=self.layout.shared(path))

    def above_offsets(self, partitions: Iterable[TopicPartition]) -> list[str]:
        """The nodes above these partitions' offsets, outermost first."""
        topics = sorted({partition.topic for partition in partitions})
        above = [self.layout.topic_offsets(self.group, topic) for topic in topics]
        return [self.layout.offsets(self.group), *above] if topics else []

    def above_claims(self, partitions: Iterable[TopicPartition]) -> Sequence[str]:
        """The nodes above these partitions' owners, outermost first, in a layout where consumers create owners."""
        return self.layout.above_claims(self.group, sorted({p.topic for p in partitions}))

    def above(self) -> list[str]:
        """The parents that must exist before registration and channel can be created, outermost first."""
        return list(dict.fromkeys([*parents(self.registration), *parents(self.channel)]))

    def check(self) -> CheckNode:
        """The fence: this registration still exists. It is never changed, so its version is 0."""
        return CheckNode(self.registration, 0)


def make_parents(nodes: Sequence[Node], layout: Layout) -> Transaction | None:
    """Create the missing parents, outermost first. None: all exist."""
    missing = tuple(CreateNode(node.path, shared=layout.shared(node.path)) for node in nodes if not node.exists)
    return Transaction(writes=missing, why="parents") if missing else None


def join(paths: MemberPaths, registration: bytes, status: bytes, channel_version: int) -> Transaction:
    """Become a member: set the first status and create the registration in one multi. So a channel at version 0 never
    had a registration (docs/protocol.md, section 7)."""
    return Transaction(
        writes=(
            SetNode(paths.channel, status, channel_version),
            CreateNode(
                paths.registration, registration, ephemeral=True, shared=paths.layout.shared(paths.registration)
            ),
        ),
        why="join",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledgement:
    """The last writes for obeyed commands: they delete the commands, and set the status with the outcome."""

    commands: Mapping[str, int]  # sequence -> version, in their order
    status: bytes
    status_version: int


def _acknowledge(paths: MemberPaths, done: Acknowledgement) -> list[Write]:
    return [
        *(DeleteNode(paths.command(sequence), version) for sequence, version in done.commands.items()),
        SetNode(paths.channel, done.status, done.status_version),
    ]


def room(paths: MemberPaths, partitions: Sequence[TopicPartition]) -> int:
    """How many of these partitions, from the first on, one multi can acknowledge or release."""
    return len(next(_parts(paths, partitions), ()))


def _parts(paths: MemberPaths, partitions: Iterable[TopicPartition]) -> Iterator[list[TopicPartition]]:
    return parts(partitions, lambda p: len(paths.owner(p)) + len(paths.offset(p)) + WRITE_BYTES)


def claim(
    paths: MemberPaths, partitions: Mapping[TopicPartition, str], missing_parents: Sequence[str]
) -> Iterator[Transaction]:
    """Claim partitions (partition -> thread). A part is refused as a whole if another consumer owns one of its
    partitions."""
    ownership = paths.layout.ownership
    made: list[Write] = [paths.parent(path) for path in missing_parents]
    for part in parts(sorted(partitions), lambda p: 2 * (len(paths.owner(p)) + WRITE_BYTES) + len(partitions[p])):
        claims = [write for p in part for write in ownership.claim(paths.owner(p), partitions[p])]
        yield Transaction(writes=(paths.check(), *made, *claims), why="claim")
        made = []


def start(
    paths: MemberPaths,
    first_offsets: Mapping[TopicPartition, tuple[int, Versions]],
    missing_parents: Sequence[str],
    refused: Mapping[TopicPartition, Versions],
    done: Acknowledgement,
    *,
    record_version: int | None = None,
    statuses: Mapping[str, int] | None = None,
) -> Transaction:
    """Acknowledge starts.

    `first_offsets`: the partitions whose offset is set, with the offset. `refused`: partitions that could not be
    started, and are free again. `record_version`: the version that the group record must still have. `statuses`: the
    versions that these consumers' statuses must still have.
    """
    writes: list[Write] = []
    for partition, (offset, versions) in sorted(first_offsets.items()):
        writes += paths.guard(partition, versions.owner)
        writes += paths.offset_writes.begin(paths.offset(partition), offset, versions.offset)
    for partition, versions in sorted(refused.items()):
        writes += [*paths.guard_free(partition, versions.offset), paths.free(partition, versions.owner)]
    fences = [paths.check()]
    if record_version is not None:
        fences.append(CheckNode(paths.layout.record(paths.group), record_version))
    fences += [
        CheckNode(paths.layout.channel(paths.group, c), version) for c, version in sorted((statuses or {}).items())
    ]
    made = _parents_of(paths, writes, missing_parents)
    told = _without_a_command(paths) if record_version is not None else ()
    return Transaction(
        writes=(*fences, *made, *writes, *_acknowledge(paths, done), *told),
        why=f"acknowledge start {', '.join(done.commands)}",
    )


def _without_a_command(paths: MemberPaths) -> Sequence[Write]:
    """The writes that fire the watch on the channel's list, so that its watcher reads the status: no command leaves the
    list with this multi."""
    mark = f"{paths.channel}/{RELEASED_MARK}"
    return CreateNode(mark), DeleteNode(mark, 0)


def _parents_of(paths: MemberPaths, writes: Iterable[Write], missing: Sequence[str]) -> list[CreateNode]:
    """The writes that create those missing parents below which these writes create nodes."""
    folders = {write.path.rpartition("/")[0] for write in writes if isinstance(write, CreateNode)} if missing else set()
    above = folders.union(*map(parents, folders))
    return [paths.parent(path) for path in missing if path in above]


def release(
    paths: MemberPaths,
    held: Mapping[TopicPartition, Held],
    offsets: Mapping[TopicPartition, int],
    done: Acknowledgement | None,
    *,
    without: Collection[TopicPartition] = (),
    tenured: bool = False,
) -> list[Transaction]:
    """Release partitions with their final offsets. The last multi also deletes the command that asked for it.

    If `done` has no commands, the command stays, and the last multi creates a child of the channel and deletes it, so
    that the watcher of the channel's list looks at the owners. `without`: partitions whose offset node somebody has
    deleted. `tenured`: offsets are set even to their present value.
    """
    transactions: list[Transaction] = []
    for part in _parts(paths, sorted(held)):
        writes: list[Write] = [paths.check()]
        for partition in part:
            mine = held[partition]
            final = offsets.get(partition, mine.offset)
            committed = final == mine.offset and not tenured
            version = None if partition in without else mine.offset_version
            written: Sequence[Write] = ()
            # without a node nothing can be set; the next start uses the offset that counts then
            if version is not None:
                written = paths.offset_writes.release(paths.offset(partition), final, version, committed=committed)
            writes += written or paths.guard_free(partition, version)
            writes.append(paths.free(partition, mine.owner_version))
        transactions.append(Transaction(writes=tuple(writes), why="release"))
    if done is None:
        return transactions
    last = [*(transactions.pop().writes if transactions else (paths.check(),)), *_acknowledge(paths, done)]
    why = f"acknowledge stop {', '.join(done.commands)}" if done.commands else "release a part"
    if not done.commands:
        last += _without_a_command(paths)
    return [*transactions, Transaction(writes=tuple(last), why=why)]


def commit(
    paths: MemberPaths,
    held: Mapping[TopicPartition, Held],
    offsets: Mapping[TopicPartition, int],
    status: tuple[bytes, int] | None = None,
) -> list[Transaction]:
    """Set offsets of held partitions, each by its version. `status`: the last multi sets it, too, by its version."""
    writes: dict[TopicPartition, list[Write]] = {}
    for partition in sorted(offsets):
        mine, path = held[partition], paths.offset(partition)
        guards = paths.guard(partition, mine.owner_version)
        writes[partition] = [*guards, *paths.offset_writes.commit(path, offsets[partition], mine.offset_version)]
    transactions = [
        Transaction(writes=(paths.check(), *chain.from_iterable(map(writes.__getitem__, part))), why="commit")
        for part in parts(writes, lambda p: WRITE_BYTES + sum(len(write.path) for write in writes[p]))
    ]
    if status is not None and transactions:
        last = (*transactions.pop().writes, SetNode(paths.channel, *status))
        transactions.append(Transaction(writes=last, why="commit"))
    return transactions


def switch(
    paths: MemberPaths,
    held: Mapping[TopicPartition, Held],
    offsets: Mapping[TopicPartition, int],
    done: Acknowledgement,
) -> Transaction:
    """Set offsets of held partitions, and acknowledge the change of the offset store in the same multi."""
    writes = [write for part in commit(paths, held, offsets) for write in part.writes[1:]]
    why = f"acknowledge offset-store {', '.join(done.commands)}"
    return Transaction(writes=(paths.check(), *writes, *_acknowledge(paths, done)), why=why)


def acknowledge(paths: MemberPaths, done: Acknowledgement) -> Transaction:
    """Acknowledge a command that changes nothing else."""
    return Transaction(
        writes=(paths.check(), *_acknowledge(paths, done)), why=f"acknowledge {', '.join(done.commands)}"
    )


def announce(
    paths: MemberPaths, status: bytes, status_version: int, offsets: Mapping[TopicPartition, int]
) -> Transaction:
    """Write the ranges that are about to be processed into the status. `offsets`: partitions whose offset must still
    have this version."""
    unchanged = [CheckNode(paths.offset(partition), version) for partition, version in sorted(offsets.items())]
    return Transaction(
        writes=(paths.check(), *unchanged, SetNode(paths.channel, status, status_version)), why="announce"
    )


def refuse(paths: MemberPaths, command: Node, error: str) -> Transaction:
    """Refuse a command that cannot be understood: write so into it, and create the mark that tells the coordinator.

    The server refuses this while the mark of another refusal exists.
    """
    version = command.stat.version if command.stat else 0
    return Transaction(
        writes=(
            paths.check(),
            SetNode(command.path, refusal(command.data, error), version),
            CreateNode(f"{paths.channel}/{REFUSED_MARK}"),
        ),
        why=f"refuse {command.path}",
    )
