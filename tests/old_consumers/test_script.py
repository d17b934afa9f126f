"""The old member of the simulated world and the real one: the same events, and after each the same owners."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial

import pytest
from kazoo.exceptions import NoNodeError

from tests.old_consumers.lab import BACKOFF_MS, EACH_AT_LENGTH, RETRIES, Lab, OldConsumer
from tests.sim.actors import GROUP
from tests.sim.old_scene import OldScene
from tests.sim.script import ScriptWorld
from tests.waiting import wait_until
from zkcoord.tree.writes import ANY_VERSION, CreateNode, DeleteNode

pytestmark = [pytest.mark.legacy, pytest.mark.zookeeper]

Owners = dict[str, str]

UNREADABLE = b"t"
EVENTS = (
    "join a",
    "join b",
    "join c",
    "grow",
    "rewrite",
    "unreadable",
    "readable",
    "lose",
    "poke",
    "unpoke",
    "leave a",
)


def rebalanced_beyond(consumer: OldConsumer, count: int) -> bool:
    """True once it has begun to rebalance more often than that."""
    return consumer.rebalances() > count


def deleted(lab: Lab, path: str) -> bool:
    """True once the node was there, and is deleted. A group that has its owners may rebalance once more."""
    try:
        lab.zk.delete(path)
    except NoNodeError:
        return False
    return True


def scripted(version: str) -> tuple[list[Owners], str]:
    """The owners after each event, and a registration, in the simulated world."""
    scene = OldScene(ScriptWorld(0), {"t": 5})
    operate, members = scene.world.ensemble.operate, f"/consumers/{GROUP}/ids/{GROUP}_"
    owner = f"/consumers/{GROUP}/owners/t/0"

    def join(name: str) -> None:
        scene.start(f"old{name}", version=version, retries=RETRIES, backoff_ms=BACKOFF_MS)

    acts: dict[str, Callable[[], object]] = {
        **{f"join {name}": lambda name=name: join(name) for name in "abc"},  # type: ignore[misc]
        "grow": lambda: scene.write_topic("t", 7),
        "rewrite": lambda: scene.write_topic("t", 7),
        "unreadable": lambda: operate(CreateNode(f"{members}x", UNREADABLE)),
        "readable": lambda: operate(DeleteNode(f"{members}x", ANY_VERSION)),
        "lose": lambda: operate(DeleteNode(owner, ANY_VERSION)),
        "poke": lambda: operate(CreateNode(f"{members}p", b'{"version":1,"subscription":{},"pattern":"static"}')),
        "unpoke": lambda: operate(DeleteNode(f"{members}p", ANY_VERSION)),
        "leave a": lambda: scene.leave("olda"),
    }
    found = []
    for event in EVENTS:
        acts[event]()
        scene.world.run_for(10_000)
        found.append({partition: name.removeprefix("old") for partition, name in scene.owners().items()})
    text = scene.world.ensemble.data(f"/consumers/{GROUP}/ids/{scene.member('oldc').consumer_id}") or b""
    return found, text.decode()


@pytest.mark.parametrize("version", EACH_AT_LENGTH)
def test_a_real_group_has_the_owners_that_the_scripted_one_has_after_each_event(lab: Lab, version: str) -> None:
    expected, text = scripted(version)
    lab.topic("t", 5)
    others: dict[str, str] = {}
    for event, owners in zip(EVENTS, expected, strict=True):
        before = [consumer.rebalances() for consumer in lab.consumers]
        match event.split():
            case ["join", name]:
                lab.join(name, version)
            case ["leave", _]:
                lab.consumers[0].leave()
            case ["grow"] | ["rewrite"]:
                lab.topic("t", 7)
            case ["unreadable"]:
                others["x"] = lab.register("x", UNREADABLE.decode())
            case ["poke"]:
                others["p"] = lab.poke()
            case ["readable"] | ["unpoke"]:
                lab.zk.delete(others["x" if event == "readable" else "p"])
            case ["lose"]:
                wait_until(partial(deleted, lab, lab.path("owners", "t", "0")), "an owner is there, and deleted")
        if event in ("grow", "rewrite", "unreadable", "readable", "poke", "unpoke"):
            for consumer, count in zip(lab.consumers, before, strict=True):
                wait_until(partial(rebalanced_beyond, consumer, count), event)
        lab.await_owners({partition: f"g_{name}-0" for partition, name in owners.items()})
    real = lab.registration(lab.consumers[2])
    assert {**json.loads(text), "timestamp": ""} == {**json.loads(real), "timestamp": ""}
    assert list(json.loads(text)) == list(json.loads(real))
