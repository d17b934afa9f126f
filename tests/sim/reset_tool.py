"""`zkcoord group reset-offsets --stop-first` in the simulated world. The tool's turns are events. It may die before or
after any write. It may be slow between the moment when it knows that nobody reads and its first offset.

`Rewinds` is its checker: nobody reads while offsets are reset, the new offsets count once the tool is done, and reading
goes on exactly there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from random import Random
from typing import Any

from tests.sim.actors import GROUP
from tests.sim.offset_log import Change, LogStore
from tests.sim.places import OFFSET, place_of
from tests.sim.store_scene import StoreScene
from tests.sim.store_tool import TURN_MS, ToolDiedError, ToolTree, tree_id
from tests.sim.world import Entry
from tests.sim.zookeeper import Txn
from zkcoord.core.model import TopicPartition
from zkcoord.core.record import RESET, GroupRecord, Request
from zkcoord.core.requests import STOPPED
from zkcoord.core.tenure import CommitOutcome
from zkcoord.errors import UnavailableError, UsageError, ZkcoordError
from zkcoord.offsets.ports import Commits
from zkcoord.offsets.targets import Goal, Targets, Where
from zkcoord.offsets.writing import readers_of
from zkcoord.operating.requesting import edit_record
from zkcoord.operating.resetting import _Wanted
from zkcoord.tree.request import requested
from zkcoord.tree.writes import CheckNode, Transaction

PATIENCE_TURNS = 60
EXPIRIES_MS = (8_000, 600_000)
"""How long a coordinator waits for a run: less than a slow tool takes, and for ever."""

SLOW_TURNS = (1, 1, 1, 40)
"""From the answer until offsets are written."""


class ToolKafka:
    """Stands in for `zkcoord.kafka.client.KafkaClient`, for the questions that a reset asks."""

    def __init__(self, scene: StoreScene) -> None:
        self._scene = scene

    def partitions(self) -> tuple[TopicPartition, ...]:
        """All partitions."""
        if self._scene.log.away:
            raise UnavailableError("no broker answers")
        return tuple(self._scene.partitions())

    def ask_offsets(
        self, partitions: Collection[TopicPartition], which: str, isolation: str, timeout_ms: int | None
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, ZkcoordError]]:
        """Ends or starts of logs."""
        end = self._scene.logs.end
        return {p: end(p) if which == "latest" else 0 for p in sorted(partitions)}, {}

    def reset_positions(self, partitions: Collection[TopicPartition], policy: Any) -> dict[TopicPartition, int]:
        """The offset of a time: half of each log."""
        return {p: self._scene.logs.end(p) // 2 for p in sorted(partitions)}


class ResetStore(LogStore):
    """The tool's commits to Kafka. Like the commits of other programs they name no tenure."""

    def commit(self, group: str, commits: Commits) -> CommitOutcome:
        if self._log.away or self._log.in_use:
            return super().commit(group, commits)
        for partition, commit in sorted(commits.items()):
            self._log.stranger_commits(partition, commit.offset)
        return CommitOutcome(done=frozenset(commits))


