"""Kafka's own nodes about a move to KRaft, as brokers of 2.8 to 3.9 write them, and other data that may be in these
nodes."""

from __future__ import annotations

import pytest

from zkcoord.tree.brokers_move import BrokersMove, Written, cluster_id_of, cluster_of, move_of, registered, written
from zkcoord.tree.paths import BROKERS, CLUSTER_ID, CONTROLLER, FROM_KAFKA, FROM_ZOOKEEPER, MIGRATION
from zkcoord.tree.schema import Schema
from zkcoord.tree.snapshot import Kind, Node, Stat

OLD = b'{"version":2,"brokerid":0,"timestamp":"1","kraftControllerEpoch":-1}'
OLDER = b'{"version":1,"brokerid":0,"timestamp":"1"}'  # before 3.4
KRAFT = b'{"version":2,"brokerid":3000,"timestamp":"1","kraftControllerEpoch":1}'
BEGUN = b'{"version":0,"kraft_metadata_offset":9,"kraft_controller_id":3000,"kraft_metadata_epoch":1}'


def node(path: str, data: bytes | None, *names: str) -> Node:
    kind = Kind.CHILDREN if path == BROKERS else Kind.DATA
    return Node(path, kind, None if data is None else Stat(0, 1, 0), data or b"", children=names)


@pytest.mark.parametrize(
    ("migration", "controller", "ids", "move"),
    [
        (None, OLD, ("0", "1"), None),
        (None, OLDER, ("0", "1"), None),
        (None, None, (), None),  # all brokers are away
        (None, KRAFT, ("0", "1"), BrokersMove.MOVING),
        (BEGUN, OLD, ("0", "1"), BrokersMove.MOVING),
        (BEGUN, KRAFT, ("1",), BrokersMove.MOVING),
        (BEGUN, KRAFT, (), BrokersMove.MOVED),
        (BEGUN, None, ("x", "lost+found"), BrokersMove.MOVED),  # these are no names of brokers
        # a node of the same name that belongs to somebody else, or is of another version
        (b"", OLD, ("0",), None),
        (b"\xff\x00", OLD, ("0",), None),
        (b"17", OLD, ("0",), None),
        (b'["kraft_controller_id"]', OLD, ("0",), None),
        (b'{"from":"pg","to":"mysql"}', OLD, ("0",), None),
        (b'{"kraft_controller_id":"3000"}', OLD, ("0",), None),
        (b'{"kraft_controller_id":true}', OLD, ("0",), None),
        (b'{"kraft_controller_id":-1}', OLD, ("0",), None),  # the move was taken back
        (None, b'{"kraftControllerEpoch":null}', ("0",), None),
        (None, b"{", ("0",), None),
        (None, b'{"version":2,"brokerid":3000,"kraftControllerEpoch":0}', ("0",), BrokersMove.MOVING),
    ],
)
def test_a_move_is_seen_in_what_kafka_writes_and_in_nothing_else(
    migration: bytes | None, controller: bytes | None, ids: tuple[str, ...], move: BrokersMove | None
) -> None:
    nodes = (node(MIGRATION, migration), node(CONTROLLER, controller), node(BROKERS, b"", *ids))
    assert move_of(nodes) is move
    assert registered(nodes[2]) is any(name.isdigit() for name in ids)


def test_controllers_have_told_something_when_their_offset_is_another_one() -> None:
    first = written(None, node(MIGRATION, BEGUN), 1_000)
    assert first == Written(9, 1_000)
    assert written(first, node(MIGRATION, BEGUN), 2_000) is first  # a controller that fails writes the same again
    assert written(first, node(MIGRATION, BEGUN.replace(b":9", b":10")), 3_000) == Written(10, 3_000)
    assert written(first, node(MIGRATION, BEGUN.replace(b":9", b":2")), 4_000) == Written(2, 4_000)  # a new attempt
    assert written(first, node(MIGRATION, None), 5_000) == Written(-1, 5_000)


@pytest.mark.parametrize(
    ("data", "cluster_id"),
    [
        (b'{"version":"1","id":"J9yFzcT8Sdqog-R1XZ7J_A"}', "J9yFzcT8Sdqog-R1XZ7J_A"),
        (None, None),
        (b"", None),
        (b'{"id":7}', None),
        (b'"J9yFzcT8Sdqog-R1XZ7J_A"', None),
    ],
)
def test_a_clusters_id_is_read_where_kafka_has_written_one(data: bytes | None, cluster_id: str | None) -> None:
    assert cluster_id_of(node(CLUSTER_ID, data)) == cluster_id


@pytest.mark.parametrize(
    ("source", "in_schema", "cluster_id"),
    [
        (FROM_KAFKA, "a", "a"),
        (FROM_KAFKA, "", None),  # its coordinator has no answer yet: the node may belong to another cluster
        (FROM_ZOOKEEPER, "a", "b"),
        (FROM_ZOOKEEPER, "", "b"),
    ],
)
def test_the_trees_cluster_is_that_of_the_source_of_its_topics(
    source: str, in_schema: str, cluster_id: str | None
) -> None:
    schema = Schema(revision="0003", layout="draft", topics=source, cluster_id=in_schema)
    assert cluster_of(schema, node(CLUSTER_ID, b'{"version":"1","id":"b"}')) == cluster_id
