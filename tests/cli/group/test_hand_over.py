"""`zkcoord group hand-over|take-back` with zkcoord's consumers and Kafka's own, on real servers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest
from click.testing import Result
from confluent_kafka import Consumer, Message, TopicPartition

from tests.cli.group.kafkas_reader import committed
from tests.cli.program import Run
from tests.integration.stores_world import Cluster, Reader, soon
from tests.integration.test_stores_real import equal, read_in
from tests.kafka.helpers import PATIENCE_SECONDS, QUIET
from zkcoord.embedded.artifacts import KAFKA_4_VERSION, KAFKA_VERSION
from zkcoord.offsets.kafka_store import KafkaCommits
from zkcoord.shell.ports import Outcome
from zkcoord.tree.paths import SCHEMA
from zkcoord.tree.schema import decode_schema, encode_schema
from zkcoord.tree.snapshot import Read
from zkcoord.tree.writes import SetNode, Transaction

pytestmark = [pytest.mark.zookeeper, pytest.mark.kafka]

NEWER = pytest.mark.parametrize("servers", [KAFKA_4_VERSION], indirect=True)
BOTH = pytest.mark.parametrize(
    "servers", [pytest.param(KAFKA_VERSION, marks=pytest.mark.long), KAFKA_4_VERSION], indirect=True
)
COMMANDS_FOR_OFFSETS = (
    "group hand-over G",
    "group take-back G --force",
    "group reset-offsets G --to-earliest",
    "group delete G --offsets",
    "offsets migrate G --to dual",
    "offsets verify G",
)
OLD_PROTOCOL, NEW_PROTOCOL = "classic", "consumer"  # Kafka's names; the new one is KIP-848's


@pytest.fixture(scope="module")
def servers(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with Cluster({}, version=request.param) as cluster:
        yield cluster


@pytest.fixture
def cluster(servers: Cluster) -> Cluster:
    servers.begin(2)
    return servers


class KafkasReader(threading.Thread):
    """A service with a consumer of Kafka's own protocol, in the group of this id in Kafka."""

    def __init__(self, cluster: Cluster, protocol: str) -> None:
        super().__init__(daemon=True)
        self._leave = threading.Event()
        self._lock = threading.Lock()
        self._seen: dict[int, list[int]] = {}
        self._uncommitted: dict[int, Message] = {}  # by partition
        self._failed: BaseException | None = None
        self.commits = True
        config = {"bootstrap.servers": cluster.servers, "group.id": cluster.group, "group.protocol": protocol}
        # without a committed offset it would fail, instead of beginning anywhere
        more = {"enable.auto.commit": False, "auto.offset.reset": "error"}
        self._consumer = Consumer({**config, **more}, logger=QUIET)
        self._consumer.subscribe([cluster.topic], on_revoke=self._give_back)
        self.start()

    def run(self) -> None:
        """Read and commit each record, until told to leave."""
        try:
            while not self._leave.is_set():
                self._read()
            self._consumer.close()
        except BaseException as error:  # a thread that waits for it raises it
            self._failed = error

    def _read(self) -> None:
        message = self._consumer.poll(0.1)
        if message is not None:
            assert message.error() is None, message.error()
            with self._lock:
                self._seen.setdefault(message.partition(), []).append(message.offset())
            if self.commits:
                self._uncommitted[message.partition()] = message
        for partition, last in list(self._uncommitted.items()):
            if committed(self._consumer, message=last):
                del self._uncommitted[partition]

    def _give_back(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            self._uncommitted.pop(each.partition, None)

    @property
    def works(self) -> bool:
        """True. If it has ended by an error, that is raised."""
        if self._failed is not None:
            raise self._failed
        return True

    def offsets(self, number: int) -> list[int]:
        """Return the offsets that it has read of a partition, in order."""
        assert self.works
        with self._lock:
            return list(self._seen.get(number, ()))

    def leave(self) -> None:
        """Leave without a commit."""
        self._leave.set()
        self.join(PATIENCE_SECONDS)
        assert self.works
        assert not self.is_alive()


def read_by(readers: list[Reader] | list[KafkasReader], number: int) -> list[int]:
    """Return the offsets that these readers together have read of a partition."""
    return sorted(offset for reader in readers for offset in reader.offsets(number))


def zkcoord(run: Run, cluster: Cluster, verb: str, *words: str) -> Result:
    where = ("--zookeeper", cluster.zookeeper, "--bootstrap-servers", cluster.servers)
    return run("group", verb, cluster.group, *words, *where)


def there_and_back(cluster: Cluster, run: Run, protocol: str) -> None:
    """A group is handed over, read by Kafka's consumers, and taken back; one of them does not commit what it read."""
    ours = [read_in(cluster, "kafka"), Reader(cluster)]
    soon(cluster, "the two share", lambda: {len(reader.consumer.assignment()) for reader in ours} == {1})
    done = zkcoord(run, cluster, "hand-over")
    assert done.exit_code == 0, done.stderr
    assert cluster.offsets_in_kafka() == cluster.nodes() == {0: 20, 1: 20}
    cluster.produce(5, 0, 1)

    theirs = [KafkasReader(cluster, protocol), KafkasReader(cluster, protocol)]
    soon(cluster, "they read", lambda: all(r.works for r in theirs) and cluster.offsets_in_kafka() == {0: 25, 1: 25})
    assert KafkaCommits(cluster.client).users(cluster.group) != []
    for verb, why in {
        "take-back": "is read by consumers of Kafka's own protocol",
        "resume": "is handed over to consumers of Kafka's own protocol",
        "hand-over": "is handed over already",
    }.items():
        refused = zkcoord(run, cluster, verb)
        assert (refused.exit_code, why in refused.stderr) == (2, True), refused.stderr
    for reader in theirs:
        reader.commits = False
    cluster.produce(5, 0, 1)
    soon(cluster, "they read on", lambda: all(read_by(theirs, n)[-1:] == [29] for n in (0, 1)))
    for reader in theirs:
        reader.leave()
    soon(cluster, "they are gone", lambda: KafkaCommits(cluster.client).users(cluster.group) == [])

    shown = zkcoord(run, cluster, "take-back", "--dry-run")
    assert [line.split()[1:] for line in shown.stdout.splitlines()[1:]] == [
        ["0", "20", "25", "25"],
        ["1", "20", "25", "25"],
    ], shown.stderr
    back = zkcoord(run, cluster, "take-back")
    assert back.exit_code == 0, back.stderr
    cluster.produce(5, 0, 1)
    soon(cluster, "ours go on", lambda: equal(cluster, {0: 35, 1: 35}))
    for n in (0, 1):
        assert sorted(set(read_by(theirs, n))) == list(range(20, 30))  # again where Kafka moved what was not committed
        assert read_by(ours, n) == [*range(20), *range(25, 35)]  # again what theirs did not commit, nothing else
    for one in ours:
        one.leave()


@BOTH
def test_f161_a_group_goes_to_consumers_of_kafkas_classic_protocol_and_comes_back(cluster: Cluster, run: Run) -> None:
    there_and_back(cluster, run, OLD_PROTOCOL)


@NEWER
def test_f159_a_group_goes_to_consumers_of_kafkas_new_protocol_and_comes_back(cluster: Cluster, run: Run) -> None:
    there_and_back(cluster, run, NEW_PROTOCOL)


@BOTH
def test_an_unfit_group_is_neither_taken_back_nor_handed_over(cluster: Cluster, run: Run) -> None:
    reader = Reader(cluster)
    soon(cluster, "it reads", lambda: len(reader.consumer.assignment()) == 2)
    for verb, why in {
        "take-back": "is not handed over to Kafka's consumers",
        "hand-over": "keeps its offsets in the store 'zookeeper'",
    }.items():
        refused = zkcoord(run, cluster, verb)
        assert (refused.exit_code, why in refused.stderr) == (2, True), refused.stderr
    reader.leave()


@BOTH
def test_the_offsets_in_kafka_stay_when_a_group_that_was_handed_over_is_deleted(cluster: Cluster, run: Run) -> None:
    reader = read_in(cluster, "kafka")
    assert zkcoord(run, cluster, "hand-over").exit_code == 0
    reader.leave()
    deleted = zkcoord(run, cluster, "delete", "--offsets")
    assert deleted.exit_code == 0, deleted.stderr
    assert cluster.offsets_in_kafka() == {0: 20, 1: 20}
    assert cluster.nodes() == {}


def name_cluster(cluster: Cluster, name: str) -> str:
    """Say in the schema that the tree's topics are of this cluster; returns the one that was named."""
    (node,) = cluster.tree.read([Read(SCHEMA)])
    assert node.stat is not None
    stands = decode_schema(node.data)
    write = SetNode(SCHEMA, encode_schema(replace(stands, cluster_id=name)), node.stat.version)
    assert cluster.tree.commit(Transaction(writes=(write,))).outcome is Outcome.COMMITTED
    return stands.cluster_id


@NEWER
def test_f204_brokers_of_another_cluster_are_given_no_offsets_and_asked_for_none(cluster: Cluster, run: Run) -> None:
    reader = read_in(cluster, "kafka")
    reader.leave()
    mine = name_cluster(cluster, "other")
    try:
        for command in COMMANDS_FOR_OFFSETS:
            where = ("--zookeeper", cluster.zookeeper, "--bootstrap-servers", cluster.servers)
            refused = run(*(cluster.group if word == "G" else word for word in command.split()), *where)
            assert (refused.exit_code, "the tree's topics of 'other'" in refused.stderr) == (2, True), refused.stderr
    finally:
        name_cluster(cluster, mine)
    assert cluster.offsets_in_kafka() == cluster.nodes() == {0: 20, 1: 20}
