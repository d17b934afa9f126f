"""Writes offsets of one group into ZooKeeper for a tool: by version, and only while no zkcoord consumer reads.

A tool first checks that nobody reads. Then every multi checks the group's record, so if somebody resumes the group or
makes another request meanwhile, the writing ends. A consumer that joins in between starts at the offset that it finds.
If the tool then overwrites that offset, the consumer's next commit is refused by the offset's version, and it continues
at the tool's offset.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from zkcoord.core.model import TopicPartition
from zkcoord.core.record import DEFAULT_RECORD
from zkcoord.core.requests import has_paused
from zkcoord.core.tenure import Rule
from zkcoord.core.words import some
from zkcoord.errors import CorruptError, UnavailableError, UsageError
from zkcoord.offsets.ports import Commits, OffsetTree
from zkcoord.offsets.reading import GroupSeen, rule_of
from zkcoord.shell.ports import CommitDone, Outcome, refuse_without_right
from zkcoord.tree.bulk import Reading, children, data
from zkcoord.tree.decoders import member_of
from zkcoord.tree.offset import decode_offset, encode_offset
from zkcoord.tree.paths import Layout
from zkcoord.tree.record import decode_record, record_in
from zkcoord.tree.snapshot import Node, parents
from zkcoord.tree.writes import WRITE_BYTES, CheckNode, CreateNode, SetNode, Transaction, Write, parts

ATTEMPTS_MAX = 5
"""How often a refused part is read and sent again: others write the same nodes only rarely."""

NAMED_MAX = 3


class RecordChangedError(UsageError):
    """Somebody wrote the group's record after it was read. Nothing of that multi was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Readers:
    """Members of a group that may read: zkcoord's, and all others (old consumers, and unreadable registrations).

    Every write checks `guard`, so it is refused once people make another request for the group.
    """

    ours: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    paused: bool = False
    elsewhere: str = ""  # why its offsets must not be written: it is left to Kafka's consumers, or is in another tree
    guard: tuple[CheckNode, ...] = ()

    def refuse(self, group: str, *, force: bool = False, ours: str = "", others: str = "") -> None:
        """Raises UsageError that says who must act, unless nobody reads. `force`: ignore old consumers.

        `ours` and `others` add a further way out to the text for each kind of reader.
        """
        self.refuse_elsewhere(group)
        if self.ours and not self.paused:
            how = f"stop these consumers, or run `zkcoord group pause {group}` first{ours}"
            raise UsageError(f"group {group} is read by {some(self.ours, NAMED_MAX)}: {how}")
        if self.others and not force:
            how = f"which would overwrite the offsets: stop these consumers first{others}"
            raise UsageError(f"group {group} is read by {some(self.others, NAMED_MAX)}, {how}")

    def refuse_elsewhere(self, group: str) -> None:
        """Raises UsageError for a group that is left to Kafka's consumers, was moved to another tree, or is being
        moved."""
        if self.elsewhere:
            raise UsageError(f"group {group} {self.elsewhere}")


def readers_of(read: Reading, layout: Layout, group: str) -> Readers:
    """Return who may read the group now. Raises CorruptError, with the path, for a record that cannot be parsed."""
    (record,), (ids,) = data(read, [layout.record(group)]), children(read, [layout.ids(group)])
    known = record_in(record) or DEFAULT_RECORD
    registrations = data(read, [layout.registration(group, name) for name in ids.children])
    named = zip(ids.children, registrations, strict=True)
    members = [member_of(name, node) for name, node in named if node.exists]
    ours = tuple(member.consumer_id for member in members if member.speaks_protocol and member.unreadable is None)
    return Readers(
        ours=ours,
        others=tuple(member.consumer_id for member in members if member.consumer_id not in ours),
        paused=has_paused(known),
        elsewhere=known.left_to(group) if known.moved is None else f"{known.moved.where()}: nothing is changed here",
        guard=() if record.stat is None else (CheckNode(record.path, record.stat.version),),
    )


class Change(NamedTuple):
    """One offset that differs from the wanted one. `before` None: there is none."""

    partition: TopicPartition
    before: int | None
    after: int
    version: int | None  # version of the node; None: the node must be created


def changes(
    read: Reading,
    layout: Layout,
    group: str,
    wanted: Mapping[TopicPartition, int],
    anew: Collection[TopicPartition] = (),
) -> list[Change]:
    """Return the writes that make the tree hold these offsets, in order.

    `anew`: these are written even if the tree holds them already.
    """
    partitions = sorted(wanted)
    nodes = data(read, [layout.offset(group, partition) for partition in partitions])
    found = (
        Change(partition, _before(node), wanted[partition], None if node.stat is None else node.stat.version)
        for partition, node in zip(partitions, nodes, strict=True)
    )
    return [change for change in found if change.before != change.after or change.partition in anew]


def effect(seen: GroupSeen, commits: Commits, wanted: Mapping[TopicPartition, int], tree_id: str) -> list[Change]:
    """Return what changes for a group's consumers when these offsets are set, in order. `before` is the offset that
    counts now, in whichever store. `commits` are the group's commits in Kafka."""
    found = (
        Change(
            partition,
            seen.counts(partition, commits.get(partition), tree_id),
            wanted[partition],
            None if partition not in seen.offsets else seen.offsets[partition].version,
        )
        for partition in sorted(wanted)
    )
    return [change for change in found if change.before != change.after]


