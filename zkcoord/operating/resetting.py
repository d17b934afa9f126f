"""Resets the offsets of a group: stops its consumers if needed, and writes the computed offsets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from zkcoord.core.model import TopicPartition
from zkcoord.core.record import DEFAULT_RECORD, PAUSE, RESET, GroupRecord
from zkcoord.core.requests import STOPPED
from zkcoord.core.resetting import EXPIRED
from zkcoord.core.tenure import Rule
from zkcoord.core.words import some
from zkcoord.errors import UnavailableError, UsageError
from zkcoord.group_report import has_group, no_such_group, read_tree
from zkcoord.kafka.client import KafkaClient
from zkcoord.migrate import current
from zkcoord.offsets.earlier_topics import refuse_earlier
from zkcoord.offsets.in_kafka import set_in_kafka
from zkcoord.offsets.kafka_logs import known_logs
from zkcoord.offsets.kafka_store import KafkaCommits
from zkcoord.offsets.ports import Commits, OffsetTree
from zkcoord.offsets.reading import GroupSeen, kept_by, read_group_offsets
from zkcoord.offsets.targets import Goal, Move, Targets, Where, chosen, targets
from zkcoord.offsets.writing import (
    ATTEMPTS_MAX,
    Readers,
    RecordChangedError,
    readers_of,
    refuse_changed,
    write_offsets,
)
from zkcoord.operating.moments import moment
from zkcoord.operating.one_cluster import refuse_another_cluster
from zkcoord.operating.requesting import Answer, ask, edit_record, wait, who_serves
from zkcoord.operating.saying import warn, would_be_refused
from zkcoord.tree.paths import LEGACY, Layout
from zkcoord.tree.record import record_in
from zkcoord.tree.request import requested
from zkcoord.tree.snapshot import Read
from zkcoord.tree.writes import CheckNode

WAIT_MS = 60_000
EXPIRY_MS = 600_000
"""How long a coordinator keeps the group stopped for a tool that does not end its run: 10 minutes."""

TAKEN_BACK = "the request is taken back, and nothing is written"
STANDS = "the request of an earlier run stands: end it with `zkcoord group resume`, or run it again"

Compute = Callable[[], Targets]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset:
    """One reset: its group, its tree, and the function that computes the new offsets once nobody reads."""

    tree: OffsetTree
    layout: Layout
    group: str
    compute: Compute
    to_kafka: Callable[[Mapping[TopicPartition, int]], None]  # writes the offsets where old consumers read them
    goal: Where

    def check_shift(self) -> None:
        """Raise UsageError for a shift after a run that broke off: offsets that this run has shifted would be shifted
        again."""
        self._check_shift(self._record()[0])

    def _check_shift(self, record: GroupRecord) -> None:
        response, pause = record.responses.get(RESET), record.requests.get(PAUSE)
        expired = pause is not None and response is not None and response.says(pause.run, EXPIRED)
        if self.goal is Where.SHIFT and (expired or RESET in record.requests):
            raise UsageError(
                f"an earlier reset of group {self.group} was broken off, and may have written some offsets: look"
                " (`zkcoord group describe`), then set them with --to-offset, --to-datetime or --from-file, or let the"
                f" group go on with `zkcoord group resume {self.group}`"
            )

    def write(self, guard: Sequence[CheckNode]) -> tuple[list[Move], Targets]:
        """Compute the offsets and write them. Return the changes for the group's consumers, and all new offsets."""
        return self._put(self._computed(), guard)

    def _computed(self) -> Targets:
        found = self.compute()
        refuse_earlier(self.tree.read, self.layout, self.group, {partition.topic for partition in found.offsets})
        return found

    def _put(self, found: Targets, guard: Sequence[CheckNode]) -> tuple[list[Move], Targets]:
        refuse_changed(self.tree, self.group, guard)
        self.to_kafka(found.offsets)
        write_offsets(self.tree, self.layout, self.group, found.offsets, guard=guard, why="a reset of offsets")
        return found.moves(), found

    def stopped_first(self, timeout_ms: int, doing: Callable[[], str]) -> tuple[list[Move], Targets]:
        """Stop the group's consumers, write, and let the group go on.

        It takes over from a run that broke off. If the tool of that run is still alive, its next write is refused,
        because the record names another run.
        """
        begun = self.begun()  # by an earlier run, which may have written some offsets
        run = self._ask()
        what = f"reset of group {self.group}: stopping its consumers"
        try:
            answer = wait(what, timeout_ms, lambda: self._answer(run), doing, STANDS if begun else TAKEN_BACK)
        except BaseException:
            if not begun:
                self._take_back(run)
            raise
        if answer.state != STOPPED:
            raise UsageError(f"reset of group {self.group}: {answer.state}: {answer.reason}")
        try:
            guard = self._guard(run)
            found = self._computed()
        except BaseException:  # this run has written nothing
            if not begun:
                self._take_back(run)
            raise
        done = self._put(found, guard)
        self._take_back(run)
        return done

    def unread(self, guard: Sequence[CheckNode]) -> tuple[list[Move], Targets]:
        """Write the offsets of a group that nobody reads. `guard` was read before that was known."""
        return self._shifted() if self.goal is Where.SHIFT and self._may_ask() else self.write(guard)

    def _shifted(self) -> tuple[list[Move], Targets]:
        """Shift the offsets. Until all are written, the record says so: if this run breaks off, another shift is
        refused."""
        run = self._ask()
        try:
            found = self._computed()
        except BaseException:  # nothing is written yet
            self._take_back(run)
            raise
        for _ in range(ATTEMPTS_MAX):
            try:
                done = self._put(found, self._guard(run))
            except RecordChangedError:  # a coordinator has answered the request
                continue
            self._take_back(run)
            return done
        raise UnavailableError(f"{self.layout.record(self.group)}: others changed it meanwhile: {STANDS}")

    def _ask(self) -> str:
        """Write the request of this run into the record. Return the run."""

        def check(record: GroupRecord) -> None:
            if left_to := record.left_to(self.group):  # since the last look
                raise UsageError(f"group {self.group} {left_to}")
            self._check_shift(record)

        goal = f"--{self.goal.value}"
        return ask(
            self.tree, self.layout, self.group, RESET, take_over=True, check=check, expiry_ms=EXPIRY_MS, goal=goal
        )

    def _may_ask(self) -> bool:
        """Return False for a group of old members alone, which no coordinator serves."""
        return not self.layout.adopts or self._record()[0].adoption is not None

    def begun(self) -> bool:
        """Return True if an earlier run has not ended."""
        return RESET in self._record()[0].requests

    def _answer(self, run: str) -> Answer | None:
        record, _ = self._record()
        request, response = record.requests.get(RESET), record.responses.get(RESET)
        if response is not None and response.run == run:
            return Answer(run=run, state=response.state, reason=response.reason or None)
        if request is None or request.run != run:
            return Answer(run=run, state="ended", reason="somebody took the request back: run it again")
        return None

    def _guard(self, run: str) -> list[CheckNode]:
        """Return a check of the record, for every write. The record has the request of this run: while it stands,
        nobody starts what the coordinator has stopped."""
        record, guard = self._record()
        request = record.requests.get(RESET)
        if request is None or request.run != run:
            raise UsageError(f"reset of group {self.group}: somebody ended it meanwhile: run it again")
        return guard

    def _record(self) -> tuple[GroupRecord, list[CheckNode]]:
        (node,) = self.tree.read([Read(self.layout.record(self.group))])
        guard = [] if node.stat is None else [CheckNode(node.path, node.stat.version)]
        return record_in(node) or DEFAULT_RECORD, guard

    def _take_back(self, run: str) -> None:
        def edit(record: GroupRecord) -> GroupRecord:
            standing = record.requests.get(RESET)
            return requested(record, RESET, None) if standing is not None and standing.run == run else record

        edit_record(self.tree, self.layout, self.group, edit)


