"""A node that a person is asked to edit is watched until it is mended. A requested rebalance reads everything again."""

from __future__ import annotations

import json

import pytest

from tests.sim.actors import GROUP, coordinator
from tests.sim.script import Script, on_seeds
from tests.sim.test_failures_input import TwoGroups
from tests.sim.test_racks import Racks
from zkcoord.core.model import TopicPartition
from zkcoord.core.record import PAUSE
from zkcoord.core.view import START
from zkcoord.errors import SchemaError
from zkcoord.serving.owner_rounds import ROUND_MS
from zkcoord.serving.role import CoordinatorRole
from zkcoord.tree.paths import BROKERS, DRAFT, EPOCH, EVICTED_MARK, SCHEMA
from zkcoord.tree.schema import Schema, encode_schema
from zkcoord.tree.writes import ANY_VERSION, CreateNode, DeleteNode, SetNode

T0 = TopicPartition("t", 0)
STRANGER = "g_stranger-1-00000000"
REGISTRATION = b'{"version":1,"subscription":{"t":1},"pattern":"static","timestamp":"1"}'
SHORT_MS = 2_000  # within this time only a watch of the node itself can tell the change


def role_of(script: Script) -> CoordinatorRole:
    """The role of the serving coordinator."""
    role = script.actor(script.leader()).role
    assert isinstance(role, CoordinatorRole)
    return role


def take_over(script: Script) -> None:
    """Another coordinator takes over, and reads everything again."""
    old = script.leader()
    script.world.crash(old, restart_after_ms=None, exact=True)
    script.world.run_until(lambda: script.leader() != old, 20_000, "another serves")


PLACES = {
    "owner": DRAFT.owner(GROUP, T0),
    "mark": DRAFT.mark(GROUP, "t"),
    "state": DRAFT.state(GROUP),
    "record": DRAFT.record(GROUP),
    "registration": DRAFT.registration(GROUP, STRANGER),
    "status": DRAFT.channel(GROUP, STRANGER),
    "eviction": f"{DRAFT.channel(GROUP, STRANGER)}/{EVICTED_MARK}",
    "topic": "/brokers/topics/t",
}


@on_seeds()
@pytest.mark.parametrize("place", PLACES)
def test_f68_a_node_that_nobody_can_parse_is_watched_until_it_is_mended(seed: int, place: str) -> None:
    script = TwoGroups(seed)
    world, path = script.world, PLACES[place]
    script.write(
        CreateNode(DRAFT.channel(GROUP, STRANGER), b'{"version":1}'),
        CreateNode(DRAFT.registration(GROUP, STRANGER), b'{"version":1,"subscription":{},"pattern":"static"}'),
        CreateNode(f"{DRAFT.channel(GROUP, STRANGER)}/{EVICTED_MARK}", b"1000"),
    )
    world.run_for(SHORT_MS)
    good = world.ensemble.data(path)
    assert good is not None
    if place == "registration":
        good = REGISTRATION
    script.write(SetNode(path, b"xx yy", ANY_VERSION))
    world.run_for(SHORT_MS)
    take_over(script)
    serving = script.client(script.leader())
    world.run_until(lambda: any(told.client == serving for told in script.told_at(path)), what="it is told")

    mended_ms = world.now_ms
    script.write(SetNode(path, b"" if place == "owner" else good, ANY_VERSION))

    def over() -> bool:
        return any(told.fields["path"] == path for told in world.events("problem_over", mended_ms))

    world.run_until(over, what="it is noticed")
    assert world.now_ms <= mended_ms + SHORT_MS
    assert path not in role_of(script)._groups[GROUP].nodes.problems
    for name in ("registration", "eviction", "status"):
        script.write(*([DeleteNode(PLACES[name], ANY_VERSION)] if world.ensemble.stat(PLACES[name]) else []))
    script.settle("everything is read")


@on_seeds()
def test_f68_a_requested_rebalance_finds_what_somebody_edited_behind_the_coordinators_back(seed: int) -> None:
    """Owners that can be read are not watched, so the coordinator of a settled group does not see when somebody edits
    one."""
    script = Script(seed)
    script.settle()
    world, path = script.world, DRAFT.owner(GROUP, T0)
    world.ensemble.operate(SetNode(path, b"xx yy", ANY_VERSION))
    world.run_for(SHORT_MS)
    world.ensemble.operate(SetNode(path, b"", ANY_VERSION))  # as the tools ask people to do
    world.run_for(60_000)
    assert script.owner(T0) == ""

    script.request("rebalance")
    world.run_until(lambda: script.answered("rebalance"), what="it is done")
    script.settle("it is given anew")
    script.calm()


