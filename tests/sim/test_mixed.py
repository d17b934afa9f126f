"""Storms of members that announce what they process, in strange conditions, while brokers and replicas change racks.

Topics are not deleted here: of another incarnation a sink that is keyed by ranges cannot tell.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any, NamedTuple

import pytest

from tests.sim.actors import ConsumerFactory
from tests.sim.batches import BatchApplication
from tests.sim.field import parse_json
from tests.sim.options import seeds
from tests.sim.test_strange import Strange, odd_scene
from zkcoord.tree.paths import BROKERS, TOPICS
from zkcoord.tree.writes import ANY_VERSION, CreateNode, DeleteNode, SetNode

SEEDS = 20
BROKER_IDS = range(4)
RACKS = ("a", "b", "c")
OFTEN = ("join", "leave", "swap_coordinator", "grow", "record", "close", "nonsense", "odd_rules", "broker", "place")
KINDS = (*OFTEN, "rules", "wish", "resign", "says", "change_subscription", "rebalance", "join_odd", "join_in_a_rack")


class Mixed(Strange):
    """What else may happen: to brokers, and to replicas."""

    def begin(self) -> None:
        """Brokers in racks, replicas on them, and members in racks."""
        for number in BROKER_IDS:
            self._register(f"{BROKERS}/{number}", RACKS[number % 2])
        for topic in ("t", "u"):
            self._place(topic)
        for n in range(4):
            self.scene.consumers.registers(rack=self._pick(RACKS))
            self.scene.join(f"consumer{n}")

    def broker(self) -> None:
        """A broker starts, stops, or comes back in another rack; seldom nobody understands what it says."""
        ensemble, path = self.world.ensemble, f"{BROKERS}/{self._pick(BROKER_IDS)}"
        if ensemble.stat(path) is not None and self.world.rng.random() < 0.5:
            self.world.trace("broker stops", path)
            ensemble.operate(DeleteNode(path, ANY_VERSION))
        else:
            self._register(path, self._pick((*RACKS, None)), readable=self.world.rng.random() > 0.05)

    def place(self) -> None:
        """The replicas of a topic are elsewhere now."""
        self._place(self._pick(["t", "u"]))

    def join_in_a_rack(self) -> None:
        """A consumer says its rack; who starts after it says the same."""
        self.scene.consumers.registers(rack=self._pick(RACKS))
        self.join()

    def _register(self, path: str, rack: str | None, *, readable: bool = True) -> None:
        ensemble = self.world.ensemble
        text = {"version": 5, "host": "h", "port": 9092, **({} if rack is None else {"rack": rack})}
        data = json.dumps(text).encode() if readable else b"?"
        self.world.trace("broker says", path, data)
        ensemble.operate(CreateNode(path, data) if ensemble.stat(path) is None else SetNode(path, data, ANY_VERSION))

    def _place(self, topic: str) -> None:
        path = f"{TOPICS}/{topic}"
        text = parse_json(self.world.ensemble.data(path) or b"")
        for number in text.get("partitions", {}):
            text["partitions"][number] = [self._pick(BROKER_IDS) for _ in range(self._pick([1, 2, 3]))]
        self._set(path, json.dumps(text).encode())

    def _join(self, subscription: dict[str, int], assignors: tuple[str, ...], fields: dict[str, Any]) -> None:
        factory = ConsumerFactory(self.scene.logs, subscription, assignors=assignors)
        factory.announce(BatchApplication)
        factory.registers(**{name: value for name, value in fields.items() if name != "offers"})
        self.world.spawn(f"consumer{self.next_consumer}", factory)
        self.next_consumer += 1


class Reached(NamedTuple):
    """What a storm has come to."""

    again: int  # ranges that were processed more than once
    racks: bool  # the last target was made with brokers' racks


@cache
def mixed(seed: int) -> Reached:
    """One seed of such a storm."""
    scene = odd_scene(seed, Mixed, KINDS, batches=True)
    return Reached(scene.sink.again, bool(scene.state().get("brokers")))


@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_a_sink_is_exact_in_a_storm_of_everything(seed: int) -> None:
    mixed(seed)


def test_such_storms_replay_ranges_and_know_racks() -> None:
    """Else the test above would show nothing of the two."""
    reached = [mixed(seed) for seed in range(SEEDS)]
    assert sum(each.again for each in reached) >= 5
    assert sum(each.racks for each in reached) >= SEEDS // 2