def goal_of(given: Mapping[str, Any]) -> Goal:
    """Return the only goal among the options. Raise UsageError if there is not exactly one."""
    named = [where for where in Where if given.get(where.name.lower()) not in (None, False)]
    if len(named) != 1:
        raise UsageError(f"choose one of {', '.join(f'--{where.value}' for where in Where)}")
    (where,) = named
    value = given[where.name.lower()]
    if where is Where.DATETIME:
        return Goal(where, moment("--to-datetime", value) or 0)
    return Goal(where, value if isinstance(value, int) else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class How:
    """How offsets are reset. `stop_first`: stop the group's consumers first, and wait at most `timeout_ms` for that."""

    dry_run: bool
    stop_first: bool
    timeout_ms: int = WAIT_MS


def reset_group(
    tree: OffsetTree,
    address: str,
    client: KafkaClient,
    name: str,
    goal: Goal,
    topics: tuple[str, ...],
    how: How,
    named: Mapping[TopicPartition, int] | None = None,
) -> tuple[Sequence[Move], Targets]:
    """Reset the offsets of a group. Return the changes for its consumers, and all new offsets. Raise UsageError while a
    reset is not allowed."""
    schema = current(tree)
    layout = LEGACY if schema is None else read_tree(tree, address).layout
    _check_group(tree, layout, name)
    refuse_another_cluster(tree, client)
    wanted = _Wanted(
        tree=tree,
        layout=layout,
        group=name,
        client=client,
        store=KafkaCommits(client),
        goal=goal,
        topics=topics,
        named=named,
        tree_id="" if schema is None else schema.tree_id,
    )
    reset = wanted.reset()
    readers = readers_of(tree.read, layout, name)
    if how.dry_run:
        found = wanted.targets()
        try:
            _stops_first(reset, readers, how)
        except UsageError as error:
            found.notes.append(would_be_refused(str(error)))
        return found.moves(), found
    if _stops_first(reset, readers, how):
        wanted.targets()  # a call that cannot succeed, as with a wrong topic, stops nobody
        return reset.stopped_first(how.timeout_ms, lambda: who_serves(tree, address))
    return reset.unread(readers.guard)


def _stops_first(reset: Reset, readers: Readers, how: How) -> bool:
    """Return True if the group's consumers must be stopped first. Raise UsageError while the offsets may not be set."""
    reset.check_shift()
    readers.refuse_elsewhere(reset.group)
    if reset.begun():
        if not how.stop_first:
            raise UsageError(f"group {reset.group}: {STANDS}, with --stop-first")
        return True
    if how.stop_first and readers.ours and not readers.paused:
        return True
    readers.refuse(reset.group, ours="" if how.stop_first else ", or give --stop-first")
    return False


def _check_group(tree: OffsetTree, layout: Layout, name: str) -> None:
    if not has_group(tree, layout, name):
        how = "`zkcoord offsets import` sets the offsets of one that is yet to come"
        raise UsageError(f"{no_such_group(name)}; {how}")


def _refuse_absent(named: Sequence[TopicPartition], existing: Sequence[TopicPartition]) -> None:
    """Raise UsageError for partitions of a file that Kafka does not have."""
    topics, absent = {p.topic for p in existing}, sorted(set(named).difference(existing))
    if not absent:
        return
    gone = dict.fromkeys(p.topic for p in absent if p.topic not in topics)
    what = f"topics that Kafka does not have: {some(gone)}" if gone else f"partitions that no topic has: {some(absent)}"
    raise UsageError(f"--from-file names {what}; check the names, and the rights, or name the others (--topic)")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """Computes the new offsets from both stores and the logs, as they are when it is called."""

    tree: OffsetTree
    layout: Layout
    tree_id: str
    group: str
    client: KafkaClient
    store: KafkaCommits
    goal: Goal
    topics: tuple[str, ...]
    named: Mapping[TopicPartition, int] | None  # of --from-file

    def reset(self) -> Reset:
        """Return the reset to these offsets."""
        return Reset(
            tree=self.tree,
            layout=self.layout,
            group=self.group,
            compute=self.targets,
            to_kafka=self.to_kafka,
            goal=self.goal.where,
        )

    def targets(self) -> Targets:
        """Read everything, and compute the new offsets."""
        seen, commits = self._read()
        partitions = self._partitions(seen, commits)
        logs = known_logs(self.client, warn)(partitions)
        unknown = sorted(set(partitions) - logs.keys())
        if unknown:
            raise UnavailableError(f"Kafka does not tell the log of {unknown[0]}: check the topic, then try again")
        found = dict(self.named or {})
        if self.goal.where is Where.DATETIME:
            found = self.client.reset_positions(partitions, self.goal.number)
        counting = {p: seen.counts(p, commits.get(p), self.tree_id) for p in partitions}
        return targets(self.goal, counting, logs, found)

    def _read(self) -> tuple[GroupSeen, Commits]:
        seen = read_group_offsets(self.tree.read, self.layout, self.group)
        return seen, {} if seen.rule is Rule.ZOOKEEPER else self.store.read([self.group]).of(self.group)

    def _partitions(self, seen: GroupSeen, commits: Commits) -> list[TopicPartition]:
        existing = self.client.partitions()
        if self.named is not None:
            wanted = set(chosen(self.topics, existing)) if self.topics else self.named.keys()
            named = sorted(p for p in self.named if p in wanted or p.topic in self.topics)
            _refuse_absent(named, existing)
            return named
        if self.topics:
            return chosen(self.topics, existing)
        topics = {partition.topic for partition in (*seen.offsets, *commits)}
        found = [partition for partition in existing if partition.topic in topics]
        if not found:
            raise UsageError(
                f"group {self.group} has no offset of a topic that exists: name topics (--topic), or set offsets with"
                " `zkcoord offsets import`"
            )
        return found

    def to_kafka(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Set the offsets in Kafka, too, where old consumers read them, and where another program has committed: a
        consumer of zkcoord would follow that commit backwards after its start. Commits of zkcoord's own no longer count
        anyway."""
        (node,) = self.tree.read([Read(self.layout.record(self.group))])
        set_in_kafka(self.store, self.group, kept_by(self.layout, record_in(node)), offsets)
