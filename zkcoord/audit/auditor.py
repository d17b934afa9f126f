"""Reads all groups again and again for an audit, and shows what it finds as metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from zkcoord.audit.audit import Audit
from zkcoord.audit.seen import Logs, Seen, read_seen
from zkcoord.errors import UsageError, ZkcoordError
from zkcoord.group_report import deleted_groups, group_names, may_name_a_group, read_tree
from zkcoord.metrics.names import AUDIT_LAG, FINDINGS, READING_AGE, READINGS, VERDICTS, Name
from zkcoord.migrate import BlockingTree, current
from zkcoord.offsets.ports import Commits, CommitStore

Sample = tuple[Name, tuple[str, ...], float]


def no_logs(partitions: Collection[object]) -> Mapping[object, object]:
    """Nobody said where Kafka is."""
    return {}


@dataclass(slots=True)
class Auditor:
    """Holds the audit's value between readings. `only`: these groups; empty: all."""

    tree: BlockingTree
    address: str
    audit: Audit
    only: Sequence[str] = ()
    logs: Logs = field(default=no_logs)  # type: ignore[assignment]
    commits: CommitStore | None = None
    failed: ZkcoordError | None = None  # why the last reading did not succeed
    failures: int = 0
    read_ms: int | None = None  # when one succeeded last

    def read(self, now_ms: Callable[[], int]) -> None:
        """Make one reading. Raises what ZooKeeper or Kafka answer; `failed` keeps it."""
        try:
            self.audit = self.audit.after(self._groups(), now_ms())
        except ZkcoordError as error:
            self.failed, self.failures = error, self.failures + 1
            raise
        self.failed, self.read_ms = None, now_ms()

    def _groups(self) -> list[Seen]:
        above = read_tree(self.tree, self.address)
        schema = current(self.tree)
        wanted = self.only or [name for name in group_names(self.tree, above.layout) if may_name_a_group(name)]
        gone = deleted_groups(self.tree, above.layout, wanted)
        groups = [name for name in wanted if name not in gone]
        commits: Mapping[str, Commits] = {}
        if self.commits is not None and groups:
            commits = self.commits.read(groups).found
        found = []
        for group in groups:
            try:
                seen = read_seen(
                    self.tree,
                    above.layout,
                    group,
                    served=above.coordinator is not None,
                    tree_id=schema.tree_id if schema is not None else "",
                    logs=self.logs,
                    commits=commits.get(group, {}),
                )
            except UsageError:  # it was removed meanwhile
                if group in self.only:
                    raise
                continue
            found.append(seen)
        return found

    def samples(self, now_ms: int) -> Iterator[Sample]:
        """Look up what holds after the last reading. Any thread."""
        audit = self.audit
        found = Counter((f.of.group, f.of.check, f.of.severity.value) for f in audit.findings)
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
