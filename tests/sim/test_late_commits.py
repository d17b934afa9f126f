"""A commit that was decided before a loss must not be carried out after the partition was started again."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from functools import cached_property
from random import Random
from typing import Any

import pytest

from tests.sim import faults
from tests.sim.application import Application
from tests.sim.options import Options, seeds
from tests.sim.scenarios import STORM_MS, Scene
from tests.sim.script import QUIET, Script, acknowledges, on_seeds
from tests.sim.world import World
from zkcoord.core.model import TopicPartition
from zkcoord.errors import FencedError
from zkcoord.shell.ports import Request

LATE_MS = 8_000
SEEDS = 10


class LateApplication(Application):
    """Commits of a partition are requested late, one after the other, by a thread for each start of the partition."""

    def _commit_positions(self) -> None:
        moved = {
            p: offset
            for p, offset in sorted(self.positions.items())
            if self._committed.get(p) != offset and self._under_way.get(p) != self.starts.get(p, 0) and self.allowed(p)
        }
        for partition, offset in moved.items():
            self._ask_later(partition, offset)

    def _ask_later(self, partition: TopicPartition, offset: int) -> None:
        future: Future[Any] = Future()
        request = Request("commit", self.wanted({partition: offset}), future)
        number = self._under_way[partition] = self.starts.get(partition, 0)
        late_ms = int(self._world.rng.random() ** 3 * LATE_MS)
        self._process.after(late_ms, lambda: self._process.inbox.put(request))

        def answered(done: Future[Any]) -> None:
            if self._under_way.get(partition) == number:
                del self._under_way[partition]
                if done.exception() is None:
                    self._committed[partition] = offset

        future.add_done_callback(answered)

    @cached_property
    def _under_way(self) -> dict[TopicPartition, int]:
        """Partition -> the start whose commit is under way."""
        return {}


class LateScene(Scene):
    """A group with such applications."""

    def begins(self) -> None:
        """All consumers have such an application."""
        self.consumers.run(LateApplication)


def late_storm(seed: int) -> World:
    """One seed: commits come late while leases end and partitions move. Then the calm."""
    options = Options.drawn(Random(f"late {int(seed)}"), fault_rate=0.02, read_ms_max=300, time_step_ms_max=100)
    world = World(seed, replace(options, faults={"cut": 3, "pause": 2, "black_hole": 1}, fault_sessions_max=1.5))
    scene = LateScene(world)
    scene.share()
    for action in (lambda: scene.join("late"), lambda: scene.leave("consumer0"), lambda: scene.join("later")):
        world.at(world.now_ms + int(world.rng.random() * STORM_MS), action)
    world.storm(3_000)
    scene.calm()
    return world


@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_a_storm_of_late_commits_ends_in_a_calm(seed: int) -> None:
    late_storm(seed)


def cut_off_behind_an_acknowledgement(seed: int) -> Script:
    """A consumer without a link waits for the answer to an acknowledgement, and its commits wait for the same
    answer."""
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
    """The link comes back after the lease has ended. Held partitions are started again before the commits are looked
    at."""
    world, name = script.world, "consumer0"
    role = script.actor(name).role
    script.grow("t", 6)
    world.run_until(lambda: script.outstanding(name) == 1, what="another command")
    faults.uncut(world, script.process(name))
    world.run_until(lambda: bool(role.registered.application.resuming), what="what it holds starts again")
    if None in role.registered.watch.nodes.view.commands.values():  # the new command is still being read
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
    """When the lease ends, the program is told at once that the partitions are lost, even if the link stays down for
    long."""
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
    """Another thread decided on the commit before the loss, and requests it later."""
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
