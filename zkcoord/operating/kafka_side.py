"""Asks Kafka for what ZooKeeper does not know about groups: the ends of the logs, and the offsets that Kafka keeps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from zkcoord.core.model import TopicPartition
from zkcoord.core.tenure import KafkaCommit, Rule, of_earlier_incarnation
from zkcoord.core.words import count
from zkcoord.errors import CorruptError, UsageError, ZkcoordError
from zkcoord.group_report import GroupReport
from zkcoord.kafka.client import KafkaClient
from zkcoord.kafka.lag import log_ends
from zkcoord.migrate import BlockingTree, current
from zkcoord.offsets.kafka_store import KafkaCommits
from zkcoord.offsets.ports import Commits
from zkcoord.offsets.reading import Kept, kept_by, read_group_offsets
from zkcoord.operating.partitions import Ends
from zkcoord.operating.saying import warn
from zkcoord.tree.paths import Layout

UNSEEN = "no log ends and no lag are shown"


@dataclass(slots=True)
class KafkaSide:
    """Kafka, as the tools ask it. `client` None: the command got no brokers' addresses, or Kafka cannot be asked.

    No error is raised when Kafka does not answer: `tell` is called with the reason.
    """

    client: KafkaClient | None
    wait_ms: int
    tell: Callable[[str], None] = warn

    def offsets(self, tree: BlockingTree, layout: Layout, reports: Sequence[GroupReport]) -> list[GroupReport]:
        """Return the reports with the offsets that count, also for groups that keep them in Kafka.

        The ZooKeeper nodes of such a group are out of date. If Kafka does not tell an offset, it is unknown.
        """
        elsewhere = [r.view.group for r in reports if _kept(layout, r).rule is not Rule.ZOOKEEPER]
        commits = self._commits(elsewhere)
        return [self._counting(tree, layout, r, commits) if r.view.group in elsewhere else r for r in reports]

    def committed(self, tree: BlockingTree, layout: Layout, report: GroupReport) -> dict[TopicPartition, int]:
        """Return the offsets that the group's own consumers have committed to Kafka; empty if Kafka does not tell them.

        Commits of other programs are left out, except where old members commit to Kafka: then they are the old members'
        own. Commits of another tree or of an earlier topic are left out, too.
        """
        view, schema = report.view, current(tree)
        tree_id = schema.tree_id if schema is not None else ""
        old_members = _kept(layout, report).rule is Rule.OLD_IN_KAFKA

        def own(partition: TopicPartition, commit: KafkaCommit) -> bool:
            if commit.stamp is None:
                return old_members
            incarnation = view.incarnations.get(partition.topic, 0)
            return commit.stamp.tenure.tree == tree_id and not of_earlier_incarnation(commit, incarnation)

        found = self._commits([view.group]).get(view.group, {})
        return {partition: commit.offset for partition, commit in found.items() if own(partition, commit)}

    def ends(self, reports: Sequence[GroupReport]) -> Ends:
        """Return the ends of the logs, without those that Kafka does not tell."""
        partitions = {partition for report in reports for partition in report.partitions()}
        if self.client is None or not partitions:
            return {}
        try:
            found = log_ends(self.client, sorted(partitions), timeout_ms=self.wait_ms)
        except UsageError:
            raise
        except ZkcoordError as error:
            self.tell(f"{error}; {UNSEEN}")
            return {}
        alike: dict[str, list[TopicPartition]] = {}
        for partition, reason in sorted(found.unknown.items()):
            alike.setdefault(reason.replace(str(partition), ""), []).append(partition)
        for first, *others in alike.values():
            more = f" (and so for {count(len(others), 'further partition')})" if others else ""
            self.tell(found.unknown[first] + more)
        return found.ends

    def _commits(self, groups: Sequence[str]) -> dict[str, Commits]:
        if self.client is None or not groups:
            return {}
        answer = KafkaCommits(self.client, timeout_ms=self.wait_ms).read(groups)
        for reason in sorted({str(error) for error in answer.unknown.values()}):
            self.tell(reason)
        return dict(answer.found)

    def _counting(
        self, tree: BlockingTree, layout: Layout, report: GroupReport, commits: dict[str, Commits]
    ) -> GroupReport:
        group = report.view.group
        known = commits.get(group)
        if known is None:
            if _kept(layout, report).node_counts:
                return report
            if self.client is None:
                self.tell(f"group {group} keeps its offsets in Kafka: give --bootstrap-servers to see them")
            return replace(report, offsets=dict.fromkeys(report.offsets))
        schema = current(tree)
        try:
            seen = read_group_offsets(tree.read, layout, group)
        except CorruptError:  # the report has this error among its problems
            return report
        tree_id = schema.tree_id if schema is not None else ""
        partitions = sorted(seen.offsets.keys() | known.keys())
        return replace(report, offsets={p: seen.counts(p, known.get(p), tree_id) for p in partitions})


def _kept(layout: Layout, report: GroupReport) -> Kept:
    return kept_by(layout, report.view.record if report.view.record_version is not None else None)
