"""Reads many nodes with few round trips: the lists of children, or the data of all children, of many parents at
once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from zkcoord.tree.snapshot import Kind, Node, Read

NODES_AT_ONCE = 10_000
"""Number of answers that are waited for together: a few MiB, which delay others at the server only briefly."""

Reading = Callable[[Sequence[Read]], tuple[Node, ...]]


def children(read: Reading, paths: Sequence[str]) -> list[Node]:
    """The lists of children of these nodes."""
    return _ask(read, [Read(path, Kind.CHILDREN) for path in paths])


def data(read: Reading, paths: Sequence[str]) -> list[Node]:
    """The data of these nodes."""
    return _ask(read, [Read(path) for path in paths])


def data_below(read: Reading, parents: Sequence[Node]) -> dict[str, dict[str, Node]]:
    """Parent -> name -> node, for the children that still exist."""
    paths = [f"{parent.path}/{name}" for parent in parents for name in parent.children]
    nodes = iter(data(read, paths))
    return {
        parent.path: {name: node for name, node in zip(parent.children, nodes, strict=False) if node.exists}
        for parent in parents
    }


def two_levels(read: Reading, parents: Sequence[Node]) -> dict[str, dict[str, dict[str, Node]]]:
    """Parent -> topic -> name -> node, for all nodes two levels below these parents."""
    topics = children(read, [f"{parent.path}/{topic}" for parent in parents for topic in parent.children])
    leaves = data_below(read, topics)
    return {parent.path: {topic: leaves[f"{parent.path}/{topic}"] for topic in parent.children} for parent in parents}


def _ask(read: Reading, reads: Sequence[Read]) -> list[Node]:
    return [node for n in range(0, len(reads), NODES_AT_ONCE) for node in read(reads[n : n + NODES_AT_ONCE])]
