"""Of a stop, what its receiver need not wait for is released, and granted, while the rest is waited for."""

from __future__ import annotations

import pytest

from tests.sim.actors import GROUP
from tests.sim.script import Script, hold_calls, on_seeds
from tests.sim.test_replay import SLOW
from zkcoord.core.model import TopicPartition
from zkcoord.shell.ports import CallDone
from zkcoord.tree.writes import Transaction


def early(transaction: Transaction) -> bool:
    """The release of a part."""
    return transaction.why == "release a part"


class Stopping(Script):
    """A consumer of four partitions has been told to stop two, and its program is still at both."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, SLOW, consumers=1)
        self.settle()
        self.holder = self.member("consumer0")
        application = self.application("consumer0")
        self._go_on = hold_calls(application)
        self.join("heir")
        self.world.run_until(lambda: bool(application._calls), 20_000, "it is told to stop")
        self.token, name, (self.free, self.rest) = application._calls[0]
        assert name == "stop"

    def give_up(self) -> None:
        """The program reads the first of the two no more."""
        application = self.application("consumer0")
        final = application._stop((self.free,))
        application._calls[0] = self.token, "stop", (self.rest,)
        self.process("consumer0").inbox.put(CallDone(self.token, ((self.free,), final), part=True))

    def answer(self) -> None:
        """And now the other one, too."""
        self._go_on()

    def read_by(self, partition: TopicPartition) -> str:
        """Whose start of a partition is acknowledged."""
        held = self.field.holdings.get((GROUP, partition))
        return held.consumer if held is not None else ""


@on_seeds(6)
@pytest.mark.parametrize("when", ["", "request_lost", "reply_lost"])
@pytest.mark.parametrize("failover", [False, True])
def test_what_need_not_be_waited_for_is_read_by_the_next_while_the_stop_stands(
    seed: int, when: str, failover: bool
) -> None:
    script = Stopping(seed)
    heir = script.member("heir")
    if when:
        script.world.strike("consumer0", early, when)
    if failover:
        script.world.crash(script.leader(), restart_after_ms=2_000, exact=True)
    script.give_up()
    script.world.run_until(lambda: script.read_by(script.free) == heir, 20_000, "the heir reads the first")
    assert script.world.struck
    assert (script.owner(script.rest), script.outstanding("consumer0")) == (script.holder, 1)
    script.answer()
    script.settle()
    assert script.read_by(script.rest) == heir
    assert len(script.commands_sent("stop-fetcher")) == 1
    assert [len(script.journal("stop", p)) for p in (script.free, script.rest)] == [1, 1]
    assert "released" not in script.world.ensemble.names(f"/consumers/groups/{GROUP}/channel/{script.holder}")


@on_seeds(4)
@pytest.mark.parametrize("when", ["before", "after_applied_reply_lost", "after"])
def test_a_death_at_an_early_release_leaves_nothing_behind(seed: int, when: str) -> None:
    script = Stopping(seed)
    script.world.strike("consumer0", early, when, None)
    script.give_up()
    script.world.run_until(lambda: script.world.struck, 20_000, "it dies")
    script.settle()
    heir = script.member("heir")
    assert [script.read_by(p) for p in script.partitions()] == [heir] * 4
    path = f"/consumers/groups/{GROUP}/channel"
    script.world.run_until(lambda: script.world.ensemble.names(path) == [heir], 20_000, "its channel is purged")


@on_seeds(4)
def test_a_part_of_a_stop_whose_registration_is_gone_changes_nothing(seed: int) -> None:
    """The session ends in the middle of the call: the program's answer comes to the next registration."""
    script = Stopping(seed)
    session = next(s for s in script.world.ensemble.sessions.values() if s.process == "consumer0")
    script.world.ensemble.end_session(session, "expire")
    script.world.run_until(lambda: script.registered("consumer0") and script.member("consumer0") != script.holder)
    script.give_up()
    script.answer()
    script.settle()
    assert script.world.tried and not [tried for tried in script.world.tried if early(tried.transaction)]
