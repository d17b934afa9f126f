"""Scenes of a group in the layout legacy with members of ours, coordinators and old members."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from tests.sim.actors import GROUP, ConsumerFactory, ProductActor, coordinator
from tests.sim.old_member import OldMember
from tests.sim.old_rules import is_old
from tests.sim.old_scene import OldScene
from tests.sim.script import ScriptWorld
from zkcoord.core.adoption import Adoption
from zkcoord.core.mode import Mode
from zkcoord.core.record import DEFAULT_RECORD, GroupRecord
from zkcoord.tree.paths import LEGACY, RECORDS
from zkcoord.tree.record import encode_record
from zkcoord.tree.state import decode_state
from zkcoord.tree.writes import CreateNode, SetNode

ADOPTION = Adoption(offsets="zookeeper", strategy="range", kafka="1.1")


class BesideScene(OldScene):
    """One adopted group; members of ours are `consumer...` by name, old ones `old...`."""

    def __init__(
        self, world: ScriptWorld, topics: Mapping[str, int], *, coordinators: int = 1, adoption: Adoption = ADOPTION
    ) -> None:
        super().__init__(world, topics)
        self.topics = dict(topics)
        self.consumers = ConsumerFactory(self.logs, dict.fromkeys(topics, 1))
        self.consumers.reset = "earliest"
        for n in range(max(coordinators, 1)):
            world.spawn(f"coordinator{n}", partial(coordinator, layout=LEGACY))
        world.run_until(lambda: world.ensemble.stat(RECORDS) is not None, what="a tree")
        self.decide_on(replace(DEFAULT_RECORD, adoption=adoption))
        if not coordinators:
            world.stop("coordinator0")

    def decide_on(self, record: GroupRecord) -> None:
        """A tool writes the group's record."""
        path, data = LEGACY.record(GROUP), encode_record(record)
        stat = self.world.ensemble.stat(path)
        self.world.ensemble.operate(CreateNode(path, data) if stat is None else SetNode(path, data, stat.version))

    def enter(self, *names: str) -> None:
        """Members of ours start."""
        for name in names:
            self.world.spawn(name, self.consumers)

    def start_old(self, name: str, **settings: Any) -> OldMember:
        """An old member starts; it has the same subscription as the others."""
        return self.start(name, **{"topics": dict.fromkeys(self.topics, 1), **settings})

    def mode(self) -> Mode | None:
        """The mode that the coordinator wrote last."""
        data = self.world.ensemble.data(LEGACY.state(GROUP))
        return None if data is None else decode_state(data).mode

    def live(self) -> list[str]:
        """The names of the members that run and were not asked to leave."""
        processes = self.world.processes.values()
        return [p.name for p in processes if p.group and p.running and not _over(p.actor)]

    def settled(self) -> bool:
        """True when every member is registered, and every partition is read by one that may read it."""
        if len(self.rules.registered) != len(self.live()) or self.rules.unsettled():
            return False
        if self.rules.mixed:
            return True
        shares = [claim.session.process for claim in self.rules.claims.values()]
        counts = [shares.count(name) for name in self.live()]
        return not counts or max(counts) - min(counts) <= 1

    def settle(self, what: str = "a settled group") -> None:
        """Run until the group has settled."""
        self.world.run_until(self.settled, what=what)

    def leave_if_there(self, name: str) -> None:
        """A member, old or ours, is asked to leave if it was ever started."""
        if name in self.world.processes:
            self.ask_to_leave(name)

    def bring_coordinator(self) -> None:
        """A coordinator starts if none runs. (Without a coordinator a group can be mixed, but not coordinated.)"""
        if not any(p.running for name, p in self.world.processes.items() if name.startswith("coordinator")):
            self.world.spawn("coordinator9", partial(coordinator, layout=LEGACY))

    def kill(self, name: str) -> None:
        """A member or coordinator dies for good."""
        self.world.stop(name)

    def of_ours(self) -> list[str]:
        """The partitions that members of ours own."""
        return [p for p, name in self.owners().items() if not is_old(name)]


def _over(actor: Any) -> bool:
    if isinstance(actor, OldMember):
        return actor.left
    return isinstance(actor, ProductActor) and actor.loop.finished
