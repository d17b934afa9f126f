"""A group reads on while three controllers move its cluster to KRaft and Kafka 4, and the leader dies in each phase."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.kraft_phases import Readers, end, follow, kill_in, stopped, switch_topics
from tests.integration.kraft_scene import PARTITIONS, KRaftMove

pytestmark = [pytest.mark.zookeeper, pytest.mark.kafka, pytest.mark.long]


def test_f250_each_phase_of_the_move_goes_on_when_the_controller_that_leads_is_killed(tmp_path: Path) -> None:
    with KRaftMove(tmp_path, controllers=3) as scene:
        coordinator = scene.coordinator()
        flow = scene.flow()
        readers: Readers = [scene.reader(), scene.reader()]
        scene.await_settled(len(readers))
        scene.reports.seen.clear()

        scene.migrate()
        kill_in(scene, flow, readers, PARTITIONS + 1)  # the next leader tells ZooKeeper
        scene.kraft_mode()
        kill_in(scene, flow, readers, PARTITIONS + 2)  # and still does
        switch_topics(scene, coordinator)
        kill_in(scene, flow, readers, PARTITIONS + 3)
        scene.finish()
        scene.remove("/brokers", "/controller", "/migration")
        kill_in(scene, flow, readers, PARTITIONS + 4)
        scene.to_kafka_4()
        follow(flow, readers, "Kafka 4 is read")
        kill_in(scene, flow, readers, PARTITIONS + 5)
        assert stopped(scene) == []  # each partition was its reader's all the time
        end(flow, readers)
