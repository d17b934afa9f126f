"""`zkcoord group hand-over|take-back` on the simulated world: each word of theirs, without servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from click.testing import Result

from tests.cli.program import Run
from tests.sim.actors import GROUP
from tests.sim.offset_log import LogStore
from tests.sim.store_scene import StoreScene, begin_in
from tests.sim.store_tool import ToolTree
from tests.sim.test_hand_over import T0, T1, begun, offsets
from zkcoord.cli import kafka_options
from zkcoord.cli.group import hand_over
from zkcoord.cli.options import Settings
from zkcoord.member.place_check import HANDED_OVER
from zkcoord.operating import requesting
from zkcoord.tree.paths import CLUSTER_ID

WHERE = ("--zookeeper", "zk1:2181", "--bootstrap-servers", "k1:9092")
HAND_OVER, TAKE_BACK = ("hand-over", "take-back")

Use = Callable[[StoreScene], Callable[..., Result]]


class Brokers:
    """Kafka as the commands open it."""

    servers = "k1:9092"

    def __init__(self, scene: StoreScene) -> None:
        self.log, self._partitions = scene.log, scene.partitions()

    def partitions(self) -> list[object]:
        return list(self._partitions)

    def list_topics(self, timeout_seconds: float) -> SimpleNamespace:
        return SimpleNamespace(cluster_id="told")


@pytest.fixture
def use(run: Run, monkeypatch: pytest.MonkeyPatch) -> Use:
    """Have the commands run in this scene: while one waits for its turn, the scene goes on."""

    def used(scene: StoreScene) -> Callable[..., Result]:
        @contextmanager
        def tree(_: Settings) -> Iterator[ToolTree]:
            yield ToolTree(scene.world.ensemble)

        @contextmanager
        def brokers(settings: Settings) -> Iterator[Brokers]:
            settings.needed_kafka_address()
            yield Brokers(scene)

        world = scene.world
        turns = SimpleNamespace(
            monotonic=lambda: world.now_ms / 1000, sleep=lambda seconds: world.run_for(int(seconds * 1000))
        )
        monkeypatch.setattr(Settings, "tree", tree)
        monkeypatch.setattr(kafka_options, "kafka_client", brokers)
        monkeypatch.setattr(hand_over, "KafkaCommits", lambda client: LogStore(client.log))
        monkeypatch.setattr(requesting, "time", turns)

        def called(verb: str, *words: str, group: str = GROUP) -> Result:
            return run("group", verb, group, *words, *WHERE)

        return called

    return used


def table(result: Result) -> list[list[str]]:
    """The offsets that were printed: partition, in ZooKeeper, in Kafka, where it goes on."""
    assert result.exit_code == 0, result.stderr
    return [line.split()[1:] for line in result.stdout.splitlines()[1:]]


def refused(result: Result, why: str, code: int = 2) -> None:
    assert (result.exit_code, why in result.stderr, result.stdout) == (code, True, ""), result.stderr
    assert "Traceback" not in result.stderr


def counting(scene: StoreScene) -> list[str]:
    """The offset of each partition that counts."""
    return [str(scene.ledger.counted(partition)) for partition in (T0, T1)]


def their_commits(scene: StoreScene) -> tuple[int, int]:
    """Kafka's consumers have committed ahead in one partition, and gone back in the other."""
    ahead, back = scene.node(T0) + 500, max(scene.node(T1) - 3, 0)
    scene.log.stranger_commits(T0, ahead)
    scene.log.stranger_commits(T1, back)
    return ahead, back


def test_a_group_is_handed_over_shown_and_taken_back_by_the_commands(use: Use) -> None:
    scene = begun()
    zkcoord, before = use(scene), scene.record()
    assert [row[3] for row in table(zkcoord(HAND_OVER, "--dry-run"))] == [
        str(scene.ledger.counted(p)) for p in (T0, T1)
    ]
    assert scene.record() == before
    done = zkcoord(HAND_OVER)
    numbers = [str(scene.in_kafka(p)) for p in (T0, T1)]
    assert table(done) == [["0", *numbers[:1] * 3], ["1", *numbers[1:] * 3]]
    assert "stop its consumers, start Kafka's" in done.stderr
    assert scene.record()["wish"]["pause"]["handed_over"] == "done"

    ahead, back = their_commits(scene)
    nodes = [scene.node(p) for p in (T0, T1)]
    shown = zkcoord(TAKE_BACK, "--dry-run")
    assert table(shown) == [["0", *map(str, (nodes[0], ahead, ahead))], ["1", *map(str, (nodes[1], back, back))]]
    assert "nothing was written" in shown.stderr
    assert [scene.node(p) for p in (T0, T1)] == nodes
    assert table(zkcoord(TAKE_BACK)) == [["0", *[str(ahead)] * 3], ["1", *[str(back)] * 3]]
    assert scene.record()["wish"]["pause"] is None
    scene.world.run_for(5_000)
    assert scene.ledger.counted(T0) >= ahead
    refused(zkcoord(TAKE_BACK), "is not handed over to Kafka's consumers")


