"""A group reads on while three controllers move its cluster to KRaft and Kafka 4, or back, and the leader dies in each
phase."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.kraft_phases import Readers, end, follow, grow, kill_in, stopped, switch_topics
from tests.integration.kraft_scene import PARTITIONS, Flow, KRaftMove
from zkcoord.coordinator import Coordinator

pytestmark = [pytest.mark.zookeeper, pytest.mark.kafka, pytest.mark.long]


def begun(scene: KRaftMove) -> tuple[Coordinator, Flow, Readers]:
    """A group that reads what is written, and has come to rest."""
    coordinator, flow = scene.coordinator(), scene.flow()
    readers: Readers = [scene.reader(), scene.reader()]
    scene.await_settled(len(readers))
    scene.reports.seen.clear()
    return coordinator, flow, readers


def test_f250_each_phase_of_the_move_goes_on_when_the_controller_that_leads_is_killed(tmp_path: Path) -> None:
    with KRaftMove(tmp_path, controllers=3) as scene:
        coordinator, flow, readers = begun(scene)
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


def test_f236_a_move_that_three_controllers_lead_is_given_up_after_two_of_them_have_led(tmp_path: Path) -> None:
    """What each of the leaders wrote to ZooKeeper stands there, and the brokers go on from it."""
    with KRaftMove(tmp_path, controllers=3) as scene:
        coordinator, flow, readers = begun(scene)
        scene.migrate()
        kill_in(scene, flow, readers, PARTITIONS + 1)
        scene.kraft_mode()
        kill_in(scene, flow, readers, PARTITIONS + 2)
        coordinator = switch_topics(scene, coordinator)
        scene.give_up()
        follow(flow, readers, "brokers are in ZooKeeper mode, and topics come from Kafka")
        grow(scene, flow, readers, PARTITIONS + 3)
        switch_topics(scene, coordinator, "zookeeper")
        grow(scene, flow, readers, PARTITIONS + 4)
        assert stopped(scene) == []  # each partition was its reader's all the time
        end(flow, readers)