@on_seeds()
def test_f68_a_requested_rebalance_tells_of_an_overwritten_owner_and_watches_it(
    seed: int,
) -> None:
    script = TwoGroups(seed)
    world, path = script.world, DRAFT.owner(GROUP, T0)
    script.write(SetNode(path, b"xx yy", ANY_VERSION))
    script.request("rebalance")
    world.run_until(lambda: script.answered("rebalance"), what="it is done")
    assert len(script.told_at(path)) == 1

    script.write(SetNode(path, b"", ANY_VERSION))
    script.settle("it is given anew")
    script.calm()


@on_seeds()
@pytest.mark.parametrize("data", [b"xx yy", b"g1_gone-1-aaaaaaaa-0"])
def test_f82_an_owner_overwritten_behind_a_settled_coordinators_back_is_found_within_a_round(
    seed: int, data: bytes
) -> None:
    """Before the fix, only a requested rebalance found it, or the next write to the node, perhaps never."""
    script = TwoGroups(seed)
    world, path = script.world, DRAFT.owner(GROUP, T0)
    script.write(SetNode(path, data, ANY_VERSION))
    world.run_for(ROUND_MS + SHORT_MS)
    if data == b"xx yy":
        assert len(script.told_at(path)) == 1
        script.write(SetNode(path, b"", ANY_VERSION))
    script.settle("it is given anew")
    assert script.owner(T0) in (script.member("consumer0"), script.member("consumer1"))
    script.calm()


@on_seeds()
def test_f68_a_brokers_node_that_nobody_can_parse_is_watched_until_it_is_mended(seed: int) -> None:
    script = Racks(seed)
    world, path = script.world, f"{BROKERS}/1"
    world.ensemble.operate(DeleteNode(path, ANY_VERSION), CreateNode(path, b"{"))
    world.run_until(lambda: bool(world.events("unreadable")), what="it is told")
    mended_ms = world.now_ms
    text = {"version": 5, "host": "h", "port": 9092, "rack": "b"}
    world.ensemble.operate(SetNode(path, json.dumps(text).encode(), ANY_VERSION))
    world.run_until(lambda: bool(world.events("problem_over", mended_ms)), what="it is noticed")
    assert world.now_ms <= mended_ms + SHORT_MS
    script.calm()


@on_seeds()
def test_f68_a_requested_rebalance_reads_topics_and_brokers_again(seed: int) -> None:
    """A broker's node is not watched, and a watch may be lost."""
    script = Racks(seed)
    world, broker, topic = script.world, f"{BROKERS}/1", "/brokers/topics/t"
    for server in world.ensemble.replicas:
        server.data_watches.pop(topic, None)
    text = {"version": 5, "host": "h", "port": 9092, "rack": "c"}
    replicas = {str(n): [1 + n % 2] for n in range(9)}
    world.ensemble.operate(
        SetNode(broker, json.dumps(text).encode(), ANY_VERSION),
        SetNode(topic, json.dumps({"version": 1, "partitions": replicas}).encode(), ANY_VERSION),
    )
    world.run_for(SHORT_MS)
    kafka = role_of(script).kafka
    assert kafka is not None
    assert (kafka.brokers.racks[1], kafka.topics.partitions(["t"])["t"]) == ("a", tuple(range(8)))

    script.request("rebalance")
    world.run_until(lambda: script.answered("rebalance"), what="it is done")
    assert (kafka.brokers.racks[1], kafka.topics.partitions(["t"])["t"]) == ("c", tuple(range(9)))


@on_seeds()
def test_f68_an_obstacle_to_a_topics_removal_is_watched_until_it_goes(seed: int) -> None:
    script = TwoGroups(seed)
    world, path = script.world, f"{DRAFT.mark(GROUP, 't')}/old"
    script.write(CreateNode(path))
    script.delete_topic("t")
    world.run_until(lambda: bool(script.told_at(path)), what="it is told")

    script.write(DeleteNode(path, ANY_VERSION))
    world.run_until(lambda: world.ensemble.stat(DRAFT.mark(GROUP, "t")) is None, what="the topic's nodes go")


@on_seeds()
def test_f68_an_offset_that_nobody_can_read_quarantines_nothing_and_starts_when_it_is_mended(seed: int) -> None:
    script = Script(seed, consumers=4, topics={"t": 4})
    script.settle()
    world, fifth = script.world, TopicPartition("t", 4)
    world.ensemble.operate(CreateNode(DRAFT.offset(GROUP, fifth), b"12 apples"))
    script.grow("t", 5)
    world.run_for(120_000)
    assert script.state()["quarantined"] == {}
    world.ensemble.operate(SetNode(DRAFT.offset(GROUP, fifth), b"12", ANY_VERSION))
    world.run_until(script.balanced, what="it starts")
    assert script.journal("start", fifth)[0].start == 12
    script.calm()