class Rewinds:
    """The rules of every reset of a scene's group. Attach this checker after the ledger."""

    def __init__(self, scene: StoreScene) -> None:
        self._scene = scene
        self.expected: dict[TopicPartition, int] = {}  # where reading must go on, until it does
        self.writing = False  # a tool that resets is writing now
        self.read = 0  # how many partitions were read after a reset
        self._since: dict[TopicPartition, set[int]] = {}  # others' later commits to Kafka, which may be followed
        scene.world.ensemble.on_applied.append(self._applied)
        scene.world.on_journal.append(self._journaled)
        scene.log.on_change.append(self._changed)

    def _changed(self, change: Change) -> None:
        if change.how == "stranger" and change.after is not None:
            self._since.setdefault(change.partition, set()).add(change.after.offset)

    def _applied(self, txn: Txn) -> None:
        field = self._scene.field
        for path, _, after in txn.changes:
            place = place_of(path)
            if place is None or place.kind != OFFSET or place.group != GROUP or place.partition is None:
                continue
            partition, offset = place.partition, None if after is None else int(after.data)
            if self.writing:
                holding = field.holdings.get((GROUP, partition))
                if holding is not None and (GROUP, holding.consumer) in field.registrations:
                    self._scene.world.fail(f"{partition} is reset to {offset} while {holding.client} reads it")
                self.expected.pop(partition, None)  # the tool may die before it is done: then people must look
                if offset is not None:
                    self.expected[partition] = offset
            elif not self._is_right(partition, offset):
                who, wanted = txn.session.client, self.expected[partition]
                self._scene.world.fail(f"{who} writes {offset} over {partition}, which was reset to {wanted}")

    def done(self, targets: Mapping[TopicPartition, int]) -> None:
        """A tool has set all of these offsets: they must count."""
        for partition, offset in sorted(targets.items()):
            counts = self._scene.ledger.counted(partition)
            if counts != offset:
                self._scene.world.fail(f"{partition} was reset to {offset}, and {counts} counts")
            self.expected[partition] = offset
            self._since.pop(partition, None)
            self._scene.field.strangers.pop((GROUP, partition), None)  # earlier commits of others do not count any more

    def _journaled(self, entry: Entry) -> None:
        if entry.event != "read" or entry.group != GROUP or entry.partition not in self.expected:
            return
        if not self._is_right(entry.partition, entry.start):
            wanted = self.expected[entry.partition]
            why = f"{entry.client} reads {entry.partition} from {entry.start}, it was reset to {wanted}"
            self._scene.world.fail(why)
        del self.expected[entry.partition]
        self.read += 1

    def _is_right(self, partition: TopicPartition, offset: int | None) -> bool:
        """True of the offset that the last reset set, and of others' later commits."""
        return offset == self.expected.get(partition, offset) or offset in self._since.get(partition, ())


class ResetTree(ToolTree):
    """The tool's writes to ZooKeeper; `Rewinds` is told that they are the tool's."""

    def __init__(self, scene: StoreScene, rewinds: Rewinds, dies_at: int | None, *, behind: bool) -> None:
        super().__init__(scene.world.ensemble, dies_at, behind=behind)
        self._rewinds = rewinds

    def commit(self, transaction: Transaction) -> Any:
        self._rewinds.writing = True
        try:
            return super().commit(transaction)
        finally:
            self._rewinds.writing = False


