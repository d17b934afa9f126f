"""`zkcoord group` on a tree that a test made by hand: a real server, no coordinator, no Kafka."""

import json

import pytest

from tests.cli.program import Run, Spawn
from zkcoord.core.model import TopicPartition
from zkcoord.migrate import upgrade
from zkcoord.shell.zk.blocking import Tree
from zkcoord.tree.command import Command, Option, encode_command
from zkcoord.tree.paths import DRAFT, SCHEMA, parents
from zkcoord.tree.record import DEFAULT_RECORD, encode_record
from zkcoord.tree.registration import MARKER, Registration, encode_registration
from zkcoord.tree.schema import Schema, encode_schema
from zkcoord.tree.snapshot import Read
from zkcoord.tree.state import Failure, GroupState, digest, encode_state
from zkcoord.tree.writes import CreateNode, DeleteNode, SetNode, Transaction

pytestmark = pytest.mark.zookeeper

A, B = "g_h-1-aaaaaaaa", "g_h-2-bbbbbbbb"
P0, P1 = TopicPartition("clicks", 0), TopicPartition("clicks", 1)
TARGET = {P0: f"{A}-0", P1: f"{A}-0"}


class World:
    """A tree that tests write by hand."""

    def __init__(self, tree: Tree, address: str) -> None:
        self.tree, self.address = tree, address
        upgrade(tree, run_id="test")

    def put(self, path: str, data: bytes = b"") -> None:
        """Create or replace a node, parents included."""
        (node,) = self.tree.read([Read(path)])
        if node.stat is not None:
            self._commit(SetNode(path, data, node.stat.version))
            return
        missing = [parent for parent in self.tree.read([Read(p) for p in parents(path)]) if not parent.exists]
        self._commit(*(CreateNode(parent.path) for parent in missing), CreateNode(path, data))

    def remove(self, path: str) -> None:
        self._commit(DeleteNode(path, -1))

    def _commit(self, *writes: CreateNode | SetNode | DeleteNode) -> None:
        done = self.tree.commit(Transaction(writes=writes))
        assert not done.reason, done

    def topic(self, name: str, partitions: int) -> None:
        document = {"version": 1, "partitions": {str(n): [1] for n in range(partitions)}}
        self.put(f"/brokers/topics/{name}", json.dumps(document).encode())

    def member(self, consumer: str, instance: str | None = None) -> None:
        registration = Registration(
            subscription={"clicks": 1},
            timestamp="1",
            coordination=MARKER,
            instance=instance,
            assignors=("sticky",),
            rebalance_timeout_ms=60_000,
            session_timeout_ms=10_000,
        )
        self.put(DRAFT.channel("g", consumer))
        self.put(DRAFT.channel("g", consumer), b'{"version":1}')
        self.put(DRAFT.registration("g", consumer), encode_registration(registration))

    def settle(self) -> None:
        """A owns all of clicks, in generation 7."""
        self.topic("clicks", 2)
        self.member(A, "etl-1")
        for partition, thread in TARGET.items():
            self.put(DRAFT.mark("g", partition.topic))
            self.put(DRAFT.owner("g", partition), thread.encode())
        self.put(DRAFT.offset("g", P0), b"100")
        self.put(DRAFT.record("g"), encode_record(DEFAULT_RECORD))
        self.put(DRAFT.state("g"), encode_state(GroupState(generation=7, target=digest(TARGET))))

    def start_for_a(self) -> None:
        command = Command(option=Option.START_FETCHER, ownership={P1: f"{A}-0"}, generation=7, epoch=1)
        self.put(DRAFT.command("g", A, "0000000003"), encode_command(command))


@pytest.fixture
def world(chroot: str) -> World:
    with Tree(chroot) as tree:
        yield World(tree, chroot)


def describe(run: Run, world: World, *options: str) -> dict[str, object]:
    """The group as programs see it."""
    result = run("group", "describe", "g", "--output", "json", "--zookeeper", world.address, *options)
    assert result.exit_code == 0, result.stderr
    document: dict[str, object] = json.loads(result.stdout)
    return document


def test_a_settled_group_for_people(world: World, run: Run) -> None:
    world.settle()

    result = run("group", "describe", "g", "--zookeeper", world.address)

    assert result.stdout.splitlines() == [
        "Group g: Stable, generation 7, coordinator NONE ELECTED, epoch 0, 0 commands outstanding, 1 member",
        "",
        "GROUP  TOPIC   PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG  CONSUMER-ID",
        "g      clicks  0          100             -               -    g_h-1-aaaaaaaa-0",
        "g      clicks  1          -               -               -    g_h-1-aaaaaaaa-0",
    ]
    assert (result.exit_code, result.stderr) == (0, "")


