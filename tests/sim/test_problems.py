"""Knowledge about a node, and its problems, are forgotten with the node: programs and topics come and go for years."""

from __future__ import annotations

from tests.sim.actors import GROUP, ConsumerFactory
from tests.sim.script import Script, on_seeds
from zkcoord.core.ack_timeouts import JOINING_MS
from zkcoord.serving.role import CoordinatorRole
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.writes import ANY_VERSION, CreateNode, DeleteNode, SetNode

TIMES = 5


@on_seeds(3)
def test_a_coordinator_remembers_nothing_of_registrations_and_commands_that_nobody_could_read(seed: int) -> None:
    script = Script(seed, consumers=1, coordinators=1)
    script.settle()
    world, ensemble, member = script.world, script.world.ensemble, script.member("consumer0")
    role = script.actor(script.leader()).role
    assert isinstance(role, CoordinatorRole)
    for number in range(TIMES):
        path = DRAFT.registration(GROUP, f"g_bad-{number}-00000000")
        assert not ensemble.operate(CreateNode(path, b"nonsense")).reason
        assert not ensemble.operate(CreateNode(DRAFT.channel(GROUP, f"g_bad-{number}-00000000"), b"nonsense")).reason
        assert not ensemble.operate(CreateNode(DRAFT.channel(GROUP, member), b"nonsense", sequential=True)).reason
        world.run_for(1_000)
        assert not ensemble.operate(DeleteNode(path, ANY_VERSION)).reason
        world.run_for(1_000)
    world.run_for(JOINING_MS)  # a channel without a registration stays this long
    assert len(world.events("unreadable")) == 3 * TIMES  # each problem was reported
    assert role._groups[GROUP].nodes.problems == {}
    assert role._report._of_groups[GROUP] == {}
    assert role._report._problems == {}


@on_seeds(2)
def test_a_coordinator_remembers_nothing_of_topics_that_came_and_went(seed: int) -> None:
    script = Script(seed, consumers=0, coordinators=1, topics={"t": 1})
    script.consumers = ConsumerFactory(script.logs, {".*": 1}, pattern="white_list")
    script.join("consumer0")
    world = script.world
    for number in range(TIMES):
        topic = f"job-{number}"
        script.create_topic(topic, 2)
        world.run_until(lambda topic=topic: {p.topic for p in script.held()} == {"t", topic}, what="it is read")  # type: ignore[misc]
        script.delete_topic(topic)
        world.run_until(lambda topic=topic: topic not in marked(script), what="what it left is dropped")  # type: ignore[misc]
    world.run_for(1_000)
    role = script.actor(script.leader()).role
    assert isinstance(role, CoordinatorRole)
    nodes = role._groups[GROUP].nodes
    known = [*nodes.lists, *nodes.marks, *nodes.offsets, *nodes.view.owners, *nodes.parents]
    assert [str(name) for name in known if "job" in str(name)] == []


def marked(script: Script) -> list[str]:
    """The topics that have a mark."""
    return list(script.world.ensemble.names(DRAFT.owners(GROUP)))


@on_seeds(2)
def test_a_problem_that_returns_is_told_again(seed: int) -> None:
    script = Script(seed, consumers=1, coordinators=1)
    script.settle()
    world, ensemble, path = script.world, script.world.ensemble, DRAFT.record(GROUP)
    right = ensemble.data(path) or b""
    for count in (1, 2):
        assert not ensemble.operate(SetNode(path, b"nonsense", ANY_VERSION)).reason
        world.run_until(lambda count=count: len(world.events("unreadable")) == count, 5_000, "it is told")
        assert not ensemble.operate(SetNode(path, right, ANY_VERSION)).reason
        world.run_for(1_000)


@on_seeds()
def test_a_member_that_waits_for_a_coordinator_says_so_once_and_once_when_one_serves(seed: int) -> None:
    """Before the fix, it printed nothing, as if all were well. A member that reads gets no such line, since it misses
    nothing."""
    script = Script(seed, coordinators=1, consumers=1)
    script.settle()
    world = script.world
    world.crash(script.leader(), restart_after_ms=60_000)
    script.join("late")
    world.run_until(lambda: bool(world.events("no_coordinator")), 40_000, "it is told")
    world.run_until(lambda: bool(world.events("coordinator_elected")), 100_000, "it is told that one serves")
    script.settle()
    for name in ("no_coordinator", "coordinator_elected"):
        assert [told.client.partition("#")[0] for told in world.events(name)] == ["late"]
    script.calm()
