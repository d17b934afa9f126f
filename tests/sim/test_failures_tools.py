"""F27 (docs/failures.md): the tools' report about a group agrees with ZooKeeper, at every moment of the group's
life."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from tests.sim.actors import GROUP
from tests.sim.field import consumer_of
from tests.sim.options import seeds
from tests.sim.script import Script, hold_calls, on_seeds
from tests.sim.zookeeper import Ensemble, Txn
from zkcoord.core.model import Phase
from zkcoord.group_report import GroupReport, read_group
from zkcoord.shell.ports import CommitDone
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.snapshot import Node, Read
from zkcoord.tree.writes import Transaction

SEEDS = 10


class Tree:
    """The simulated ensemble, with the interface by which the tools read a real one."""

    def __init__(self, ensemble: Ensemble) -> None:
        self._ensemble = ensemble

    def read(self, reads: Sequence[Read]) -> tuple[Node, ...]:
        return tuple(self._ensemble.leader.answer(read, None) for read in reads)

    def commit(self, transaction: Transaction) -> CommitDone:
        raise AssertionError(f"a tool that only shows wants to write: {transaction}")

    def sync(self) -> None:
        return


class Compared:
    """After each transaction the tools' report is compared with the znodes, which `Field` reads by separate code."""

    def __init__(self, script: Script) -> None:
        self.phases = Counter[Phase]()
        self._script = script
        script.world.ensemble.on_applied.append(self._compare)  # called after the field's own hook

    def _compare(self, _txn: Txn) -> None:
        ensemble, field = self._script.world.ensemble, self._script.field
        if ensemble.stat(DRAFT.group(GROUP)) is None or ensemble.stat("/zkcoord/schema") is None:
            return
        report = read_group(Tree(ensemble), DRAFT, GROUP)
        self.phases[report.phase] += 1
        members = {consumer for _, consumer in field.registrations}
        owners = {str(p): owner.thread for p, owner in report.view.owners.items() if owner.thread}
        offsets = {p: offset for p, offset in report.offsets.items() if offset is not None}
        assert (set(report.view.members), report.commands()) == (members, self._script.outstanding())
        assert owners == {str(p): thread for (_, p), thread in field.owners.items()}
        assert offsets == {p: offset for (_, p), offset in field.offsets.items()}
        self._judge(report, members)

    def _judge(self, report: GroupReport, members: set[str]) -> None:
        """The STATE by its definition: Empty without members, Stable without outstanding commands and without unowned
        partitions."""
        field = self._script.field
        assert (report.phase is Phase.EMPTY) is (not members)
        if report.phase is Phase.STABLE:
            commands = [c for standing in field.commands.values() for c in standing.values() if c.partitions]
            assert commands == []
            wanted = self._script.partitions() if report.settled else []
            assert {consumer_of(field.owners.get((GROUP, p), "")) for p in wanted} <= members


@on_seeds()
def test_f27_the_tools_count_what_is_in_zookeeper_through_a_groups_whole_life(seed: int) -> None:
    script = Script(seed, consumers=2, rebalance_timeout_ms=2_000)
    compared = Compared(script)
    script.settle()
    script.set_policy(max_rebalance_retries=0)
    script.join("late")
    script.settle()
    hold_calls(script.application("consumer0"))
    script.grow("t", 9)
    script.world.run_until(lambda: bool(script.world.events("evicted")), 20_000, "an eviction")
    script.world.crash("consumer0")
    script.settle()
    for name in ("consumer0", "consumer1", "late"):
        script.world.stop(name)
    script.world.run_until(lambda: not script.field.registrations and not script.field.channels, what="all are gone")
    assert compared.phases.keys() == {
        Phase.EMPTY,
        Phase.PREPARING_REBALANCE,
        Phase.AWAITING_SYNC,
        Phase.STABLE,
    }


@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_f27_the_tools_count_what_is_in_zookeeper_in_every_storm(seed: int) -> None:
    script = Script(seed, None, consumers=3)  # the seed draws the options
    script.settle()
    compared = Compared(script)
    script.world.storm(1_500)
    script.calm()
    assert sum(compared.phases.values()) > 20
    report = read_group(Tree(script.world.ensemble), DRAFT, GROUP)
    assert (report.phase, report.settled, report.moves()) == (Phase.STABLE, True, [])
