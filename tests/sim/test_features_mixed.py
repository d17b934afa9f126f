"""What a group cannot have beside old members: there the old members' plan counts, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.sim.actors import GROUP
from tests.sim.mixed_scene import ADOPTION, RECORD, MixedScene
from tests.sim.script import on_seeds
from zkcoord.core.mode import Mode
from zkcoord.core.model import Rebalance, TopicPartition
from zkcoord.core.record import DEFAULT_RECORD, DONE, HOLD, PAUSE, RESET, GroupRecord, Policy, Request, Response
from zkcoord.core.requests import has_been_left
from zkcoord.tree.paths import LEGACY
from zkcoord.tree.record import decode_record, encode_record
from zkcoord.tree.request import requested
from zkcoord.tree.writes import ANY_VERSION, DeleteNode, SetNode

NAMES = ("consumer0", "consumer1", "old0")
EVERY_OTHER = {TopicPartition("t", n): "a" if n % 2 else "b" for n in range(6)}


def scene_of(seed: int, registration: dict[str, Any] | None = None, **record: Any) -> MixedScene:
    """A group with this record, whose consumers of ours register so."""
    scene = MixedScene(seed)
    scene.ours.registers(**(registration or {}))
    asked = encode_record(replace(DEFAULT_RECORD, adoption=ADOPTION, **record))
    scene.world.ensemble.operate(SetNode(RECORD, asked, ANY_VERSION))
    return scene


def shares(scene: MixedScene) -> dict[str, list[int]]:
    """Process -> the numbers of its partitions."""
    found: dict[str, list[int]] = {}
    for partition, claim in sorted(scene.rules.claims.items()):
        found.setdefault(claim.session.process, []).append(partition.partition)
    return found


FEATURES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {  # name -> (fields of the registration, of the record)
    "capacities": ({"capacity": 1}, {}),
    "weights": ({}, {"weights": {TopicPartition("t", 0): 100}}),
    "racks": ({"rack": "a"}, {"racks": EVERY_OTHER}),
    "assignors": ({}, {"assignor": "roundrobin"}),
    "budgets": ({}, {"policy": Policy(max_moves=1)}),
    "static members": ({"instance": None, "hold_ms": 600_000}, {}),
}


@on_seeds(2)
@pytest.mark.parametrize("name", FEATURES)
def test_beside_old_members_their_plan_counts_whatever_else_is_asked_for(name: str, seed: int) -> None:
    registration, record = FEATURES[name]
    scene = scene_of(seed, registration, **record)
    scene.start("old0")
    scene.start_ours("consumer0", "consumer1")
    scene.await_shared(*NAMES)
    scene.world.run_for(10_000)
    assert sorted(shares(scene).values()) == [[0, 1], [2, 3], [4, 5]]
    assert scene.mode() is Mode.MIXED


@on_seeds(2)
def test_beside_old_members_what_does_not_move_is_read_on_in_an_eager_group(seed: int) -> None:
    scene = scene_of(seed, rebalance=Rebalance.EAGER)
    scene.start("old0")
    scene.start_ours("consumer0")
    scene.await_shared("consumer0", "old0")
    claims = {p: claim for p, claim in scene.rules.claims.items() if claim.session.process == "consumer0"}
    scene.start("old1")
    scene.await_shared("consumer0", "old0", "old1")
    assert [p.partition for p, claim in claims.items() if scene.rules.claims[p] is claim] == [0, 1]


@on_seeds(2)
def test_beside_old_members_no_share_is_held_for_a_static_member(seed: int) -> None:
    scene = scene_of(seed, {"instance": None, "hold_ms": 600_000})
    scene.start("old0")
    scene.start_ours("consumer0", "consumer1")
    scene.await_shared(*NAMES)
    began_ms = scene.world.now_ms
    scene.stop_ours("consumer0")
    scene.await_shared("consumer1", "old0")
    assert scene.world.now_ms < began_ms + 600_000


@on_seeds(2)
def test_beside_old_members_nobody_is_probed(seed: int) -> None:
    scene = scene_of(seed, policy=Policy(probe_interval_ms=1_000, max_probes=1))
    scene.start("old0")
    scene.start_ours("consumer0")
    scene.await_shared("consumer0", "old0")
    scene.world.run_until(lambda: scene.mode() is Mode.MIXED, what="the coordinator has noted the mode")
    pings = sum(len(tried.commands("ping")) for tried in scene.world.tried)
    scene.world.run_for(30_000)
    assert sum(len(tried.commands("ping")) for tried in scene.world.tried) == pings


@on_seeds(2)
def test_beside_old_members_who_replaces_another_is_a_further_member_until_that_one_leaves(seed: int) -> None:
    scene = scene_of(seed)
    scene.start("old0")
    scene.start_ours("consumer0")
    scene.await_shared("consumer0", "old0")
    scene.ours.registers(replaces=scene.role("consumer0").consumer_id)
    scene.start_ours("consumer1")
    scene.await_shared(*NAMES)
    scene.stop_ours("consumer0")
    scene.await_shared("consumer1", "old0")


@on_seeds(2)
@pytest.mark.parametrize("old", [(), ("old0",)])
def test_f44_consumers_of_an_adopted_group_come_back_after_an_old_tool_has_deleted_its_folder(
    old: tuple[str, ...], seed: int
) -> None:
    scene = scene_of(seed)
    for name in old:
        scene.start(name)
    scene.start_ours("consumer0", "consumer1")
    scene.await_shared("consumer0", "consumer1", *old)
    scene.world.run_for(3_000)
    scene.rules.covered.clear()  # the offsets go with the folder
    delete_below(scene, LEGACY.ids(GROUP).rpartition("/")[0])

    def all_ours() -> bool:  # an old member registers again only when its session has ended
        claims = scene.rules.claims
        return claims.keys() == scene.all and {c.session.process for c in claims.values()} == {"consumer0", "consumer1"}

    scene.world.run_until(all_ours, what="they are registered again, and own everything")


def delete_below(scene: MixedScene, path: str) -> None:
    """Delete a node with everything below it, as the old tools do."""
    for name in list(scene.world.ensemble.names(path)):
        delete_below(scene, f"{path}/{name}")
    scene.world.ensemble.operate(DeleteNode(path, ANY_VERSION))


@on_seeds(2)
@pytest.mark.parametrize("name", [PAUSE, RESET, HOLD])
def test_an_old_member_that_joins_ends_what_only_a_coordinated_group_can_have(name: str, seed: int) -> None:
    scene = MixedScene(seed)
    scene.start_ours("consumer0", "consumer1")
    scene.await_shared("consumer0", "consumer1")
    scene.world.run_until(lambda: scene.mode() is Mode.COORDINATED, what="it is coordinated")
    ensemble = scene.world.ensemble
    record = decode_record(ensemble.data(RECORD) or b"")
    ensemble.operate(SetNode(RECORD, encode_record(requested(record, name, Request(run="r"))), ANY_VERSION))

    def response() -> Response | None:
        return decode_record(ensemble.data(RECORD) or b"").responses.get(name)

    scene.world.run_until(lambda: response() is not None, what="an answer")
    carried_out = response()
    scene.world.run_for(3_000)
    old = scene.start("old0")
    scene.await_shared("consumer0", "consumer1", "old0")
    scene.world.run_until(lambda: response() != carried_out, what="it is over")
    over = response()
    assert over is not None
    assert (over.run, over.state) == ("r", "refused")
    assert old.gave_up == 0


@on_seeds(2)
def test_f379_an_old_member_that_joins_does_not_end_a_hand_over_to_kafkas_consumers(seed: int) -> None:
    """Its pause was refused: members of ours read beside Kafka's consumers."""
    scene = MixedScene(seed)
    scene.start_ours("consumer0")
    scene.await_shared("consumer0")
    ensemble, world = scene.world.ensemble, scene.world

    def record() -> GroupRecord:
        return decode_record(ensemble.data(RECORD) or b"")

    asked = requested(record(), PAUSE, Request(run="r", handed_over=DONE))
    ensemble.operate(SetNode(RECORD, encode_record(asked), ANY_VERSION))
    world.run_until(lambda: has_been_left(record()), what="it is paused")
    assert not scene.rules.claims
    scene.start("old0")
    world.run_until(lambda: scene.mode() is Mode.OBSERVE, what="it is observed")
    world.run_for(30_000)
    assert {claim.session.process for claim in scene.rules.claims.values()} == {"old0"}
    scene.leave("old0")
    world.run_until(lambda: scene.mode() is Mode.COORDINATED, what="the old member has left")
    world.run_for(10_000)
    assert (has_been_left(record()), dict(scene.rules.claims)) == (True, {})
