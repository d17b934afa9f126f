"""`zkcoord offsets migrate` on a real ZooKeeper and a real broker."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer as KafkasOwn
from confluent_kafka.admin import AdminClient

from tests.cli.program import Run
from tests.integration.world import World
from tests.kafka.helpers import QUIET
from tests.kafka.topics import create_topic
from tests.waiting import wait_until
from zkcoord.core.adoption import Adoption
from zkcoord.core.model import TopicPartition
from zkcoord.core.offset_store import STORES
from zkcoord.core.record import GroupRecord
from zkcoord.core.tenure import KafkaCommit
from zkcoord.embedded import EmbeddedKafka
from zkcoord.kafka.client import KafkaClient
from zkcoord.migrate import upgrade
from zkcoord.offsets.kafka_store import KafkaCommits
from zkcoord.tree.paths import DRAFT, LEGACY
from zkcoord.tree.record import decode_record, encode_record
from zkcoord.tree.registration import MARKER, Registration, encode_registration
from zkcoord.tree.status import Status, encode_status

pytestmark = [pytest.mark.zookeeper, pytest.mark.kafka]

PARTITIONS = 3


@pytest.fixture(scope="module")
def topic(kafka: EmbeddedKafka) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers}, logger=QUIET)
    create_topic(admin, name, PARTITIONS)
    return name


@pytest.fixture
def client(kafka: EmbeddedKafka) -> Iterator[KafkaClient]:
    with KafkaClient(kafka.bootstrap_servers) as client:
        yield client


class Groups:
    """Groups with offsets in a tree, and the command on them. Kafka outlives the tree: each has a name of its own."""

    def __init__(self, world: World, run: Run, client: KafkaClient, servers: str, topic: str) -> None:
        self.world, self.topic, self._run, self._servers = world, topic, run, servers
        self.kafka = KafkaCommits(client)
        self.name = self.make()

    def make(self) -> str:
        """One more group with three offsets."""
        group = f"g-{uuid.uuid4().hex[:8]}"
        for partition in range(PARTITIONS):
            self.world.put(DRAFT.offset(group, TopicPartition(self.topic, partition)), b"%d" % (10 + partition))
        return group

    def run(self, *words: str) -> tuple[int, list[dict[str, Any]], str]:
        """Exit code, objects, and what was said."""
        servers = ("--zookeeper", self.world.zookeeper, "--bootstrap-servers", self._servers)
        result = self._run(*words, *servers, "--output", "json")
        return result.exit_code, [json.loads(line) for line in result.stdout.splitlines()], result.stderr

    def migrate(self, *words: str) -> tuple[int, list[dict[str, Any]], str]:
        return self.run("offsets", "migrate", *words)

    def record(self, group: str = "") -> GroupRecord:
        return decode_record(self.world.data(DRAFT.record(group or self.name)))

    def in_kafka(self, group: str = "") -> list[int | None]:
        name = group or self.name
        found = self.kafka.read([name]).found[name]
        commits = [found.get(TopicPartition(self.topic, partition)) for partition in range(PARTITIONS)]
        return [None if commit is None else commit.offset for commit in commits]

    def member(self, *stores: str, status: Status | None = None) -> str:
        """A consumer that owns partition 0."""
        name = f"{self.name}_h-1-aaaaaaaa"
        registration = Registration(
            subscription={self.topic: 1},
            timestamp="1",
            coordination=MARKER,
            assignors=("sticky",),
            offers=frozenset({"offset-store"} if stores else ()),
            offsets=stores or None,
        )
        self.world.put(DRAFT.channel(self.name, name))
        self.world.put(DRAFT.channel(self.name, name), encode_status(status or Status()))
        self.world.put(DRAFT.registration(self.name, name), encode_registration(registration))
        self.world.put(DRAFT.owner(self.name, TopicPartition(self.topic, 0)), f"{name}-0".encode())
        return name


@pytest.fixture
def groups(chroot: str, run: Run, client: KafkaClient, kafka: EmbeddedKafka, topic: str) -> Iterator[Groups]:
    with World(chroot) as world:
        upgrade(world.tree, run_id="test")
        world.topic(topic, PARTITIONS)
        yield Groups(world, run, client, kafka.bootstrap_servers, topic)


def test_a_group_is_moved_the_whole_way_there_and_back_and_a_dry_run_writes_nothing(groups: Groups) -> None:
    name = groups.name
    code, planned, text = groups.migrate(name, "--to", "kafka", "--dry-run")
    assert (code, planned) == (
        0,
        [
            {
                "group": name,
                "from": "zookeeper",
                "to": "kafka",
                "store": "zookeeper",
                "step": 0,
                "result": "would be moved",
                "why": "zookeeper > dual > kafka; 0 consumers",
            }
        ],
    )
    assert text == "notice: nothing was written: --dry-run\n"
    assert groups.world.data(DRAFT.record(name)) == b""

    code, (moved,), text = groups.migrate(name, "--to", "kafka")
    assert (code, moved["from"], moved["store"], moved["step"], moved["result"]) == (
        0,
        "zookeeper",
        "kafka",
        2,
        "moved",
    )
    assert f"moved: group {name}: offsets are kept in dual from now on (step 1)\n" in text
    assert groups.in_kafka() == [10, 11, 12]
    assert groups.record() == GroupRecord(store_name="kafka", store_step=2)
    code, rows, _ = groups.run("offsets", "verify", name)
    assert code == 0
    assert [(row["zookeeper_offset"], row["kafka_offset"], row["source"]) for row in rows] == [
        (10 + partition, 10 + partition, "kafka") for partition in range(PARTITIONS)
    ]

    code, (again,), _ = groups.migrate(name, "--to", "kafka")
    assert (code, again["result"], again["step"]) == (0, "unchanged", 2)
    code, (back,), _ = groups.migrate(name, "--to", "zookeeper")
    assert (code, back["store"], back["step"], back["result"]) == (0, "zookeeper", 4, "moved")


def test_a_consumer_that_cannot_use_the_store_is_named_and_nothing_is_begun(groups: Groups) -> None:
    name = groups.member()
    code, (refused,), text = groups.migrate(groups.name, "--to", "dual")
    assert (code, refused["result"]) == (2, "refused")
    why = (
        f"these consumers cannot use the store 'dual': {name}: give them bootstrap servers, upgrade them, or stop them"
    )
    assert refused["why"] == why
    assert f"group {groups.name} is not moved: {why}" in text
    assert groups.world.data(DRAFT.record(groups.name)) == b""


def test_a_consumer_of_kafkas_own_protocol_in_the_group_id_is_named_until_it_is_gone(
    groups: Groups, kafka: EmbeddedKafka
) -> None:
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": groups.name, "client.id": "console"}
    own = KafkasOwn(settings, logger=QUIET)
    own.subscribe([groups.topic])
    try:
        wait_until(lambda: own.poll(0.1) is None and groups.kafka.users(groups.name) != [], "it is a member")
        code, (refused,), _ = groups.migrate(groups.name, "--to", "dual")
        assert code == 2
        assert refused["why"].startswith("consumers of Kafka's own protocol use the group id (console on ")
    finally:
        own.close()
    assert groups.migrate(groups.name, "--to", "dual")[0] == 0


def test_an_unforced_step_from_dual_waits_for_equal_offsets_and_tells_differences(
    groups: Groups,
) -> None:
    groups.world.put(DRAFT.record(groups.name), encode_record(GroupRecord(store_name="dual", store_step=1)))
    groups.member(*STORES, status=Status(store_name="dual", store_step=1))
    groups.kafka.commit(groups.name, {TopicPartition(groups.topic, 0): KafkaCommit(offset=7)})
    code, (late,), text = groups.migrate(groups.name, "--to", "kafka", "--timeout-ms", "1000")
    assert (code, late["result"], late["store"]) == (5, "not finished", "dual")
    assert late["why"] == f"1 offset not seen equal in both stores yet ({groups.topic}-0)"
    assert f"warning: group {groups.name}: {groups.topic}-0: ZooKeeper has 10, Kafka 7, 10 counts\n" in text
    assert "run it again to go on, or give --force if these differences do not matter" in text
    assert groups.in_kafka() == [7, 11, 12]

    code, (forced,), text = groups.migrate(groups.name, "--to", "kafka", "--force", "--timeout-ms", "1000")
    assert (code, forced["result"], forced["store"], forced["step"]) == (5, "not finished", "kafka", 2)
    assert forced["why"].endswith("was not told yet (kafka, step 2)")
    assert f"{groups.topic}-0: ZooKeeper has 10, Kafka 7, 10 counts" in text


def test_groups_of_a_file_are_moved_wave_by_wave_and_a_refused_one_holds_up_the_next_wave(
    groups: Groups, tmp_path: Path
) -> None:
    second, third = groups.make(), groups.make()
    file = tmp_path / "groups.toml"
    file.write_text(
        f'[groups."{groups.name}"]\n[groups."{second}"]\nto = "kafka"\n[groups."{third}"]\nwave = 2\n', encoding="utf-8"
    )
    words = ("--all-groups", "--from", str(file), "--to", "dual")
    name = groups.member()
    code, found, text = groups.migrate(*words)
    assert code == 2
    assert {each["group"]: each["result"] for each in found} == {groups.name: "refused", second: "moved"}
    assert "1 group refused" in text
    groups.world.remove(DRAFT.registration(groups.name, name))
    code, found, _ = groups.migrate(*words)
    assert code == 0
    assert {each["group"]: (each["result"], each["store"]) for each in found} == {
        groups.name: ("moved", "dual"),
        second: ("unchanged", "kafka"),
        third: ("moved", "dual"),
    }
    code, found, _ = groups.migrate("--all-groups", "--from", str(file), "--wave", "2", "--to", "zookeeper")
    assert [(each["group"], each["store"]) for each in found] == [(third, "zookeeper")]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--to", "dual"), "name one group, or give --all-groups"),
        (("g", "--to", "dual", "--all-groups"), "name one group, or give --all-groups"),
        (("g", "--to", "dual", "--from", "f"), "--from names the groups itself"),
        (("--all-groups", "--to", "dual", "--wave", "2"), "--wave chooses among the groups of a file"),
        (("g",), "where to? give --to zookeeper, --to dual or --to kafka"),
        (("nobody", "--to", "dual"), "there is no group 'nobody'"),
    ],
)
def test_a_wrong_call_is_refused_with_the_remedy(groups: Groups, words: tuple[str, ...], text: str) -> None:
    code, found, said = groups.migrate(*words)
    assert (code, found) == (2, [])
    assert text in said


def test_of_all_groups_those_that_are_not_adopted_are_left_out(chroot: str, run: Run, kafka: EmbeddedKafka) -> None:
    servers = ("--zookeeper", chroot, "--bootstrap-servers", kafka.bootstrap_servers, "--output", "json", "--dry-run")
    with World(chroot) as world:
        upgrade(world.tree, run_id="test", layout="legacy")
        world.put("/consumers/theirs/ids")
        adopted = Adoption(offsets="zookeeper", strategy="range", kafka="0.11")
        world.put("/consumers/ours/ids")
        world.put(LEGACY.record("ours"), encode_record(GroupRecord(adoption=adopted)))
        planned = run("offsets", "migrate", "--all-groups", "--to", "dual", *servers)
        refused = run("offsets", "migrate", "theirs", "--to", "dual", *servers)
    assert planned.exit_code == 0
    (document,) = map(json.loads, planned.stdout.splitlines())
    assert (document["group"], document["result"]) == ("ours", "would be moved")
    assert refused.exit_code == 2
    assert json.loads(refused.stdout)["why"] == "it is not adopted: `zkcoord group adopt theirs` first"


def test_f216_a_group_that_is_shared_with_an_old_member_is_not_moved_and_nothing_is_written(
    chroot: str, run: Run, kafka: EmbeddedKafka
) -> None:
    servers = ("--zookeeper", chroot, "--bootstrap-servers", kafka.bootstrap_servers, "--output", "json")
    group = f"g-{uuid.uuid4().hex[:8]}"
    adopted = GroupRecord(adoption=Adoption(offsets="zookeeper", strategy="range", kafka="0.11"))
    old = f"{LEGACY.ids(group)}/{group}_old-1416335000123-1a2b3c4d"
    with World(chroot) as world:
        upgrade(world.tree, run_id="test", layout="legacy")
        world.put(LEGACY.record(group), encode_record(adopted))
        world.put(old, b'{"version":1,"subscription":{"t":1},"pattern":"static","timestamp":"1416335000123"}')
        refused = run("offsets", "migrate", group, "--to", "dual", *servers)
        beside = decode_record(world.data(LEGACY.record(group)))
        world.remove(old)
        moved = run("offsets", "migrate", group, "--to", "dual", *servers)
    (document,) = map(json.loads, refused.stdout.splitlines())
    why = f"it is shared with old members (mixed): it has 1 old member: {old.rpartition('/')[2]}; replace these first"
    assert (refused.exit_code, document["result"], document["why"]) == (2, "refused", why)
    assert beside == adopted
    assert (moved.exit_code, json.loads(moved.stdout)["store"]) == (0, "dual")
