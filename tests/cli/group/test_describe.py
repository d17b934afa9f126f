"""`zkcoord group` on a tree that a test made by hand: a real server, no coordinator, no Kafka."""

import json

import pytest

from tests.cli.group_tree import P0, P1, TARGET, A, B, World
from tests.cli.program import Run
from zkcoord.core.command import Command, Option
from zkcoord.core.model import TopicPartition
from zkcoord.core.record import GroupRecord
from zkcoord.core.state import GroupState
from zkcoord.shell.zk.blocking import Tree
from zkcoord.tree.command import encode_command
from zkcoord.tree.paths import DRAFT, ROOT, SCHEMA
from zkcoord.tree.record import encode_record
from zkcoord.tree.schema import Schema, encode_schema
from zkcoord.tree.snapshot import Read
from zkcoord.tree.state import digest, encode_state
from zkcoord.tree.status import Status, encode_status
from zkcoord.tree.topic import Mark, encode_mark

pytestmark = pytest.mark.zookeeper


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
        "TOPIC   PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG  CONSUMER-ID",
        "clicks          0             100               -    -  g_h-1-aaaaaaaa-0",
        "clicks          1               -               -    -  g_h-1-aaaaaaaa-0",
        "! no coordinator is elected: start one (`zkcoord coordinator`)",
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
        "brokers": None,
        "adoption": None,
        "settled": True,
        "generation": 7,
        "coordinator": None,
        "epoch": 0,
        "commands": 0,
        "member_count": 1,
        "deleted": False,
        "failed": None,
        "quarantined": {},
        "problem": None,
        "offset_store": {"name": "zookeeper", "step": 0, "waits_for": {}},
        "mode": "coordinated",
        "mode_reason": None,
        "old_members": [],
        "changed_topics": {},
        "awaited": {},
        "requests": {},
        "moved": None,
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


@pytest.mark.parametrize("read", [True, False])
def test_a_recreated_topic_is_shown_until_its_earlier_incarnation_is_dropped(
    world: World, run: Run, read: bool
) -> None:
    world.settle()
    (root,) = world.tree.read([Read(ROOT)])
    assert root.stat is not None
    former = Mark(incarnation=1, topic_id=None, czxid=1, root_czxid=root.stat.czxid)
    world.put(DRAFT.mark("g", "clicks"), encode_mark(former))
    if not read:
        world.put(DRAFT.owner("g", P0))
        world.put(DRAFT.owner("g", P1))

    document = describe(run, world)
    told = run("group", "describe", "g", "--zookeeper", world.address).stdout.splitlines()[0]

    what = "was deleted and created again: its earlier owners and offsets are dropped before it starts"
    assert document["changed_topics"] == {"clicks": what}
    assert (document["state"], document["settled"]) == ("PreparingRebalance", False)
    assert told.endswith(f"1 member, topic clicks {what}")


def test_a_topic_that_was_deleted_is_shown(world: World, run: Run) -> None:
    world.settle()
    mark = Mark(incarnation=1, topic_id=None, czxid=1, root_czxid=1)
    world.topic("other", 1)
    world.put(DRAFT.mark("g", "gone"), encode_mark(mark))
    world.put(DRAFT.owner("g", TopicPartition("gone", 0)))

    assert describe(run, world)["changed_topics"] == {
        "gone": "was deleted: its owners and offsets are dropped a minute later"
    }


def test_members_and_state_have_tables_of_their_own(world: World, run: Run) -> None:
    world.settle()
    world.start_for_a()
    world.put(DRAFT.coordinator, b"3")

    members = run("group", "describe", "g", "--members", "--zookeeper", world.address)
    state = run("group", "describe", "g", "--state", "--zookeeper", world.address)

    assert members.stdout.splitlines() == [
        "CONSUMER-ID     INSTANCE  #PARTITIONS  #COMMANDS  LAG  TOPICS    NOTE",
        "g_h-1-aaaaaaaa  etl-1               2          1    -  clicks:1  -",
    ]
    assert state.stdout.splitlines()[:2] == [
        "GROUP  STATE         GENERATION  COORDINATOR  EPOCH  #COMMANDS  #MEMBERS  LAG  FAILED  NOTE",
        "g      AwaitingSync           7  3            0              1         1    -  -       -",
    ]


