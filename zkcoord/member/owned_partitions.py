"""What a consumer holds, what its application runs, and what is read of the nodes behind it.

`held`: acknowledged and not released, with the versions that guard the next write. `running`: the application was told
to start them and has not been told otherwise; it may read only what is in both, while the lease holds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from zkcoord.core.command import Command
from zkcoord.core.model import TopicPartition
from zkcoord.core.state import Announced
from zkcoord.core.view import Refusal
from zkcoord.errors import CorruptError
from zkcoord.shell.tracker import Tracker
from zkcoord.tree.member import Held, MemberPaths
from zkcoord.tree.offset import decode_offset
from zkcoord.tree.snapshot import Node
from zkcoord.tree.status import Status, encode_status, ranges_text

Batch = dict[TopicPartition, Announced]


class Position(NamedTuple):
    """An offset node as read: `offset` None = none there; `version` None = no node; `problem`: why it is unreadable."""

    offset: int | None
    version: int | None
    problem: str | None = None


NOWHERE = Position(None, None)


class Lookup:
    """Owner and offset nodes of some partitions, read while something is done with them; nobody watches those."""

    def __init__(self, paths: MemberPaths, tracker: Tracker, scope: str) -> None:
        self._paths, self._tracker, self._scope = paths, tracker, scope
        self._nodes: dict[str, Node | None] = {}  # None: not answered yet
        self._offsets: dict[TopicPartition, str] = {}  # partition -> path of its offset node
        self.partitions: frozenset[TopicPartition] = frozenset()

    def begin(
        self,
        partitions: Iterable[TopicPartition],
        *,
        known_owners: Collection[TopicPartition] = (),
        parents: bool = False,
    ) -> None:
        """Read the offsets of these partitions and the owners that are not known, with `parents` also what stands
        above the offsets."""
        offsets = {p: self._paths.offset(p) for p in partitions}
        self._offsets.update(offsets)
        self.partitions |= offsets.keys()
        owners = [self._paths.owner(p) for p in offsets if p not in known_owners]
        wanted = [*(self._parents(offsets) if parents else ()), *owners, *offsets.values()]
        self._nodes.update(dict.fromkeys(wanted))
        self._tracker.want_data(wanted, self._scope)

    @property
    def clean(self) -> bool:
        """True when everything asked for has been read (another scope may want, and count, the same node)."""
        return self._tracker.clean(self._scope) and all(self._nodes.values())

    def end(self) -> None:
        """Nothing of it is followed any more."""
        self._tracker.unwant_scope(self._scope)
        self._nodes.clear()

    def take(self, answers: Iterable[Node]) -> None:
        """Take those answers in that were asked for here."""
        nodes = self._nodes
        if nodes:
            nodes.update((node.path, node) for node in answers if node.path in nodes)

    def owner(self, partition: TopicPartition) -> tuple[str, int]:
        """The owner node as read: thread ("" = free or absent) and version (-1 = absent)."""
        node = self._nodes.get(self._paths.owner(partition))
        if node is None or node.stat is None:
            return "", -1
        return node.data.decode("utf-8", "replace"), node.stat.version

    def position(self, partition: TopicPartition) -> Position:
        """The offset node as read."""
        node = self._nodes.get(self._offsets.get(partition, ""))
        if node is None or node.stat is None:
            return NOWHERE
        try:
            return Position(decode_offset(node.data), node.stat.version)
        except CorruptError as error:
            problem = f"{node.path}: {error}: an operator must set the offset"
            return Position(None, node.stat.version, problem)

    def missing_parents(self, partitions: Iterable[TopicPartition]) -> list[str]:
        """Parents of these partitions' offset nodes that do not stand, outermost first."""
        nodes = [(path, self._nodes.get(path)) for path in self._parents(partitions)]
        return [path for path, node in nodes if node is not None and not node.exists]

    def _parents(self, partitions: Iterable[TopicPartition]) -> list[str]:
        """What stands above these partitions' offsets, outermost first."""
        layout, group = self._paths.layout, self._paths.group
        topics = sorted({partition.topic for partition in partitions})
        return [layout.offsets(group), *(layout.topic_offsets(group, topic) for topic in topics)] if topics else []


