"""The only place that reads and writes the mirror of Kafka's topics and brokers.

The nodes of topics and brokers are written as Kafka's brokers write theirs, so that readers of topics need not know the
difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from zkcoord.core.topic_answers import Broker
from zkcoord.core.topic_mirror import (
    Change,
    Complete,
    Doubt,
    Mirror,
    NameCluster,
    PutBroker,
    PutTopic,
    RemoveBroker,
    RemoveTopic,
    Topic,
    over_with,
)
from zkcoord.errors import CorruptError
from zkcoord.tree.broker import broker_id
from zkcoord.tree.codec import INT32_MAX, compact, is_topic, read_document
from zkcoord.tree.paths import Layout
from zkcoord.tree.snapshot import Node
from zkcoord.tree.topic import decode_replicas, decode_topic
from zkcoord.tree.writes import CreateNode, DeleteNode, SetNode, Write

NODE_BYTES_MAX = 900_000
"""Bytes of one topic's node; ZooKeeper's limit is 1 MiB. A larger one, with tens of thousands of partitions, is written
without replicas, which only matter for racks."""


class MirrorRoot(NamedTuple):
    """The data of the parent of the mirrored topics."""

    whole: bool = False
    over: tuple[tuple[str, str], ...] = ()


def encode_root(root: MirrorRoot) -> bytes:
    """The data of the parent of the mirrored topics.

    >>> encode_root(MirrorRoot(True, (("clicks", "J9yFzcT8Sdqog-R1XZ7J1A"),)))
    b'{"version":1,"whole":true,"over":[["clicks","J9yFzcT8Sdqog-R1XZ7J1A"]]}'
    """
    return compact({"version": 1, "whole": root.whole, "over": [list(pair) for pair in root.over]})


def decode_root(data: bytes) -> MirrorRoot:
    """The data of that parent. An empty or unparsable node counts as no data, so the mirror is built again."""
    try:
        document = read_document("mirror of topics", data)
        document.version()
    except CorruptError:
        return MirrorRoot()
    found = document.fields.get("over")
    pairs = [pair for pair in found if isinstance(pair, list)] if isinstance(found, list) else []
    over = tuple((pair[0], pair[1]) for pair in pairs if len(pair) == 2 and all(isinstance(one, str) for one in pair))
    return MirrorRoot(document.fields.get("whole") is True, over)


def encode_topic(topic: Topic) -> bytes:
    """A mirrored topic's data.

    >>> encode_topic(Topic(topic_id="J9yFzcT8Sdqog-R1XZ7J1A", partitions={0: (1, 2)}))
    b'{"version":3,"topic_id":"J9yFzcT8Sdqog-R1XZ7J1A","partitions":{"0":[1,2]}}'
    """
    data = _topic_data(topic, with_replicas=True)
    return data if len(data) <= NODE_BYTES_MAX else _topic_data(topic, with_replicas=False)


def _topic_data(topic: Topic, *, with_replicas: bool) -> bytes:
    numbered = {str(n): list(topic.partitions[n]) if with_replicas else [] for n in sorted(topic.partitions)}
    return compact({"version": 3, "topic_id": topic.topic_id, "partitions": numbered})


def decode_mirrored(data: bytes) -> Topic | None:
    """The topic in `data`. None: it cannot be parsed, and the mirror writes it again."""
    try:
        info = decode_topic(data)
        replicas = decode_replicas(data)
    except CorruptError:
        return None
    if info.topic_id is None:
        return None
    return Topic(topic_id=info.topic_id, partitions={n: replicas.get(n, ()) for n in info.partitions})


def encode_broker(broker: Broker) -> bytes:
    """A mirrored broker's data.

    >>> encode_broker(Broker("h", 9092, "dc1"))
    b'{"version":3,"host":"h","port":9092,"rack":"dc1"}'
    """
    rack = {} if broker.rack is None else {"rack": broker.rack}
    return compact({"version": 3, "host": broker.host, "port": broker.port, **rack})


def decode_mirrored_broker(data: bytes) -> Broker | None:
    """The broker in `data`. None: it cannot be parsed, and the mirror writes it again."""
    try:
        document = read_document("mirrored broker", data)
        port = document.integer("port", low=0, high=INT32_MAX)
        return Broker(document.text("host"), port, document.optional_text("rack"))
    except CorruptError:
        return None


def mirror_of(nodes: Mapping[str, Node], layout: Layout, cluster_id: str) -> Mirror:
    """The mirror in these nodes (path -> node), which are the data of both parents and of all nodes below them."""
    root = nodes.get(layout.topics)
    seen = decode_root(root.data) if root is not None and root.exists else MirrorRoot()
    topics: dict[str, Topic] = {}
    brokers: dict[int, Broker] = {}
    for path, node in nodes.items():
        parent, _, name = path.rpartition("/")
        if not node.exists:
            continue
        if parent == layout.topics and (topic := decode_mirrored(node.data)) is not None:
            topics[name] = topic
        elif parent == layout.brokers and (number := broker_id(name)) is not None:
            broker = decode_mirrored_broker(node.data)
            if broker is not None:
                brokers[number] = broker
    return Mirror(cluster_id=cluster_id, topics=topics, brokers=brokers, over=seen.over, whole=seen.whole)


def parents_of(nodes: Mapping[str, Node], layout: Layout) -> list[Write]:
    """The writes that create the missing parents of the mirror."""
    paths = (layout.topics, layout.brokers)
    return [CreateNode(path, b"") for path in paths if path not in nodes or not nodes[path].exists]


def writes_of(changes: Iterable[Change], nodes: Mapping[str, Node], layout: Layout) -> list[Write]:
    """The writes that make these changes, each by the version of its node. Both parents exist.

    Nodes that are up to date are not written; for example, a topic that is too large is kept without the replicas that
    Kafka tells. The ended ids are written first. The cluster's id is not written here, since it is in the schema.
    """
    writes: list[Write] = []
    ended: list[tuple[str, str]] = []
    whole: bool | None = None  # None: unchanged
    for change in changes:
        match change:
            case PutTopic(name, topic, replaces):
                if is_topic(name):
                    writes += _put(nodes, layout.topic(name), encode_topic(topic))
                    ended += [] if replaces is None else [(name, replaces)]
            case RemoveTopic(name, topic_id):
                writes += _remove(nodes, layout.topic(name))
                ended.append((name, topic_id))
            case PutBroker(number, broker):
                writes += _put(nodes, f"{layout.brokers}/{number}", encode_broker(broker))
            case RemoveBroker(number):
                writes += _remove(nodes, f"{layout.brokers}/{number}")
            case Complete():
                whole = True
            case Doubt():
                whole = False
            case NameCluster():
                pass
    root = nodes[layout.topics]
    if (ended or whole is not None) and root.stat is not None:
        before = decode_root(root.data)
        after = MirrorRoot(before.whole if whole is None else whole, over_with(before.over, ended))
        writes.insert(0, SetNode(layout.topics, encode_root(after), root.stat.version))
    return writes


def _put(nodes: Mapping[str, Node], path: str, data: bytes) -> list[Write]:
    node = nodes.get(path)
    if node is None or node.stat is None:
        return [CreateNode(path, data)]
    return [] if node.data == data else [SetNode(path, data, node.stat.version)]


def _remove(nodes: Mapping[str, Node], path: str) -> list[Write]:
    node = nodes.get(path)
    return [] if node is None or node.stat is None else [DeleteNode(path, node.stat.version)]
