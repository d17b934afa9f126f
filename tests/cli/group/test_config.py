"""`zkcoord group config`: the record of a group is shown, and changed only as a whole and only to what is allowed."""

import json
from collections.abc import Iterator

import pytest

from tests.cli.group_tree import World
from tests.cli.program import Run
from tests.integration.world import World as RealWorld
from tests.integration.world import named
from tests.waiting import wait_until
from zkcoord.core.model import Rebalance, TopicPartition
from zkcoord.core.record import DEFAULT_RECORD, GroupRecord, Policy, Request
from zkcoord.shell.zk.blocking import Tree
from zkcoord.tree.paths import CANDIDATES, DRAFT
from zkcoord.tree.record import decode_record
from zkcoord.tree.snapshot import Read

pytestmark = pytest.mark.zookeeper

DEFAULTS = {
    "rebalance": "cooperative",
    "assignor": None,
    "policy.on_timeout": "evict",
    "policy.max_rebalance_retries": 4,
    "policy.evict_grace_ms": None,
    "policy.initial_delay_ms": 0,
    "policy.probe_interval_ms": None,
    "policy.max_probes": 3,
    "policy.session_timeout_min_ms": 0,
    "policy.max_moves": None,
}

ORDER = [*DEFAULTS, "weights.a.b-0", "racks.a.b-0"]


@pytest.fixture
def world(chroot: str) -> Iterator[World]:
    with Tree(chroot) as tree:
        yield World(tree, chroot)


def record(world: World, group: str = "g") -> GroupRecord | None:
    """The group's record; None: there is none."""
    (node,) = world.tree.read([Read(DRAFT.record(group))])
    return decode_record(node.data) if node.exists else None


def test_a_groups_record_is_shown_with_every_key(world: World, run: Run) -> None:
    world.settle()
    shown = run("group", "config", "g", "--zookeeper", world.address)
    lines = [line.split() for line in shown.stdout.splitlines()]
    assert lines[0] == ["KEY", "VALUE", "SOURCE"]
    assert [line[0] for line in lines[1:]] == list(DEFAULTS)
    assert {line[-1] for line in lines[1:]} == {"default"}
    assert [line[1] for line in lines[1:] if DEFAULTS[line[0]] is not None] == [
        str(value) for value in DEFAULTS.values() if value is not None
    ]
    assert ["policy.max_moves", "no", "limit", "default"] in lines


def test_config_marks_set_values_and_shows_changed_keys_alone(world: World, run: Run) -> None:
    world.settle()
    at = ("--zookeeper", world.address)

    def shown(*pairs: str) -> list[list[str]]:
        return [line.split(maxsplit=1) for line in run("group", "config", "g", *pairs, *at).stdout.splitlines()[1:]]

    changed = shown("policy.max_moves=10", "weights.clicks-0=5")
    assert [[key, rest.split()] for key, rest in changed] == [
        ["policy.max_moves", ["10", "set"]],
        ["weights.clicks-0", ["5", "set"]],
    ]
    sources = {key: rest.split()[-1] for key, rest in shown()}
    assert [key for key, source in sources.items() if source == "set"] == ["policy.max_moves", "weights.clicks-0"]
    assert [rest.split() for _, rest in shown("weights.clicks-0=")] == [["1", "default"]]


def test_keys_are_changed_together_and_taken_back_and_what_others_wrote_stays(world: World, run: Run) -> None:
    world.settle()
    world.topic("a.b", 1)
    at = ("--zookeeper", world.address)
    hold = {"who": "ann", "run": "1"}
    world.put(DRAFT.record("g"), json.dumps({"wish": {"hold": hold}, "later": 7}).encode())

    pairs = ["rebalance=eager", "policy.max_moves=10", "assignor=range", "weights.a.b-0=5", "racks.a.b-0=west 1"]
    shown = run("group", "config", "g", *pairs, "--output", "json", *at)
    assert (shown.exit_code, shown.stderr) == (0, "")
    wanted = {"rebalance": "eager", "policy.max_moves": 10, "assignor": "range"}
    wanted |= {"weights.a.b-0": 5, "racks.a.b-0": "west 1"}
    assert json.loads(shown.stdout) == {
        "group": "g",
        "config": {**DEFAULTS, **wanted},
        "set": sorted(wanted, key=ORDER.index),
    }
    assert record(world) == GroupRecord(
        assignor="range",
        rebalance=Rebalance.EAGER,
        policy=Policy(max_moves=10),
        weights={TopicPartition("a.b", 0): 5},
        racks={TopicPartition("a.b", 0): "west 1"},
        requests={"hold": Request(who="ann", run="1")},
        unknown={"later": 7},
    )

    back = ["rebalance=", "policy.max_moves=null", "assignor=", "weights.a.b-0=", "racks.a.b-0="]
    assert run("group", "config", "g", *back, *at).exit_code == 0
    assert record(world) == GroupRecord(requests={"hold": Request(who="ann", run="1")}, unknown={"later": 7})


@pytest.mark.parametrize(
    ("pairs", "why"),
    [
        (["rebalance=gentle"], "rebalance is 'gentle', allowed is cooperative or eager"),
        (["policy.max_moves=0"], "policy.max_moves is '0', allowed is an integer from 1 to 2147483647"),
        (
            ["rebalance=eager", "weights.clicks-0=x"],
            "weights.clicks-0 is 'x', allowed is an integer from 1 to 2147483647",
        ),
        (["racks.clicks-0=a\nb"], "racks.clicks-0: 'a\\nb' is no printable text"),
        (["rebalance"], "'rebalance': write KEY=VALUE; KEY= takes a key back to its default"),
        (["weights.clicks=5"], "'weights.clicks' is no key of a group: did you mean weights.TOPIC-PARTITION?"),
        (["polcy.max_moves=5"], "'polcy.max_moves' is no key of a group: did you mean policy.max_moves?"),
        (["rebalence=eager"], "'rebalence' is no key of a group: did you mean rebalance?"),
        (["wish.pause=1"], "'wish.pause' is no key of a group: choose from rebalance, assignor, policy."),
    ],
)
def test_a_forbidden_value_changes_nothing(world: World, run: Run, pairs: list[str], why: str) -> None:
    world.settle()
    refused = run("group", "config", "g", *pairs, "--zookeeper", world.address)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert refused.stderr.startswith(f"error: {why}")
    assert record(world) == DEFAULT_RECORD