@dataclass(slots=True)
class OwnedPartitions:
    """The partitions of one registration. All of it is forgotten with the session."""

    _held: dict[TopicPartition, Held] = field(default_factory=dict)
    _running: dict[TopicPartition, int] = field(default_factory=dict)  # with the number of the start by which it runs
    _readable: frozenset[TopicPartition] | None = None  # None: to be found out again
    _idle: frozenset[TopicPartition] | None = None
    refused: dict[TopicPartition, Refusal] = field(default_factory=dict)
    overwritten: set[TopicPartition] = field(default_factory=set)  # somebody else set their offset since their start
    batch: Batch = field(default_factory=dict)
    # announced, here or by whom a partition came from. It counts while its start is the
    # committed offset; what is not held any more stays, since nobody else may have it
    pinged: str = ""  # the sequence of the last ping that was answered
    said: tuple[int, int] | None = None  # progress and lag, as the application reported them

    @property
    def held(self) -> Mapping[TopicPartition, Held]:
        """What was acknowledged and is not released."""
        return self._held

    @property
    def running(self) -> Set[TopicPartition]:
        """What the application was told to start, and not to stop."""
        return self._running.keys()

    def started(self, partition: TopicPartition) -> int:
        """The number of the start by which the partition runs; 0 when it does not run."""
        return self._running.get(partition, 0)

    @property
    def readable(self) -> frozenset[TopicPartition]:
        """What is held and runs."""
        if self._readable is None:  # asked at each step, over all that is held
            self._readable = frozenset(self._held.keys() & self._running.keys())
        return self._readable

    @property
    def idle(self) -> frozenset[TopicPartition]:
        """What is held and does not run."""
        if self._idle is None:
            self._idle = frozenset(self._held.keys() - self._running.keys())
        return self._idle

    def hold(self, fresh: Mapping[TopicPartition, Held]) -> None:
        """These were acknowledged."""
        self._held.update(fresh)
        self._readable = self._idle = None

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """These were released, or taken away; those that are not held do not count."""
        for partition in partitions:
            self._held.pop(partition, None)
        self._readable = self._idle = None

    def run(self, partitions: Iterable[TopicPartition], number: int) -> None:
        """The application has started these, by the start of this number."""
        started = dict.fromkeys(partitions, number)
        self._running.update(started)
        self.overwritten -= started.keys()
        self._readable = self._idle = None

    def halt(self, partitions: Iterable[TopicPartition]) -> None:
        """The application must not read these any more, or has stopped."""
        for partition in partitions:
            self._running.pop(partition, None)
        self._readable = self._idle = None

    def reconcile(
        self, partitions: Iterable[TopicPartition], written: Mapping[TopicPartition, int], read: Lookup
    ) -> tuple[set[TopicPartition], dict[TopicPartition, int]]:
        """Compare what is held with what was read after a refused or unknown write of the offsets `written`.

        Returns partitions that are no longer this registration's, and offsets that somebody else wrote. An own value
        at the next version was the own write (docs/protocol.md, section 7); -1 stands for a node that was deleted. Only
        what was looked up is judged.
        """
        gone: set[TopicPartition] = set()
        foreign: dict[TopicPartition, int] = {}
        for partition in sorted(read.partitions.intersection(partitions)):
            mine = self.held.get(partition)
            if mine is None:
                continue
            if read.owner(partition) != (mine.thread, mine.owner_version):
                gone.add(partition)  # released; should it name this consumer again, that is another grant
                continue
            now = read.position(partition)
            if now.version is None:  # a held partition has an offset: somebody deleted it
                foreign[partition] = -1
                continue
            version = now.version
            if version != mine.offset_version and now.offset is not None:
                own = version == mine.offset_version + 1 and now.offset == written.get(partition)
                if not own:
                    foreign[partition] = now.offset
                    self.overwritten.add(partition)
            offset = mine.offset if now.offset is None else now.offset
            self._held[partition] = mine._replace(offset=offset, offset_version=version)
        return gone, foreign

    def committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """One multi set these offsets: their versions are the next ones."""
        for partition, offset in offsets.items():
            mine = self.held[partition]
            self._held[partition] = mine._replace(offset=offset, offset_version=mine.offset_version + 1)

    def hand_on(self, command: Command) -> None:
        """What a start hands on is announced here from its acknowledgement on, also of what is refused there.

        What was announced of an earlier incarnation of its topics is over: it would be replayed of another log.
        """
        for partition in (command.ownership or ()) if command.replay or self.batch else ():
            number, known = command.incarnations.get(partition.topic, 0), self.batch.get(partition)
            if partition in command.replay:
                self.batch[partition] = Announced(*command.replay[partition], command.generation, number)
            elif known is not None and number and known.incarnation not in (0, number):
                del self.batch[partition]

    def standing(self, held: Mapping[TopicPartition, Held], batch: Batch) -> Batch:
        """Those of these announced ranges that no commit has passed, as far as this member knows."""
        if not batch:
            return {}
        known = {**self._held, **held}
        return {p: r for p, r in sorted(batch.items()) if p not in known or known[p].offset == r.start}

    def left_over(self) -> set[TopicPartition]:
        """What was announced, and is not held any more."""
        return self.batch.keys() - self.held.keys()

    def forget_passed(self, read: Lookup, but: Collection[TopicPartition]) -> None:
        """Forget what is left over, but of these, and was passed by a commit or is somebody else's now."""
        for partition in sorted((self.left_over() & read.partitions).difference(but)):
            if read.owner(partition)[0] or read.position(partition).offset != self.batch[partition].start:
                del self.batch[partition]

    def announce(
        self, ranges: Mapping[TopicPartition, tuple[int, int]], store_name: str, *, alone: bool = False
    ) -> bytes:
        """The channel's data with these ranges of held partitions announced; the same in memory is `announced`.
        `alone`: as it would be without all others."""
        batch = self._announced(ranges)
        return self._encoded(self.held, store_name, {p: batch[p] for p in ranges} if alone else batch)

    def announces(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> bool:
        """True when these ranges of held partitions stand in the status already."""
        new = self._announced(ranges)
        return all(new.get(p) == self.batch.get(p) for p in ranges)

    def announced(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> None:
        """These ranges stand in the status now."""
        self.batch = self._announced(ranges)

    def _announced(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> Batch:
        new = {
            p: Announced(start, end, mine.generation, mine.incarnation)
            for p, (start, end) in ranges.items()
            if (mine := self.held.get(p)) is not None
        }
        return self.standing({}, {**self.batch, **new})

    def status(self, held: Mapping[TopicPartition, Held], store_name: str) -> bytes:
        """The channel's data once `held` is what is held."""
        self.batch = self.standing(held, self.batch)
        return self._encoded(held, store_name, self.batch)

    def _encoded(self, held: Mapping[TopicPartition, Held], store_name: str, batch: Batch) -> bytes:
        numbers: dict[tuple[int, str], list[int]] = {}  # by generation and topic
        for (topic, number), mine in held.items():
            numbers.setdefault((mine.generation, topic), []).append(number)
        ranges: dict[int, dict[str, str]] = {}
        for (generation, topic), found in numbers.items():
            ranges.setdefault(generation, {})[topic] = ranges_text(found)
        progress, lag = self.said or (None, None)
        status = Status(
            held=ranges,
            batch=batch,
            store_name=store_name,
            refused=self.refused,
            progress=progress,
            lag=lag,
            pinged=self.pinged,
        )
        return encode_status(status)
