"""F45 (docs/failures.md): a poison partition breaks every consumer that it is granted to; its quarantine, and how it
ends."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.sim.actors import GROUP
from tests.sim.application import Application
from tests.sim.field import START
from tests.sim.script import Script, hold_calls, on_seeds
from zkcoord.core.model import TopicPartition
from zkcoord.core.quarantine import STRIKES_MAX
from zkcoord.tree.paths import DRAFT

POISON = TopicPartition("t", 2)


def cannot_start(application: Application) -> list[frozenset[TopicPartition]]:
    """The application raises at every start that names the poison partition. Returns a list of the partitions of each
    such start."""
    call = application.call
    broken: list[frozenset[TopicPartition]] = []

    def judged(token: int, name: str, argument: Mapping[TopicPartition, int]) -> None:
        raises = name == "start" and POISON in argument
        if raises:
            broken.append(frozenset(argument))
        application._raises = lambda _name: raises  # type: ignore[method-assign]
        call(token, name, argument)

    application.call = judged  # type: ignore[method-assign]
    return broken


def mend(application: Application) -> None:
    """The application does not raise any more."""
    for name in ("call", "_raises"):  # `_raises` exists only if `call` was called
        vars(application).pop(name, None)


def poisoned(script: Script) -> list[str]:
    """Quarantined partitions, as the state names them."""
    return sorted(script.state()["quarantined"])


def poisoned_group(seed: int) -> tuple[Script, list[str]]:
    """A group at rest with the poison partition quarantined, perhaps with others. Returns the script and the names of
    its consumers."""
    script = Script(seed, consumers=0)
    world, names = script.world, [f"consumer{number}" for number in range(4)]
    for name in names:
        script.join(name)
        cannot_start(script.application(name))

    def found() -> bool:
        return bool(world.ensemble.data(DRAFT.state(GROUP))) and str(POISON) in poisoned(script)

    world.run_until(found, 30_000)
    world.run_until(lambda: not script.outstanding(), 20_000, "nothing is under way")
    return script, names


@on_seeds()
def test_f45_a_partition_that_nobody_can_start_is_quarantined_and_everything_else_is_read(seed: int) -> None:
    """Partitions that stood in the same failed starts at three consumers are quarantined with it, since nobody can tell
    which one is bad."""
    script = Script(seed, consumers=0)
    world, names = script.world, [f"consumer{number}" for number in range(4)]
    for name in names:
        script.join(name)
    broken = {name: cannot_start(script.application(name)) for name in names}

    def found() -> bool:
        return bool(world.ensemble.data(DRAFT.state(GROUP))) and str(POISON) in poisoned(script)

    world.run_until(found, 30_000)
    assert script.state()["quarantined"][str(POISON)]["why"].startswith("broke g_consumer")
    assert "the application cannot start" in script.state()["quarantined"][str(POISON)]["why"]
    quarantined = poisoned(script)
    strikes = {p: sum(any(p in start for start in broken[name]) for name in names) for p in script.partitions()}
    others = [p for p in script.partitions() if str(p) not in quarantined]
    assert all(strikes[p] >= STRIKES_MAX for p in script.partitions() if str(p) in quarantined)
    world.run_until(lambda: all((GROUP, p) in script.field.holdings for p in others), 20_000, "the others are read")
    sent = len(script.commands_sent(START, POISON))
    assert STRIKES_MAX <= sent <= len(names)  # never twice to the same consumer
    world.run_for(120_000)
    assert len(script.commands_sent(START, POISON)) == sent  # no other consumer is broken by it
    old = script.leader()
    world.crash(old, restart_after_ms=None, exact=True)
    world.run_until(lambda: script.leader() != old, 20_000, "another serves")
    world.run_for(20_000)
    assert (poisoned(script), len(script.commands_sent(START, POISON))) == (quarantined, sent)
    script.join("mended")
    world.run_until(lambda: script.owner(POISON).startswith("g_mended-"), 20_000, "who joins gets a try")
    assert poisoned(script) == []
    script.calm()


@on_seeds()
def test_a_forgiven_partition_stays_forgiven_when_the_coordinator_dies(
    seed: int,
) -> None:
    """The statuses still name the refusals. Before the fix, the next coordinator quarantined the partition again."""
    script, names = poisoned_group(seed)
    world = script.world
    go_on = []
    for name in names:  # the applications can start again
        mend(script.application(name))
        go_on.append(hold_calls(script.application(name)))
    script.request("rebalance", run="r1")
    world.run_until(lambda: script.answered("rebalance"), what="the answer")
    assert script.commands_sent(START, POISON, since_ms=world.now_ms - 100)
    old = script.leader()
    world.crash(old, restart_after_ms=None, exact=True)
    world.run_until(lambda: script.leader() != old, 20_000, "another serves")
    world.run_for(2_000)
    assert poisoned(script) == []
    for go in go_on:
        go()
    script.settle()  # shares are even: partitions that stood in a refused start are forgiven, too
    script.calm()


@on_seeds()
def test_a_forgiven_partition_stays_so_when_its_owner_and_coordinator_go(seed: int) -> None:
    """The consumers that refused it live, and their statuses still say so. Before the fix, three of them were enough
    for a new quarantine."""
    script, names = poisoned_group(seed)
    world = script.world
    script.join("another")  # so four consumers have refused it, and three remain when its owner goes
    names.append("another")
    cannot_start(script.application("another"))
    world.run_until(lambda: len(script.commands_sent(START, POISON)) == 4, 20_000, "it has its try")
    world.run_until(lambda: str(POISON) in poisoned(script) and not script.outstanding(), 20_000, "it is broken, too")
    for name in names:  # the applications can start again
        mend(script.application(name))
    script.request("rebalance", run="r1")
    world.run_until(lambda: script.answered("rebalance"), what="the answer")
    script.settle()
    old = script.leader()
    world.crash(old, restart_after_ms=None, exact=True)
    world.run_until(lambda: script.leader() != old, 20_000, "another serves")
    world.run_for(2_000)
    generation, [owner] = script.generation(), [name for name in names if POISON in script.owned(name)]
    gone, script.process(owner).restarts = script.member(owner), False
    world.crash(owner, restart_after_ms=None)
    world.run_until(lambda: (GROUP, gone) not in script.field.registrations, 20_000, "it is gone")
    script.settle()
    assert poisoned(script) == []
    assert script.generation() == generation + 1
    forgiven = script.state()["forgiven"]
    assert forgiven
    assert set(forgiven) <= {script.member(name) for name in names if name != owner}  # not the one that is gone
    script.calm()


@on_seeds()
@pytest.mark.parametrize("failover", [False, True])
def test_an_eager_rebalance_grants_forgiven_partitions_before_its_answer(seed: int, failover: bool) -> None:
    """Before the fix, the request was answered while members were still stopping. The next coordinator found the old
    refusals, and no request."""
    script, names = poisoned_group(seed)
    world = script.world
    script.edit_record(rebalance="eager")
    for name in names:  # the applications can start again
        mend(script.application(name))
    go_on = hold_calls(script.application(next(name for name in names if script.owned(name))))
    script.request("rebalance", run="r1")
    world.run_until(lambda: bool(script.state()["stopping"]), 20_000, "everybody stops")
    world.run_for(3_000)
    if failover:
        old = script.leader()
        world.crash(old, restart_after_ms=None, exact=True)
        world.run_until(lambda: script.leader() != old, 20_000, "another serves")
        world.run_for(2_000)
    generation = script.generation()
    go_on()
    world.run_until(lambda: script.answered("rebalance"), 20_000, "the answer")
    assert poisoned(script) == []
    assert script.owner(POISON)
    script.settle()
    assert script.generation() == generation
    script.calm()


@on_seeds(4)
def test_a_late_member_keeps_the_partition_that_it_tries(seed: int) -> None:
    """Before the fix, once the partition was read, the target gave it to the member with the fewest partitions. When it
    was released for that, only the later member could have it again. So an eager group raised its generation and
    stopped everybody, without end."""
    script = Script(seed, consumers=0, topics={"t": 6})
    world, names = script.world, [f"consumer{number}" for number in range(4)]
    for name in names:
        script.join(name)
        cannot_start(script.application(name))
    world.run_until(lambda: bool(world.ensemble.data(DRAFT.state(GROUP))) and str(POISON) in poisoned(script), 30_000)
    world.run_until(lambda: not script.outstanding(), 20_000, "nothing is under way")
    script.edit_record(rebalance="eager")
    script.join("mended")
    world.run_until(lambda: script.owner(POISON).startswith("g_mended-"), 20_000, "who joins gets a try")
    generation = script.generation()
    world.run_until(script.all_held, 20_000, "everything is read")
    world.run_for(10_000)
    assert script.generation() == generation
    assert script.owner(POISON).startswith("g_mended-")
    script.calm()