def test_an_assignor_that_nobody_has_is_told_with_what_was_meant_and_counts_once_there_is_one(
    world: World, run: Run
) -> None:
    world.settle()
    call = ("group", "config", "g", "--zookeeper", world.address)
    then = "and the members' lists decide: correct it, or leave it: it counts once there is one\n"
    told = run(*call, "assignor=rnage")
    said = f"warning: assignor: zkcoord has none called rnage now (did you mean range?), {then}"
    assert (told.exit_code, told.stderr, record(world).assignor) == (0, said, "rnage")
    world.put(f"{CANDIDATES}/1", b'{"assignors":["mine","sticky"]}')
    assert run(*call, "assignor=mine").stderr == ""
    told = run(*call, "assignor=x")
    assert told.stderr == (
        f"warning: assignor: the coordinator has none called x now (choose from mine, sticky), {then}"
    )
    assert run(*call, "assignor=").stderr == ""


def test_a_group_is_decided_about_before_its_first_consumer_joins(world: World, run: Run) -> None:
    at = ("--zookeeper", world.address)
    unknown = run("group", "config", "new", *at)
    assert (unknown.exit_code, unknown.stderr) == (
        2,
        "error: there is no group 'new'; `zkcoord group list` shows them\n",
    )
    done = run("group", "config", "new", "policy.initial_delay_ms=3000", *at)
    assert (done.exit_code, done.stderr) == (
        0,
        "warning: there is no group new yet: this counts once its first consumer joins\n",
    )
    assert record(world, "new") == GroupRecord(policy=Policy(initial_delay_ms=3_000))
    illegal = run("group", "config", "a b", "rebalance=eager", *at)
    assert (illegal.exit_code, record(world, "a b")) == (2, None)


def test_a_key_about_a_partition_that_does_not_exist_is_written_with_a_warning(world: World, run: Run) -> None:
    world.settle()

    pairs = ["weights.nosuch-0=3", "weights.clicks-7=3", "weights.clicks-1=2", "racks.clicks-9=", "racks.gone-1=a"]
    result = run("group", "config", "g", *pairs, "--zookeeper", world.address)

    assert result.exit_code == 0, result.stderr
    then = "correct it, or leave it: it counts once there is one"
    assert result.stderr.splitlines() == [
        f"warning: weights.nosuch-0: there is no topic nosuch now: {then}",
        f"warning: weights.clicks-7: clicks has 2 partitions now, and no 7: {then}",
        f"warning: racks.gone-1: there is no topic gone now: {then}",
    ]
    assert "weights.nosuch-0" in result.stdout


def test_a_record_that_nobody_can_read_is_named_and_left_alone(world: World, run: Run) -> None:
    world.settle()
    world.put(DRAFT.record("g"), b"{")
    for pairs in ([], ["rebalance=eager"]):
        result = run("group", "config", "g", *pairs, "--zookeeper", world.address)
        assert result.exit_code == 6
        assert result.stderr.startswith("error: /zkcoord/groups/g: bad group record '{': no JSON")
    (node,) = world.tree.read([Read(DRAFT.record("g"))])
    assert node.data == b"{"


def test_earlier_settings_count_when_consumers_join(chroot: str, run: Run) -> None:
    with RealWorld(chroot) as world:
        world.topic("clicks", 4)
        world.coordinate()
        assert run("group", "config", "g", "weights.clicks-0=3", "--zookeeper", chroot).exit_code == 0
        members = [world.join("g", "clicks") for _ in range(2)]

        def held() -> list[list[str]]:
            return sorted(member.held() for member in members)

        wait_until(lambda: held() == [named("clicks", 0), named("clicks", 1, 2, 3)], "the sums of weights are even")


def test_a_grace_below_the_session_timeouts_is_told_with_the_one_that_counts(world: World, run: Run) -> None:
    """It was accepted without a message, and an evicted member's partitions waited longer than the operator had set."""
    at = ("--zookeeper", world.address)

    def told(value: str) -> str:
        done = run("group", "config", "g", f"policy.evict_grace_ms={value}", *at)
        assert done.exit_code == 0
        return done.stderr

    def floor(counts: str) -> str:
        return (
            "warning: policy.evict_grace_ms is 9999, but the partitions of an evicted member wait for its own session"
            f" timeout at least: {counts}\n"
        )

    world.put(f"{DRAFT.groups}/g")
    assert told("9999") == floor("10000 ms, unless the members ask for less (there are none now)")
    assert told("10000") == ""
    world.settle()
    world.member("g_h-2-bbbbbbbb", session_timeout_ms=6_000)
    assert told("9999") == floor("10000 ms for 1 of the 2 members")
    world.member("g_h-3-cccccccc", session_timeout_ms=10_000)
    assert run("group", "config", "g", *at).stderr == floor("10000 ms for 2 of the 3 members")
    world.member("g_h-4-dddddddd", session_timeout_ms=20_000)
    assert run("group", "config", "g", *at).stderr == floor("up to 20000 ms for 3 of the 4 members")
    assert told("20000") == told("") == ""
