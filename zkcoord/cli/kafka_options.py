"""Opens Kafka at the address of the common options."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from zkcoord.cli.options import Settings
from zkcoord.errors import UsageError
from zkcoord.group_report import GroupReport
from zkcoord.kafka.client import KafkaClient, librdkafka
from zkcoord.migrate import BlockingTree
from zkcoord.operating.kafka_side import UNSEEN, KafkaSide
from zkcoord.operating.one_cluster import refuse_another_cluster
from zkcoord.operating.partitions import Ends
from zkcoord.operating.saying import warn
from zkcoord.tree.paths import Layout


def kafka_client(settings: Settings) -> KafkaClient:
    """Return a client that has reached Kafka. Raise UsageError if the command has no brokers' addresses."""
    client = KafkaClient(settings.needed_kafka_address(), settings.kafka_settings())
    silent = client.check_credentials()
    if silent is not None:
        client.close()
        raise silent
    return client


def kafka_beside(settings: Settings, stack: ExitStack, tree: BlockingTree) -> KafkaClient:
    """Open Kafka until the stack ends, like `kafka_client`. Raise UsageError if it is not the cluster of the tree."""
    client = stack.enter_context(kafka_client(settings))
    refuse_another_cluster(tree, client)
    return client


def with_kafka(
    settings: Settings, tree: BlockingTree, layout: Layout, reports: Sequence[GroupReport]
) -> tuple[list[GroupReport], Ends]:
    """Return the reports with the offsets that count, and the ends of their logs, as far as Kafka can be asked."""
    with kafka_side(settings) as kafka:
        found = kafka.offsets(tree, layout, reports)
        return found, kafka.ends(found)


@contextmanager
def kafka_side(settings: Settings, tell: Callable[[str], None] = warn) -> Iterator[KafkaSide]:
    """Open Kafka during the block, if the command has brokers' addresses. If that fails, `tell` is called with the
    reason."""
    servers, wait_ms = settings.kafka_address(), settings.limits.log_ends_wait_ms
    if servers is None:
        yield KafkaSide(None, wait_ms, tell)
        return
    try:
        librdkafka()
    except UsageError as error:  # everything else is known without Kafka
        tell(f"{error}; {UNSEEN}")
        yield KafkaSide(None, wait_ms, tell)
        return
    with KafkaClient(servers, settings.kafka_settings()) as client:
        yield KafkaSide(client, wait_ms, tell)
