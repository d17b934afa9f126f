"""A group that works is never accused: it is audited all the time while members join, leave, die, and hang."""

from __future__ import annotations

from tests.sim.actors import GROUP
from tests.sim.script import Script, hold_calls, on_seeds
from tests.sim.test_failures_tools import Tree
from zkcoord.audit.audit import Audit
from zkcoord.audit.auditor import Auditor
from zkcoord.audit.checks import Suspicion

PATIENCE_MS = 20_000  # longer than a session, a grace and a hand-over of the simulated world together
INTERVAL_MS = 500


class Audited:
    """An auditor that reads each half second of the simulated world."""

    def __init__(self, script: Script) -> None:
        self._world = script.world
        self.auditor = Auditor(Tree(script.world.ensemble), "here", Audit(PATIENCE_MS, PATIENCE_MS))
        self.found: list[Suspicion] = []
        self._world.at(self._world.now_ms, self._read)

    def _read(self) -> None:
        self.auditor.read(lambda: self._world.now_ms)
        self.found += self.auditor.audit.findings
        self._world.at(self._world.now_ms + INTERVAL_MS, self._read)


@on_seeds()
def test_a_group_under_rebalances_and_failovers_shows_no_finding(seed: int) -> None:
    script = Script(seed, consumers=3, topics={"t": 8})
    script.settle()
    audited = Audited(script)
    script.join("late")
    script.settle("four share it")
    script.leave("consumer0")
    script.world.run_for(3_000)
    script.world.crash("consumer1")
    script.world.run_for(10_000)
    script.world.crash(script.leader())
    script.grow("t", 12)
    script.world.run_until(lambda: len(script.partitions()) == 12 and script.all_held(), 60_000, "all is read")
    script.world.run_for(30_000)

    assert audited.auditor.audit.readings > 80
    assert audited.found == []


@on_seeds()
def test_a_member_that_hangs_is_found_as_an_old_command_before_it_is_evicted(seed: int) -> None:
    script = Script(seed, consumers=2, topics={"t": 4}, rebalance_timeout_ms=30_000)
    script.settle()
    audited = Audited(script)
    silent = script.member("consumer0")
    hold_calls(script.application("consumer0"))
    script.grow("t", 8)
    script.world.run_until(lambda: bool(audited.found), 200_000, "a finding")

    assert (GROUP, silent) in script.field.registrations
    assert {(each.check, each.subject.partition("/")[0]) for each in audited.found} == {("old-command", silent)}
