"""`zkcoord migrate topics`: sets where the tree's topics come from."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Sequence
from functools import partial

import click

from zkcoord.cli.options import Command, Settings, pass_settings
from zkcoord.cli.output import print_json
from zkcoord.errors import UsageError
from zkcoord.group_report import group_names, refuse_newer
from zkcoord.kafka.client import librdkafka
from zkcoord.migrate import BlockingTree, Rehearsal, Report, current
from zkcoord.migrate.topics import ClusterTopics, TopicSwitch
from zkcoord.offsets.writing import readers_of
from zkcoord.operating.requesting import who
from zkcoord.operating.saying import say
from zkcoord.tree.paths import TOPIC_SOURCES

AFTER = {
    "kafka": "start the coordinators with --topics kafka --bootstrap-servers HOST:PORT[,HOST:PORT…]",
    "zookeeper": "start the coordinators with --topics zookeeper, or without this option",
}


def topics_command(show: Callable[[Settings, bool], Report]) -> click.Command:
    """Make the command. `show(settings, dry_run)` returns the function that reports each batch."""

    @click.command(name="topics", cls=Command, example="zkcoord migrate topics --to kafka")
    @click.option("--to", "goal", type=click.Choice(TOPIC_SOURCES), required=True, help="The new source of topics.")
    @click.option("--dry-run", is_flag=True, help="Compare, and print the operations; carry none out.")
    @click.option(
        "--accept-differences",
        is_flag=True,
        help="Take Kafka's topics where the two differ: its brokers have left ZooKeeper already. Only with --to kafka.",
    )
    @pass_settings
    def topics(settings: Settings, goal: str, dry_run: bool, accept_differences: bool) -> None:
        """Change the source of topics: Kafka itself, or ZooKeeper.

        The two sources are compared first, topic by topic and id by id. The command is refused while they differ, while
        there are old consumers, and while a topic has no id; with --to zookeeper also while a broker that answers is
        not in /brokers/ids. While it runs, no coordinator serves, and members read on. It drops nothing and stops no
        consumer. If it breaks off, run it again. Needs --bootstrap-servers.
        """
        if accept_differences and goal != "kafka":
            raise UsageError("--accept-differences says that Kafka is right: give it with --to kafka only")
        servers = settings.needed_kafka_address()
        librdkafka()  # a missing extra is reported before anything is asked
        with settings.tree() as tree:
            switch = TopicSwitch(
                tree=Rehearsal(tree) if dry_run else tree,
                goal=goal,
                ask=partial(_cluster_topics, servers, settings),
                run_id=f"{who()}-{os.getpid()}-{uuid.uuid4().hex[:8]}",
                obstacles=lambda: old_members(tree),
                accepts=accept_differences,
                report=show(settings, dry_run),
            )
            done = switch.carry_out()
        for note in switch.notes:
            say("notice", note)
        if settings.json:
            cluster_id = None if switch.told is None else switch.told.cluster.cluster_id
            print_json({"topics": goal, "cluster_id": cluster_id, "changed": done, "dry_run": dry_run})
        elif not done:
            click.echo("nothing to do")
        elif not dry_run:
            say("notice", AFTER[goal])

    return topics


def old_members(tree: BlockingTree) -> Sequence[str]:
    """Return the old consumers of all groups. They plan with the topics of /brokers/topics."""
    schema = current(tree)
    if schema is None:
        return ()
    refuse_newer(schema)
    layout = schema.place
    if not layout.adopts:
        return ()
    found = []
    for group in group_names(tree, layout):
        others = readers_of(tree.read, layout, group).others
        found += [f"group {group} has the old consumer {others[0]}"] if others else []
    return found


def _cluster_topics(servers: str, settings: Settings) -> ClusterTopics:
    from zkcoord.kafka.metadata import KafkaMetadata

    with KafkaMetadata(servers, settings.kafka_settings()) as metadata:
        cluster, nameless = metadata.whole()
    return ClusterTopics(cluster=cluster, nameless=nameless)
