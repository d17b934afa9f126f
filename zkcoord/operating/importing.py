"""Sets offsets of groups to those of a file: in ZooKeeper, and in Kafka if the group would continue from there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from zkcoord.core.model import TopicPartition
from zkcoord.errors import UsageError
from zkcoord.offsets.earlier_topics import refuse_earlier
from zkcoord.offsets.in_kafka import set_in_kafka
from zkcoord.offsets.ports import CommitStore, OffsetTree
from zkcoord.offsets.reading import Kept, kept_by, read_group_offsets
from zkcoord.offsets.writing import Change, Readers, changes, effect, readers_of, refuse_changed, write_offsets
from zkcoord.tree.bulk import data
from zkcoord.tree.paths import Layout
from zkcoord.tree.record import record_in

FORCE = ", or force it (--force)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """One import. `force`: also set offsets while old consumers read the group. `dry_run`: write nothing, and put into
    `obstacles` what refuses the import."""

    tree: OffsetTree
    layout: Layout
    tree_id: str = ""
    force: bool = False
    dry_run: bool = False
    obstacles: dict[str, str] = field(default_factory=dict)  # group -> why, and who must act

    def needs_kafka(self, group: str) -> bool:
        """Return True if the group's consumers may continue from commits in Kafka that are not zkcoord's. Raise
        UsageError if somebody reads the group, except in a dry run."""
        self._readers(group)
        return self._kept(group).strangers_count

    def write(self, group: str, offsets: Mapping[TopicPartition, int], store: CommitStore | None) -> list[Change]:
        """Set all `offsets`, except in a dry run. Return those that differ from the offsets that counted before.

        `store`: Kafka's commits; None is enough for a group that does not need Kafka. Raise UsageError if somebody
        reads the group: a reader may have joined since the last check.
        """
        readers, kept = self._readers(group), self._kept(group)
        refuse_earlier(self.tree.read, self.layout, group, {partition.topic for partition in offsets})
        if not kept.strangers_count:
            if self.dry_run:
                return changes(self.tree.read, self.layout, group, offsets)
            return self._write(group, offsets, readers)
        if store is None:
            raise UsageError(f"group {group}: somebody changed its store meanwhile: run it again")
        seen = read_group_offsets(self.tree.read, self.layout, group)
        found = effect(seen, store.read([group]).of(group), offsets, self.tree_id)
        if not self.dry_run:
            refuse_changed(self.tree, group, readers.guard)
            set_in_kafka(store, group, kept, offsets)
            self._write(group, offsets, readers)
        return found

    def _write(self, group: str, offsets: Mapping[TopicPartition, int], readers: Readers) -> list[Change]:
        why = "an import of offsets"
        return write_offsets(self.tree, self.layout, group, offsets, guard=readers.guard, why=why)

    def _readers(self, group: str) -> Readers:
        readers = readers_of(self.tree.read, self.layout, group)
        try:
            readers.refuse(group, force=self.force, others=FORCE)
        except UsageError as error:
            if not self.dry_run:
                raise
            self.obstacles[group] = str(error)
        return readers

    def _kept(self, group: str) -> Kept:
        (node,) = data(self.tree.read, [self.layout.record(group)])
        return kept_by(self.layout, record_in(node))
