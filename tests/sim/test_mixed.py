"""Storms of members that announce ranges, in strange conditions. Brokers and replicas change racks, and topics are
deleted and created again."""

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
from zkcoord.core.topics import DELETED_MS
from zkcoord.tree.paths import BROKERS, TOPICS
from zkcoord.tree.writes import ANY_VERSION, CreateNode, DeleteNode, SetNode

SEEDS = 20
BROKER_IDS = range(4)
RACKS = ("a", "b", "c")
OFTEN = ("join", "leave", "swap_coordinator", "grow", "record", "close", "nonsense", "odd_rules", "broker", "place")
SELDOM = ("rules", "request", "resign", "says", "change_subscription", "rebalance", "join_odd", "join_in_a_rack")
KINDS = (*OFTEN, "recreate", "recreate", *SELDOM)


class Mixed(Strange):
    """The acts of `Strange`, and acts on brokers and replicas."""

    def begin(self) -> None:
        """Start with brokers in racks, replicas on them, and members in racks."""
        self.scene.consumers.reset = "earliest"  # otherwise hardly anything of a new topic is read
        for number in BROKER_IDS:
            self._register(f"{BROKERS}/{number}", RACKS[number % 2])
        for topic in ("t", "u"):
            self._place(topic)
        for n in range(4):
            self.scene.consumers.registers(rack=self._pick(RACKS))
            self.scene.join(f"consumer{n}")

    def broker(self) -> None:
        """A broker starts, stops, or comes back in another rack; seldom nobody can parse its registration."""
        ensemble, path = self.world.ensemble, f"{BROKERS}/{self._pick(BROKER_IDS)}"
        if ensemble.stat(path) is not None and self.world.rng.random() < 0.5:
            self.world.trace("broker stops", path)
            ensemble.operate(DeleteNode(path, ANY_VERSION))
        else:
            self._register(path, self._pick((*RACKS, None)), readable=self.world.rng.random() > 0.05)

    def recreate(self) -> None:
        """Delete a topic and, mostly soon, create it again. Ranges of the first topic are not valid for the second."""
        topic, gap_ms = self._pick(["t", "u"]), int(self.world.rng.random() ** 6 * 2 * DELETED_MS)
        partitions = 1 + int(self.world.rng.random() * 9)
        self.scene.delete_topic(topic)
        self.world.at(self.world.now_ms + gap_ms, lambda: self.scene.create_topic(topic, partitions))

    def place(self) -> None:
        """Move the replicas of a topic to other brokers."""
        self._place(self._pick(["t", "u"]))

    def join_in_a_rack(self) -> None:
        """A consumer joins with a rack; consumers that start later have the same rack."""
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
        factory = ConsumerFactory(self.scene.logs, subscription, assignors=assignors, reset="earliest")
        factory.announce(BatchApplication)
        factory.registers(**{name: value for name, value in fields.items() if name != "offers"})
        self.world.spawn(f"consumer{self.next_consumer}", factory)
        self.next_consumer += 1


class Reached(NamedTuple):
    """The result of a storm."""

    again: int  # ranges that were processed again
    racks: bool  # the last target used brokers' racks
    incarnations: int  # the most incarnations of one partition of which records were processed


@cache
def mixed(seed: int) -> Reached:
    """One seed of such a storm."""
    scene = odd_scene(seed, Mixed, KINDS, batches=True)
    return Reached(scene.sink.again, bool(scene.state().get("brokers")), scene.sink.incarnations)


@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_a_sink_is_exact_in_a_storm_of_everything(seed: int) -> None:
    mixed(seed)


def test_such_storms_replay_ranges_know_racks_and_process_topics_that_were_created_again() -> None:
    """Otherwise the test above would prove nothing about these three."""
    reached = [mixed(seed) for seed in range(2 * SEEDS)]
    assert sum(each.again for each in reached) >= 3
    assert sum(each.racks for each in reached) >= SEEDS
    assert sum(each.incarnations > 1 for each in reached) >= SEEDS // 2
