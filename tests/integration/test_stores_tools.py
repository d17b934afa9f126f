"""Kafka's own tool `kafka-consumer-groups`, of Kafka 4.1, on groups whose offsets stand in Kafka."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.brokers import BOTH
from tests.integration.stores_world import Cluster, Reader, soon
from tests.integration.test_stores_real import IN_KAFKA, equal, read_in
from zkcoord.embedded.kafka_tools import kafka_tool

pytestmark = [pytest.mark.zookeeper, pytest.mark.kafka, pytest.mark.legacy]


@pytest.fixture(scope="module", params=BOTH)
def servers(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with Cluster({}, version=request.param) as cluster:
        yield cluster


@pytest.fixture
def cluster(servers: Cluster) -> Cluster:
    servers.begin(2)
    return servers


def described(cluster: Cluster) -> dict[str, list[str]]:
    """Partition -> its current offset, the log's end and the lag, as the tool shows them."""
    said = kafka_tool(
        "kafka-consumer-groups", "--bootstrap-server", cluster.servers, "--describe", "--group", cluster.group
    )
    rows = [line.split() for line in said.splitlines() if line.startswith(cluster.group)]
    assert rows, said
    return {row[2]: row[3:6] for row in rows}


@IN_KAFKA
def test_the_tool_shows_offsets_and_lag_of_a_group_that_is_read(cluster: Cluster, store: str) -> None:
    reader = read_in(cluster, store)
    reader.commits = False
    cluster.produce(3, 0)
    soon(cluster, "they are read", lambda: reader.has(0, 23))
    assert described(cluster) == {"0": ["20", "23", "3"], "1": ["20", "20", "0"]}
    reader.leave()


def reset(cluster: Cluster, offset: int) -> str:
    """Reset partition 0 with the tool; returns what it printed."""
    where = f"{cluster.topic}:0"
    words = ("--reset-offsets", "--to-offset", str(offset), "--topic", where, "--execute")
    return kafka_tool("kafka-consumer-groups", "--bootstrap-server", cluster.servers, "--group", cluster.group, *words)


def test_f123_kafkas_reset_tool_sets_a_group_back_while_it_is_read(cluster: Cluster) -> None:
    reader = read_in(cluster, "kafka")
    said = reset(cluster, 4)
    assert "4" in said.splitlines()[-1] or cluster.offsets_in_kafka()[0] == 4, said
    cluster.produce(1, 0, 1)
    soon(cluster, "it is read again", lambda: equal(cluster, {0: 21, 1: 21}))
    assert reader.offsets(0) == [*range(20), *range(20, 20), *reader.offsets(0)[20:]]
    assert list(range(4, 21)) == reader.offsets(0)[-17:]
    assert reader.offsets(1) == list(range(21))
    reader.leave()


def test_f123_kafkas_reset_tool_never_skips_what_nobody_has_processed(cluster: Cluster) -> None:
    reader = read_in(cluster, "kafka")
    reader.leave()
    cluster.produce(10, 0)
    reset(cluster, 30)
    assert cluster.offsets_in_kafka()[0] == 30
    successor = Reader(cluster)
    soon(cluster, "all of it is read", lambda: equal(cluster, {0: 30, 1: 20}))
    assert successor.offsets(0) == list(range(20, 30))
    successor.leave()
