"""`zkcoord group adopt` and `group release` in the simulated world, and the rules for a group that is not adopted."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.sim.actors import GROUP
from tests.sim.old_rules import is_old
from tests.sim.old_scene import OldScene
from tests.sim.store_tool import ToolDiedError, ToolTree
from tests.sim.zookeeper import Session, Txn
from zkcoord.cli.inventory import inventories
from zkcoord.core.adoption import Adoption
from zkcoord.errors import ZkcoordError
from zkcoord.operating.adopting import Result, adopt_group
from zkcoord.operating.releasing import release
from zkcoord.tree.paths import LEGACY
from zkcoord.tree.record import decode_record

RECORD, CHANNELS = LEGACY.record(GROUP), LEGACY.channels_of(GROUP)
PLACES = (LEGACY.group(GROUP), RECORD, CHANNELS)
TURN_MS = 300


class NotAdopted:
    """Once a group's release is complete, no program of ours writes anything of the group until it is adopted again.
    Attach this checker after the scene's rules.

    A release is complete when the record has no adoption and none of our members is registered or owns a partition. If
    a member registers just before that, the release puts the adoption back.
    """

    def __init__(self, scene: OldScene) -> None:
        self._scene, self._world = scene, scene.world
        self._adopted = _adopts(scene.world.ensemble.data(RECORD))
        self._closed = self._is_closed()
        self.closed = 0  # how often the release of the group was complete
        self.reopened = 0  # how often the group was adopted again
        scene.world.ensemble.on_applied.append(self._applied)

    def _applied(self, txn: Txn) -> None:
        if self._closed and self._is_ours(txn.session):
            for change in txn.changes:
                if change.path.startswith(PLACES):
                    self._world.fail(f"{txn.session.client} wrote {change.path} of a group that is not adopted")
        for change in txn.changes:
            if change.path == RECORD:
                self._adopted = _adopts(change.after and change.after.data)
        closed = self._is_closed()
        self.closed += closed > self._closed
        self.reopened += closed < self._closed
        self._closed = closed

    def _is_closed(self) -> bool:
        rules = self._scene.rules
        sessions = [*rules.registered.values(), *(claim.session for claim in rules.claims.values())]
        return not self._adopted and not any(map(self._is_ours, sessions))

    def _is_ours(self, session: Session) -> bool:
        return not is_old(session.process) and session is not self._world.ensemble.operator


def _adopts(data: bytes | None) -> bool:
    return bool(data) and decode_record(data or b"").adoption is not None


def adopt(tree: ToolTree, adoption: Adoption) -> Result:
    """Run the command once. Raises ToolDiedError at the write that `tree` names."""
    (found,) = inventories(tree, [GROUP], None)
    return adopt_group(tree, LEGACY, GROUP, adoption, found, force=False)


def release_while(scene: OldScene, tree: ToolTree, waits: Callable[[Sequence[str]], None]) -> int:
    """Run the command until it has ended, and return how many nodes were deleted. While members of ours are still
    there, `waits` is called with them, and time passes."""

    def told(there: Sequence[str]) -> None:
        waits(there)
        scene.world.run_for(TURN_MS)

    return release(tree, LEGACY, GROUP, told)


def again_if_it_dies(scene: OldScene, run: Callable[[ToolTree], object], dies_at: int | None, behind: bool) -> bool:
    """Run a tool that dies before or after its `dies_at`-th write, and then run it once more; True if it died."""
    tree = ToolTree(scene.world.ensemble, dies_at, behind=behind)
    try:
        run(tree)
    except ToolDiedError:
        scene.world.run_for(TURN_MS)
        run(ToolTree(scene.world.ensemble))
        return True
    return False


class _NotYetError(Exception):
    """Some members of ours are still there."""


class ReleasedForAWhile:
    """In the background, a tool asks all members of ours to leave, releases the group, and adopts it again later."""

    def __init__(self, scene: OldScene, from_ms: int, until_ms: int, adopts_again: Callable[[], None]) -> None:
        self._scene, self._world, self._until_ms, self._adopts_again = scene, scene.world, until_ms, adopts_again
        self.released = False
        self._world.at(from_ms, self._try)

    def _try(self) -> None:
        world = self._world
        if world.now_ms >= self._until_ms:  # too late: the group stays adopted
            return
        for name in [name for name in world.processes if name.startswith("consumer")]:
            self._scene.ask_to_leave(name)
        try:
            release(ToolTree(world.ensemble), LEGACY, GROUP, self._not_yet)
        except (_NotYetError, ZkcoordError):
            world.at(world.now_ms + TURN_MS, self._try)
            return
        self.released = True
        world.trace("the group is released")
        world.at(self._until_ms, self._adopts_again)

    def _not_yet(self, there: Sequence[str]) -> None:
        raise _NotYetError(there)


def left_of_ours(scene: OldScene) -> list[str]:
    """The nodes of the group that only zkcoord creates and that still exist."""
    ensemble = scene.world.ensemble
    names = [path for path in (RECORD, CHANNELS) if ensemble.stat(path) is not None]
    return [*names, *(name for name, session in scene.rules.registered.items() if not is_old(session.process))]
