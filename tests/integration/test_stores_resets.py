"""Offsets in both stores and in Kafka, on real servers, with live members: resets by zkcoord's tool."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.integration.stores_world import Cluster, Reader, soon
from tests.integration.test_old_brokers import done, run
from tests.integration.test_stores_real import IN_KAFKA, equal, read_in

pytestmark = [pytest.mark.zookeeper, pytest.mark.kafka, pytest.mark.long]


@pytest.fixture(scope="module")
def servers() -> Iterator[Cluster]:
    with Cluster({}) as cluster:
        yield cluster


@pytest.fixture
def cluster(servers: Cluster) -> Cluster:
    servers.begin(2)
    return servers


@IN_KAFKA
@pytest.mark.parametrize("goal", [5, 26], ids=["rewind", "skip"])
def test_a_reset_that_stops_live_members_first_wins_in_both_directions(cluster: Cluster, store: str, goal: int) -> None:
    """Each member goes on at the new offset: nothing before it comes, nothing behind it is left out."""
    readers = [read_in(cluster, store)]
    readers.append(Reader(cluster))
    soon(cluster, "each holds one", lambda: [len(reader.consumer.assignment()) for reader in readers] == [1, 1])
    for reader in readers:
        reader.halt()
    cluster.produce(10, 0, 1)
    before = [len(reader.offsets(n)) for reader in readers for n in (0, 1)]
    refused = run(cluster, "group", "reset-offsets", cluster.group, "--to-offset", str(goal))
    assert (refused.exit_code, "or give --stop-first" in refused.output) == (2, True), refused.output

    words = ("group", "reset-offsets", cluster.group, "--to-offset", str(goal), "--stop-first")
    rows = [json.loads(line) for line in done(cluster, *words).splitlines()]
    assert [(row["partition"], row["before"], row["after"]) for row in rows] == [(0, 20, goal), (1, 20, goal)]
    for reader in readers:
        reader.go_on()
    soon(cluster, "the rest is committed", lambda: equal(cluster, {0: 30, 1: 30}))
    for reader in readers:
        reader.leave()
    after = [reader.offsets(n) for reader in readers for n in (0, 1)]
    read = [offsets[seen:] for offsets, seen in zip(after, before, strict=True)]
    assert [read[0] + read[2], read[1] + read[3]] == [list(range(goal, 30))] * 2
