"""Storms with joins, leaves, stopped coordinators, growing topics and edited records."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pytest

from tests.sim.actors import GROUP, ConsumerFactory, ProductActor, coordinator, topic_json
from tests.sim.draft_member import DraftMember, SessionOverError
from tests.sim.field import parse_json
from tests.sim.options import seeds
from tests.sim.process import SimProcess
from tests.sim.scenarios import Scene
from tests.sim.world import World
from zkcoord.core.topics import DELETED_MS
from zkcoord.shell.ports import Request
from zkcoord.tree.paths import CANDIDATES, DRAFT, Layout
from zkcoord.tree.writes import SetNode

SEEDS = 30


class Churn:
    """Acts of people on a running group, one at a time, drawn from the world's seed."""

    def __init__(
        self,
        world: World,
        scene: Scene,
        kinds: Sequence[str],
        coordinates: Callable[[SimProcess], ProductActor] = coordinator,
    ) -> None:
        self.world, self.scene, self.kinds, self._coordinates = world, scene, kinds, coordinates
        self.next_consumer, self.next_coordinator = 5, 2

    def _pick(self, items: Sequence[Any]) -> Any:
        return items[int(self.world.rng.random() * len(items))]

    def act(self) -> None:
        getattr(self, self._pick(self.kinds))()

    def _live(self, prefix: str) -> list[str]:
        return [n for n, p in self.world.processes.items() if n.startswith(prefix) and p.restarts]

    def join(self) -> None:
        if len(self._live("consumer")) < 7:
            self.scene.join(f"consumer{self.next_consumer}")
            self.next_consumer += 1

    def leave(self) -> None:
        names = [n for n in self._live("consumer") if self.world.processes[n].running]
        if len(names) > 2:
            process = self.world.processes[self._pick(names)]
            process.restarts = False
            self.world.trace(process.client, "is asked to leave")
            process.inbox.put(Request("stop", None, Future()))

    def swap_coordinator(self) -> None:
        names = [n for n in self._live("coordinator") if self.world.processes[n].running]
        if names:
            process = self.world.processes[self._pick(names)]
            process.restarts = False
            self.world.trace(process.client, "is asked to stop")
            process.inbox.put(Request("stop"))
        self.world.spawn(f"coordinator{self.next_coordinator}", self._coordinates)
        self.next_coordinator += 1

    def grow(self) -> None:
        topic = self._pick(["t", "u"])
        path = f"/brokers/topics/{topic}"
        count = len(parse_json(self.world.ensemble.data(path) or b"").get("partitions", ()))
        if 0 < count < 14:
            self._set(path, topic_json(count + 1 + int(self.world.rng.random() * 3)))

    def recreate(self) -> None:
        """Delete a topic; sooner or later it is created again."""
        topic = self._pick(["t", "u"])
        self.scene.delete_topic(topic)
        later_ms = int(self.world.rng.random() ** 3 * 2 * DELETED_MS)
        partitions = 1 + int(self.world.rng.random() * 9)
        self.world.at(self.world.now_ms + later_ms, lambda: self.scene.create_topic(topic, partitions))

    def record(self) -> None:
        path = DRAFT.record(GROUP)
        record = parse_json(self.world.ensemble.data(path) or b"")
        if record:
            record["policy"] = {**record.get("policy", {}), "max_rebalance_retries": int(self.world.rng.random() * 4)}
            record["assignor"] = self._pick([None, "range", "sticky"])
            self._set(path, json.dumps(record).encode())

    # requests to a group and to its coordinators

    def rules(self) -> None:
        """An operator changes the group's policy."""
        path = DRAFT.record(GROUP)
        record = parse_json(self.world.ensemble.data(path) or b"")
        if record:
            policy = {
                "max_moves": self._pick([None, 1, 3]),
                "probe_interval_ms": self._pick([None, 1_000, 3_000]),
                "initial_delay_ms": self._pick([0, 0, 2_000]),
            }
            record["policy"] = {**record.get("policy", {}), **policy}
            record["rebalance"] = self._pick(["eager", "cooperative"])
            record["weights"] = self._pick([{}, {"t-0": 5, "u-1": 3}])
            self._set(path, json.dumps(record).encode())

    def says(self) -> None:
        """Applications report their progress. One that lags and reports the same again and again is evicted."""
        for name in self._live("consumer"):
            actor = self.world.processes[name].actor
            if self.world.processes[name].running and isinstance(actor, ProductActor):
                actor.role.said = (int(self.world.rng.random() * 3), self._pick([0, 7]))

    def no_more_probes(self) -> None:
        """Stop probes: a group that is probed never comes to rest."""
        record = parse_json(self.world.ensemble.data(DRAFT.record(GROUP)) or b"")
        if record.get("policy", {}).get("probe_interval_ms"):
            record["policy"]["probe_interval_ms"] = None
            self._set(DRAFT.record(GROUP), json.dumps(record).encode())

    def request(self) -> None:
        """Somebody makes a request, and takes it back after a while."""
        self.scene.request(self._pick(["hold", "pause", "rebalance"]))
        self.world.at(self.world.now_ms + int(self.world.rng.random() * 10_000), self.scene.resume)

    def delete(self) -> None:
        """Somebody asks for the group's deletion, which is refused while it has members."""
        self.scene.request("delete", offsets=self.world.rng.random() < 0.7)

    def disband(self) -> None:
        """All consumers die, the group is deleted, and they come back before, during or after the deletion."""
        rng, world = self.world.rng, self.world
        for name in self._live("consumer"):
            world.crash(name, restart_after_ms=int(rng.random() * 4 * world.options.session_timeout_ms))
        for _ in range(3):
            world.at(world.now_ms + int((1 + rng.random()) * world.options.session_timeout_ms), self.delete)

    def resign(self) -> None:
        """Somebody asks a candidate to resign."""
        numbers = self.world.ensemble.names(CANDIDATES)
        if numbers:
            path = f"{CANDIDATES}/{self._pick(numbers)}"
            self._set(path, json.dumps({**parse_json(self.world.ensemble.data(path) or b""), "resign": {}}).encode())

    def join_another(self) -> None:
        """A consumer joins with another subscription than the rest."""
        if len(self._live("consumer")) < 7:
            kind, topics = self._pick([("white_list", {"t|u": 1}), ("black_list", {"v": 2}), ("static", {"u": 2})])
            timeout_ms = 8_000
            factory = ConsumerFactory(self.scene.logs, topics, pattern=kind, rebalance_timeout_ms=timeout_ms)
            self.world.spawn(f"consumer{self.next_consumer}", factory)
            self.next_consumer += 1

    def join_of_the_draft(self) -> None:
        """A consumer joins that knows only the draft. It has no fence and no lease, so the checkers ignore it."""
        if len(self._live("old")) < 2 and self.world.ensemble.stat(DRAFT.channels_of(GROUP)) is not None:
            self.world.spawn(f"old{self.next_consumer}", DraftMember, dies_of=(SessionOverError,))
            self.next_consumer += 1

    def _set(self, path: str, data: bytes) -> None:
        stat = self.world.ensemble.stat(path)
        if stat is not None:
            self.world.trace("operator sets", path, data)
            self.world.ensemble.operate(SetNode(path, data, stat.version))


