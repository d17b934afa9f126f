"""Brokers' racks: partitions go to members in the rack of a replica. No partition moves when a broker comes or goes,
but another rack moves some."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from tests.sim.actors import ConsumerFactory
from tests.sim.script import Script, on_seeds
from zkcoord.tree.paths import BROKERS, TOPICS
from zkcoord.tree.writes import ANY_VERSION, CreateNode, DeleteNode, SetNode

MEMBERS = {"inA": "a", "inB": "b"}
EVEN, ODD = [0, 2, 4, 6], [1, 3, 5, 7]


class Racks(Script):
    """Broker 1 is in rack a, broker 2 in rack b. The topic's even partitions are on broker 1, its odd ones on broker
    2."""

    def __init__(self, seed: int, racks: Mapping[str, str | None] = MEMBERS) -> None:
        super().__init__(seed, consumers=0, topics={"t": 8})
        self.register(1, "a")
        self.register(2, "b")
        self.place({n: [1 + n % 2] for n in range(8)})
        self.consumers = ConsumerFactory(self.logs, {"t": 1})
        for name, rack in racks.items():
            self.consumers.registers(rack=rack)
            self.join(name)
            self.world.run_until(lambda name=name: self.registered(name), what=f"{name} is a member")  # type: ignore[misc]
        self.settle()

    def register(self, broker: int, rack: str | None) -> None:
        """A broker starts."""
        text = {"version": 5, "host": "h", "port": 9092, **({} if rack is None else {"rack": rack})}
        self.world.ensemble.operate(CreateNode(f"{BROKERS}/{broker}", json.dumps(text).encode()))

    def stop_broker(self, broker: int) -> None:
        """A broker's registration ends."""
        self.world.ensemble.operate(DeleteNode(f"{BROKERS}/{broker}", ANY_VERSION))

    def place(self, replicas: Mapping[int, list[int]]) -> None:
        """Move the partitions' replicas to these brokers."""
        text = {"version": 1, "partitions": {str(n): ids for n, ids in replicas.items()}}
        self.world.ensemble.operate(SetNode(f"{TOPICS}/t", json.dumps(text).encode(), ANY_VERSION))

    def has(self, name: str) -> list[int]:
        """The partitions that a consumer owns."""
        return [p.partition for p in self.owned(name)]

    def settle_on(self, of_a: list[int], of_b: list[int]) -> None:
        """Run until consumer inA owns the partitions `of_a`, and inB the partitions `of_b`."""
        self.world.run_until(
            lambda: self.all_held() and (self.has("inA"), self.has("inB")) == (of_a, of_b), 10_000, f"{of_a}, {of_b}"
        )

    def read_brokers(self, since_ms: int = 0) -> list[str]:
        """The nodes of brokers that coordinators read. (The list of brokers, by which they see whether Kafka is there,
        does not count.)"""
        return [
            path
            for at_ms, who, path in self.world.asked
            if at_ms >= since_ms and who.startswith("coordinator") and path.startswith(f"{BROKERS}/")
        ]


@on_seeds()
def test_partitions_go_to_the_racks_of_their_replicas_and_a_failover_finds_the_same(seed: int) -> None:
    group = Racks(seed)
    group.settle_on(EVEN, ODD)
    generation = group.generation()
    assert group.state()["brokers"] == {"1": "a", "2": "b"}
    group.world.crash(group.leader(), exact=True)
    group.world.run_for(15_000)
    assert (group.has("inA"), group.has("inB"), group.generation()) == (EVEN, ODD, generation)
    group.calm()


@on_seeds()
def test_a_broker_that_restarts_moves_nothing_even_over_a_failover(seed: int) -> None:
    group = Racks(seed)
    group.settle_on(EVEN, ODD)
    generation, began_ms = group.generation(), group.world.now_ms
    group.stop_broker(1)
    group.world.run_for(5_000)
    group.world.crash(group.leader(), exact=True)  # so the next coordinator never sees that broker
    group.world.run_for(15_000)
    group.register(1, "a")
    group.world.run_for(5_000)
    assert (group.has("inA"), group.has("inB"), group.generation()) == (EVEN, ODD, generation)
    assert group.commands_sent("stop-fetcher", since_ms=began_ms) == []
    group.calm()


