"""Removes a group's commits from Kafka, before the group is deleted with its offsets."""

from __future__ import annotations

import time
from contextlib import ExitStack

from zkcoord.cli.offset_stores import kafka_client
from zkcoord.cli.options import Settings
from zkcoord.cli.output import say
from zkcoord.cli.requesting import read_record
from zkcoord.core.record import ZOOKEEPER
from zkcoord.errors import UsageError
from zkcoord.migrate import BlockingTree, current
from zkcoord.offsets.equality import Equality
from zkcoord.offsets.kafka_store import KafkaCommits
from zkcoord.offsets.ports import GroupStore
from zkcoord.offsets.writing import readers_of
from zkcoord.tree.paths import Layout


def forget_in_kafka(settings: Settings, tree: BlockingTree, layout: Layout, group: str) -> None:
    """Remove the commits of a group that has no members, and has or had another store than ZooKeeper."""
    record = read_record(tree, layout, group)
    if record is None or (record.store_name == ZOOKEEPER and not record.store_step):
        return
    if record.handed_over:
        say("notice", f"group {group} is handed over to Kafka's consumers: its offsets in Kafka stay")
        return
    if settings.kafka_address() is None:
        raise UsageError(f"group {group} has offsets in Kafka, too: give --bootstrap-servers HOST:PORT[,HOST:PORT…]")
    with ExitStack() as stack:
        client = stack.enter_context(kafka_client(settings))
        forget_commits(tree, layout, group, KafkaCommits(client))


def forget_commits(tree: BlockingTree, layout: Layout, group: str, kafka: GroupStore) -> None:
    """Bring what counts into the nodes, then remove the commits; nothing of a group with members.

    If the group is not deleted after all, its consumers find their offsets in ZooKeeper.
    """
    schema, readers = current(tree), readers_of(tree.read, layout, group)
    if readers.ours or readers.others:
        return  # its coordinator refuses the deletion
    equality = Equality(
        tree=tree,
        commits=kafka,
        layout=layout,
        tree_id="" if schema is None else schema.tree_id,
        group=group,
        goal=ZOOKEEPER,
        existing=frozenset(kafka.read([group]).of(group)),
    )
    for _ in range(2):  # the first look writes, the second sees what it wrote
        left = equality.look((), readers.guard, int(time.time() * 1000))
    if left:
        raise UsageError(f"group {group}: the offset of {left[0].partition} is not in ZooKeeper: {left[0].why}")
    kafka.forget(group)