class ResetTool:
    """One run of the tool. It takes its turns in the background, until it ends or dies."""

    def __init__(
        self,
        scene: StoreScene,
        rewinds: Rewinds,
        goal: Goal,
        run: str,
        *,
        dies_at: int | None = None,
        behind: bool = False,
        expiry_ms: int = EXPIRIES_MS[-1],
        slow_turns: int = 1,
    ) -> None:
        self._scene, self._rewinds, self._run, self._expiry_ms = scene, rewinds, run, expiry_ms
        self._tree = ResetTree(scene, rewinds, dies_at, behind=behind)
        wanted = _Wanted(
            tree=self._tree,
            layout=scene.world.layout,
            tree_id=tree_id(scene),
            group=GROUP,
            client=ToolKafka(scene),  # type: ignore[arg-type]
            store=ResetStore(scene.log),  # type: ignore[arg-type]
            goal=goal,
            topics=(),
            named=_exported(scene) if goal.where is Where.FILE else None,
        )
        self._reset = wanted.reset()
        self._turns = 0
        self._slow_turns = slow_turns
        self._asked = self.took_over = False
        self.where = goal.where
        self._guard: list[CheckNode] | None = None
        self.over, self.died, self.why = False, False, ""
        self.found: Targets | None = None  # the offsets that it has set
        self._later()

    def _later(self) -> None:
        self._scene.world.at(self._scene.world.now_ms + TURN_MS, self._turn)

    def _turn(self) -> None:
        self._turns += 1
        try:
            self.over = self._advance()
        except ToolDiedError:
            self.over = self.died = True
        except (UsageError, UnavailableError) as error:
            self.over, self.why = True, str(error)
        self._scene.world.trace("reset", self._run, "over" if self.over else "waits", self.died, self.why)
        if not self.over:
            self._later()

    def _advance(self) -> bool:
        """Do one turn: the steps of `reset_group`, one after the other. Returns True when the tool is over."""
        reset = self._reset
        if self._guard is not None:
            self._slow_turns -= 1
            return self._slow_turns < 1 and self._write(self._reset.write, self._guard)
        if not self._asked:
            reset.check_shift()
            readers = readers_of(self._tree.read, self._scene.world.layout, GROUP)
            self.took_over = reset.begun()
            if not self.took_over and (not readers.ours or readers.paused):
                readers.refuse(GROUP)
                return self._write(self._reset.unread, readers.guard)
            self._ask()
            return False
        answer = reset._answer(self._run)
        if answer is None:
            if self._turns > PATIENCE_TURNS:
                self.why = "nobody stops the group"
                if not self.took_over:
                    reset._take_back(self._run)
            return self._turns > PATIENCE_TURNS
        if answer.state != STOPPED:
            raise UsageError(f"{answer.state}: {answer.reason}")
        self._guard = reset._guard(self._run)
        return False

    def _ask(self) -> None:
        """Write the request, as `requesting.ask` does for a tool that takes over."""
        request = Request(who="ann", run=self._run, expiry_ms=self._expiry_ms)

        def edit(record: GroupRecord) -> GroupRecord:
            return requested(record, RESET, request)

        edit_record(self._tree, self._scene.world.layout, GROUP, edit)
        self._asked = True

    def _write(self, write: Callable[[Sequence[CheckNode]], tuple[Any, Targets]], guard: Sequence[CheckNode]) -> bool:
        _, self.found = write(guard)
        self._rewinds.done(self.found.offsets)
        if self._asked:
            self._reset._take_back(self._run)
        return True

    def finish(self, steps: int = 40_000) -> Targets | None:
        """Run until the tool is over. Returns the offsets that it has set, None if it has set none."""
        self._scene.world.run_until(lambda: self.over, steps, f"the reset {self._run} is over")
        return self.found


def _exported(scene: StoreScene) -> dict[TopicPartition, int]:
    """The offsets that an export would have now: those in ZooKeeper."""
    return {p: scene.node(p) for p in scene.partitions()}


def goal_of(drawn: Random) -> Goal:
    """Draw any goal that people may have."""
    where = drawn.choice(tuple(Where))
    number = drawn.randint(-900, 300) if where is Where.SHIFT else drawn.randint(0, 2_000)
    return Goal(where, number)


def resets_at_work(scene: StoreScene, rewinds: Rewinds, drawn: Random, until_ms: int) -> list[ResetTool]:
    """Until `until_ms` people reset offsets again and again. Some runs die, some are slow, some take over from others,
    and sometimes the group is resumed during a run. Returns a list of all runs so far, which grows."""
    runs: list[ResetTool] = []

    def look() -> None:
        if scene.world.now_ms >= until_ms:
            return
        if not runs or runs[-1].over or drawn.random() < 0.05:
            runs.append(
                ResetTool(
                    scene,
                    rewinds,
                    goal_of(drawn),
                    f"reset{len(runs)}",
                    dies_at=drawn.choice((None, None, None, 1, 2, 3)),
                    behind=drawn.choice((True, False)),
                    expiry_ms=drawn.choice(EXPIRIES_MS),
                    slow_turns=drawn.choice(SLOW_TURNS),
                )
            )
        elif drawn.random() < 0.1:
            scene.resume()
        scene.world.at(scene.world.now_ms + int(drawn.random() * 8 * TURN_MS), look)

    look()
    return runs
