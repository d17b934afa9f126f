"""Storms with topics from Kafka's metadata: brokers lag, are silent, or tell only a part; topics come, grow and go."""

from __future__ import annotations

from collections import Counter
from functools import cache, partial
from random import Random

import pytest

from tests.sim.mirror_scene import MIRRORED, Mirrored
from tests.sim.options import seeds
from tests.sim.scenarios import STORM_MS
from tests.sim.script import on_seeds
from zkcoord.core.topic_answers import Kind
from zkcoord.core.topics import DELETED_MS
from zkcoord.serving.asker import INTERVAL_MS
from zkcoord.tree.paths import LEGACY, layout_named

SEEDS = 25


@cache
def mirrored_storm(seed: int) -> Mirrored:
    """One seed: no offset is lost and no partition has two readers, whatever brokers tell about topics. At the end all
    agree."""
    drawn, between = Random(f"mirror {int(seed)}"), Random(f"between {int(seed)}")
    layout = layout_named(LEGACY.name, "kafka") if drawn.random() < 0.25 else MIRRORED
    scene = Mirrored(seed, None, layout=layout, coordinators=2, consumers=3, topics={"t": 5, "u": 3})
    world, metadata = scene.world, scene.metadata
    scene.name_cluster()  # otherwise a new tree takes the cluster of the first answer, even a stranger's
    if drawn.random() < 0.5:
        scene.share()
    metadata.answer_ms_max, metadata.list_ms = drawn.choice((5, 200, 2_000)), drawn.choice((0, 0, 700))

    def trouble() -> None:
        if not world.stormy:
            return
        metadata.away = drawn.random() < 0.15
        metadata.silent_rate = drawn.choice((0.0, 0.0, 0.3))
        metadata.partial_rate = drawn.choice((0.0, 0.0, 0.1, 0.4))
        metadata.no_ids = drawn.random() < 0.1
        metadata.no_controller_rate = drawn.choice((0.0, 0.0, 0.3))
        metadata.few_brokers_rate = drawn.choice((0.0, 0.0, 0.3))
        metadata.late_rate = drawn.choice((0.0, 0.0, 0.05))
        metadata.stranger_rate = drawn.choice((0.0, 0.0, 0.3))
        metadata.between_rate = between.choice((0.0, 0.0, 0.3, 0.8))
        for broker in metadata.lag_ms:
            metadata.lag_ms[broker] = drawn.choice((0, 0, 300, 900, 3_000, 10_000))

    def again(topic: str, partitions: int) -> None:
        scene.delete_topic(topic)
        scene.create_topic(topic, partitions)

    for _ in range(8):
        world.at(world.now_ms + drawn.randrange(STORM_MS), trouble)
    deleted_ms = world.now_ms + drawn.randrange(STORM_MS)
    gap_ms = int(drawn.random() ** 4 * 1.5 * DELETED_MS)
    for time_ms, action in (
        (deleted_ms, partial(scene.delete_topic, "u")),
        (deleted_ms + gap_ms, partial(scene.create_topic, "u", drawn.randint(1, 4))),
        (world.now_ms + drawn.randrange(STORM_MS), partial(scene.grow, "t", 7)),
        (world.now_ms + drawn.randrange(STORM_MS), partial(scene.join, "late")),
        (world.now_ms + drawn.randrange(STORM_MS), partial(scene.leave, "consumer0")),
        (world.now_ms + drawn.randrange(STORM_MS), partial(scene.create_topic, "v", 2)),
    ):
        world.at(time_ms, action)
    if drawn.random() < 0.5:
        world.at(world.now_ms + drawn.randrange(STORM_MS), partial(again, "t", drawn.randint(1, 6)))
    world.storm(2_500)
    scene.calm()
    return scene


@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_a_storm_over_mirrored_topics_ends_in_a_calm(seed: int) -> None:
    mirrored_storm(seed)


@on_seeds()
def test_f226_a_named_topics_change_is_seen_within_a_second_where_lists_are_slow(seed: int) -> None:
    """Where lists take long, the coordinator asks for them with long pauses: with 700 ms for each, the next one comes
    2.8 s later."""
    scene = Mirrored(seed, coordinators=1, consumers=2, topics={"t": 4, "u": 3})
    scene.settle()
    world, scene.metadata.list_ms = scene.world, 700
    world.run_for(10_000)
    for partitions in (5, 6, 7):
        since_ms = world.now_ms
        scene.grow("t", partitions)
        grown = partial(len, scene.field.holdings)
        world.run_until(lambda grown=grown, count=partitions + 3: grown() == count, what="the new partition is read")  # type: ignore[misc]
        assert world.now_ms - since_ms < 700 + INTERVAL_MS + 300  # a list may be under way at that time
        world.run_for(3_333)
    asked = [question.kind for time_ms, question in scene.metadata.asked if time_ms > world.now_ms - 10_000]
    assert 2 <= asked.count(Kind.LIST) <= 4
    scene.calm()


def test_the_storm_reaches_replaced_topics_drops_and_every_fault_of_the_answers() -> None:
    scenes = [mirrored_storm(seed) for seed in range(12)]
    assert any(scene.world.events("topic_dropped") for scene in scenes)
    over = [scene.world.ensemble.data(MIRRORED.topics) or b"" for scene in scenes]
    assert any(b'"over":[[' in data for data in over)
    assert any(told.fields["path"] == "Kafka's metadata" for s in scenes for told in s.world.events("unreadable"))
    reached = sum((scene.metadata.reached for scene in scenes), Counter())
    parts = {"few brokers", "part of the list", "no controller", "no id"}
    strange = {"another cluster", "another cluster between two lists"}
    assert {*parts, *strange, "late", "older than the answer before"} <= (+reached).keys(), reached