@on_seeds()
@pytest.mark.parametrize("path", [SCHEMA, EPOCH])
def test_f68_a_schema_that_is_bad_for_a_moment_ends_nobody_and_is_told_by_all(seed: int, path: str) -> None:
    script = Script(seed)
    script.settle()
    world, good = script.world, script.world.ensemble.data(path)
    assert good is not None
    old, standby = script.leader(), script.standby()
    world.ensemble.operate(SetNode(path, b"not json", ANY_VERSION))
    world.run_for(SHORT_MS)
    coordinators = [name for name in world.processes if name.startswith("coordinator")]
    told = [t for t in world.events("unreadable") if t.fields["path"] == path]
    assert sorted(t.client for t in told) == sorted(map(script.client, coordinators))
    assert all("an operator must restore it" in t.fields["why"] for t in told)
    assert not any(script.actor(name).loop.finished for name in coordinators)

    world.crash(old, restart_after_ms=None, exact=True)
    world.run_for(20_000)
    assert not script.actor(standby).loop.finished
    world.ensemble.operate(SetNode(path, good, ANY_VERSION))

    def elected() -> bool:
        return any(t.client == script.client(standby) for t in world.events("elected"))

    world.run_until(elected, what="it is elected as soon as that is mended")
    over = [t for t in world.events("problem_over") if t.fields["path"] == path]
    assert script.client(standby) in {t.client for t in over}
    script.calm()


@on_seeds(1)
@pytest.mark.parametrize("newer", ["revision", "format"])
def test_a_schema_that_is_readable_and_newer_ends_whoever_stands_for_election(seed: int, newer: str) -> None:
    script = Script(seed)
    script.settle()
    world = script.world
    schema = encode_schema(Schema(revision="9999" if newer == "revision" else "0001", layout="draft"))
    data = schema if newer == "revision" else schema.replace(b'"version":1', b'"version":2')
    world.ensemble.operate(SetNode(SCHEMA, data, ANY_VERSION))
    loop = script.actor(script.standby()).loop
    world.run_until(lambda: loop.finished, what="it ends")
    assert isinstance(loop.fatal, SchemaError)


@on_seeds()
def test_a_coordinator_says_that_it_stands_by_and_behind_whom(seed: int) -> None:
    script = Script(seed)
    script.settle()
    world, old, standby = script.world, script.leader(), script.standby()
    (told,) = world.events("standing_by")
    assert told.client == script.client(standby)
    assert {told.fields["coordinator"], int(told.fields["serving"])} == {0, 1}
    world.spawn("coordinator2", coordinator)
    world.run_for(SHORT_MS)
    world.crash(old, restart_after_ms=None, exact=True)
    world.run_until(lambda: script.leader() != old, 20_000, "another serves")
    world.run_for(SHORT_MS)
    (waits,) = {"coordinator2", standby} - {script.leader()}
    assert len([t for t in world.events("standing_by") if t.client == script.client(waits)]) == 2


@on_seeds()
@pytest.mark.parametrize("places", [("state",), ("state", "record")])
def test_f349_a_group_of_which_nothing_was_known_is_served_again_when_what_nobody_can_parse_is_deleted(
    seed: int, places: tuple[str, ...]
) -> None:
    """Before the fix, a deleted state kept the group from being served until another coordinator took over."""
    script = TwoGroups(seed)
    world, paths = script.world, [PLACES[place] for place in places]
    script.write(*(SetNode(path, b"{", ANY_VERSION) for path in paths))
    take_over(script)
    serving = script.leader()
    world.run_until(lambda: all(map(script.told_at, paths)), what="all are told of")
    script.write(*(DeleteNode(path, ANY_VERSION) for path in paths))
    world.run_for(SHORT_MS)
    world.crash("consumer0", restart_after_ms=None)
    script.settle("the other one has all")
    assert script.leader() == serving
    script.calm()


@on_seeds()
@pytest.mark.parametrize("places", [("state", "record"), ("record", "state")])
def test_f344_a_paused_group_is_left_alone_until_record_and_state_can_be_read(
    seed: int, places: tuple[str, str]
) -> None:
    """Before the fix, the group was served as if its record had only defaults, as soon as the state could be read."""
    script = TwoGroups(seed)
    world, paths = script.world, [PLACES[place] for place in places]
    script.request(PAUSE)
    world.run_until(lambda: script.answered(PAUSE), what="it is paused")
    known = [world.ensemble.data(path) or b"" for path in paths]
    script.write(*(SetNode(path, b"{", ANY_VERSION) for path in paths))
    take_over(script)
    world.run_until(lambda: all(map(script.told_at, paths)), what="both are told of")
    since_ms = world.now_ms
    for path, content in zip(paths, known, strict=True):
        script.write(SetNode(path, content, ANY_VERSION))
        world.run_for(SHORT_MS)
        assert script.commands_sent(START, since_ms=since_ms) == []
    assert script.state() == json.loads(known[places.index("state")])
    script.edit_record(wish={})
    script.settle()
    script.calm()
