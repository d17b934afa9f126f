"""A group is handed over to Kafka's consumers and taken back, wherever the tool dies; in the simulated world."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.sim.actors import GROUP
from tests.sim.offset_log import LogStore
from tests.sim.store_scene import StoreScene, begin_in
from tests.sim.store_tool import ToolDiedError, ToolTree, tree_id
from zkcoord.core.model import TopicPartition
from zkcoord.errors import UsageError
from zkcoord.group_report import read_group, read_tree
from zkcoord.operating.documents import remarks
from zkcoord.operating.hand_over import HandOver
from zkcoord.operating.waiting import why_not_stable
from zkcoord.tree.paths import DRAFT

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
WRITES_MAX = 20


def begun() -> StoreScene:
    """A group in the store `kafka` that reads; Kafka has lost one of its commits."""
    scene = begin_in(1, "kafka", topics={"t": 2}, consumers=2)
    scene.world.run_for(3_000)
    scene.log.forget([T0])
    return scene


def tool(scene: StoreScene, tree: ToolTree | None = None) -> HandOver:
    return HandOver(
        tree=tree or ToolTree(scene.world.ensemble),  # type: ignore[arg-type]
        layout=DRAFT,
        tree_id=tree_id(scene),
        group=GROUP,
        kafka=LogStore(scene.log),
        existing=frozenset(scene.partitions()),
    )


def hand_over(scene: StoreScene, way: HandOver) -> None:
    equal(scene, way)
    way.leave()


def equal(scene: StoreScene, way: HandOver) -> None:
    """The first part of both commands: pause, and make the stores equal."""
    way.pause()
    scene.world.run_until(lambda: way.equal(scene.world.now_ms) is not None, what="both stores are equal")


def broken_off(scene: StoreScene, act: Callable[[StoreScene, HandOver], None], dies_at: int, behind: bool) -> bool:
    """Run `act` with a tool that dies at that write, and then with a second tool. False when the first one came to its
    end."""
    try:
        act(scene, tool(scene, ToolTree(scene.world.ensemble, dies_at, behind=behind)))
    except ToolDiedError:
        scene.world.run_for(2_000)
        act(scene, tool(scene))
        return True
    return False


def offsets(scene: StoreScene) -> list[tuple[int, int | None, int | None]]:
    """For each partition: the node, the commit in Kafka, and the offset that counts."""
    return [(scene.node(p), scene.in_kafka(p), scene.ledger.counted(p)) for p in (T0, T1)]


@pytest.mark.parametrize("behind", [False, True])
def test_f160_a_group_is_handed_over_with_each_offset_in_kafka_wherever_the_tool_dies(behind: bool) -> None:
    for dies_at in range(1, WRITES_MAX):
        scene = begun()
        died = broken_off(scene, hand_over, dies_at, behind)
        found = offsets(scene)
        assert [node for node, _, _ in found] == [commit for _, commit, _ in found] == [c for _, _, c in found]
        scene.world.run_for(5_000)
        assert offsets(scene) == found  # nobody reads on
        if not died:
            break
    assert 2 < dies_at < WRITES_MAX - 1


@pytest.mark.parametrize("behind", [False, True])
def test_f160_a_group_taken_back_goes_on_at_kafkas_offsets_wherever_the_tool_dies(
    behind: bool,
) -> None:
    for dies_at in range(1, WRITES_MAX):
        scene = begun()
        hand_over(scene, tool(scene))
        ahead, back = scene.node(T0) + 500, max(scene.node(T1) - 3, 0)
        scene.log.stranger_commits(T0, ahead)
        scene.log.stranger_commits(T1, back)
        died = broken_off(scene, equal, dies_at, behind)
        assert offsets(scene) == [(ahead,) * 3, (back,) * 3]
        if not died:
            break
    assert 1 < dies_at < WRITES_MAX - 1  # the last write already says in the record that the group is paused
    way = tool(scene)
    way.pause()
    way.resume()
    scene.world.run_for(5_000)
    assert scene.ledger.counted(T0) >= ahead
    assert scene.ledger.counted(T1) > back


def test_f161_kafkas_consumers_that_are_there_prevent_both() -> None:
    scene = begun()
    scene.log.intrude(scene.world.now_ms + 60_000)
    with pytest.raises(UsageError, match="is read by consumers of Kafka's own protocol"):
        tool(scene).refuse_users()


@pytest.mark.parametrize("act", [hand_over, equal], ids=["handed over", "taken back"])
def test_f160_a_strangers_commit_ahead_is_followed_by_neither_when_a_hand_over_broke_off(
    act: Callable[[StoreScene, HandOver], None],
) -> None:
    """The commit was there before Kafka's consumers were. If it were followed, records that nobody has processed would
    be skipped."""
    scene = begun()
    tool(scene).pause()
    scene.world.run_until(lambda: scene.answered("pause"), what="it is paused")
    scene.log.stranger_commits(T1, 9_000)
    act(scene, tool(scene))
    assert [commit for _, commit, _ in offsets(scene)] == [scene.node(T0), scene.node(T1)]
    assert scene.node(T1) < 9_000


def test_f161_a_second_hand_over_keeps_what_kafkas_consumers_have_committed() -> None:
    scene = begun()
    hand_over(scene, tool(scene))
    ahead = scene.node(T1) + 500
    scene.log.stranger_commits(T1, ahead)
    hand_over(scene, tool(scene))
    assert offsets(scene)[1] == (ahead,) * 3


def test_a_handed_over_group_shows_that_and_its_way_back() -> None:
    scene = begun()
    tree: Any = ToolTree(scene.world.ensemble)

    def shown() -> tuple[str, str]:
        above, report = read_tree(tree, "here"), read_group(tree, DRAFT, GROUP)
        return ", ".join(remarks(above, report)), why_not_stable(above, report)

    equal(scene, tool(scene))
    assert "paused to be handed over to consumers of Kafka's own protocol by " in shown()[0]
    tool(scene).pause()
    hand_over(scene, tool(scene))
    noted, why = shown()
    assert " handed over to consumers of Kafka's own protocol by " in noted
    assert f"`zkcoord group take-back {GROUP}` ends that" in why


def test_a_pause_without_a_run_that_somebody_wrote_over_is_not_taken_for_the_hand_overs() -> None:
    scene = begun()
    scene.edit_record(wish={"pause": {"who": "ann, by hand"}})
    way = tool(scene)
    way.pause()
    scene.edit_record(wish={"pause": {"who": "bob, by hand"}})
    for act in (way.leave, way.resume):
        with pytest.raises(UsageError, match="somebody ended its pause meanwhile"):
            act()
