"""The mirror of Kafka's topics as nodes: the writes of each change, and their order."""

from __future__ import annotations

from zkcoord.core.topic_answers import Broker
from zkcoord.core.topic_mirror import (
    OVER_MAX,
    Change,
    Complete,
    NameCluster,
    PutBroker,
    PutTopic,
    RemoveBroker,
    RemoveTopic,
    Topic,
)
from zkcoord.tree.paths import layout_named
from zkcoord.tree.snapshot import Kind, Node, Stat
from zkcoord.tree.topic import decode_topic
from zkcoord.tree.topic_mirror import (
    NODE_BYTES_MAX,
    MirrorRoot,
    decode_mirrored,
    decode_root,
    encode_broker,
    encode_root,
    encode_topic,
    mirror_of,
    parents_of,
    writes_of,
)
from zkcoord.tree.writes import CreateNode, DeleteNode, SetNode, Write

LAYOUT = layout_named("draft", "kafka")
T = Topic(topic_id="idT", partitions={0: (1,), 1: (2, 1)})
B = Broker("h", 9092, "r")
ROOT = MirrorRoot(whole=True, over=(("x", "idX"),))


def nodes(**topics: Topic) -> dict[str, Node]:
    """Both parents, these topics, and broker 1. Each node has another version."""
    data = {LAYOUT.topics: encode_root(ROOT), LAYOUT.brokers: b"", f"{LAYOUT.brokers}/1": encode_broker(B)}
    data |= {LAYOUT.topic(name): encode_topic(topic) for name, topic in topics.items()}
    stats = {path: Stat(version=number, czxid=1, ephemeral_owner=0) for number, path in enumerate(data)}
    return {path: Node(path, Kind.DATA, stats[path], data[path]) for path in data}


def written(change: Change, found: dict[str, Node]) -> list[Write]:
    return writes_of([change], found, LAYOUT)


def test_a_written_mirror_is_read_again() -> None:
    mirror = mirror_of(nodes(t=T), LAYOUT, "c")
    assert (mirror.topics, mirror.brokers, mirror.over, mirror.whole) == ({"t": T}, {1: B}, ROOT.over, True)


def test_nodes_that_are_there_are_set_by_their_version_and_others_created() -> None:
    assert written(PutTopic("n", T), nodes(t=T)) == [CreateNode(LAYOUT.topic("n"), encode_topic(T))]
    other, moved = Topic(topic_id="idT", partitions={0: (1,)}), Broker("h2", 9092)
    assert written(PutTopic("t", other), nodes(t=T)) == [SetNode(LAYOUT.topic("t"), encode_topic(other), 3)]
    assert written(PutBroker(1, moved), nodes()) == [SetNode(f"{LAYOUT.brokers}/1", encode_broker(moved), 2)]
    assert written(PutTopic("t", T), nodes(t=T)) == written(PutBroker(1, B), nodes()) == []
    assert written(RemoveBroker(1), nodes()) == [DeleteNode(f"{LAYOUT.brokers}/1", 2)]
    assert written(NameCluster("c"), nodes()) == []


def test_an_id_that_ends_is_noted_before_its_topic_is_replaced_or_removed() -> None:
    over = (*ROOT.over, ("t", "idT"))
    noted = SetNode(LAYOUT.topics, encode_root(MirrorRoot(whole=True, over=over)), 0)
    other = Topic(topic_id="idU", partitions={0: ()})
    put = SetNode(LAYOUT.topic("t"), encode_topic(other), 3)
    assert written(PutTopic("t", other, replaces="idT"), nodes(t=T)) == [noted, put]
    assert written(RemoveTopic("t", "idT"), nodes(t=T)) == [noted, DeleteNode(LAYOUT.topic("t"), 3)]


def test_a_whole_mirror_keeps_what_is_over() -> None:
    found = nodes()
    root = found[LAYOUT.topics]
    found[LAYOUT.topics] = root._replace(data=encode_root(ROOT._replace(whole=False)))
    assert written(Complete(), found) == [SetNode(LAYOUT.topics, encode_root(ROOT), 0)]


def test_a_name_that_no_command_can_hold_is_not_mirrored() -> None:
    assert written(PutTopic("two words", T), nodes()) == []


def test_both_parents_are_made_where_they_are_missing() -> None:
    assert parents_of(nodes(), LAYOUT) == []
    assert [write.path for write in parents_of({}, LAYOUT)] == [LAYOUT.topics, LAYOUT.brokers]


def test_unparsable_nodes_are_left_out_of_a_remade_mirror() -> None:
    found = nodes(t=T)
    found[LAYOUT.topic("t")] = found[LAYOUT.topic("t")]._replace(data=b"{")
    assert mirror_of(found, LAYOUT, "c").topics == {}
    unknown = (b'{"version":1,"over":3}', b'{"version":1,"over":[["t"],[1,2],"x"]}', b'{"version":1,"whole":"false"}')
    for data in (b"", b"{", *unknown):
        assert decode_root(data) == MirrorRoot()


def test_a_topic_too_large_for_a_node_is_written_without_replicas() -> None:
    large = Topic(topic_id="idT", partitions={number: tuple(range(100_000, 100_009)) for number in range(20_000)})
    data = encode_topic(large)
    assert len(data) <= NODE_BYTES_MAX
    assert decode_topic(data).partitions == tuple(range(20_000))
    read = decode_mirrored(data)
    assert read is not None and not any(read.partitions.values())


def test_the_ids_that_are_over_fit_into_their_node() -> None:
    longest = tuple(("t" * 245 + f"{number:04}", "J9yFzcT8Sdqog-R1XZ7J1A") for number in range(OVER_MAX))
    assert len(encode_root(MirrorRoot(whole=True, over=longest))) < NODE_BYTES_MAX
