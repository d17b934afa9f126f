"""F152 to F156, F223 to F225: Kafka's metadata that comes late, in part, from brokers that lag, or from another
cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.sim.actors import GROUP, ProductActor, coordinator, topic_json
from tests.sim.field import parse_json
from tests.sim.metadata import CLUSTER, SILENT_MS
from tests.sim.mirror_scene import Mirrored
from tests.sim.script import QUIET, Script, Told, on_seeds
from zkcoord.core.model import TopicPartition
from zkcoord.core.topic_answers import Kind
from zkcoord.core.topic_mirror import ABSENT_MS, CONFIRM_MS
from zkcoord.core.topics import DELETED_MS
from zkcoord.errors import SchemaError, UsageError
from zkcoord.serving.topic_mirror import KAFKA
from zkcoord.tree.paths import BROKERS, DRAFT, EPOCH, SCHEMA, TOPICS
from zkcoord.tree.schema import decode_schema, encode_schema
from zkcoord.tree.writes import CreateNode, SetNode


class Group(Mirrored):
    """A group that has read its topic for a while."""

    def __init__(self, seed: int, **size: Any) -> None:
        size.setdefault("consumers", 2)
        super().__init__(seed, **size)
        self.settle()
        self.world.run_for(5_000)

    def mark(self, topic: str = "t") -> dict[str, Any]:
        return parse_json(self.world.ensemble.data(DRAFT.mark(GROUP, topic)) or b"")

    def offsets(self, topic: str = "t") -> dict[int, int]:
        above = DRAFT.topic_offsets(GROUP, topic)
        ensemble = self.world.ensemble
        return {int(n): int(ensemble.data(f"{above}/{n}") or b"-1") for n in ensemble.names(above)}

    def problems(self) -> list[str]:
        """The problems with Kafka's answers that coordinators reported, each once."""
        return list(dict.fromkeys(t.fields["why"] for t in self.world.told if t.fields.get("path") == KAFKA))

    def stops(self, since_ms: int) -> list[Told]:
        return self.world.events("stop_sent", since_ms)


@on_seeds()
def test_a_group_reads_topics_that_only_kafkas_metadata_tells(seed: int) -> None:
    group = Group(seed)
    schema = parse_json(group.world.ensemble.data(SCHEMA) or b"")
    assert (schema["topics"], schema["cluster_id"], schema["revision"]) == ("kafka", CLUSTER, "0003")
    brokers = {path for _, _, path in group.world.asked if path.startswith("/brokers/")}
    assert brokers == {BROKERS}  # only whether a broker uses this ZooKeeper
    assert (group.mark()["topic_id"], group.mark()["czxid"]) == (group.mirrored()["t"], "0")
    begun_ms = group.world.now_ms
    group.grow("t", 6)
    group.world.run_until(lambda: len(group.field.holdings) == 6, what="the new partitions are read")
    assert group.world.now_ms - begun_ms < 1_500
    group.create_topic("u", 2)
    group.delete_topic("t")
    group.world.run_until(lambda: sorted(group.mirrored()) == ["u"], what="the mirror follows")
    group.calm()


@on_seeds()
def test_a_poll_asks_once_and_writes_nothing_while_nothing_changes(seed: int) -> None:
    group = Mirrored(seed, coordinators=1, consumers=0, topics={"t": 4, "u": 2})
    group.world.run_for(5_000)
    metadata, since_ms, writes = group.metadata, group.world.now_ms, len(group.world.tried)
    group.world.run_for(20_000)
    asked = [question for time_ms, question in metadata.asked if time_ms >= since_ms]
    assert len(group.world.tried) == writes
    assert 30 <= len(asked) <= 55
    assert {question.kind for question in asked} <= {Kind.LIST, Kind.DESCRIBE, Kind.CLUSTER}


@on_seeds()
def test_f152_brokers_that_lag_for_a_while_delete_no_offset_and_stop_nobody(seed: int) -> None:
    """All brokers know only an old state, without a topic that is read, for less time than a confirmation takes."""
    group = Group(seed, coordinators=1)
    group.create_topic("late", 2)
    group.consumers._topics["late"] = 1
    group.join("reader")
    group.world.run_until(lambda: TopicPartition("late", 0) in group.held(), what="it is read")
    group.world.run_for(3_000)
    before_ms, offsets = group.world.now_ms, group.offsets("late")
    group.metadata.lag_ms = dict.fromkeys(group.metadata.brokers, before_ms)  # back to the state of the beginning
    group.world.run_for(ABSENT_MS - 1_000)
    group.mend()
    group.world.run_for(3_000)
    assert (group.stops(before_ms), group.world.events("topic_dropped")) == ([], [])
    assert "late" in group.mirrored()
    assert all(group.offsets("late")[n] >= offset for n, offset in offsets.items())
    group.calm()


