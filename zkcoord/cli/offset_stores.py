"""Where the commands about offsets find groups and Kafka."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from zkcoord.cli.options import Settings
from zkcoord.cli.output import warn
from zkcoord.core.model import TopicPartition
from zkcoord.errors import UsageError
from zkcoord.group_report import group_names, may_name_a_group, read_tree
from zkcoord.kafka.client import KafkaClient
from zkcoord.legacy.walk import group_names as old_group_names
from zkcoord.migrate import BlockingTree, current
from zkcoord.offsets.verdict import Log
from zkcoord.offsets.verify import Logs
from zkcoord.tree.paths import LEGACY, Layout


def kafka_client(settings: Settings) -> KafkaClient:
    """Return a client that has reached Kafka; UsageError if nobody said where that is."""
    servers = settings.kafka_address()
    if servers is None:
        raise UsageError("where is Kafka? give --bootstrap-servers HOST:PORT[,HOST:PORT…]")
    client = KafkaClient(servers, settings.kafka_settings())
    silent = client.check_credentials()
    if silent is not None:
        client.close()
        raise silent
    return client


def groups_of(tree: BlockingTree, address: str) -> tuple[Layout, str, Sequence[str]]:
    """Return the layout, the tree's id and all groups. A deployment without zkcoord is one of old consumers."""
    schema = current(tree)
    if schema is None:
        return LEGACY, "", old_group_names(tree.read)
    layout = read_tree(tree, address).layout
    return layout, schema.tree_id, [name for name in group_names(tree, layout) if may_name_a_group(name)]


def known_logs(client: KafkaClient) -> Logs:
    """Return a function that asks Kafka for logs, and warns of those that it does not tell."""

    def ask(partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Log]:
        starts, _ = client.ask_offsets(partitions, "earliest", "read_uncommitted")
        ends, failed = client.ask_offsets(partitions, "latest", "read_uncommitted")
        for reason in sorted({str(error).replace(str(p), "…") for p, error in failed.items()}):
            warn(f"{reason}; whether offsets lie within such logs is not known")
        return {p: Log(starts[p], end) for p, end in ends.items() if p in starts}

    return ask
