"""A group reads on while three controllers move its cluster to KRaft and Kafka 4, or back, and the leader dies in each
phase."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.integration.kraft_flow import PARTITIONS, Flow
from tests.integration.kraft_phases import Readers, end, follow, grow, kill_in, stopped, switch_topics
from tests.integration.kraft_scene import KRaftMove
from tests.waiting import wait_until
from zkcoord.coordinator import Coordinator
from zkcoord.doctor.asking import ask_tree
from zkcoord.group_report import read_tree
from zkcoord.shell.zk.blocking import Tree
from zkcoord.tree.brokers_move import SILENT
from zkcoord.tree.paths import CONTROLLER

pytestmark = [pytest.mark.zookeeper, pytest.mark.kafka, pytest.mark.long]

STUCK = "Encountered ZooKeeper error during event SyncKRaftMetadataEvent"
EPOCH = 12  # more than the elections among three brokers that are restarted once


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


def test_f237_partitions_find_leaders_though_the_controllers_epoch_was_greater_than_zookeepers(tmp_path: Path) -> None:
    """A controller of KRaft that was elected often writes its greater epoch into the partitions' states."""
    with KRaftMove(tmp_path, brokers=3) as scene:
        _coordinator, flow, readers = begun(scene)
        scene.start_controllers()
        scene.elect_anew(EPOCH)
        scene.migrate()
        assert scene.kraft_epoch() >= EPOCH > int(scene.look("/controller_epoch")) + 1
        scene.while_away = lambda number: follow(flow, readers, f"all is read while broker {number} is away")
        scene.leave_controllers()
        assert int(scene.look("/controller_epoch")) > EPOCH
        follow(flow, readers, "brokers are in ZooKeeper mode")
        assert stopped(scene) == []  # each partition was its reader's all the time
        end(flow, readers)


def test_f238_a_controller_that_misses_partitions_in_zookeeper_goes_on_once_they_exist(
    tmp_path: Path,
) -> None:
    """A topic was given a partition while one controller was gone, and the next one had not read ZooKeeper yet."""
    with KRaftMove(tmp_path) as scene:
        scene.coordinator()
        scene.migrate()
        topic = f"/brokers/topics/{scene.topic}"
        before = scene.look(topic)
        scene.grow(PARTITIONS + 1)
        scene.await_written()
        (controller,) = scene.controllers
        controller.kill()
        scene.remove(f"{topic}/partitions/{PARTITIONS}")
        scene.write(topic, before)  # as if the partition had been made when the next controller led
        controller.start()
        wait_until(lambda: controller.log.read_text("utf-8").count(STUCK) >= 3, "it tries, and tries again")
        assert writing(scene) is False
        wait_until(lambda: said(scene, "unreadable"), "the coordinator sees it")
        assert SILENT in shown(scene)
        assert scene.look(topic) != before  # with that it is further than before
        assert not scene.look(f"{topic}/partitions/{PARTITIONS}/state")
        scene.make(f"{topic}/partitions/{PARTITIONS}", "")
        scene.make(f"{topic}/partitions/{PARTITIONS}/state", scene.look(f"{topic}/partitions/0/state"))
        scene.await_written()  # within a minute, after which it tries again at the latest
        assert writing(scene) is True
        wait_until(lambda: said(scene, "problem_over"), "the coordinator sees it")
        assert "Kafka's brokers are being moved" in shown(scene) and SILENT not in shown(scene)
        assert len(said(scene, "unreadable")) == 1  # and not before, while the cluster had nothing to do


def said(scene: KRaftMove, event: str) -> list[dict[str, Any]]:
    """What the coordinator has logged of the controllers."""
    return [fields for fields in scene.reports.of(event) if fields["path"] == CONTROLLER]


def shown(scene: KRaftMove) -> str:
    """What `zkcoord group describe` says of the brokers."""
    with Tree(scene.zookeeper) as tree:
        return read_tree(tree, scene.zookeeper).brokers or ""


def writing(scene: KRaftMove) -> bool | None:
    """What the doctor sees."""
    with Tree(scene.zookeeper) as tree:
        return ask_tree(tree).controllers_write