KINDS = ("join", "leave", "swap_coordinator", "grow", "recreate", "record")
LIFE = (*KINDS, "rules", "request", "disband", "delete", "resign", "join_another", "says")


def churn(
    seed: int,
    kinds: Sequence[str] = KINDS,
    steps: int = 2_500,
    rebalance_timeout_ms: int = 0,
    hold_ms: int = 0,
    layout: Layout = DRAFT,
    **fixed: Any,
) -> World:
    """One seed of such a storm, and the calm after it."""
    world = World(seed)
    world.options, world.layout = replace(world.options, **fixed), layout
    rebalance_timeout_ms = rebalance_timeout_ms or [3_000, 8_000][seed % 2]
    scene = Scene(world, consumers=5, rebalance_timeout_ms=rebalance_timeout_ms, hold_ms=hold_ms)
    churning = Churn(world, scene, kinds)
    for _ in range(steps // 80):
        world.storm(80)
        churning.act()
    churning.no_more_probes()
    scene.calm()
    return world


@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_a_storm_with_churn_ends_in_a_calm(seed: int) -> None:
    churn(seed)


def static(seed: int) -> World:
    """A storm with static members. Their shares wait for them for less time than a restart takes, for as long, or for
    longer."""
    return churn(seed, hold_ms=[500, 5_000, 20_000][seed % 3])


@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_a_storm_with_static_members_ends_in_a_calm(seed: int) -> None:
    static(seed)


def life(seed: int) -> World:
    """A storm with everything that people may ask for: requests, deletions, resignations, rules. In some seeds members
    are static."""
    return churn(seed, LIFE, hold_ms=[0, 0, 2_000, 20_000][seed % 4])


@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_a_storm_with_all_of_a_groups_life(seed: int) -> None:
    life(seed)


def draft(seed: int) -> World:
    """A storm with members that know only the draft: their partitions move to the other members and back, in eager and
    cooperative groups, through holds and pauses."""
    return churn(seed, (*KINDS, "rules", "request", "join_of_the_draft", "join_of_the_draft"))


@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_a_storm_with_members_of_the_draft_ends_in_a_calm(seed: int) -> None:
    draft(seed)


def test_an_evicted_draft_members_late_deletion_deletes_nothing_foreign() -> None:
    """A seed with slow servers and many members; the world must come to rest."""
    draft(802153)


def slow(seed: int) -> World:
    """A storm with callbacks that take longer than sessions and leases."""
    return churn(
        seed,
        rebalance_timeout_ms=40_000,
        call_ms_max=6_000,
        session_timeout_ms=4_000,
        read_ms_max=300,
        fault_sessions_max=1.0,
    )


@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_a_storm_with_slow_callbacks_ends_in_a_calm(seed: int) -> None:
    slow(seed)
