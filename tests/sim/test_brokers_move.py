"""F158: Kafka's brokers leave the ZooKeeper in which topics are read."""

from __future__ import annotations

from tests.sim.actors import ProductActor, coordinator
from tests.sim.metadata import CLUSTER, Metadata
from tests.sim.process import SimProcess
from tests.sim.script import QUIET, Script, on_seeds
from zkcoord.serving.brokers_watch import ASK_MS
from zkcoord.serving.role import CoordinatorRole
from zkcoord.tree.paths import BROKERS, CLUSTER_ID, CONTROLLER, MIGRATION
from zkcoord.tree.writes import ANY_VERSION, CreateNode, DeleteNode, SetNode

COMMAND = "zkcoord migrate topics --to kafka"


class Moving(Script):
    """Brokers 0 to 2 in ZooKeeper mode; the coordinator can also ask them for metadata."""

    metadata: Metadata

    def __init__(self, seed: int) -> None:
        super().__init__(seed, QUIET, consumers=2, coordinators=1, coordinates=self._coordinate)
        self.settle()

    def begins(self) -> None:
        ensemble = self.world.ensemble
        ensemble.ensure("/cluster", b"")
        ensemble.ensure(CLUSTER_ID, b'{"version":"1","id":"%s"}' % CLUSTER.encode())
        ensemble.ensure(CONTROLLER, b'{"version":2,"brokerid":0,"kraftControllerEpoch":-1}')
        for number in range(3):
            ensemble.ensure(f"{BROKERS}/{number}", b'{"version":5,"host":"h","port":9092}')
        self.metadata = Metadata(self.world)

    def _coordinate(self, process: SimProcess) -> ProductActor:
        return coordinator(process, kafka=self.metadata.connect(process))

    def said(self, path: str) -> list[str]:
        return [told.fields["why"] for told in self.world.events("unreadable") if told.fields["path"] == path]

    def leaving(self) -> bool:
        role = self.actor(self.leader()).role
        assert isinstance(role, CoordinatorRole)
        return role.kafka is not None and role.kafka.leaving

    def unregister(self) -> None:
        for number in range(3):
            assert not self.world.ensemble.operate(DeleteNode(f"{BROKERS}/{number}", ANY_VERSION)).reason


@on_seeds()
def test_f158_a_move_of_the_brokers_is_told_with_the_command_that_mends_it(seed: int) -> None:
    group = Moving(seed)
    group.world.run_for(2 * ASK_MS)
    assert (group.said(MIGRATION), group.leaving()) == ([], False)
    ensemble = group.world.ensemble
    ensemble.operate(SetNode(CONTROLLER, b'{"version":2,"brokerid":3000,"kraftControllerEpoch":1}', ANY_VERSION))
    ensemble.operate(CreateNode(MIGRATION, b'{"version":0,"kraft_controller_id":3000}'))
    group.world.run_for(2_000)
    [moving] = group.said(MIGRATION)
    assert "are being moved to KRaft" in moving and COMMAND in moving
    group.unregister()
    group.world.run_for(2_000)
    moved = group.said(MIGRATION)[-1]
    assert "have left ZooKeeper" in moved and COMMAND in moved
    assert group.leaving()
    ensemble.operate(DeleteNode(MIGRATION, ANY_VERSION))  # somebody takes the migration back
    ensemble.operate(SetNode(CONTROLLER, b'{"version":2,"brokerid":0,"kraftControllerEpoch":-1}', ANY_VERSION))
    ensemble.operate(CreateNode(f"{BROKERS}/0", b'{"version":5,"host":"h","port":9092}'))
    group.world.run_for(2_000)
    assert not group.leaving()
    group.calm()


@on_seeds()
def test_f158_brokers_that_answer_and_are_not_in_zookeeper_are_told(seed: int) -> None:
    group = Moving(seed)
    group.unregister()
    group.world.run_for(2 * ASK_MS)
    [told] = group.said(MIGRATION)
    assert "Kafka answers (brokers 0, 1, 2), and no broker is in /brokers/ids" in told and COMMAND in told
    group.calm()


@on_seeds()
def test_f158_brokers_that_are_all_away_are_no_move(seed: int) -> None:
    group = Moving(seed)
    group.metadata.away = True
    group.unregister()
    group.world.run_for(3 * ASK_MS)
    assert (group.said(MIGRATION), group.leaving()) == ([], False)
    group.calm()


@on_seeds()
def test_f156_bootstrap_servers_of_another_cluster_than_zookeepers_are_told(seed: int) -> None:
    group = Moving(seed)
    group.metadata.cluster_id = "cluster-2"
    group.world.crash(group.leader(), exact=True)
    group.world.run_for(20_000)
    [told] = group.said(CLUSTER_ID)
    assert "'cluster-2'" in told and "/cluster/id says 'cluster-1'" in told
    group.calm()


class AwayAtFirst(Moving):
    """No broker answers when the coordinator begins to serve."""

    def begins(self) -> None:
        super().begins()
        self.metadata.away, self.metadata.cluster_id = True, "cluster-2"


@on_seeds()
def test_f156_the_clusters_id_is_asked_for_until_it_is_told(seed: int) -> None:
    group = AwayAtFirst(seed)
    group.world.run_for(ASK_MS)
    assert group.said(CLUSTER_ID) == []
    group.metadata.away = False
    group.world.run_for(2 * ASK_MS)
    [told] = group.said(CLUSTER_ID)
    assert "'cluster-2'" in told
    asked = len(group.metadata.asked)
    group.world.run_for(3 * ASK_MS)
    assert len(group.metadata.asked) == asked  # one question is enough while brokers are registered
