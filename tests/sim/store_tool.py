"""`zkcoord offsets migrate` in the simulated world: its turns are events, and it may die before or behind any write."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tests.sim.actors import GROUP
from tests.sim.offset_log import LogStore
from tests.sim.store_scene import StoreScene
from tests.sim.zookeeper import Ensemble
from zkcoord.cli.store_migration import Migration, Places, Stage, Turn
from zkcoord.migrate import current
from zkcoord.shell.ports import CommitDone, Outcome
from zkcoord.tree.snapshot import Node, Read
from zkcoord.tree.writes import Transaction

TURN_MS = 300


def tree_id(scene: StoreScene) -> str:
    """The id of the scene's tree."""
    schema = current(ToolTree(scene.world.ensemble))
    assert schema is not None
    return schema.tree_id


class ToolDiedError(Exception):
    """The tool's process is gone."""


class ToolTree:
    """The ensemble as a tool has it. It dies before or behind its `dies_at`-th write, if that is said."""

    def __init__(self, ensemble: Ensemble, dies_at: int | None = None, *, behind: bool = False) -> None:
        self._ensemble, self._dies_at, self._behind = ensemble, dies_at, behind
        self.written: list[Transaction] = []  # what was carried out
        self.tried = 0

    def read(self, reads: Sequence[Read]) -> tuple[Node, ...]:
        return tuple(self._ensemble.leader.answer(read, None) for read in reads)

    def sync(self) -> None:
        return

    def commit(self, transaction: Transaction) -> CommitDone:
        self.tried += 1
        if self.tried == self._dies_at and not self._behind:
            raise ToolDiedError
        result = self._ensemble.operate(*transaction.writes)
        if not result.reason:
            self.written.append(transaction)
        if self.tried == self._dies_at:
            raise ToolDiedError
        if result.reason:
            return CommitDone(0, Outcome.REFUSED, failed_at=result.failed_at, reason=result.reason)
        return CommitDone(0, Outcome.COMMITTED, result.versions, made=result.made, zxid=result.zxid)


class StoreTool:
    """One run of the tool. It takes its turns in the background, until it ends or dies."""

    def __init__(
        self, scene: StoreScene, goal: str, run: str = "r1", *, dies_at: int | None = None, behind: bool = False
    ) -> None:
        self._scene = scene
        self.tree = ToolTree(scene.world.ensemble, dies_at, behind=behind)
        self.turns: list[Turn] = []
        self.died = False
        places = Places(
            tree=self.tree,
            layout=scene.world.layout,
            tree_id=tree_id(scene),
            kafka=LogStore(scene.log),
            existing=frozenset(scene.partitions()),
        )
        who = {"who": f"ann of {run}", "when": "now", "run": run}
        self.migration = Migration(places=places, group=GROUP, goal=goal, run=who)
        self._later()

    @property
    def over(self) -> bool:
        """True when it has ended, or died."""
        return self.died or (bool(self.turns) and self.turns[-1].stage is not Stage.WAITING)

    def _later(self) -> None:
        self._scene.world.at(self._scene.world.now_ms + TURN_MS, partial(self._turn))

    def _turn(self) -> None:
        try:
            self.turns.append(self.migration.turn(self._scene.world.now_ms))
            if self.turns[-1].stage is Stage.REFUSED:
                self.migration.give_up()
        except ToolDiedError:
            self.died = True
        self._scene.world.trace("tool", self.turns[-1:], self.died)
        if not self.over:
            self._later()

    def finish(self, steps: int = 20_000) -> Turn | None:
        """Run until it is over; its last turn."""
        self._scene.world.run_until(lambda: self.over, steps, "the tool is over")
        return self.turns[-1] if self.turns else None
