"""`zkcoord inventory` on a real ZooKeeper that holds what old brokers, consumers and tools left; no coordinator."""

from __future__ import annotations

import json
import re
import tomllib
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from tests.cli.old_world import AUDIT, ETL, LONG, OLDEST, UUID, OldWorld
from tests.cli.program import Run
from tests.kafka.commits import commit_as_stranger
from tests.kafka.helpers import QUIET
from tests.kafka.topics import create_topic
from tests.legacy.groups import A, B, static
from zkcoord.embedded import EmbeddedKafka
from zkcoord.embedded.artifacts import KAFKA_VERSION
from zkcoord.legacy.walk import GROUPS_AT_ONCE
from zkcoord.shell.zk.blocking import Tree

pytestmark = pytest.mark.zookeeper


@pytest.fixture
def world(chroot: str) -> Iterator[OldWorld]:
    with Tree(chroot) as tree:
        yield OldWorld(tree, chroot)


def documents(run: Run, world: OldWorld, *options: str) -> list[dict[str, Any]]:
    """What programs are told."""
    result = run("inventory", "--output", "json", "--zookeeper", world.address, *options)
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def without_times(value: Any) -> Any:
    """The document without what differs from run to run."""
    if isinstance(value, dict):
        return {key: without_times(each) for key, each in value.items() if not key.endswith("_ms")}
    return value


def test_a_deployment_for_people(world: OldWorld, run: Run) -> None:
    for name, parts in (("g", ETL), (LONG, AUDIT), ("oldest", OLDEST)):
        world.group(name, parts)
    before = world.everything()

    result = run("inventory", "--zookeeper", world.address)

    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[:5] == [
        f"{'GROUP':{len(LONG)}}  KIND     #MEMBERS  OWNED  OFFSETS     #NOTES",
        f"{LONG}  foreign         2  1/1    zookeeper?       6",
        f"{'g':{len(LONG)}}  old             2  2/2    zookeeper?       -",
        f"{'oldest':{len(LONG)}}  0.7             1  -      none             1",
        "",
    ]
    assert max(map(len, lines[5:])) <= 80
    assert lines[5] == f"{LONG}:"
    assert world.everything() == before  # it has written nothing


def test_one_group_for_people_has_its_members_and_what_must_be_told(world: OldWorld, run: Run) -> None:
    world.group("g", ETL)
    lines = run("inventory", "g", "--zookeeper", world.address).stdout.splitlines()
    told = " ".join(line.strip() for line in lines[3:])
    assert told.startswith("g: old, 2 members; 1 topic; 2 owned, 0 without an owner; strategy: what is owned fits ")
    assert f"{A}: kafka 0.8.0-1.1.1 (nothing in it differs between versions), clicks:1, owns 1 partition" in told
    assert re.findall(r"tell (\w+):", told) == ["offsets", "dual_commit", "strategy", "kafka"]


def test_a_deployment_for_programs(world: OldWorld, run: Run) -> None:
    for name, parts in (("g", ETL), (LONG, AUDIT)):
        world.group(name, parts)
    audit, etl = documents(run, world)

    assert without_times(etl) | {"members": [], "questions": []} == {
        "group": "g",
        "kind": "old",
        "members": [],
        "topics": ["clicks"],
        "owners": {"clicks-0": {"thread": f"{A}-0"}, "clicks-1": {"thread": f"{B}-0"}},
        "fits": ["range", "roundrobin-0.8", "roundrobin-1.0"],
        "store": "zookeeper",
        "offsets": {"clicks-0": {"offset": 100}, "clicks-1": {"offset": 7}},
        "kafka_offsets": None,
        "orphans": {"without_member": [], "without_owner": [], "gone_topics": [], "gone_partitions": []},
        "questions": [],
        "problems": [],
    }
    assert etl["members"][0] | {"since_ms": 0} == {
        "consumer": A,
        "library": "kafka",
        "versions": "0.8.0-1.1.1",
        "known_by": "nothing in it differs between versions",
        "since_ms": 0,
        "ephemeral": True,
        "wildcard": None,
        "black_list": False,
        "threads": {"clicks": 1},
        "owned": 1,
        "problem": None,
    }
    assert etl["made_ms"] <= etl["last_commit_ms"] == etl["offsets"]["clicks-1"]["written_ms"]
    assert [(m["consumer"], m["library"], m["threads"]) for m in audit["members"]] == [
        (f"{LONG}_x", "kafka", {"views": 1}),
        (f"h:{UUID}", "pykafka", {}),
    ]
    assert audit["orphans"] == {
        "without_member": ["views-0"],
        "without_owner": [],
        "gone_topics": ["gone"],
        "gone_partitions": [],
    }
    assert audit["offsets"]["views-0"]["offset"] is None