@on_seeds()
def test_one_list_and_one_read_for_each_broker_is_all_that_a_restart_costs(seed: int) -> None:
    group = Racks(seed)
    group.settle_on(EVEN, ODD)
    group.world.run_for(5_000)
    began_ms = group.world.now_ms
    group.stop_broker(2)
    group.world.run_for(5_000)
    group.register(2, "b")
    group.world.run_for(5_000)
    assert sorted(group.read_brokers(began_ms)) == [f"{BROKERS}/1", f"{BROKERS}/1", f"{BROKERS}/2"]


@on_seeds()
def test_a_broker_that_comes_back_in_another_rack_moves_its_partitions(seed: int) -> None:
    group = Racks(seed)
    group.settle_on(EVEN, ODD)
    group.stop_broker(1)
    group.stop_broker(2)
    group.world.run_for(3_000)
    group.register(1, "b")
    group.register(2, "a")
    group.settle_on(ODD, EVEN)
    group.world.run_until(lambda: group.state()["brokers"] == {"1": "b", "2": "a"}, what="the state says so")
    group.calm()


@on_seeds()
def test_replicas_elsewhere_move_what_they_are_about_and_the_raise_says_why(seed: int) -> None:
    group = Racks(seed)
    group.settle_on(EVEN, ODD)
    began_ms = group.world.now_ms
    group.place({n: [1 + n % 2] for n in range(4)} | {n: [2 - n % 2] for n in range(4, 8)})
    group.settle_on([0, 2, 5, 7], [1, 3, 4, 6])
    whys = {told.fields["why"] for told in group.world.events("group_phase", began_ms)}
    assert "the target is another one: t has replicas in other racks" in whys
    group.calm()


@on_seeds()
def test_the_order_of_the_replicas_and_more_of_them_in_the_same_racks_move_nothing(seed: int) -> None:
    group = Racks(seed)
    group.register(3, "a")
    group.settle_on(EVEN, ODD)
    generation = group.generation()
    group.place({n: [3, 1] if n % 2 == 0 else [2] for n in range(8)})
    group.world.run_for(5_000)
    assert (group.has("inA"), group.has("inB"), group.generation()) == (EVEN, ODD, generation)
    group.calm()


@on_seeds()
def test_the_records_rack_counts_in_place_of_the_replicas(seed: int) -> None:
    group = Racks(seed)
    group.settle_on(EVEN, ODD)
    group.edit_record(racks={"t-0": "b", "t-1": "a"})
    group.settle_on([1, 2, 4, 6], [0, 3, 5, 7])
    group.calm()


@on_seeds()
def test_while_no_member_has_a_rack_no_broker_is_read(seed: int) -> None:
    group = Racks(seed, {"plain0": None, "plain1": None})
    group.register(3, "c")
    group.world.run_for(5_000)
    assert group.read_brokers() == []
    group.consumers.registers(rack="a")  # the first member with a rack
    group.join("inA")
    group.settle()
    assert set(group.read_brokers()) == {f"{BROKERS}/{n}" for n in (1, 2, 3)}
    group.leave("inA")
    group.settle()
    group.world.run_for(2_000)
    began_ms = group.world.now_ms
    group.stop_broker(3)
    group.world.run_for(5_000)
    assert group.read_brokers(began_ms) == []
    assert "brokers" not in group.state()
    group.calm()


@pytest.mark.parametrize("path", [BROKERS, f"{BROKERS}/1"])
@on_seeds()
def test_a_broker_that_cannot_be_read_stops_nobody(seed: int, path: str) -> None:
    group = Racks(seed)
    group.world.ensemble.closed.add(path)
    group.world.crash(group.leader(), exact=True)
    group.world.run_for(10_000)
    group.consumers.registers(rack="a")
    group.join("late")
    group.settle("balance with the one that is late")
    group.world.ensemble.closed.remove(path)
    group.world.run_for(40_000)
    group.settle()
    group.calm()


@on_seeds()
def test_a_broker_that_nobody_can_parse_is_told_and_keeps_its_rack(seed: int) -> None:
    group = Racks(seed)
    group.settle_on(EVEN, ODD)
    generation = group.generation()
    group.stop_broker(1)
    group.world.ensemble.operate(CreateNode(f"{BROKERS}/1", b"1-1416335000123:h:9092"))
    group.world.run_for(5_000)
    [told] = [told for told in group.world.events("unreadable") if told.fields["path"] == f"{BROKERS}/1"]
    assert "the rack that was known still holds" in told.fields["why"]
    assert (group.has("inA"), group.has("inB"), group.generation()) == (EVEN, ODD, generation)
    group.calm()
