"""In a stop, the partitions that the member need not wait for are released and granted before the others."""

from __future__ import annotations

import pytest

from tests.sim.actors import GROUP
from tests.sim.script import Script, hold_calls, on_seeds, releases
from tests.sim.test_replay import SLOW, another_reads, ask, position, told
from zkcoord.core.model import TopicPartition
from zkcoord.shell.ports import CallDone
from zkcoord.tree.writes import Transaction


def early(transaction: Transaction) -> bool:
    """True for the release of a part of a stop."""
    return transaction.why == "release a part"


class Stopping(Script):
    """A consumer of four partitions has been told to stop two, and its program still reads both."""

    def __init__(self, seed: int, partitions: int = 4) -> None:
        super().__init__(seed, SLOW, consumers=0, topics={"t": partitions})
        self.consumers.registers(offers=frozenset({"ping", "replay"}))
        self.join("consumer0")
        self.settle()
        self.holder = self.member("consumer0")
        application = self.application("consumer0")
        self._go_on = hold_calls(application)
        self.join("heir")
        self.world.run_until(lambda: bool(application._calls), 20_000, "it is told to stop")
        self.token, name, (*self.early, self.rest) = application._calls[0]
        self.free = self.early[0]
        assert name == "stop"

    def give_up(self) -> None:
        """The program stops reading all but the last of these partitions."""
        application, early = self.application("consumer0"), tuple(self.early)
        final = application._stop(early)
        application._calls[0] = self.token, "stop", (self.rest,)
        self.process("consumer0").inbox.put(CallDone(self.token, (early, final), part=True))

    def answer(self) -> None:
        """The program stops reading the last one, too."""
        self._go_on()

    def read_by(self, partition: TopicPartition) -> str:
        """The consumer whose start of the partition is acknowledged."""
        held = self.field.holdings.get((GROUP, partition))
        return held.consumer if held is not None else ""


@on_seeds(6)
@pytest.mark.parametrize("when", ["", "request_lost", "reply_lost"])
@pytest.mark.parametrize("failover", [False, True])
def test_an_early_released_partition_is_read_while_the_stop_stands(seed: int, when: str, failover: bool) -> None:
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
    """The session ends in the middle of the call, so the program's answer comes to the next registration."""
    script = Stopping(seed)
    session = next(s for s in script.world.ensemble.sessions.values() if s.process == "consumer0")
    script.world.ensemble.end_session(session, "expire")
    script.world.run_until(lambda: script.registered("consumer0") and script.member("consumer0") != script.holder)
    script.give_up()
    script.answer()
    script.settle()
    assert script.world.tried and not [tried for tried in script.world.tried if early(tried.transaction)]


@on_seeds(4)
def test_a_leaving_member_hands_its_unfinished_range_on(
    seed: int,
) -> None:
    """The former owner's outstanding stop still names the partition. When the stop is acknowledged, the coordinator
    reads that owner, but not the status of the member that leaves. It reads this status once the registration is
    gone."""
    script = Stopping(seed, partitions=6)
    world, heir = script.world, script.member("heir")
    script.give_up()
    world.run_until(lambda: all(script.read_by(p) == heir for p in script.early), 20_000, "the heir reads two")
    unfinished, finished = script.early
    at = position(script, unfinished)
    ask(script, "heir", "announce", {unfinished: (at, at + 9)}).result()
    world.strike("heir", releases, "after_applied_reply_lost", None)
    script.leave("heir")
    world.run_until(lambda: world.struck, 20_000, "it dies with its release")
    assert [script.owner(p) for p in (unfinished, finished)] == [heir, ""]
    script.answer()
    world.run_until(lambda: script.outstanding("consumer0") == 0, 20_000, "the rest is acknowledged")
    assert script.read_by(unfinished) == heir
    assert another_reads(script, unfinished, "heir") == "consumer0"
    assert told(script, unfinished) == [("consumer0", (at, at + 9))]