def test_the_file_to_fill_in_is_toml_with_a_mark_for_each_thing_to_tell(
    world: OldWorld, run: Run, tmp_path: Path
) -> None:
    strange = 'a "b" \u00e4'
    mine = {"ids": {f"{strange}_x": static(clicks=1)}}
    for name, parts in ((strange, mine), ("audit", AUDIT), ("dead", {"offsets": {"clicks/0": "1"}})):
        world.group(name, parts)
    file = tmp_path / "groups.toml"
    arguments = ("inventory", "--write", str(file), "--zookeeper", world.address)
    assert run(*arguments).exit_code == 0

    text = file.read_text(encoding="utf-8")
    groups = tomllib.loads(text)["groups"]
    assert list(groups) == [strange, "dead"]
    assert groups["dead"] == {
        "offsets": "?",
        "dual_commit": "?",
        "strategy": "?",
        "kafka": "?",
        "retries": 4,
        "backoff_ms": 2000,
        "auto_commit_interval_ms": 60000,
        "exclude_internal": True,
        "wave": 1,
    }
    assert '# "audit" is left out: its members are foreign' in text
    assert "# ! topic gone is gone, with owners or offsets left" in text
    again = run(*arguments)
    assert (again.exit_code, again.stderr) == (
        2,
        f"error: --write {file}: the file is there already; name another one\n",
    )
    assert file.read_text(encoding="utf-8") == text


def test_hundreds_of_groups_are_read_some_at_a_time(world: OldWorld, run: Run) -> None:
    names = [f"g{number:03}" for number in range(300)]
    assert len(names) > GROUPS_AT_ONCE
    world.groups(
        {n: {"ids": {f"{n}_a": static(clicks=1)}, "owners": {"clicks/0": f"{n}_a-0"}, "offsets": {}} for n in names}
    )
    found = documents(run, world)
    assert [document["group"] for document in found] == names
    assert {document["orphans"]["without_owner"][0] for document in found} == {"clicks-1"}
    assert [list(document["owners"]) for document in found] == [["clicks-0"]] * len(names)


def test_groups_of_the_draft_layout_are_no_old_groups(world: OldWorld, run: Run) -> None:
    world.group("g", ETL)
    world.put("/consumers/coordinator", "1")
    world.put("/consumers/groups", "")
    assert [document["group"] for document in documents(run, world)] == ["coordinator", "g", "groups"]
    world.put("/zkcoord/schema", '{"version":1,"revision":"0001","layout":"draft"}')
    assert [document["group"] for document in documents(run, world)] == ["g"]


def test_a_chroot_without_kafka_is_told_as_such_and_so_is_a_group_that_is_not_there(chroot: str, run: Run) -> None:
    result = run("inventory", "--zookeeper", chroot)
    assert (result.exit_code, result.stderr) == (
        2,
        "error: there is neither /consumers nor /brokers: give the chroot that Kafka's zookeeper.connect has\n",
    )
    with Tree(chroot) as tree:
        OldWorld(tree, chroot)
        result = run("inventory", "x", "--zookeeper", chroot)
        assert (result.exit_code, "there is no group 'x' below /consumers" in result.stderr) == (2, True)
        nothing = run("inventory", "--zookeeper", chroot)
    assert nothing.stdout == "GROUP  KIND  #MEMBERS  OWNED  OFFSETS  #NOTES\n"
    told = f"there is no group below /consumers at {chroot}: the chroot must be that of the old consumers"
    assert nothing.stderr == f"warning: {told}\n"


@pytest.mark.kafka
def test_offsets_in_kafka_are_shown_where_kafka_is_given(world: OldWorld, run: Run, kafka: EmbeddedKafka) -> None:
    topic, groups = f"t-{uuid.uuid4().hex}", [f"g-{uuid.uuid4().hex}", f"h-{uuid.uuid4().hex}"]
    for group in groups:
        world.group(group, {"ids": {f"{group}_a": static(clicks=1)}})
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers}, logger=QUIET)
    create_topic(admin, topic, 1)
    commit_as_stranger(admin, groups[1], topic, {0: 2})
    first, second = documents(run, world, "--bootstrap-servers", kafka.bootstrap_servers)
    assert (first["store"], first["kafka_offsets"]) == ("none", {})
    assert (second["store"], second["kafka_offsets"]) == ("kafka", {f"{topic}-0": 2})


@pytest.mark.kafka
def test_the_brokers_version_is_suggested_where_kafka_is_given(
    world: OldWorld, run: Run, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    world.group("g", ETL)
    file = tmp_path / "groups.toml"
    told = [f'broker = "{KAFKA_VERSION.rpartition(".")[0]}"'] * isinstance(kafka, EmbeddedKafka)  # KRaft tells none
    where = ("--write", str(file), "--zookeeper", world.address, "--bootstrap-servers", kafka.bootstrap_servers)
    assert run("inventory", *where).exit_code == 0
    lines = [line.partition("#")[0].strip() for line in file.read_text().splitlines()]
    assert [line for line in lines if line.startswith("broker")] == told


def test_without_kafka_the_rest_is_shown_and_the_reason_told(world: OldWorld, run: Run) -> None:
    world.group("g", ETL)
    result = run("inventory", "--output", "json", "--zookeeper", world.address, "--bootstrap-servers", "127.0.0.1:1")
    assert (result.exit_code, json.loads(result.stdout)["kafka_offsets"]) == (0, None)
    assert "cannot be reached" in result.stderr
    assert result.stderr.endswith("; offsets in Kafka are not shown\n")
