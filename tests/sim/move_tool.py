"""`zkcoord migrate move` in the simulated world: a group goes to another tree and comes back, while anything may fail.

The tool's turns are events. The tool may die before or after any write to either tree. The other tree is in memory and
has no programs: `_work_there` commits there as its consumers would.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from tests.migrate.memory_tree import MemoryTree
from tests.sim.actors import GROUP
from tests.sim.store_scene import StoreScene
from tests.sim.store_tool import ToolDiedError, ToolTree, tree_id
from zkcoord.core.model import TopicPartition
from zkcoord.core.moved import MoveState
from zkcoord.core.record import Request
from zkcoord.errors import UsageError, ZkcoordError
from zkcoord.migrate import upgrade
from zkcoord.offsets.move import GroupMove
from zkcoord.offsets.ports import OffsetTree
from zkcoord.offsets.side import Side
from zkcoord.operating.copies import remove_copy
from zkcoord.shell.ports import CommitDone
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.snapshot import Node, Read
from zkcoord.tree.writes import Transaction

TURN_MS = 400
PATIENCE_TURNS = 10  # if the group is not paused by then, the tool takes the pause back
AWAY, BACK = "away", "back"


class Watched:
    """A tree that calls a function before and after each write."""

    def __init__(self, tree: OffsetTree, before: Callable[[], None], behind: Callable[[], None]) -> None:
        self._tree, self._before, self._behind = tree, before, behind

    def read(self, reads: Sequence[Read]) -> tuple[Node, ...]:
        return self._tree.read(reads)

    def sync(self) -> None:
        return

    def commit(self, transaction: Transaction) -> CommitDone:
        self._before()
        done = self._tree.commit(transaction)
        self._behind()
        return done


class TwoTrees:
    """The scene's tree and another one, and the rules that must hold for both at any moment."""

    def __init__(self, scene: StoreScene, drawn: Random) -> None:
        self.scene, self._drawn = scene, drawn
        self.memory = MemoryTree()
        upgrade(self.memory, run_id="test", layout="draft", tree_id="bb")
        for path in ("/brokers", "/brokers/topics"):
            self.memory.set(path, b"")
        self._topics()
        home = ToolTree(scene.world.ensemble)
        self.home = Side(tree=home, layout=DRAFT, tree_id=tree_id(scene), address="zk-home:2181")
        self.other = Side(tree=self.memory, layout=DRAFT, tree_id="bb", address="zk-other:2181")
        self.was_there = False
        self.trips = 0  # how often the group has moved to the other tree
        self.copies_removed = 0
        self._left_with: dict[TopicPartition, int] = {}  # offsets of the other tree when the way back began
        self._takes_back = False
        scene.world.ensemble.on_applied.append(lambda _: self._look())

    def _topics(self) -> None:
        ensemble = self.scene.world.ensemble
        for name in ensemble.names("/brokers/topics"):
            self.memory.set(f"/brokers/topics/{name}", ensemble.data(f"/brokers/topics/{name}") or b"")

    @property
    def is_here(self) -> bool:
        """True when consumers in this tree may be given the group's partitions."""
        _, record = self.home.record(GROUP)
        return record is None or record.moved is None

    @property
    def is_there(self) -> bool:
        """True when consumers of the other tree would be given the group's partitions."""
        _, record = self.other.record(GROUP)
        return record is not None and record.moved is None

    def _look(self) -> None:
        """No consumer here holds a partition that may be read in the other tree."""
        _, record = self.home.record(GROUP)
        moved = None if record is None else record.moved
        if moved is not None and moved.state is not MoveState.LEAVING and (held := self.scene.held()):
            self.scene.world.fail(f"{held} are read while the group {moved.where()}")

    def behind_a_write(self) -> None:
        """Called after each write of the tool: never do both trees count, and the offsets that count move with the
        group."""
        world, there = self.scene.world, self.is_there
        if there and self.is_here:
            world.fail("the group may be read in both trees")
        if self.was_there and not there:
            self._left_with = self._offsets()
        if there and not self.was_there and self._takes_back:
            if self._offsets() != self._left_with:
                world.fail(f"the other tree has {self._offsets()}, and {self._left_with} were to be moved from there")
        elif there and not self.was_there:
            self.trips += 1
            counted = {p: o for p, o in self._counted().items() if o is not None}
            if self._offsets() != counted:
                world.fail(f"the copy has {self._offsets()}, and {counted} counts")
            self._work_there()
        self.was_there = there

    def _counted(self) -> dict[TopicPartition, int | None]:
        return {p: self.scene.ledger.counted(p) for p in self.scene.partitions()}

    def _offsets(self) -> dict[TopicPartition, int]:
        data = self.memory.data()
        found = {p: data.get(DRAFT.offset(GROUP, p)) for p in self.scene.partitions()}
        return {p: int(text) for p, text in found.items() if text is not None}

    def _work_there(self) -> None:
        """Consumers in the other tree process some records, and commit."""
        for partition, offset in self._offsets().items():
            end = self.scene.logs.end(partition)
            self.memory.set(DRAFT.offset(GROUP, partition), str(self._drawn.randint(offset, max(offset, end))).encode())

    def move(self, way: str, run: str, before: Callable[[], None], behind: Callable[[], None]) -> GroupMove:
        """One run of the tool."""

        def looked_at() -> None:
            self.behind_a_write()
            behind()

        sides = [
            Side(tree=Watched(side.tree, before, looked_at), layout=DRAFT, tree_id=side.tree_id, address=side.address)
            for side in ((self.home, self.other) if way == AWAY else (self.other, self.home))
        ]
        asked = Request(who=f"ann of {run}", when="now", run=run)
        return GroupMove(
            source=sides[0], target=sides[1], group=GROUP, asked=asked, commits=lambda _: self.scene.log.read()
        )

    def give_up(self, way: str, run: str, dies_at: int | None) -> None:
        """Somebody gives up a move that has not ended, and removes its copy. This tool may die before any write."""
        written = 0

        def before() -> None:
            nonlocal written
            written += 1
            if written == dies_at:
                raise ToolDiedError

        move = self.move(way, run, before, lambda: None)
        self._takes_back = way == BACK
        try:
            move.give_up()
            self.copies_removed += remove_copy(move.source, move.target, GROUP)
            said = "done"
        except ToolDiedError:
            said = "died"
        except ZkcoordError as error:
            said = f"{type(error).__name__}: {error}"
        self._takes_back = False
        self.scene.world.trace("give up", way, run, said)


