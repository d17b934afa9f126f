"""A commit that was decided before a loss is not carried out after the partition was started again."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace

import pytest

from tests.sim import faults
from tests.sim.script import QUIET, Script, acknowledges, on_seeds
from zkcoord.errors import FencedError
from zkcoord.shell.ports import Request


def cut_off_behind_an_acknowledgement(seed: int) -> Script:
    """A consumer that waits for the answer to an acknowledgement, without a link: its commits wait behind it."""
    script = Script(seed, replace(QUIET, call_ms_max=0, read_ms_max=200), consumers=1, coordinators=1)
    script.settle()
    world, name = script.world, "consumer0"
    world.run_for(1_000)
    world.strike(name, acknowledges, "reply_lost")
    script.grow("t", 5)
    world.run_until(lambda: world.struck, what="an acknowledgement without an answer")
    faults.cut(world, script.process(name))
    return script


def start_again(script: Script) -> None:
    """The link comes back when the lease has ended: what is held is started again, before commits are looked at."""
    world, name = script.world, "consumer0"
    role = script.actor(name).role
    script.grow("t", 6)
    world.run_until(lambda: script.outstanding(name) == 1, what="another command")
    faults.uncut(world, script.process(name))
    world.run_until(lambda: bool(role.registered.application.resuming), what="what it holds starts again")
    if None in role.registered.following.nodes.view.commands.values():  # the new command is still being read
        script.wire(name).down = False
        world.run_until(lambda: not role.registered.application.resuming, what="it has started again")
        script.wire(name).down = True
    script.settle()
    world.run_for(3_000)
    script.calm()


@on_seeds(12)
def test_a_commit_of_an_earlier_tenure_is_refused(seed: int) -> None:
    script = cut_off_behind_an_acknowledgement(seed)
    world, name = script.world, "consumer0"
    role, began_ms = script.actor(name).role, world.now_ms
    world.run_until(lambda: bool(role.registered._asked), what="it asks for a commit while there is no link")
    world.run_until(lambda: bool(script.journal("lost", since_ms=began_ms)), what="the lease ends")
    start_again(script)


@on_seeds(4)
def test_a_commit_that_waits_when_the_lease_ends_is_answered_then(seed: int) -> None:
    """Its program is told at once that the partitions are lost, however long there is no link."""
    script = cut_off_behind_an_acknowledgement(seed)
    world, application, began_ms = script.world, script.application("consumer0"), script.world.now_ms
    application.commits = False
    future: Future[None] = Future()
    wanted = application.wanted({p: at + 1 for p, at in application.positions.items()})
    script.process("consumer0").inbox.put(Request("commit", wanted, future))
    world.run_for(500)
    assert not future.done()
    world.run_until(lambda: bool(script.journal("lost", since_ms=began_ms)), what="the lease ends")
    assert script.process("consumer0").cut
    with pytest.raises(FencedError, match="lost by this consumer before it was committed: t-0, t-1, t-2, t-3"):
        future.result(timeout=0)


@pytest.mark.parametrize("late", ["after the loss", "before it starts again", "after it was told to start"])
@on_seeds(12)
def test_a_commit_of_an_earlier_tenure_is_refused_however_late_it_is_asked_for(seed: int, late: str) -> None:
    """Another thread decided on it before the loss, and comes to ask for it later."""
    script = cut_off_behind_an_acknowledgement(seed)
    world, name = script.world, "consumer0"
    application, began_ms = script.application(name), world.now_ms
    application.commits = False
    decided = application.wanted({p: at + 1 for p, at in application.positions.items()})
    future: Future[None] = Future()

    def ask() -> None:
        script.process(name).inbox.put(Request("commit", decided, future))

    world.run_until(lambda: bool(script.journal("lost", since_ms=began_ms)), what="the lease ends")
    if late == "after the loss":
        ask()
    elif late == "before it starts again":
        world.run_for(500)
        ask()
    else:
        call = application.call

        def calling(token: int, called: str, argument: object) -> None:
            call(token, called, argument)
            if called == "start" and not future.done():
                application.call = call
                world.at(world.now_ms + 200, ask)

        application.call = calling
    application.commits = True
    start_again(script)
    assert isinstance(future.exception(timeout=0), FencedError)