def by_tenure(read: Reading, layout: Layout, group: str) -> bool:
    """True when a commit in Kafka may count until the offset's node is written, even with the same value."""
    (node,) = data(read, [layout.record(group)])
    return node.exists and rule_of(layout, decode_record(node.data)) in (Rule.TENURE, Rule.OLD_IN_KAFKA)


def _before(node: Node) -> int | None:
    try:
        return decode_offset(node.data) if node.exists else None
    except CorruptError:  # it will be overwritten
        return None


def write_offsets(
    tree: OffsetTree,
    layout: Layout,
    group: str,
    wanted: Mapping[TopicPartition, int],
    *,
    guard: Sequence[CheckNode],
    why: str,
    due: Callable[[Change], bool] = lambda change: True,
) -> list[Change]:
    """Make the tree hold these offsets, and make them count. Returns the changes that were made.

    `due` is called for each change at each attempt, with the tree's present state, and says whether to make the change.
    Raises UsageError if the guard refuses, or the right to write is missing. Raises UnavailableError if others keep
    writing the same offsets, or ZooKeeper does not answer. Offsets written until then stay; the call can be repeated.
    """
    done: dict[TopicPartition, Change] = {}
    anew = set(wanted) if by_tenure(tree.read, layout, group) else set()
    for _ in range(ATTEMPTS_MAX):
        left: list[Change] = []
        for change in changes(tree.read, layout, group, wanted, anew):
            if due(change):
                left.append(change)
            elif change.before != change.after:  # else it was written here, and the answer was lost
                done.pop(change.partition, None)
        if not left:
            _refuse_new_record(tree, layout, group, guard)
            return [done[partition] for partition in sorted(done) if done[partition].before != done[partition].after]
        make_parents(tree, layout, group, {change.partition.topic for change in left if change.version is None})
        done = {change.partition: change for change in left} | done
        for part in parts(left, lambda change: WRITE_BYTES + len(layout.offset(group, change.partition))):
            answer = commit_part(tree, (*guard, *_writes(layout, group, part)), len(guard), group, why)
            if answer.outcome is Outcome.COMMITTED:
                anew.difference_update(change.partition for change in part)
        tree.sync()
    raise UnavailableError(f"group {group}: others wrote the same offsets {ATTEMPTS_MAX} times meanwhile: try again")


def _refuse_new_record(tree: OffsetTree, layout: Layout, group: str, guard: Sequence[CheckNode]) -> None:
    """Refuse a record that was created meanwhile, unless it is empty. For a group without a record no write checks that
    there is none, so whoever has decided something in a new record has not seen all of these offsets. A coordinator
    creates an empty record for a group that it sees for the first time, for example after an import."""
    if guard:
        return
    (node,) = data(tree.read, [layout.record(group)])
    if (record_in(node) or DEFAULT_RECORD) != DEFAULT_RECORD:
        what = f"group {group}: somebody made its record ({node.path}) meanwhile"
        raise RecordChangedError(f"{what}: look there, then run it again")


def _writes(layout: Layout, group: str, part: Collection[Change]) -> Iterator[Write]:
    for change in part:
        path, text = layout.offset(group, change.partition), encode_offset(change.after)
        shared = layout.shared(path)
        yield CreateNode(path, text, shared=shared) if change.version is None else SetNode(path, text, change.version)


def refuse_changed(tree: OffsetTree, group: str, guard: Sequence[CheckNode]) -> None:
    """Raises RecordChangedError if one of these checks would be refused now. For writes to Kafka, which cannot check
    it."""
    tree.sync()
    for check, node in zip(guard, data(tree.read, [check.path for check in guard]), strict=True):
        if node.stat is None or node.stat.version != check.version:
            raise _changed(group, check.path)


def _changed(group: str, path: str) -> RecordChangedError:
    what = f"group {group}: somebody changed its record ({path}) meanwhile"
    return RecordChangedError(f"{what}: look there, then run it again")


def commit_part(tree: OffsetTree, writes: tuple[Write, ...], guards: int, group: str, why: str) -> CommitDone:
    """Send one multi whose first writes are `guards`. Raises UsageError if another attempt would be useless."""
    done = tree.commit(Transaction(writes=writes, why=why))
    if done.outcome is Outcome.REFUSED:
        path = writes[max(done.failed_at, 0)].path
        refuse_without_right(done, path)
        if 0 <= done.failed_at < guards:
            raise _changed(group, path)
    return done


def make_parents(tree: OffsetTree, layout: Layout, group: str, topics: Collection[str]) -> None:
    """Create the folders of these topics' offsets. It is fine if somebody else has created one."""
    folders = [layout.topic_offsets(group, topic) for topic in sorted(topics)]
    wanted = dict.fromkeys(path for folder in folders for path in (*parents(folder), folder))
    missing = [node.path for node in data(tree.read, list(wanted)) if not node.exists]
    for path in missing:
        folder = CreateNode(path, shared=layout.shared(path))
        commit_part(tree, (folder,), 0, group, "the folder of a topic's offsets")
