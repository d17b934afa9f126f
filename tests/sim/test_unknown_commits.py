"""A commit has an unknown outcome: the consumer reads its offsets before it writes anything else."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from tests.sim.actors import GROUP
from tests.sim.script import Script, hold_calls, on_seeds
from tests.sim.test_replay import P0, ask, position, process, scene
from tests.sim.test_resuming import commits
from zkcoord.core.model import TopicPartition
from zkcoord.shell.ports import Request
from zkcoord.tree.paths import DRAFT

LOST = ["reply_lost", "request_lost"]


def commit(script: Script, name: str, offsets: dict[TopicPartition, int]) -> Future[None]:
    """A program asks for a commit, and does not wait."""
    future: Future[None] = Future()
    wanted = script.application(name).wanted(offsets)
    script.process(name).inbox.put(Request("commit", wanted, future))
    return future


def version(script: Script, partition: TopicPartition) -> int:
    """How often the committed offset was set."""
    stat = script.world.ensemble.stat(DRAFT.offset(GROUP, partition))
    assert stat is not None
    return stat.version


@on_seeds()
@pytest.mark.parametrize("how", LOST)
def test_a_commit_without_an_answer_is_written_once(seed: int, how: str) -> None:
    script = scene(seed, consumers=1)
    at, before = position(script, P0), version(script, P0)
    process(script, "consumer0", P0, at, at + 9)
    script.world.strike("consumer0", commits, how)
    ask(script, "consumer0", "commit", {P0: at + 9}).result()
    assert script.world.struck
    assert (position(script, P0), version(script, P0)) == (at + 9, before + 1)
    ask(script, "consumer0", "commit", {P0: at + 9}).result()  # it is committed already: nothing must be written
    assert version(script, P0) == before + 1


@on_seeds(4)
@pytest.mark.parametrize("how", LOST)
def test_a_stop_behind_a_commit_without_an_answer_releases_at_the_final_offset(seed: int, how: str) -> None:
    """The program has stopped at a higher offset meanwhile. Its own commit must not be taken for somebody else's."""
    script = scene(seed, consumers=1)
    world, application = script.world, script.application("consumer0")
    go_on = hold_calls(application)
    script.join("heir")
    world.run_until(lambda: bool(application._calls), 20_000, "it is told to stop")
    (_, name, (mine,)) = application._calls[0]
    assert name == "stop"
    at = position(script, mine)
    process(script, "consumer0", mine, at, at + 20)
    application.positions[mine] = at + 20
    world.strike("consumer0", commits, how)
    answered = commit(script, "consumer0", {mine: at + 9})
    world.run_until(lambda: world.struck, what="a commit without an answer")
    go_on()
    script.settle("the heir has it")
    assert script.owned("heir") == [mine]
    assert position(script, mine) == at + 20
    assert [e.start for e in script.journal("start", mine) if e.process == "heir"] == [at + 20]
    assert world.events("foreign_offset") == []
    assert answered.done()
