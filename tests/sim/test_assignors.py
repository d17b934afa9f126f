"""Assignors in the simulated world: a user's own assignor that raises, a limit of moves, weights, capacities."""

from __future__ import annotations

from collections import Counter
from functools import partial

from tests.sim.actors import GROUP, ConsumerFactory, coordinator
from tests.sim.field import parse_json
from tests.sim.script import Script, on_seeds
from zkcoord.assignors import all_assignors
from zkcoord.core.assignors import ASSIGNORS, AssignorInput
from zkcoord.core.model import TopicPartition
from zkcoord.tree.paths import DRAFT


class Own:
    """A user's assignor: it answers as sticky does, unless it fails."""

    fails = False

    def __call__(self, given: AssignorInput) -> dict[TopicPartition, str]:
        if self.fails:
            raise RuntimeError("a division by zero, say")
        return ASSIGNORS["sticky"](given)


class OwnScript(Script):
    """Two coordinators that have the assignor, and consumers that offer it."""

    def __init__(self, seed: int, hold_ms: int = 0) -> None:
        super().__init__(seed, coordinators=0, consumers=0)
        self.own = Own()
        self.consumers = ConsumerFactory(self.logs, {"t": 1}, assignors=["mine"])
        if hold_ms:
            self.consumers.are_static(hold_ms)
        for n in range(2):
            self.world.spawn(f"coordinator{n}", partial(coordinator, assignors=all_assignors({"mine": self.own})))
        for n in range(2):
            self.join(f"consumer{n}")
        self.settle()

    def problem(self) -> str:
        """The problem that the group's state names."""
        return str(self.state().get("problem") or "")


def counts(script: Script) -> list[int]:
    """How many partitions each consumer reads."""
    return sorted(len(script.owned(name)) for name in script.world.processes if name.startswith("consumer"))


def fail_over(script: Script) -> None:
    """The serving coordinator crashes, and another one serves."""
    old = script.leader()
    script.world.crash(old, restart_after_ms=None)
    script.world.run_until(lambda: script.leader() != old, what="another serves")


@on_seeds()
def test_a_users_assignor_that_raises_leaves_the_group_as_it_is_and_is_told_once(seed: int) -> None:
    script = OwnScript(seed)
    owners, generation, began_ms = dict(script.field.owners), script.generation(), script.world.now_ms
    script.own.fails = True
    script.join("consumer2")
    script.world.run_until(lambda: bool(script.problem()), what="the problem is told")
    fail_over(script)
    script.world.run_for(20_000)
    assert script.field.owners == owners
    assert script.generation() == generation
    assert "RuntimeError: a division by zero, say" in script.problem()
    told = script.world.events("assignment_problem", began_ms)
    assert [t.fields["group"] for t in told] == [GROUP]  # the coordinator that took over did not report it again
    assert script.changes_below(f"{DRAFT.group(GROUP)}/owners", began_ms) == []
    script.own.fails = False
    script.grow("t", 6)
    script.settle("asked again, since something changed")
    assert script.problem() == ""
    script.calm()


@on_seeds()
def test_while_it_raises_nothing_is_given_to_the_dead_or_taken_from_the_living(seed: int) -> None:
    script = OwnScript(seed)
    dead = script.member("consumer1")
    kept = {p: thread for p, thread in script.field.owners.items() if not thread.startswith(dead)}
    script.own.fails = True
    script.world.crash("consumer1", restart_after_ms=None)
    script.world.run_until(lambda: bool(script.problem()), what="the problem is told")
    script.world.run_for(10_000)
    assert {p: thread for p, thread in script.field.owners.items() if not thread.startswith(dead)} == kept
    script.own.fails = False
    script.join("consumer2")
    script.settle("asked again")
    script.calm()


@on_seeds()
def test_while_it_raises_a_static_member_that_leaves_and_returns_is_noted_once_each_way(seed: int) -> None:
    script = OwnScript(seed, hold_ms=30_000)
    world, note, began_ms = script.world, DRAFT.instance(GROUP, "consumer0"), script.world.now_ms
    script.own.fails = True
    script.leave("consumer0")
    world.run_for(5_000)
    assert script.writes_to(note, began_ms) == len(world.events("instance_away")) == 1
    script.process("consumer0").restarts = True
    world.crash("consumer0", restart_after_ms=100)
    world.run_until(lambda: bool(world.events("instance_returned")), what="it is back")
    world.run_for(5_000)
    assert script.writes_to(note, began_ms) == 2
    script.leave("consumer0")
    world.run_for(60_000)
    assert script.writes_to(note, began_ms) == 4
    assert (len(world.events("instance_away")), len(world.events("instance_given_up"))) == (2, 1)


@on_seeds()
def test_a_budget_moves_so_much_a_generation_under_a_join_and_a_failover(seed: int) -> None:
    script = Script(seed, consumers=1, topics={"t": 12})
    script.settle()
    script.set_policy(max_moves=2)
    script.world.run_for(1_000)
    first, began = script.generation(), script.world.now_ms
    script.join("consumer1")
    script.world.run_until(lambda: script.generation() == first + 1, what="the first moves")
    fail_over(script)
    script.join("consumer2")
    script.settle("everybody has a share at last")
    moved: dict[int, int] = {}
    for tried in script.world.tried:
        if tried.time_ms >= began and tried.applied:
            for command in tried.commands("stop-fetcher"):
                text = parse_json(command.data)
                moved[text["generation"]] = moved.get(text["generation"], 0) + len(text["ownershipMap"])
    assert max(moved.values()) <= 2
    assert sum(moved.values()) >= 8
    script.calm()


@on_seeds()
def test_weights_that_are_changed_move_the_group_to_even_sums(seed: int) -> None:
    script = Script(seed, consumers=2, topics={"t": 12})
    script.settle()
    script.edit_record(weights={"t-0": 10})
    script.world.run_until(lambda: counts(script) == [2, 10], what="the heavy one has one other")
    script.world.run_for(5_000)
    before = script.generation()
    fail_over(script)
    script.world.run_for(20_000)
    assert script.generation() == before
    assert counts(script) == [2, 10]


@on_seeds()
def test_new_partitions_do_not_go_beyond_a_capacity_while_a_share_waits(seed: int) -> None:
    script = Script(seed, consumers=0, topics={"t": 4})
    world = script.world
    script.consumers.are_static(600_000)
    script.join("consumer0")
    world.run_until(lambda: script.registered("consumer0"), what="it joins")
    script.consumers.registers(capacity=2)
    script.join("consumer1")
    script.settle()
    script.consumers.registers(capacity=None)  # for consumers that start again
    gone = script.member("consumer0")
    script.leave("consumer0")
    world.run_until(lambda: (GROUP, gone) not in script.field.registrations, what="it leaves")
    script.grow("t", 8)
    world.run_for(10_000)
    owned = Counter(script.owner(p) for p in script.partitions())
    assert owned[script.member("consumer1")] == 2
    script.process("consumer0").restarts = True
    world.crash("consumer0", restart_after_ms=100)
    world.run_until(lambda: script.process("consumer0").running and script.registered("consumer0"), what="it is back")
    world.run_until(lambda: len(script.owned("consumer0")) == 6, 20_000, "it has the rest")
    assert len(script.owned("consumer1")) == 2
    script.calm()