def test_a_settled_group_for_programs(world: World, run: Run) -> None:
    world.settle()

    partition = {
        "topic": "clicks",
        "log_end_offset": None,
        "lag": None,
        "owner": f"{A}-0",
        "consumer": A,
        "alive": True,
    }
    assert describe(run, world) == {
        "group": "g",
        "state": "Stable",
        "settled": True,
        "generation": 7,
        "coordinator": None,
        "epoch": 0,
        "commands": 0,
        "member_count": 1,
        "failed": None,
        "members": [
            {
                "consumer": A,
                "instance": "etl-1",
                "topics": {"clicks": 1},
                "partitions": ["clicks-0", "clicks-1"],
                "commands": [],
                "note": None,
            }
        ],
        "partitions": [
            {**partition, "partition": 0, "current_offset": 100},
            {**partition, "partition": 1, "current_offset": None},
        ],
        "problems": {},
    }


def test_members_and_state_have_tables_of_their_own(world: World, run: Run) -> None:
    world.settle()
    world.start_for_a()
    world.put(DRAFT.coordinator, b"3")

    members = run("group", "describe", "g", "--members", "--zookeeper", world.address)
    state = run("group", "describe", "g", "--state", "--zookeeper", world.address)

    assert members.stdout.splitlines() == [
        "GROUP  CONSUMER-ID     INSTANCE  #PARTITIONS  #COMMANDS  TOPICS    NOTE",
        "g      g_h-1-aaaaaaaa  etl-1     2            1          clicks:1  -",
    ]
    assert state.stdout.splitlines() == [
        "GROUP  STATE         GENERATION  COORDINATOR  EPOCH  #COMMANDS  #MEMBERS  FAILED",
        "g      AwaitingSync  7           3            0      1          1         -",
    ]


def test_an_outstanding_command_shows_with_its_member(world: World, run: Run) -> None:
    world.settle()
    world.start_for_a()

    document = describe(run, world)

    assert (document["state"], document["settled"], document["commands"]) == ("AwaitingSync", False, 1)
    (member,) = document["members"]
    assert member["commands"] == [{"sequence": "0000000003", "option": "start-fetcher", "partitions": ["clicks-1"]}]


def test_a_partition_of_a_consumer_that_is_gone_is_to_be_given_anew(world: World, run: Run) -> None:
    world.settle()
    world.put(DRAFT.owner("g", P1), f"{B}-0".encode())

    document = describe(run, world)
    text = run("group", "describe", "g", "--zookeeper", world.address).stdout

    assert (document["state"], document["settled"]) == ("PreparingRebalance", False)
    assert f"{B}-0 (gone)" in text


def test_a_member_that_no_coordinator_has_seen_is_stable_but_not_settled(world: World, run: Run) -> None:
    world.settle()
    world.member(B)

    document = describe(run, world)

    assert (document["state"], document["settled"], document["member_count"]) == ("Stable", False, 2)


def test_a_group_that_no_coordinator_has_seen_is_preparing(world: World, run: Run) -> None:
    world.topic("clicks", 2)
    world.member(A)

    assert describe(run, world)["state"] == "PreparingRebalance"


def test_an_empty_group_keeps_its_offsets(world: World, run: Run) -> None:
    world.put(DRAFT.offset("g", P0), b"7")

    document = describe(run, world)

    assert (document["state"], document["generation"]) == ("Empty", 0)
    assert [(p["partition"], p["current_offset"]) for p in document["partitions"]] == [(0, 7)]


def test_what_nobody_can_read_is_named_with_its_path_and_the_rest_is_shown(world: World, run: Run) -> None:
    world.settle()
    world.put(DRAFT.offset("g", P1), b"twelve")
    world.put(DRAFT.registration("g", B), b"\xff")
    world.put(DRAFT.owner("g", TopicPartition("clicks", 5)), b"nobody")
    world.put("/brokers/topics/clicks", b"[]")

    result = run("group", "describe", "g", "--zookeeper", world.address)

    warnings = result.stderr.splitlines()
    assert [line.split(": ")[1] for line in warnings] == [
        "/brokers/topics/clicks",
        f"/consumers/groups/g/ids/{B}",
        "/consumers/groups/g/offsets/clicks/1",
        "/consumers/groups/g/owners/clicks/5",
    ]
    assert warnings[2].endswith("bad offset 'twelve': not a number: an operator must set it to a number")
    assert result.exit_code == 0
    assert "g      clicks  0          100 " in result.stdout