def test_the_list_shows_holds_and_problems_too(world: World, run: Run) -> None:
    world.settle()
    world.put(DRAFT.record("g"), b'{"assignor":"mine","wish":{"hold":{"who":"ann@db1","run":"1"}}}')
    state = GroupState(generation=7, target=digest(TARGET), problem="nobody has 'mine'")
    world.put(DRAFT.state("g"), encode_state(state))

    listed = run("group", "list", "--state", "--zookeeper", world.address)

    assert listed.stdout.splitlines()[1].endswith("  -       held by ann@db1, PROBLEM: nobody has 'mine'")


def test_an_outstanding_command_shows_with_its_member(world: World, run: Run) -> None:
    world.settle()
    world.start_for_a()

    document = describe(run, world)

    assert (document["state"], document["settled"], document["commands"]) == ("AwaitingSync", False, 1)
    (member,) = document["members"]
    assert member["commands"] == [{"sequence": "0000000003", "option": "start-fetcher", "partitions": ["clicks-1"]}]


def test_a_member_that_is_given_nothing_shows_why(world: World, run: Run) -> None:
    world.settle()
    other = {"g_h-3-cccccccc": ("range",), "g_h-4-dddddddd": ("mine",)}
    world.member(B, replaces=A)
    for consumer, assignors in other.items():
        world.member(consumer, assignors=assignors)
    world.member("g_h-5-eeeeeeee")
    reject = encode_command(Command(option=Option.REJECT, reason="it speaks another protocol"))
    world.put(f"{DRAFT.channel('g', 'g_h-5-eeeeeeee')}/0000000000", reject)
    world.member("g_h-6-ffffffff", offsets=("kafka",))
    world.member("g_h-7-99999999", pattern="white_list", subscription={"nothing[.].*": 1})

    notes = {member["consumer"]: member["note"] for member in describe(run, world)["members"]}

    assert notes == {
        A: f"replaced by {B}",
        B: None,
        "g_h-3-cccccccc": "offers the assignors ['range'], the group uses ['sticky']: offer one of these",
        "g_h-4-dddddddd": "offers the assignors ['mine'], the group uses ['sticky']: offer one of these",
        "g_h-5-eeeeeeee": "sent away, and has not left yet",
        "g_h-6-ffffffff": "cannot use the offset store 'zookeeper'",
        "g_h-7-99999999": "no topic matches its wildcard",
    }


def test_a_step_to_another_offset_store_is_shown_until_every_member_says_that_it_took_it(
    world: World, run: Run
) -> None:
    world.settle()
    world.put(DRAFT.record("g"), encode_record(GroupRecord(store_name="dual", store_step=3)))
    world.member(A, instance="etl-1", offers=frozenset({"offset-store"}), offsets=("zookeeper", "dual"))

    shown = describe(run, world)
    assert shown["offset_store"] == {"name": "dual", "step": 3, "waits_for": {A: "was not told yet"}}
    text = run("group", "describe", "g", "--zookeeper", world.address).stdout
    assert f"offset store dual (step 3), STEP TO dual NOT DONE: {A} was not told yet" in text

    world.put(DRAFT.channel("g", A), encode_status(Status(store_name="dual", store_step=3)))
    assert describe(run, world)["offset_store"]["waits_for"] == {}
    text = run("group", "describe", "g", "--zookeeper", world.address).stdout
    assert "offset store dual (step 3)" in text
    assert "NOT DONE" not in text