def test_f307_a_waiting_consumer_says_once_that_its_group_is_handed_over_and_back(use: Use) -> None:
    scene = begun()
    zkcoord, world = use(scene), scene.world
    assert zkcoord(HAND_OVER).exit_code == 0
    world.run_for(60_000)
    told = world.events("group_elsewhere")
    actors = [event.client for event in told]
    assert actors and actors == list(dict.fromkeys(actors))
    assert {event.fields["why"] for event in told} == {HANDED_OVER.format(group=GROUP)}
    assert zkcoord(TAKE_BACK).exit_code == 0
    world.run_for(60_000)
    assert sorted(event.client for event in world.events("group_here")) == sorted(actors)
    assert len(world.events("group_elsewhere")) == len(told)


def test_neither_command_goes_on_beside_kafkas_consumers(use: Use) -> None:
    scene = begun()
    zkcoord = use(scene)
    scene.log.intrude(scene.world.now_ms + 1_000_000)
    refused(zkcoord(HAND_OVER), f"group {GROUP} is read by consumers of Kafka's own protocol")
    assert scene.record()["wish"]["pause"] is None
    scene.log.intrude(scene.world.now_ms)
    zkcoord(HAND_OVER)
    scene.log.intrude(scene.world.now_ms + 1_000_000)
    refused(zkcoord(HAND_OVER), "is handed over already")
    refused(zkcoord(TAKE_BACK), "is read by consumers of Kafka's own protocol")


def test_by_force_a_group_that_was_not_handed_over_goes_on_where_kafka_says(use: Use) -> None:
    scene = begun()
    zkcoord, (ahead, back) = use(scene), their_commits(scene)
    refused(zkcoord(TAKE_BACK), "--force takes what stands in Kafka")
    assert [row[3] for row in table(zkcoord(TAKE_BACK, "--force", "--dry-run"))] == [str(ahead), str(back)]
    assert [row[3] for row in table(zkcoord(TAKE_BACK, "--force"))] == [str(ahead), str(back)]


def test_a_command_that_nobody_answers_says_that_the_group_stays_paused_and_how_it_goes_on(use: Use) -> None:
    scene = begun()
    zkcoord = use(scene)
    for name in ("coordinator0", "coordinator1"):
        scene.world.crash(name, restart_after_ms=None)
    late = zkcoord(HAND_OVER, "--timeout-ms", "3000")
    refused(late, "is not done after 3000 ms", 5)
    assert "the group stays paused: run it again" in late.stderr
    assert scene.record()["wish"]["pause"]["handed_over"] == "begun"


def test_an_impossible_hand_over_is_refused_before_anything_is_written(use: Use) -> None:
    scene = begun()
    zkcoord, before = use(scene), scene.record()
    for verb in (HAND_OVER, TAKE_BACK):
        refused(zkcoord(verb, group="nobody"), "there is no group 'nobody'")
    old = b'{"version":1,"subscription":{"t":1},"pattern":"static","timestamp":"1"}'
    scene.world.ensemble.ensure(f"/consumers/groups/{GROUP}/ids/old", old)
    refused(zkcoord(HAND_OVER), "has members that cannot be paused (old)")
    refused(zkcoord(TAKE_BACK, "--force"), "has members that cannot be paused (old)")
    assert scene.record() == before
    in_zookeeper = begin_in(1, "zookeeper", topics={"t": 2}, consumers=1)
    refused(use(in_zookeeper)(HAND_OVER), "keeps its offsets in the store 'zookeeper'")


@pytest.mark.parametrize("verb", [HAND_OVER, TAKE_BACK])
def test_f204_neither_command_takes_offsets_of_another_cluster(use: Use, verb: str) -> None:
    scene = begun()
    scene.world.ensemble.ensure(CLUSTER_ID, b'{"version":"1","id":"here"}')
    before = offsets(scene), scene.record()
    refused(
        use(scene)(verb, *(["--force"] if verb == TAKE_BACK else [])), "of the cluster 'told', the tree's topics of"
    )
    assert (offsets(scene), scene.record()) == before