class MoveTool:
    """One run of the tool. It takes its turns in the background until it ends or dies; `result` says how it ended."""

    def __init__(
        self, trees: TwoTrees, way: str, run: str = "r1", *, dies_at: int | None = None, behind: bool = False
    ) -> None:
        self._scene, self.way, self._run = trees.scene, way, run
        self._dies = (dies_at, behind)
        self._written = self._turns = 0
        self._begun = False
        self.move = trees.move(way, run, self._before, self._behind)
        self.result = ""
        self._later()

    @property
    def over(self) -> bool:
        """True when it has ended, or died."""
        return self.result != ""

    def _before(self) -> None:
        self._written += 1
        if self._dies == (self._written, False):
            raise ToolDiedError

    def _behind(self) -> None:
        if self._dies == (self._written, True):
            raise ToolDiedError

    def _later(self) -> None:
        self._scene.world.at(self._scene.world.now_ms + TURN_MS, self._turn)

    def _turn(self) -> None:
        try:
            self.result = self._go_on()
        except ToolDiedError:
            self.result = "died"
        except ZkcoordError as error:
            self.result = f"{type(error).__name__}: {error}"
        if self.over:
            self._scene.world.trace("move", self.way, self._run, self.result)
        else:
            self._later()

    def _go_on(self) -> str:
        """Do one turn of the command, and return how it ended; "": it still waits for the pause."""
        if not self._begun:
            self.move.survey()
            self._begun = True
            if self.move.begin() is MoveState.GONE:
                self.move.open()
                return "was moved already"
        self._turns += 1
        try:
            stopped = self.move.stopped()
        except UsageError:
            self.move.give_up(only_mine=True)
            raise
        if stopped:
            self.move.carry_out()
            return "moved"
        if self._turns <= PATIENCE_TURNS:
            return ""
        self.move.give_up(only_mine=True)
        return "given up"

    def finish(self, steps: int = 20_000) -> str:
        """Run until the tool is over, and return how it ended."""
        self._scene.world.run_until(lambda: self.over, steps, "the tool is over")
        return self.result


def movers_at_work(trees: TwoTrees, drawn: Random, until_ms: int) -> list[MoveTool]:
    """Until `until_ms` people run the tool again and again, in both directions. Some runs die, some take over from
    others."""
    world, runs = trees.scene.world, list[MoveTool]()

    def look() -> None:
        if world.now_ms >= until_ms:
            return
        if runs and runs[-1].result == "died" and drawn.random() < 0.5:
            trees.give_up(runs[-1].way, f"r{len(runs)}", drawn.choice((None, None, *range(1, 6))))
        elif not runs or runs[-1].over or drawn.random() < 0.05:
            dies_at, behind = drawn.choice((None, *range(1, 12))), drawn.choice((True, False))
            runs.append(MoveTool(trees, drawn.choice((AWAY, BACK)), f"r{len(runs)}", dies_at=dies_at, behind=behind))
        world.at(world.now_ms + 2 * TURN_MS, look)

    look()
    return runs
