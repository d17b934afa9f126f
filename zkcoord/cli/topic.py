"""`zkcoord topic`: the topics of the tree, which groups can subscribe to, and the groups that read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from zkcoord.cli.kafka_options import kafka_client, with_kafka
from zkcoord.cli.options import Group, Settings, at_least, pass_settings
from zkcoord.cli.output import print_json, show, table
from zkcoord.core.words import count
from zkcoord.errors import CorruptError, UsageError
from zkcoord.group_report import TreeReport, may_name_a_group, read_tree
from zkcoord.kafka.new_topic import check_name, create_topic
from zkcoord.migrate import BlockingTree
from zkcoord.operating.groups import present_groups, reports_of
from zkcoord.operating.partitions import partitions_of
from zkcoord.operating.saying import warn
from zkcoord.operating.words import cell
from zkcoord.tree.codec import INT32_MAX
from zkcoord.tree.snapshot import Kind, Node, Read
from zkcoord.tree.topic import decode_replicas, topic_of

INT16_MAX = 32_767  # Kafka's own limit of a replication factor
TOPIC_COLUMNS = ("TOPIC", "#PARTITIONS", "#GROUPS", "GROUPS")
PARTITION_COLUMNS = ("PARTITION", "REPLICAS", "GROUP", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID")
NUMBERS = ("#PARTITIONS", "#GROUPS", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG")


@click.group(cls=Group, example="zkcoord topic list")
def topic() -> None:
    """Create, list and describe topics."""


@topic.command(name="list", example="zkcoord topic list --output json")
@pass_settings
def list_(settings: Settings) -> None:
    """List all topics, with the groups that read them.

    A group reads a topic if its members subscribe to the topic, or if the group owns a partition or has an offset of
    it.
    """
    with settings.tree() as tree:
        above = read_tree(tree, settings.zookeeper_address())
        (listed,) = tree.read([Read(above.layout.topics, Kind.CHILDREN)])
        nodes = _topics(tree, above, listed.children)
        reports = reports_of(tree, above.layout, present_groups(tree, above.layout))
    readers: dict[str, set[str]] = {}
    for report in reports:
        for partition in report.partitions():
            readers.setdefault(partition.topic, set()).add(report.view.group)
    documents = [_summary(name, node, sorted(readers.get(name, ()))) for name, node in nodes.items() if node.exists]
    rows = [[d["topic"], d["partitions"], len(d["groups"]), ", ".join(d["groups"])] for d in documents]
    nothing = f"there is no topic below {above.layout.topics}: `zkcoord topic create` makes one"
    show(settings, documents, TOPIC_COLUMNS, rows, NUMBERS, nothing=nothing)


@topic.command(example="zkcoord topic describe clicks --bootstrap-servers kafka1:9092")
@click.argument("name", metavar="T")
@pass_settings
def describe(settings: Settings, name: str) -> None:
    """Show the partitions of topic T, and how far each group has read them.

    Log ends and lag need --bootstrap-servers; all else comes from ZooKeeper.
    """
    if not may_name_a_group(name):
        raise UsageError(no_such_topic(name))
    with settings.tree() as tree:
        above = read_tree(tree, settings.zookeeper_address())
        node = _topics(tree, above, [name])[name]
        if not node.exists:
            raise UsageError(no_such_topic(name))
        reports = reports_of(tree, above.layout, present_groups(tree, above.layout))
        reading = [report for report in reports if name in {partition.topic for partition in report.partitions()}]
        reading, ends = with_kafka(settings, tree, above.layout, reading)
    rows = {report.view.group: [r for r in partitions_of(report, ends) if r["topic"] == name] for report in reading}
    document = _document(name, node, rows)
    if settings.json:
        print_json(document)
        return
    click.echo(_sentence(document))
    click.echo("\n" + table(PARTITION_COLUMNS, _rows(document), NUMBERS))


@topic.command(example="zkcoord topic create clicks --partitions 4 --bootstrap-servers kafka1:9092")
@click.argument("name", metavar="T")
@click.option("--partitions", type=at_least(1, INT32_MAX), required=True, metavar="N", help="Number of its partitions.")
@click.option(
    "--replication-factor",
    type=at_least(1, INT16_MAX),
    metavar="N",
    help="Replicas of each partition (default: the brokers' setting).",
)
@pass_settings
def create(settings: Settings, name: str, partitions: int, replication_factor: int | None) -> None:
    """Create topic T in Kafka. Needs --bootstrap-servers, and no ZooKeeper."""
    check_name(name)
    with kafka_client(settings) as client:
        create_topic(client, name, partitions, replication_factor)
    if settings.json:
        print_json({"topic": name, "partitions": partitions})
    else:
        click.echo(f"topic {name} is created: {count(partitions, 'partition')}")


def no_such_topic(name: str) -> str:
    """Say that a topic was not found."""
    return f"there is no topic {name!r}; `zkcoord topic list` shows them"


def _topics(tree: BlockingTree, above: TreeReport, names: Sequence[str]) -> dict[str, Node]:
    nodes = tree.read([Read(above.layout.topic(name)) for name in names]) if names else ()
    return dict(zip(names, nodes, strict=True))


def _summary(name: str, node: Node, groups: Sequence[str]) -> dict[str, Any]:
    partitions = None
    try:
        partitions = len(topic_of(name, node.data).partitions)
    except CorruptError as error:
        warn(f"{node.path}: {error}: the broker or an operator must mend it")
    return {"topic": name, "partitions": partitions, "groups": list(groups)}


def _document(name: str, node: Node, rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    try:
        info, replicas = topic_of(name, node.data), decode_replicas(node.data)
    except CorruptError as error:
        raise CorruptError(f"{node.path}: {error}: the broker or an operator must mend it") from error
    read: dict[int, list[dict[str, Any]]] = {}
    for group, found in rows.items():
        for row in found:
            kept = {key: value for key, value in row.items() if key not in ("topic", "partition")}
            read.setdefault(row["partition"], []).append({"group": group, **kept})
    return {
        "topic": name,
        "topic_id": info.topic_id,
        "partitions": [
            {"partition": number, "replicas": list(replicas.get(number, ())), "groups": read.get(number, [])}
            for number in info.partitions
        ],
    }


def _sentence(document: Mapping[str, Any]) -> str:
    partitions = document["partitions"]
    groups = {row["group"] for partition in partitions for row in partition["groups"]}
    known = f", id {document['topic_id']}" if document["topic_id"] else ""
    counted = f"{count(len(partitions), 'partition')}, read by {count(len(groups), 'group')}"
    return cell(f"Topic {document['topic']}: {counted}{known}")


def _rows(document: Mapping[str, Any]) -> list[list[Any]]:
    rows = []
    for partition in document["partitions"]:
        place = [partition["partition"], ",".join(map(str, partition["replicas"]))]
        rows += [
            [*place, each["group"], each["current_offset"], each["log_end_offset"], each["lag"], each["owner"]]
            for each in partition["groups"]
        ] or [[*place, *[None] * 5]]
    return rows
