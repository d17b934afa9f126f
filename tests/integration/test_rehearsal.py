"""The rehearsal of a migration, with real servers, old consumers, zkcoord's and PySpark: nothing is lost, and what is
processed twice is explained by a kill, or is the record that an old consumer's program had in hand at a rebalance."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest

from tests.integration.rehearsal import Rehearsal, play
from zkcoord.core.model import TopicPartition
from zkcoord.demo.migration.counting import Counted, count
from zkcoord.demo.migration.group import StagedGroup
from zkcoord.demo.migration.play import end_of_records
from zkcoord.demo.options import Places

pytestmark = [pytest.mark.zookeeper, pytest.mark.kafka, pytest.mark.spark, pytest.mark.legacy, pytest.mark.long]


def test_two_old_groups_move_to_kafka_back_and_again_under_kills(
    tmp_path: Path,
) -> None:
    places = Places(tmp_path)
    for folder in (places.output, places.scratch):
        folder.mkdir()
    with Rehearsal(places) as stage:
        play(stage)
        ends = end_of_records(stage)
        killed = [name for names in stage.killed.values() for name in names]
        for group in stage.groups:
            group.catch_up()
            stage.await_commits(group.name, ends)
            stage.zkcoord("offsets", "verify", group.name)
            assert stage.offsets_in_kafka(group.name) == ends
        told = {group.name: told_of(stage, group, ends, killed) for group in stage.groups}
    print(sum(ends.values()), "records", told, stage.killed)
    first, *later = stage.killed.values()
    assert [len(first), *(sorted(name.partition("-")[0] == "coordinator" for name in names) for names in later)] == [
        1,
        *([False, True] for _ in later),
    ]
    for name, (counted, rebalances) in told.items():
        assert (name, counted.processed) == (name, sum(ends.values()))
        assert (name, counted.lost, counted.unexplained) == (name, 0, 0)
        assert counted.by_old <= rebalances, (name, counted, rebalances)


def told_of(
    stage: Rehearsal, group: StagedGroup, ends: dict[TopicPartition, int], killed: Collection[str]
) -> tuple[Counted, int]:
    """What was processed, and how often the group's old consumers that were not killed rebalanced."""
    produced = {p.partition: size for p, size in ends.items()}
    counted = count(produced, group.read_by(), killed=killed, old=group.old)
    begun = [each for name in group.old if name not in killed for each in stage.logs[name].all("rebalance")]
    return counted, len([event for event in begun if (event["phase"], event["try"]) == ("begin", 0)])
