"""Reads all groups again and again for an audit, and shows what it finds as metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from zkcoord.audit.audit import Audit
from zkcoord.audit.seen import Seen, read_seen
from zkcoord.core.model import TopicPartition
from zkcoord.errors import UsageError, ZkcoordError
from zkcoord.group_report import TreeReport, deleted_groups, group_names, may_name_a_group, read_tree
from zkcoord.metrics.names import AUDIT_LAG, FINDINGS, READING_AGE, READINGS, VERDICTS, Sample
from zkcoord.migrate import BlockingTree, current
from zkcoord.offsets.ports import Commits, CommitStore
from zkcoord.offsets.verdict import Log
from zkcoord.offsets.verify import Logs


def no_logs(partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Log]:
    """Return nothing: the audit was not told where Kafka is."""
    return {}


@dataclass(slots=True)
class Auditor:
    """Holds the value of the audit between readings. `only`: the groups to read; empty: all groups."""

    tree: BlockingTree
    address: str
    audit: Audit
    only: Sequence[str] = ()
    logs: Logs = no_logs
    commits: CommitStore | None = None
    failed: ZkcoordError | None = None  # why the last reading failed; None if it succeeded
    failures: int = 0
    read_ms: int | None = None  # when the last successful reading was made
    seen: Sequence[Seen] = ()  # the groups of the last successful reading
    rest: Callable[[], object] = lambda: None  # called after each group of a reading

    def read(self, now_ms: Callable[[], int]) -> None:
        """Make one reading. An error of ZooKeeper or Kafka is raised, and kept in `failed`."""
        try:
            groups = self._groups()
        except ZkcoordError as error:
            self.failed, self.failures = error, self.failures + 1
            raise
        self.audit = self.audit.after(groups, now_ms())
        self.failed, self.read_ms, self.seen = None, now_ms(), groups

    def look(self, group: str) -> tuple[TreeReport, Seen]:
        """Read one group outside of the audit's readings. UsageError if there is no such group. Any thread may call
        it."""
        above, tree_id = self._above()
        return above, self._one(above, tree_id, group, self._commits([group]).get(group, {}))

    def _above(self) -> tuple[TreeReport, str]:
        above, schema = read_tree(self.tree, self.address), current(self.tree)
        return above, schema.tree_id if schema is not None else ""

    def _commits(self, groups: Sequence[str]) -> Mapping[str, Commits]:
        return self.commits.read(groups).found if self.commits is not None and groups else {}

    def _groups(self) -> list[Seen]:
        above, tree_id = self._above()
        wanted = self.only or [name for name in group_names(self.tree, above.layout) if may_name_a_group(name)]
        gone = deleted_groups(self.tree, above.layout, wanted)
        groups = [name for name in wanted if name not in gone]
        commits = self._commits(groups)
        found = []
        for group in groups:
            try:
                found.append(self._one(above, tree_id, group, commits.get(group, {})))
            except UsageError:  # the group was removed meanwhile
                if group in self.only:
                    raise
            self.rest()
        return found

    def _one(self, above: TreeReport, tree_id: str, group: str, commits: Commits) -> Seen:
        return read_seen(
            self.tree,
            above.layout,
            group,
            served=above.coordinator is not None,
            tree_id=tree_id,
            logs=self.logs,
            commits=commits,
        )

    def samples(self, now_ms: int) -> Iterator[Sample]:
        """Return the values after the last reading. Any thread may call it."""
        audit = self.audit
        found = Counter((f.group, f.check, f.severity.name) for f in audit.findings)
        for labels, number in sorted(found.items()):
            yield FINDINGS, labels, number
        judged = Counter((group, verdict.value) for (group, _), verdict in audit.verdicts.items())
        for place, number in sorted(judged.items()):
            yield VERDICTS, place, number
        lags: Counter[str] = Counter()
        for (group, _), lag in audit.lags.items():
            lags[group] += max(0, lag)
        for group, lag in sorted(lags.items()):
            yield AUDIT_LAG, (group,), lag
        yield READINGS, ("ok",), audit.readings
        yield READINGS, ("failed",), self.failures
        if self.read_ms is not None:
            yield READING_AGE, (), (now_ms - self.read_ms) / 1000