@on_seeds()
def test_f152_one_broker_that_lags_for_long_deletes_no_offset_and_stops_nobody(seed: int) -> None:
    group = Group(seed, coordinators=1)
    group.grow("t", 6)
    group.world.run_until(lambda: len(group.field.holdings) == 6, what="the new partitions are read")
    before_ms = group.world.now_ms
    group.metadata.lag_ms[1] = before_ms  # the broker does not know the new partitions
    group.world.run_for(3 * DELETED_MS)
    assert (group.stops(before_ms), group.world.events("topic_dropped")) == ([], [])
    assert len(group.field.holdings) == 6
    group.calm()


@on_seeds()
def test_f171_a_broker_that_never_heard_of_a_topic_stops_nobody(
    seed: int,
) -> None:
    """The broker is cut off from its controller. Its answer is old, and is not confirmed by the same answer again."""
    group = Group(seed, coordinators=1)
    group.create_topic("late", 2)
    group.consumers._topics["late"] = 1
    group.join("reader")
    group.world.run_until(lambda: TopicPartition("late", 0) in group.held(), what="it is read")
    group.world.run_for(3_000)
    before_ms = group.world.now_ms
    del group.metadata.brokers[2]  # now every second answer comes from this broker
    for _ in range(3 * DELETED_MS // 1_000):
        group.metadata.lag_ms[1] = group.world.now_ms  # the state of the beginning
        group.world.run_for(1_000)
    assert (group.stops(before_ms), group.world.events("topic_dropped")) == ([], [])
    group.calm()


@on_seeds()
def test_f171_a_deleted_topic_that_one_broker_still_tells_stands_until_all_agree(
    seed: int,
) -> None:
    group = Group(seed, coordinators=1, topics={"t": 4, "u": 2})
    begun_ms = group.world.now_ms
    group.delete_topic("u")
    del group.metadata.brokers[2]
    for _ in range(2 * DELETED_MS // 1_000):
        group.metadata.lag_ms[1] = group.world.now_ms - begun_ms + 2_000  # the state before the topic was deleted
        group.world.run_for(1_000)
    assert group.stops(begun_ms) == []
    group.mend()
    group.world.run_for(2 * DELETED_MS)
    stops = [told.time_ms for told in group.stops(begun_ms)]
    assert max(stops) - min(stops) < 1_000  # all at once, so only one time
    assert [told.fields["topic"] for told in group.world.events("topic_dropped")] == ["u"]
    assert sorted(group.mirrored()) == ["t"]
    group.calm()


@on_seeds()
def test_f152_an_absence_that_was_told_by_mistake_is_mended_and_costs_no_offset(seed: int) -> None:
    """All brokers say for long that the topic does not exist. Then they know it again, with the same id."""
    group = Group(seed, coordinators=1, topics={"t": 4, "u": 2})
    offsets, topic_id = group.offsets(), group.mirrored()["t"]
    group.delete_topic("t")
    group.world.run_until(lambda: "t" not in group.mirrored(), what="the absence counts")
    group.world.run_for(DELETED_MS // 2)
    group.world.trace("the brokers know it again")
    group.world.ensemble.operate(CreateNode(f"{TOPICS}/t", topic_json(4, topic_id)))
    group.settle()
    assert group.world.events("topic_dropped") == []
    assert group.mark()["incarnation"] == 1
    assert group.offsets().keys() == offsets.keys()
    group.calm()


@on_seeds()
def test_f153_a_topic_deleted_and_created_again_between_two_answers_is_known_by_its_id(seed: int) -> None:
    group = Group(seed)
    before_ms = group.world.now_ms
    group.delete_topic("t")
    group.create_topic("t", 4)
    group.world.run_until(lambda: group.mark().get("incarnation") == 2, what="another mark")
    assert group.world.now_ms - before_ms >= CONFIRM_MS
    group.settle()
    assert len(group.world.events("topic_dropped")[0].fields["offsets"]) == 4
    group.calm()


@on_seeds()
def test_f154_an_id_that_was_replaced_never_returns_however_often_a_broker_tells_it(seed: int) -> None:
    group = Group(seed, coordinators=1)
    long_ago_ms = group.world.now_ms - 1_000
    group.delete_topic("t")
    group.create_topic("t", 4)
    group.world.run_until(lambda: group.mark().get("incarnation") == 2, what="another mark")
    group.settle()
    group.world.run_for(3_000)
    mirrored, before_ms = group.mirrored(), group.world.now_ms
    for step in range(100):
        group.metadata.lag_ms = dict.fromkeys(group.metadata.brokers, group.world.now_ms - long_ago_ms)
        group.world.run_for(200)  # brokers progress meanwhile, but not up to the deletion of the topic
        if step == 50:
            group.world.crash(group.leader(), exact=True)  # the next coordinator does not believe it, either
    assert group.mirrored() == mirrored
    assert (group.stops(before_ms), group.mark()["incarnation"]) == ([], 2)
    group.calm()


@on_seeds()
def test_f155_while_kafka_is_away_a_group_goes_on_with_the_topics_that_are_known(seed: int) -> None:
    group = Group(seed)
    group.metadata.away = True
    group.world.run_for(10_000)
    assert any("did not list its topics" in why and "as they are known" in why for why in group.problems())
    group.world.crash(group.leader(), exact=True, restart_after_ms=None)
    group.join("later")
    group.world.run_until(lambda: group.registered("later") and bool(group.owned("later")), what="it has a share")
    group.settle()
    group.mend()
    group.grow("t", 5)
    group.world.run_until(lambda: len(group.field.holdings) == 5, what="the new partition is read")
    group.calm()


@on_seeds()
def test_f145_a_change_is_seen_soon_after_brokers_that_were_away_answer_again(seed: int) -> None:
    """The question without an answer took seconds. The coordinator must not ask less often because of that."""
    group = Group(seed, coordinators=1)
    group.metadata.away = True
    group.world.run_for(2 * SILENT_MS)
    group.mend()
    group.grow("t", 6)
    back_ms = group.world.now_ms
    group.world.run_until(lambda: len(group.field.holdings) == 6, what="the new partitions are read")
    assert group.world.now_ms - back_ms < SILENT_MS + 2_000


@on_seeds()
def test_f155_answers_that_are_not_whole_take_nothing_away(seed: int) -> None:
    group = Group(seed, topics={"t": 4, "u": 2})
    before_ms = group.world.now_ms
    group.metadata.partial_rate, group.metadata.silent_rate = 0.5, 0.2
    group.world.run_for(60_000)
    assert (group.stops(before_ms), sorted(group.mirrored())) == ([], ["t", "u"])
    group.calm()


@on_seeds()
def test_f155_a_topic_that_kafka_tells_no_id_of_is_not_mirrored_and_one_that_is_known_stays(seed: int) -> None:
    group = Group(seed)
    group.metadata.no_ids = True
    group.create_topic("u", 2)
    group.grow("t", 6)
    group.world.run_for(5_000)
    assert (sorted(group.mirrored()), len(group.field.holdings)) == (["t"], 4)
    assert any("upgrade the brokers" in why for why in group.problems())
    group.mend()
    group.world.run_until(lambda: len(group.field.holdings) == 6, what="what grew is read")
    group.calm()


@on_seeds()
def test_f156_the_brokers_of_another_cluster_change_nothing_and_it_is_told(seed: int) -> None:
    group = Group(seed)
    before_ms = group.world.now_ms
    group.metadata.cluster_id = "cluster-2"
    group.delete_topic("t")
    group.create_topic("t", 1)
    group.create_topic("x", 1)
    group.world.run_for(10_000)
    assert any("'cluster-2'" in why and "--bootstrap-servers" in why for why in group.problems())
    assert (group.stops(before_ms), sorted(group.mirrored()), len(group.field.holdings)) == ([], ["t"], 4)
    group.metadata.cluster_id = CLUSTER
    group.calm()


@on_seeds()
def test_f225_one_answer_of_another_cluster_among_this_ones_changes_nothing(seed: int) -> None:
    """A broker of another cluster is in the bootstrap list, and a description does not name its cluster."""
    group = Group(seed, coordinators=1)
    before_ms, offsets = group.world.now_ms, group.offsets()
    group.metadata.alike = True
    for kind in (Kind.DESCRIBE, Kind.LIST, Kind.CLUSTER, Kind.DESCRIBE):
        group.metadata.strange_next.append(kind)
        group.world.run_until(lambda: not group.metadata.strange_next, what="it answers")
        group.world.run_for(3_000)
    assert (group.stops(before_ms), group.offsets().keys(), group.mark()["incarnation"]) == ([], offsets.keys(), 1)
    assert group.metadata.reached["another cluster"] == 4
    group.calm()


class BesideAnotherCluster(Mirrored):
    """A new tree in the ZooKeeper of one cluster, with the bootstrap servers of another cluster."""

    def begins(self) -> None:
        super().begins()
        self.name_cluster()
        self.metadata.cluster_id = "cluster-2"


@on_seeds()
def test_f223_a_new_tree_takes_no_topics_from_another_cluster_than_that_of_its_zookeeper(seed: int) -> None:
    group = BesideAnotherCluster(seed, consumers=2)
    ensemble = group.world.ensemble
    group.world.run_for(10_000)
    assert (decode_schema(ensemble.data(SCHEMA) or b"").cluster_id, group.mirrored(), group.field.holdings) == (
        "",
        {},
        {},
    )
    [told] = [t.fields["why"] for t in group.world.events("unreadable") if t.fields["path"] == KAFKA]
    assert "'cluster-2'" in told and "/cluster/id beside this tree names 'cluster-1'" in told
    group.metadata.cluster_id = CLUSTER
    group.settle()
    assert decode_schema(ensemble.data(SCHEMA) or b"").cluster_id == CLUSTER
    group.calm()


@on_seeds()
def test_f224_a_consumer_whose_brokers_are_of_another_cluster_never_registers(seed: int) -> None:
    group = Group(seed)
    since_ms = group.world.now_ms
    group.consumers._in_kafka = {"cluster_id": lambda: "cluster-2", "bootstrap_servers": "k9:9092"}
    group.join("stranger")
    error = ended(group, "stranger")
    assert "k9:9092" in str(error) and "'cluster-2'" in str(error) and f"{CLUSTER!r}" in str(error)
    assert (group.stops(since_ms), group.journal("start", None, since_ms)) == ([], [])
    group.calm()


@on_seeds()
def test_f224_a_consumer_told_late_that_its_brokers_are_foreign_commits_nothing(seed: int) -> None:
    """Kafka did not answer when the consumer began."""
    group, told = Group(seed), list[str]()
    group.consumers._in_kafka = {"cluster_id": lambda: told[0] if told else None, "bootstrap_servers": "k9:9092"}
    group.join("stranger")
    process = group.world.processes["stranger"]
    assert isinstance(process.actor, ProductActor)
    role = process.actor.role
    group.world.run_until(lambda: bool(role.readable), what="it is given partitions")
    mine = sorted(role.readable)
    assert all(role.allowed(each, process.clock.now_ms()) for each in mine)
    told.append("cluster-2")
    assert [role.allowed(each, process.clock.now_ms()) for each in mine] == [False] * len(mine)
    tried = len(group.world.tried)
    assert isinstance(ended(group, "stranger"), UsageError)
    writes = [repr(each) for each in group.world.tried[tried:] if each.client == process.client]
    assert [each for each in writes if "/offsets/" in each] == []
    group.calm()


def ended(group: Group, name: str) -> BaseException | None:
    """The error with which this consumer has ended."""
    actor = group.world.processes[name].actor
    assert isinstance(actor, ProductActor)
    group.world.run_until(lambda: actor.loop.fatal is not None, what="it ends")
    return actor.loop.fatal


@on_seeds()
def test_nothing_is_decided_before_every_topic_was_mirrored(seed: int) -> None:
    """The tree's mirror is missing, as after a restore. The topics that groups marked are not taken for deleted."""
    group = Group(seed, coordinators=1)
    offsets, before_ms = group.offsets(), group.world.now_ms
    group.metadata.away = True
    group.world.crash(group.leader(), exact=True, restart_after_ms=5_000)
    group.lose_mirror()
    group.world.run_for(2 * DELETED_MS)
    assert group.world.events("topic_dropped") == []
    group.mend()
    group.settle()
    group.world.run_for(2 * DELETED_MS)
    assert (group.stops(before_ms), group.offsets().keys()) == ([], offsets.keys())
    group.calm()


@on_seeds(1)
def test_a_coordinator_of_another_source_refuses_the_tree_and_says_what_to_do(seed: int) -> None:
    group = Group(seed, coordinators=1)
    process = group.world.spawn("other", lambda process: coordinator(process, layout=DRAFT), restarts=False)
    group.world.run_for(3_000)
    assert isinstance(process.actor, ProductActor)
    fatal = process.actor.loop.fatal
    assert isinstance(fatal, SchemaError)
    assert "this coordinator was started with 'zookeeper'" in str(fatal)
    assert "--topics kafka --bootstrap-servers" in str(fatal)
    assert "zkcoord migrate topics --to zookeeper --bootstrap-servers HOST:PORT" in str(fatal)  # it needs servers, too
    group.calm()


@on_seeds()
def test_f157_a_coordinator_without_anything_to_write_ends_when_the_source_is_another(seed: int) -> None:
    """Before the fix, it served on after the switch, could not write, and nobody else was elected."""
    group = Script(seed, QUIET, coordinators=1, consumers=2)
    group.settle()
    group.world.run_for(5_000)
    ensemble, loop = group.world.ensemble, group.actor(group.leader()).loop
    schema, epoch = ensemble.stat(SCHEMA), ensemble.stat(EPOCH)
    assert schema is not None and epoch is not None
    named = replace(decode_schema(ensemble.data(SCHEMA) or b""), revision="0003", topics="kafka", cluster_id=CLUSTER)
    ensemble.operate(SetNode(EPOCH, b"9", epoch.version), SetNode(SCHEMA, encode_schema(named), schema.version))
    group.world.run_for(3_000)
    assert isinstance(loop.fatal, SchemaError)
    assert ensemble.stat(DRAFT.coordinator) is None
