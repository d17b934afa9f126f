"""What a revival looks up is given up when a stop takes its partitions; a look-up is clean when it is answered."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.sim import faults
from tests.sim.actors import topic_json
from tests.sim.script import QUIET, Script, on_seeds
from zkcoord.tree.writes import CreateNode, DeleteNode, Transaction

PATH, OTHER = "/brokers/topics/t", "/brokers/topics/u"


def commits(transaction: Transaction) -> bool:
    """True for a commit of offsets."""
    return transaction.why == "commit"


def releases(transaction: Transaction) -> bool:
    """True for a release."""
    return "acknowledge stop" in transaction.why


def _stop_during_a_revival(script: Script) -> None:
    """Its lease ends; meanwhile all of it is to be stopped, by two commands, of which the second is not read with the
    list; it is back, looks up what it holds, and loses the link."""
    world, name = script.world, "consumer0"
    faults.cut(world, script.process(name))
    world.run_until(lambda: bool(script.journal("lost")), what="the lease ends")
    for count, path in enumerate((PATH, OTHER), start=1):
        assert not world.ensemble.operate(DeleteNode(path, -1)).reason
        world.run_until(lambda sent=count: script.outstanding(name) == sent, what="the stop is sent")
    assert script.registered(name)
    faults.uncut(world, script.process(name))
    role = script.actor(name).role
    reviving, commands = role._reviving, role.desk.commands
    world.run_until(lambda: reviving._lookup is not None and None in commands.values(), what="it looks up")
    for store in script.process(name).stores:
        store.break_wire("once more", server_side=False)
    world.run_until(lambda: script.outstanding(name) == 0, what="the stops are obeyed")


def _back_after_a_revival(seed: int) -> Script:
    """A group whose topic was deleted and is back, after a stop that came while its only consumer revived."""
    one_by_one = replace(QUIET, burst_rate=0.0)  # what comes together is looked up before anybody sees it
    script = Script(seed, one_by_one, consumers=1, coordinators=1, topics={"t": 2, "u": 1})
    script.settle()
    world = script.world
    world.run_for(1_000)
    _stop_during_a_revival(script)
    assert not world.ensemble.operate(CreateNode(PATH, topic_json(2))).reason
    script.settle("the topic is back")
    return script


@on_seeds(6)
@pytest.mark.parametrize("how", ["reply_lost", "request_lost"])
def test_an_unknown_commit_after_it_loses_nothing(how: str, seed: int) -> None:
    script = _back_after_a_revival(seed)
    world = script.world
    world.strike("consumer0", commits, how)
    world.run_until(lambda: world.struck, what="a commit without an answer")
    world.run_for(5_000)
    script.calm()


@on_seeds(6)
def test_b2_an_unknown_release_after_it_is_made_again(seed: int) -> None:
    """The stop is acknowledged without the release: the coordinator stops it again and again."""
    script = _back_after_a_revival(seed)
    world = script.world
    world.strike("consumer0", releases, "request_lost")
    began_ms = world.now_ms
    script.join("late")
    world.run_until(lambda: world.struck, what="a release without an answer")
    world.run_for(5_000)
    assert len(script.commands_sent("stop-fetcher", since_ms=began_ms)) <= 2
    script.settle()
    script.calm()
