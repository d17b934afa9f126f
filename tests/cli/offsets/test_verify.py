"""`zkcoord offsets verify` on a real ZooKeeper and a real broker; no coordinator."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from tests.cli.group_tree import World
from tests.cli.program import Run
from tests.kafka.commits import commit_as_stranger
from tests.kafka.helpers import PATIENCE_SECONDS, QUIET
from tests.kafka.topics import create_topic
from zkcoord.core.model import TopicPartition
from zkcoord.core.record import GroupRecord
from zkcoord.core.tenure import KafkaCommit, Stamp, Tenure
from zkcoord.embedded import EmbeddedKafka
from zkcoord.kafka.client import KafkaClient
from zkcoord.migrate import current
from zkcoord.offsets.kafka_store import KafkaCommits
from zkcoord.offsets.verdict import Verdict
from zkcoord.shell.zk.blocking import Tree
from zkcoord.tree.paths import DRAFT, LEGACY
from zkcoord.tree.record import encode_record
from zkcoord.tree.snapshot import Read, parents
from zkcoord.tree.writes import CreateNode, Transaction

pytestmark = [pytest.mark.zookeeper, pytest.mark.kafka]


@pytest.fixture
def admin(kafka: EmbeddedKafka) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka.bootstrap_servers}, logger=QUIET)


def tree_id(tree: Tree) -> str:
    schema = current(tree)
    assert schema is not None
    return schema.tree_id


def new_topic(admin: AdminClient, partitions: int) -> str:
    topic = f"t-{uuid.uuid4().hex[:8]}"
    create_topic(admin, topic, partitions)
    return topic


def verified(run: Run, address: str, kafka: EmbeddedKafka, *words: str) -> list[dict[str, Any]]:
    options = ("--zookeeper", address, "--bootstrap-servers", kafka.bootstrap_servers, "--output", "json")
    result = run("offsets", "verify", *words, *options)
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_a_group_of_ours_that_commits_to_both_stores(
    chroot: str, run: Run, kafka: EmbeddedKafka, admin: AdminClient, tmp_path: Path
) -> None:
    topic, group = new_topic(admin, 4), f"g-{uuid.uuid4().hex[:8]}"
    p = [TopicPartition(topic, number) for number in range(4)]
    with Tree(chroot) as tree, KafkaClient(kafka.bootstrap_servers) as client:
        world = World(tree, chroot)
        world.put(DRAFT.record(group), encode_record(GroupRecord(store_name="dual")))
        world.put(DRAFT.owner(group, p[0]), f"{group}_a-0".encode())
        for partition in p[:3]:
            world.put(DRAFT.offset(group, partition), b"0")
        stats = [node.stat for node in tree.read([Read(DRAFT.offset(group, each)) for each in p[:3]])]
        mzxids = [stat.mzxid for stat in stats if stat is not None]
        world.put(DRAFT.offset(group, p[1]), b"0")  # a later tenure
        stamps = [Stamp(tenure=Tenure(tree_id(tree), mzxid), at_ms=1_700_000_000_000) for mzxid in mzxids]
        KafkaCommits(client).commit(group, {p[n]: KafkaCommit(offset=0, stamp=stamps[n]) for n in (0, 1)})
        commit_as_stranger(admin, group, topic, {3: 9})
    found = verified(run, chroot, kafka, group)
    assert [(d["partition"], d["zookeeper_offset"], d["kafka_offset"], d["counts"], d["verdict"]) for d in found] == [
        (0, 0, 0, 0, "equal"),
        (1, 0, 0, 0, "behind"),
        (2, 0, None, 0, "expired"),
        (3, None, 9, 9, "out of range"),
    ]
    first = found[0]
    assert (first["source"], first["owner"], first["store"]) == ("kafka", f"{group}_a-0", "dual")
    assert (first["log_start"], first["log_end"], first["kafka_committed_ms"]) == (0, 0, 1_700_000_000_000)
    assert first["zookeeper_written_ms"] > 1_600_000_000_000

    file = tmp_path / "all.parquet"
    servers = ("--zookeeper", chroot, "--bootstrap-servers", kafka.bootstrap_servers)
    result = run("offsets", "verify", "--all-groups", "--differences", "--parquet", str(file), *servers)
    lines = result.stdout.splitlines()
    assert (result.exit_code, lines[0]) == (0, f"Group {group}")
    assert lines[1].split()[:3] == ["TOPIC", "PARTITION", "ZOOKEEPER"]
    assert [line.split()[1] for line in lines[2:5]] == ["1", "2", "3"]
    assert f"! expired: whoever is given the partition next writes both ({topic}-2)" in lines
    assert lines[-1] == "1 group, 4 partitions: 1 equal, 1 behind, 1 expired, 1 out of range"
    written = pyarrow.parquet.read_table(file).to_pylist()
    assert [(row["partition"], row["verdict"]) for row in written] == [(d["partition"], d["verdict"]) for d in found]
    again = run("offsets", "verify", "--all-groups", "--parquet", str(file), *servers)
    assert (again.exit_code, "the file is there already" in again.stderr) == (2, True)


TOLD = [
    (0, 5, 5, 5, "equal"),
    (1, 5, 3, 5, "behind"),
    (2, 5, 7, 7, "ahead"),
    (3, 5, 3, 3, "rewound"),
    (4, 5, 9, 5, "foreign"),
    (5, 5, None, 5, "expired"),
    (6, None, 4, 4, "only kafka"),
    (7, 50, 50, 50, "out of range"),
    (8, 5, None, 5, "only zookeeper"),  # of another group, which keeps its offsets there
]


def test_each_verdict_is_told_in_the_table_for_programs_and_in_parquet(
    chroot: str, run: Run, kafka: EmbeddedKafka, admin: AdminClient, tmp_path: Path
) -> None:
    topic, groups = new_topic(admin, 9), [f"{name}-{uuid.uuid4().hex[:8]}" for name in "gh"]
    p = [TopicPartition(topic, number) for number in range(9)]
    with Tree(chroot) as tree, KafkaClient(kafka.bootstrap_servers) as client:
        world = World(tree, chroot)
        world.put(DRAFT.record(groups[0]), encode_record(GroupRecord(store_name="kafka")))
        for number, node, *_ in TOLD:
            for text in () if node is None else (b"0", str(node).encode()):  # the second write is the present tenure
                world.put(DRAFT.offset(groups[number == 8], p[number]), text)
        found = tree.read([Read(DRAFT.offset(groups[0], each)) for each in p[:8]])
        mzxids = [0 if node.stat is None else node.stat.mzxid for node in found]
        stamps = [Stamp(tenure=Tenure(tree_id(tree), mzxid - (n == 1)), at_ms=7) for n, mzxid in enumerate(mzxids)]
        offsets = {n: there for n, _, there, *_ in TOLD if there is not None}
        ours = {p[n]: KafkaCommit(offset=there, stamp=stamps[n]) for n, there in offsets.items() if n != 4}
        assert KafkaCommits(client).commit(groups[0], ours).error() is None
        commit_as_stranger(admin, groups[0], topic, {4: offsets[4]})
        records = Producer({"bootstrap.servers": kafka.bootstrap_servers}, logger=QUIET)
        for each in p:
            for _ in range(10):
                records.produce(topic, b"", partition=each.partition)
        assert records.flush(PATIENCE_SECONDS) == 0

    documents = verified(run, chroot, kafka, "--all-groups")

    keys = ("partition", "zookeeper_offset", "kafka_offset", "counts", "verdict")
    assert [tuple(document[key] for key in keys) for document in documents] == TOLD
    assert {verdict for *_, verdict in TOLD} == {verdict.value for verdict in Verdict}
    assert [d["verdict"] for d in documents if not d["todo"]] == ["equal", "only kafka", "only zookeeper"]
    file = tmp_path / "all.parquet"
    servers = ("--zookeeper", chroot, "--bootstrap-servers", kafka.bootstrap_servers)
    lines = run("offsets", "verify", "--all-groups", "--parquet", str(file), *servers).stdout.splitlines()
    shown = [line.split() for line in lines if line.startswith(topic)]
    for words, (number, *_, verdict) in zip(shown, TOLD, strict=True):
        assert (int(words[1]), " ".join(words).endswith(f" {verdict}")) == (number, True), words
    table = pyarrow.parquet.read_table(file)
    times = {name: table[name].cast(pyarrow.int64()) for name in table.column_names if name.endswith("_ms")}
    for name, column in times.items():
        table = table.set_column(table.column_names.index(name), name, column)
    assert table.to_pylist() == documents


def test_a_group_of_old_consumers_that_nobody_has_adopted(
    chroot: str, run: Run, kafka: EmbeddedKafka, admin: AdminClient
) -> None:
    topic, group = new_topic(admin, 3), f"g-{uuid.uuid4().hex[:8]}"
    with Tree(chroot) as tree:
        for number in range(2):
            path = LEGACY.offset(group, TopicPartition(topic, number))
            for each, data in (*((parent, b"") for parent in parents(path)), (path, b"0")):
                tree.commit(Transaction(writes=(CreateNode(each, data),)))
    commit_as_stranger(admin, group, topic, {1: 0, 2: 0})
    found = verified(run, chroot, kafka, "--all-groups")
    assert [(d["group"], d["store"], d["partition"], d["verdict"], d["todo"]) for d in found] == [
        (group, "old", 0, "only zookeeper", ""),
        (group, "old", 1, "equal", ""),
        (group, "old", 2, "only kafka", ""),
    ]


def test_a_group_that_neither_store_knows_is_told_and_so_is_a_kafka_that_nobody_named(
    chroot: str, run: Run, kafka: EmbeddedKafka
) -> None:
    with Tree(chroot) as tree:
        World(tree, chroot)
    options = ("--zookeeper", chroot, "--bootstrap-servers", kafka.bootstrap_servers)
    result = run("offsets", "verify", "nobody", *options)
    assert (result.exit_code, "there is no group 'nobody'" in result.stderr) == (2, True)
    result = run("offsets", "verify", "nobody", "--zookeeper", chroot)
    assert (result.exit_code, "where is Kafka? give --bootstrap-servers" in result.stderr) == (2, True)
    result = run("offsets", "verify", "nobody", "--zookeeper", chroot, "--bootstrap-servers", "127.0.0.1:1")
    assert (result.exit_code, "cannot be reached" in result.stderr) == (5, True)
