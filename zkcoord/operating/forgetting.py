"""Removes a group's commits from Kafka before the group is deleted with its offsets."""

from __future__ import annotations

import time
from collections.abc import Callable

from zkcoord.core.offset_store import ZOOKEEPER
from zkcoord.core.requests import ADOPTED
from zkcoord.errors import UsageError
from zkcoord.kafka.client import KafkaClient
from zkcoord.migrate import BlockingTree, current
from zkcoord.offsets.equality import Equality
from zkcoord.offsets.kafka_store import KafkaCommits
from zkcoord.offsets.ports import GroupStore
from zkcoord.offsets.writing import readers_of
from zkcoord.operating.one_cluster import refuse_another_cluster
from zkcoord.operating.requesting import read_record, refuse_moved
from zkcoord.operating.saying import say
from zkcoord.tree.paths import Layout


def forget_in_kafka(
    tree: BlockingTree, layout: Layout, group: str, open_kafka: Callable[[], KafkaClient] | None
) -> None:
    """Remove the commits of a group that has no members, and has or had another store than ZooKeeper.

    `open_kafka` None: the command got no brokers' addresses. Raise UsageError for a group whose deletion would be
    refused: its old members, or its consumers in another tree, continue from these commits.
    """
    record = read_record(tree, layout, group)
    if record is None or (not record.store.tenured and not record.store_step):
        return
    refuse_moved(group, record)
    if record.adoption is not None:
        raise UsageError(f"group {group}: {ADOPTED}")
    if record.handed_over:
        say("notice", f"group {group} is handed over to Kafka's consumers: its offsets in Kafka stay")
        return
    if open_kafka is None:
        raise UsageError(f"group {group} has offsets in Kafka, too: give --bootstrap-servers HOST:PORT[,HOST:PORT…]")
    with open_kafka() as client:
        refuse_another_cluster(tree, client)
        forget_commits(tree, layout, group, KafkaCommits(client))


def refuse_handed_over(tree: BlockingTree, layout: Layout, group: str) -> None:
    """Raise UsageError for a group that is handed over. Without its record, a consumer that joins would read the group
    beside Kafka's consumers."""
    record = read_record(tree, layout, group)
    if record is not None and (left_to := record.left_to(group)):
        if record.adoption is not None:
            raise UsageError(f"group {group}: {ADOPTED}")
        raise UsageError(f"group {group} {left_to}, or give --offsets: those in Kafka stay")


def forget_commits(tree: BlockingTree, layout: Layout, group: str, kafka: GroupStore) -> None:
    """Write the offsets that count into the nodes, then remove the commits. Do nothing for a group with members.

    If the group is not deleted after all, its consumers find their offsets in ZooKeeper.
    """
    schema, readers = current(tree), readers_of(tree.read, layout, group)
    if readers.ours or readers.others:
        return  # its coordinator refuses the deletion
    tree_id, commits = "" if schema is None else schema.tree_id, kafka.read([group]).of(group)
    trees = {commit.stamp.tenure.tree for commit in commits.values() if commit.stamp is not None}
    if trees and tree_id not in trees:
        raise UsageError(
            f"group {group}: its commits in Kafka were made from another tree, of which this one may be a copy: nothing"
            " is deleted. Once no group there goes on from them, remove them with Kafka's own tool "
            f"(`kafka-consumer-groups.sh --delete --group {group}`), then run this again"
        )
    equality = Equality(
        tree=tree,
        commits=kafka,
        layout=layout,
        tree_id=tree_id,
        group=group,
        goal=ZOOKEEPER,
        existing=frozenset(commits),
    )
    for _ in range(2):  # the first look writes, the second look sees what the first has written
        left = equality.look((), readers.guard, int(time.time() * 1000))
    if left:
        raise UsageError(f"group {group}: the offset of {left[0].partition} is not in ZooKeeper: {left[0].why}")
    kafka.forget(group)
