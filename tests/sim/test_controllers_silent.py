"""F242: KRaft controllers, to which Kafka's brokers are being moved, stop writing to ZooKeeper; the coordinator reports
it."""

from __future__ import annotations

from tests.sim.actors import ProductActor
from tests.sim.field import parse_json
from tests.sim.mirror_scene import Mirrored
from tests.sim.script import Script, Told, on_seeds
from tests.sim.test_brokers_move import Moving
from zkcoord.serving.role import CoordinatorRole
from zkcoord.tree.brokers_move import SILENT, SILENT_MS
from zkcoord.tree.paths import BROKERS, CANDIDATES, CONTROLLER, MIGRATION
from zkcoord.tree.writes import ANY_VERSION, CreateNode, SetNode

WRITES_MS = 2_000
SEEN_MS = 3_000  # within this time a change was read and the consequences were written


class Controllers:
    """The writes of KRaft controllers to a script's ZooKeeper."""

    def __init__(self, group: Script) -> None:
        self.group, self.ensemble, self.offset = group, group.world.ensemble, 0
        self.ensemble.ensure(CONTROLLER, b"")
        epoch = b'{"version":2,"brokerid":3000,"kraftControllerEpoch":1}'
        assert not self.ensemble.operate(SetNode(CONTROLLER, epoch, ANY_VERSION)).reason
        assert not self.ensemble.operate(CreateNode(MIGRATION, self._node())).reason

    def _node(self) -> bytes:
        return b'{"version":0,"kraft_controller_id":3000,"kraft_metadata_offset":%d}' % self.offset

    def write(self, duration_ms: int, *, further: bool = True) -> None:
        """Write again and again; without `further` the offset stays the same, as when the controllers fail."""
        for _ in range(duration_ms // WRITES_MS):
            self.offset += further
            assert not self.ensemble.operate(SetNode(MIGRATION, self._node(), ANY_VERSION)).reason
            self.group.world.run_for(WRITES_MS)

    def told(self, event: str) -> list[Told]:
        return [each for each in self.group.world.events(event) if each.fields["path"] == CONTROLLER]


def silent(actor: ProductActor) -> bool:
    """True when the coordinator's metric says that the controllers are silent."""
    assert isinstance(actor.role, CoordinatorRole)
    return actor.role.kafka is not None and actor.role.kafka.silent


def saying(group: Script) -> list[str]:
    """The candidates whose nodes tell the tools that the controllers are silent."""
    ensemble = group.world.ensemble
    nodes = {name: parse_json(ensemble.data(f"{CANDIDATES}/{name}") or b"") for name in ensemble.names(CANDIDATES)}
    return [name for name, fields in nodes.items() if fields.get("controllers_silent") is True]


@on_seeds()
def test_f242_controllers_that_tell_zookeeper_nothing_are_told_once_until_they_write_again(seed: int) -> None:
    group = Moving(seed)
    controllers = Controllers(group)
    controllers.write(2 * SILENT_MS)
    assert (controllers.told("unreadable"), saying(group)) == ([], [])
    controllers.write(SILENT_MS - 2 * WRITES_MS, further=False)
    assert (controllers.told("unreadable"), silent(group.actor(group.leader()))) == ([], False)
    controllers.write(SILENT_MS, further=False)
    [told] = controllers.told("unreadable")
    assert (told.fields["why"], told.fields["level"]) == (SILENT, "warning")
    assert (len(saying(group)), silent(group.actor(group.leader()))) == (1, True)
    assert controllers.told("problem_over") == []
    controllers.write(SILENT_MS)
    assert [len(controllers.told(event)) for event in ("unreadable", "problem_over")] == [1, 1]
    assert (saying(group), silent(group.actor(group.leader()))) == ([], False)
    before = len(group.world.tried)
    controllers.write(SILENT_MS)
    assert not [
        t for t in group.world.tried[before:] if any(w.path.startswith(CANDIDATES) for w in t.transaction.writes)
    ]
    group.calm()


@on_seeds()
def test_f242_the_next_coordinator_says_it_in_its_own_node(seed: int) -> None:
    group = Moving(seed)
    controllers = Controllers(group)
    group.world.run_for(SILENT_MS + SEEN_MS)
    [told] = controllers.told("unreadable")
    group.world.crash(group.leader(), exact=True)
    group.world.run_for(2 * SILENT_MS)
    again = controllers.told("unreadable")[1:]
    assert len(again) == 1 and again[0].time_ms - told.time_ms >= SILENT_MS
    assert len(saying(group)) == 1
    group.calm()


@on_seeds()
def test_f242_it_is_told_as_well_where_topics_come_from_kafka(seed: int) -> None:
    group = Mirrored(seed, coordinators=1, consumers=1)
    group.settle()
    controllers = Controllers(group)
    group.world.run_for(SILENT_MS + SEEN_MS)
    assert controllers.told("unreadable") == []  # no broker is registered in ZooKeeper
    group.world.ensemble.ensure(f"{BROKERS}/0", b'{"version":5,"host":"h","port":9092}')
    group.world.run_for(SILENT_MS + SEEN_MS)
    [told] = controllers.told("unreadable")
    assert told.fields["why"] == SILENT and len(saying(group)) == 1
    group.calm()
