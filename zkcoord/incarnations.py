"""Reads which cluster a tree's topics are of, and each topic's incarnation. A program needs both if it repeats planned
work before it is a member."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from zkcoord.core.view import TopicChange
from zkcoord.errors import CorruptError
from zkcoord.shell.zk.blocking import Tree
from zkcoord.shell.zk.config import ZooKeeperConfig
from zkcoord.tree.brokers_move import cluster_of
from zkcoord.tree.paths import CLUSTER_ID, ROOT, SCHEMA
from zkcoord.tree.schema import decode_schema
from zkcoord.tree.snapshot import Node, Read
from zkcoord.tree.topic import MIRRORED_CZXID, Mark, MarkSeen, change_of, decode_mark, topic_of

Reads = Callable[[Sequence[Read]], Sequence[Node]]


def incarnations(
    zookeeper: str, group: str, topics: Collection[str], config: ZooKeeperConfig | None = None
) -> dict[str, int]:
    """Return the number of each topic's incarnation in the group, as the next start will tell it.

    A topic is left out if it does not exist, or if the group has no readable mark of it. Raises UnavailableError when
    ZooKeeper does not answer, and UsageError for an invalid address.
    """
    with Tree(zookeeper, config=config) as tree:
        return incarnations_in(tree.read, group, topics)


def cluster_id(zookeeper: str, config: ZooKeeperConfig | None = None) -> str | None:
    """Return the id of the cluster whose topics the tree has; None: the tree names none.

    Raises UnavailableError when ZooKeeper does not answer, and UsageError for an invalid address.
    """
    with Tree(zookeeper, config=config) as tree:
        return cluster_id_in(tree.read)


def cluster_id_in(read: Reads) -> str | None:
    """Do as `cluster_id` does, with the nodes that `read` returns."""
    schema, own = read([Read(SCHEMA), Read(CLUSTER_ID)])
    return cluster_of(decode_schema(schema.data) if schema.exists else None, own)


def incarnations_in(read: Reads, group: str, topics: Collection[str]) -> dict[str, int]:
    """Do as `incarnations` does, with the nodes that `read` returns."""
    named = sorted(topics)
    schema, root = read([Read(SCHEMA), Read(ROOT)])
    if not schema.exists or root.stat is None:
        return {}
    layout = decode_schema(schema.data).place
    marks = read([Read(layout.mark(group, topic)) for topic in named])
    nodes = read([Read(layout.topic(topic)) for topic in named])
    found = {}
    for topic, seen, node in zip(named, marks, nodes, strict=True):
        number = _number(topic, seen, node, root.stat.czxid, mirrored=layout.mirrored)
        if number:
            found[topic] = number
    return found


def _number(topic: str, seen: Node, node: Node, root_czxid: int, *, mirrored: bool) -> int:
    """Return the number in the mark, or the next number if the topic was created again since. 0: not known."""
    if seen.stat is None or node.stat is None:
        return 0
    try:
        mark = decode_mark(seen.data)
        topic_id = topic_of(topic, node.data).topic_id
    except CorruptError:  # the coordinator reports it, with who must repair it
        return 0
    if mark is None:
        return 0
    czxid = MIRRORED_CZXID if mirrored else node.stat.czxid
    present = Mark(incarnation=1, topic_id=topic_id, czxid=czxid, root_czxid=root_czxid)
    again = change_of(MarkSeen(mark, seen.stat.version), present) is TopicChange.RECREATED
    return mark.incarnation + again
