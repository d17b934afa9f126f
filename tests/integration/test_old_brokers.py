"""What zkcoord's stores and tools can do with brokers of other versions, and what they say where these are too old."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

from tests.integration.stores_world import Cluster, Reader, soon
from tests.integration.test_stores_real import WAYS, equal
from zkcoord.cli.main import cli

pytestmark = [pytest.mark.zookeeper, pytest.mark.kafka, pytest.mark.legacy, pytest.mark.long]

V010, V011, V11, V28, V39 = VERSIONS = ("0.10.2.2", "0.11.0.2", "1.1.1", "2.8.2", "3.9.1")
DELETE_GROUPS, DEFAULT_FACTOR, TELL_THEIR_CONFIG = (V11, V28, V39), (V28, V39), (V011, V11, V28, V39)
STORES = ("zookeeper", "dual", "kafka")


@pytest.fixture(scope="module", params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def servers(version: str) -> Iterator[Cluster]:
    with Cluster({}, version=version) as cluster:
        yield cluster


@pytest.fixture
def cluster(servers: Cluster) -> Cluster:
    servers.begin(2)
    return servers


def run(cluster: Cluster, *words: str) -> Result:
    """Run a command with the addresses of both servers."""
    where = ["--zookeeper", cluster.zookeeper, "--bootstrap-servers", cluster.servers]
    return CliRunner().invoke(cli, [*where, *words], prog_name="zkcoord")


def done(cluster: Cluster, *words: str) -> str:
    """Run a command that succeeds; what it prints for programs."""
    ran = run(cluster, "--output", "json", *words)
    assert ran.exit_code == 0, ran.output
    return ran.stdout


def committed(cluster: Cluster, store: str, offsets: dict[int, int]) -> bool:
    """True once these offsets stand in each store that is in use, and in no other."""
    if store == "zookeeper":
        return cluster.nodes() == offsets and cluster.offsets_in_kafka() == {}
    return equal(cluster, offsets) and (store == "kafka" or cluster.nodes() == offsets)


@pytest.mark.parametrize("store", STORES)
def test_a_consumer_commits_to_each_store_and_its_successor_goes_on_there(cluster: Cluster, store: str) -> None:
    reader = Reader(cluster)
    soon(cluster, "it reads", lambda: len(reader.consumer.assignment()) == 2)
    cluster.move(*WAYS.get(store, ()))
    cluster.produce(20, 0, 1)
    soon(cluster, f"both are committed to {store}", lambda: committed(cluster, store, {0: 20, 1: 20}))
    reader.leave()
    assert reader.offsets(0) == reader.offsets(1) == list(range(20))
    cluster.produce(5, 0, 1)
    successor = Reader(cluster)
    soon(cluster, "the successor commits", lambda: committed(cluster, store, {0: 25, 1: 25}))
    assert successor.offsets(0) == successor.offsets(1) == list(range(20, 25))
    successor.leave()


def test_offsets_are_migrated_verified_and_reset(cluster: Cluster) -> None:
    reader = Reader(cluster)
    soon(cluster, "it reads", lambda: len(reader.consumer.assignment()) == 2)
    cluster.produce(20, 0, 1)
    soon(cluster, "both are committed", lambda: committed(cluster, "zookeeper", {0: 20, 1: 20}))
    done(cluster, "offsets", "migrate", cluster.group, "--to", "kafka")
    rows = [json.loads(line) for line in done(cluster, "offsets", "verify", cluster.group).splitlines()]
    assert [(row["counts"], row["kafka_offset"]) for row in rows] == [(20, 20)] * 2
    done(cluster, "group", "reset-offsets", cluster.group, "--to-offset", "5", "--stop-first")
    soon(cluster, "it reads again", lambda: reader.offsets(0)[20:] == reader.offsets(1)[20:] == list(range(5, 20)))
    reader.leave()
    done(cluster, "group", "reset-offsets", cluster.group, "--to-offset", "3")
    assert {number: at for number, (_, at) in cluster.verdicts().items()} == {0: 3, 1: 3}


def test_f222_a_group_is_deleted_with_its_offsets_or_the_version_is_told_that_can_do_it(
    cluster: Cluster, version: str
) -> None:
    reader = Reader(cluster)
    soon(cluster, "it reads", lambda: len(reader.consumer.assignment()) == 2)
    cluster.move(*WAYS["kafka"])
    cluster.produce(20, 0, 1)
    soon(cluster, "both are committed", lambda: committed(cluster, "kafka", {0: 20, 1: 20}))
    reader.leave()
    ran = run(cluster, "group", "delete", cluster.group, "--offsets")
    if version in DELETE_GROUPS:
        assert (ran.exit_code, cluster.offsets_in_kafka(), cluster.nodes()) == (0, {}, {}), ran.output
        return
    assert (ran.exit_code, "that needs Kafka 1.1. Leave out --offsets" in ran.output) == (2, True), ran.output
    assert (cluster.offsets_in_kafka(), cluster.nodes()) == ({0: 20, 1: 20}, {0: 20, 1: 20})
    done(cluster, "group", "delete", cluster.group)


def test_a_topic_is_created_or_what_is_missing_is_told(cluster: Cluster, version: str) -> None:
    done(cluster, "topic", "create", f"{cluster.topic}-a", "--partitions", "2", "--replication-factor", "1")
    ran = run(cluster, "topic", "create", f"{cluster.topic}-b", "--partitions", "2")
    if version in DEFAULT_FACTOR:
        assert ran.exit_code == 0, ran.output
    else:
        assert (ran.exit_code, "(that needs Kafka 2.4): give --replication-factor" in ran.output) == (2, True)


def test_the_doctor_says_what_brokers_tell_of_themselves(cluster: Cluster, version: str) -> None:
    found = run(cluster, "doctor", "--all").stdout
    told = "protocol version of the brokers" if version in TELL_THEIR_CONFIG else "they are older than Kafka 0.11"
    assert told in found
