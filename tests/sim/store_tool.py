"""`zkcoord offsets migrate` in the simulated world: its turns are events, and it may die before or after any write."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from random import Random

from tests.sim.actors import GROUP
from tests.sim.offset_log import LogStore
from tests.sim.store_scene import StoreScene
from tests.sim.zookeeper import Ensemble
from zkcoord.core.model import TopicPartition
from zkcoord.core.offset_store import STORES
from zkcoord.core.tenure import CommitOutcome
from zkcoord.errors import UnavailableError
from zkcoord.migrate import current
from zkcoord.offsets.ports import Commits
from zkcoord.operating.store_migration import Migration, Places, Stage, Turn
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
    """The tool's process has died."""


class ToolTree:
    """The tool's access to the ensemble. The tool dies before or after its `dies_at`-th write (None: never)."""

    def __init__(self, ensemble: Ensemble, dies_at: int | None = None, *, behind: bool = False) -> None:
        self._ensemble, self._dies_at, self._behind = ensemble, dies_at, behind
        self.written: list[Transaction] = []  # applied transactions
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


class Unmoved:
    """In this context a tool's write must not change an offset that counts."""

    def __init__(self, scene: StoreScene) -> None:
        self._scene = scene

    def _counted(self) -> dict[TopicPartition, int | None]:
        return {p: self._scene.ledger.counted(p) for p in self._scene.partitions()}

    def __enter__(self) -> None:
        self._before = self._counted()

    def __exit__(self, *_: object) -> None:
        after = self._counted()
        if after != self._before:
            self._scene.world.fail(f"a tool moved offsets: {self._before} to {after}")


class CarefulTree(ToolTree):
    """A tool's writes to ZooKeeper; each is checked by `Unmoved`."""

    def __init__(self, scene: StoreScene, dies_at: int | None = None, *, behind: bool = False) -> None:
        super().__init__(scene.world.ensemble, dies_at, behind=behind)
        self._scene = scene

    def commit(self, transaction: Transaction) -> CommitDone:
        with Unmoved(self._scene):
            return super().commit(transaction)


class CarefulStore(LogStore):
    """A tool's commits to Kafka; each is checked by `Unmoved`."""

    def __init__(self, scene: StoreScene) -> None:
        super().__init__(scene.log)
        self._scene = scene

    def commit(self, group: str, commits: Commits) -> CommitOutcome:
        with Unmoved(self._scene):
            return super().commit(group, commits)


class StoreTool:
    """One run of the tool. It takes its turns in the background, until it ends or dies."""

    def __init__(
        self, scene: StoreScene, goal: str, run: str = "r1", *, dies_at: int | None = None, behind: bool = False
    ) -> None:
        self._scene = scene
        self.tree = CarefulTree(scene, dies_at, behind=behind)
        self.turns: list[Turn] = []
        self.died = False
        places = Places(
            tree=self.tree,
            layout=scene.world.layout,
            tree_id=tree_id(scene),
            kafka=CarefulStore(scene),
            existing=frozenset(scene.partitions()),
        )
        who = {"who": f"ann of {run}", "when": "now", "run": run}
        self.migration = Migration(places=places, group=GROUP, goal=goal, run=who)
        self._later()

    @property
    def over(self) -> bool:
        """True when the tool has ended or died."""
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
        except UnavailableError as error:
            self.turns.append(Turn(Stage.WAITING, "", 0, str(error)))
        self._scene.world.trace("tool", self.turns[-1:], self.died)
        if not self.over:
            self._later()

    def finish(self, steps: int = 20_000) -> Turn | None:
        """Run until the tool is over. Returns its last turn."""
        self._scene.world.run_until(lambda: self.over, steps, "the tool is over")
        return self.turns[-1] if self.turns else None


def tools_at_work(scene: StoreScene, drawn: Random, until_ms: int) -> None:
    """Until `until_ms` people run the tool again and again, with any store as the goal. Some runs die, some take over
    from others."""
    runs: list[StoreTool] = []

    def look() -> None:
        if scene.world.now_ms >= until_ms:
            return
        if not runs or runs[-1].over or drawn.random() < 0.05:
            dies_at = drawn.choice((None, None, 1, 2, 3, 4))
            runs.append(
                StoreTool(
                    scene, drawn.choice(STORES), f"r{len(runs)}", dies_at=dies_at, behind=drawn.choice((True, False))
                )
            )
        scene.world.at(scene.world.now_ms + 2 * TURN_MS, look)

    look()