def test_no_znode_can_steer_the_terminal(world: World, run: Run) -> None:
    world.settle()
    world.put(DRAFT.owner("g", P1), b"evil\x1b[2J-0")

    result = run("group", "describe", "g", "--zookeeper", world.address)

    assert "\x1b" not in result.output
    assert "evil\\x1b[2J-0 (gone)" in result.stdout


def test_groups_are_listed(world: World, run: Run) -> None:
    assert run("group", "list", "--zookeeper", world.address).stdout == ""
    world.settle()
    world.put("/consumers/groups/other")

    names = run("group", "list", "--zookeeper", world.address)
    states = run("group", "list", "--state", "--zookeeper", world.address)
    objects = run("group", "list", "--output", "json", "--zookeeper", world.address)

    assert names.stdout == "g\nother\n"
    assert [line.split()[:2] for line in states.stdout.splitlines()] == [
        ["GROUP", "STATE"],
        ["g", "Stable"],
        ["other", "Empty"],
    ]
    assert [json.loads(line)["group"] for line in objects.stdout.splitlines()] == ["g", "other"]


def test_all_groups_are_described_one_after_the_other(world: World, run: Run) -> None:
    world.settle()
    world.put("/consumers/groups/other")

    result = run("group", "describe", "--all-groups", "--output", "json", "--zookeeper", world.address)

    assert [json.loads(line)["group"] for line in result.stdout.splitlines()] == ["g", "other"]


def test_waiting_ends_when_the_group_is_stable(world: World, spawn: Spawn) -> None:
    world.settle()
    world.start_for_a()
    program = spawn("group", "describe", "g", "--wait", "stable", "--output", "json", "--zookeeper", world.address)

    world.remove(DRAFT.command("g", A, "0000000003"))

    assert json.loads(program.line())["settled"] is True
    assert program.end() == 0


def test_waiting_for_a_group_that_does_not_come_to_rest_ends_in_time(world: World, run: Run) -> None:
    world.settle()
    world.start_for_a()

    result = run("group", "describe", "g", "--wait", "stable", "--timeout-ms", "150", "--zookeeper", world.address)

    assert result.exit_code == 5
    assert "group g is not stable yet (AwaitingSync, 1 command outstanding)" in result.stderr


def test_waiting_for_a_group_that_was_given_up_fails_at_once(world: World, run: Run) -> None:
    world.settle()
    failed = GroupState(generation=7, failed=Failure(error="A is silent", since_generation=7))
    world.put(DRAFT.state("g"), encode_state(failed))

    result = run("group", "describe", "g", "--wait", "stable", "--zookeeper", world.address)

    assert (result.exit_code, result.stderr) == (3, "error: group g: A is silent\n")


def test_kafka_that_is_away_leaves_the_lag_open(world: World, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zkcoord.cli.group.LOG_ENDS_TIMEOUT_MS", 500)
    world.settle()

    result = run("group", "describe", "g", "--bootstrap-servers", "127.0.0.1:1", "--zookeeper", world.address)

    assert result.exit_code == 0
    assert "warning: Kafka at 127.0.0.1:1" in result.stderr
    assert "g      clicks  0          100             -               -    " in result.stdout


@pytest.mark.parametrize("name", ["none", "a/b", ""])
def test_a_group_that_does_not_exist_is_a_wrong_call(world: World, run: Run, name: str) -> None:
    result = run("group", "describe", f"{name}", "--zookeeper", world.address)

    assert result.exit_code == 2
    if name:
        assert f"there is no group '{name}'; `zkcoord group list` shows them" in result.stderr


def test_without_a_tree_it_says_what_to_do(chroot: str, run: Run) -> None:
    result = run("group", "list", "--zookeeper", chroot)

    assert result.exit_code == 7
    assert result.stderr == (
        f"error: no zkcoord tree at {chroot}: start a coordinator, or run `zkcoord migrate upgrade`\n"
    )


def test_a_newer_tree_is_not_guessed_at(world: World, run: Run) -> None:
    world.put(SCHEMA, encode_schema(Schema(revision="0009", layout="draft")))

    result = run("group", "list", "--zookeeper", world.address)

    assert result.exit_code == 7
    assert "the tree is at revision 0009, newer than this program" in result.stderr