def test_members_are_judged_as_the_coordinator_in_charge_judges_them(world: World, run: Run) -> None:
    """Its program is newer than this one: other protocols, other assignors."""
    world.settle()
    world.member(A, protocols=(2, 3))
    world.member(B)
    world.member("g_h-3-cccccccc", protocols=(3, 4), assignors=("mine", "sticky"))
    world.member("g_h-4-dddddddd", protocols=(2, 2), assignors=("theirs",))
    world.put("/zkcoord/coordinators/3", b'{"protocols":"1-2"}')
    world.put("/zkcoord/coordinators/7", b'{"protocols":"2-4","assignors":["sticky","mine"]}')
    world.put(DRAFT.coordinator, b"7")

    def notes() -> dict[str, object]:
        return {member["consumer"]: member["note"] for member in describe(run, world)["members"]}

    assert notes() == {  # 2 is the protocol that both coordinators speak
        A: None,
        B: "speaks the protocol 1, the others 2",
        "g_h-3-cccccccc": "speaks the protocols 3 to 4, the others 2",
        "g_h-4-dddddddd": "offers the assignors ['theirs'], the group uses ['sticky']: offer one of these",
    }
    world.remove("/zkcoord/coordinators/3")
    assert notes()["g_h-3-cccccccc"] is None
    world.remove("/zkcoord/coordinators/7")
    world.remove(DRAFT.coordinator)
    assert notes() == {  # without a candidate this program's own abilities count
        A: "speaks the protocols 2 to 3, the others 1",
        B: None,
        "g_h-3-cccccccc": "speaks the protocols 3 to 4, the others 1",
        "g_h-4-dddddddd": "speaks the protocol 2, the others 1",
    }


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


def test_unreadable_nodes_are_named_by_path_and_the_rest_is_shown(world: World, run: Run) -> None:
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
    assert "clicks          0             100 " in result.stdout


def test_no_znode_can_steer_the_terminal(world: World, run: Run) -> None:
    world.settle()
    world.put(DRAFT.owner("g", P1), b"evil\x1b[2J-0")

    result = run("group", "describe", "g", "--zookeeper", world.address)

    assert "\x1b" not in result.output
    assert "evil\\x1b[2J-0 (gone)" in result.stdout


def test_groups_are_listed(world: World, run: Run) -> None:
    for options in ([], ["--output", "json"]):
        none = run("group", "list", "--zookeeper", world.address, *options)
        told = "" if options else "notice: there is no group: the first consumer that joins one makes it\n"
        assert (none.stdout, none.stderr) == ("", told)
    world.settle()
    world.put("/consumers/groups/other")
    world.put(DRAFT.record("removed"))  # an old tool leaves only the record of a group

    names = run("group", "list", "--zookeeper", world.address)
    states = run("group", "list", "--state", "--zookeeper", world.address)
    objects = run("group", "list", "--output", "json", "--zookeeper", world.address)

    assert names.stdout == "g\nother\nremoved\n"
    assert [line.split()[:2] for line in states.stdout.splitlines()] == [
        ["GROUP", "STATE"],
        ["g", "Stable"],
        ["other", "Empty"],
        ["removed", "Empty"],
    ]
    assert [json.loads(line)["group"] for line in objects.stdout.splitlines()] == ["g", "other", "removed"]


def test_all_groups_are_described_one_after_the_other(world: World, run: Run) -> None:
    world.settle()
    world.put("/consumers/groups/other")

    result = run("group", "describe", "--all-groups", "--output", "json", "--zookeeper", world.address)

    assert [json.loads(line)["group"] for line in result.stdout.splitlines()] == ["g", "other"]


@pytest.mark.parametrize("name", ["none", "a/b", "", "..", "a\nb"])
def test_a_group_that_does_not_exist_is_a_wrong_call(world: World, run: Run, name: str) -> None:
    result = run("group", "describe", f"{name}", "--zookeeper", world.address)

    assert result.exit_code == 2
    if name:
        assert f"there is no group {name!r}; `zkcoord group list` shows them" in result.stderr


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
