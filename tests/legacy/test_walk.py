"""Hundreds of groups are read in few round trips, some groups at a time, whatever disappears or must not be read
meanwhile."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.legacy.groups import static
from zkcoord.errors import UsageError
from zkcoord.legacy.inventory import GroupNodes
from zkcoord.legacy.walk import GROUPS_AT_ONCE, group_names, read_cluster, read_groups
from zkcoord.tree.bulk import NODES_AT_ONCE
from zkcoord.tree.snapshot import Kind, Node, Read, Stat, parents


class Deployment:
    """Nodes in memory, and the sizes of the requests for them."""

    def __init__(self, nodes: dict[str, str]) -> None:
        self.nodes = {parent: "" for path in nodes for parent in parents(path)} | nodes
        self.asked: list[int] = []
        self.forbidden: set[str] = set()
        self.vanishing: set[str] = set()  # nodes that are listed, and gone when they are read

    def read(self, reads: Sequence[Read]) -> tuple[Node, ...]:
        """Answer reads as a Tree does."""
        self.asked.append(len(reads))
        return tuple(map(self._answer, reads))

    def _answer(self, read: Read) -> Node:
        if read.path in self.forbidden:
            raise UsageError(f"{read.path}: may not be read")
        if read.path not in self.nodes or (read.kind is Kind.DATA and read.path in self.vanishing):
            return Node(read.path, read.kind, None)
        if read.kind is Kind.DATA:
            return Node(read.path, read.kind, Stat(0, 1, 0, 5), self.nodes[read.path].encode())
        below = {path.rpartition("/") for path in self.nodes}
        children = tuple(sorted(name for parent, _, name in below if parent == read.path))
        return Node(read.path, read.kind, Stat(0, 1, 0), children=children)


def groups_of(count: int, owners: int = 1) -> Deployment:
    """This many groups. Each has one member that owns partitions of `t`."""
    nodes: dict[str, str] = {"/brokers/ids/0": "{}", "/brokers/topics/t": '{"partitions":{"0":[0]}}'}
    for number in range(count):
        above = f"/consumers/g{number:03}"
        nodes[f"{above}/ids/g{number:03}_a"] = static(t=1)
        nodes |= {f"{above}/owners/t/{n}": f"g{number:03}_a-0" for n in range(owners)}
        nodes |= {f"{above}/offsets/t/{n}": "7" for n in range(owners)}
    return Deployment(nodes)


def names_of(found: object) -> str:
    return found.group if isinstance(found, GroupNodes) else "?"


def test_a_batch_of_groups_costs_as_many_round_trips_as_one_group() -> None:
    one, many = groups_of(1), groups_of(GROUPS_AT_ONCE)
    for deployment in (one, many):
        names = group_names(deployment.read)
        deployment.asked.clear()
        assert [names_of(found) for found in read_groups(deployment.read, names)] == list(names)
    assert len(one.asked) == len(many.asked) == 8


def test_no_more_groups_are_read_ahead_than_a_batch() -> None:
    deployment = groups_of(3 * GROUPS_AT_ONCE)
    found = read_groups(deployment.read, group_names(deployment.read))
    next(found)
    asked = len(deployment.asked)
    for _ in range(GROUPS_AT_ONCE - 1):
        next(found)
    assert len(deployment.asked) == asked
    next(found)
    assert len(deployment.asked) == 2 * (asked - 1) + 1


def test_a_large_group_is_asked_for_in_parts() -> None:
    deployment = groups_of(1, owners=NODES_AT_ONCE + 1)
    (found,) = read_groups(deployment.read, ["g000"])
    assert isinstance(found, GroupNodes)
    assert len(found.owners["t"]) == len(found.offsets["t"]) == NODES_AT_ONCE + 1
    assert max(deployment.asked) == NODES_AT_ONCE


def test_vanished_nodes_are_left_out() -> None:
    deployment = groups_of(2, owners=2)
    deployment.vanishing = {"/consumers/g000", "/consumers/g001/ids/g001_a", "/consumers/g001/owners/t/1"}
    (found,) = read_groups(deployment.read, ["g000", "g001", "gone"])
    assert isinstance(found, GroupNodes)
    assert (found.group, dict(found.registrations), list(found.owners["t"])) == ("g001", {}, ["0"])


def test_a_group_that_may_not_be_read_hides_no_other() -> None:
    deployment = groups_of(3)
    deployment.forbidden = {"/consumers/g001/offsets/t/0"}
    found = list(read_groups(deployment.read, ["g000", "g001", "g002"]))
    assert [names_of(each) for each in found] == ["g000", "?", "g002"]
    assert found[1] == ("g001", "/consumers/g001/offsets/t/0: may not be read")


def test_topics_that_cannot_be_read_are_named() -> None:
    deployment = groups_of(0)
    deployment.nodes |= {"/brokers/topics/broken": "?", "/brokers/topics/two words": "{}"}
    cluster = read_cluster(deployment.read)
    assert (dict(cluster.topics), cluster.brokers) == ({"t": (0,)}, 1)
    assert list(cluster.unreadable) == ["broken", "two words"]


def test_a_topic_that_vanishes_while_it_is_read_is_none() -> None:
    deployment = groups_of(0)
    deployment.nodes |= {"/brokers/topics/gone": "{}"}
    deployment.vanishing = {"/brokers/topics/gone"}
    cluster = read_cluster(deployment.read)
    assert (dict(cluster.topics), dict(cluster.unreadable)) == ({"t": (0,)}, {})


def test_only_numbers_are_brokers() -> None:
    deployment = groups_of(0)
    deployment.nodes |= {"/brokers/ids/1": "{}", "/brokers/ids/x": "{}"}
    assert read_cluster(deployment.read).brokers == 2


FROM_KAFKA = '{"version":1,"revision":"0003","layout":"legacy","tree_id":"aa","topics":"kafka","cluster_id":"c"}'


def test_topics_and_brokers_are_those_that_the_tree_has_from_kafkas_metadata() -> None:
    deployment = groups_of(0)
    mirrored = {"/zkcoord/topics/u": '{"partitions":{"0":[0],"1":[0]}}', "/zkcoord/brokers/5": "{}"}
    deployment.nodes |= {"/zkcoord/schema": FROM_KAFKA, "/zkcoord/brokers/6": "{}", **mirrored}
    deployment.nodes = {parent: "" for path in deployment.nodes for parent in parents(path)} | deployment.nodes
    cluster = read_cluster(deployment.read)
    assert (dict(cluster.topics), cluster.brokers) == ({"u": (0, 1)}, 2)


@pytest.mark.parametrize(
    "schema", ["", "no JSON", '{"version":9,"layout":"of later"}', '{"version":1,"revision":"0009","layout":"round"}']
)
def test_beside_a_schema_that_nobody_can_read_old_consumers_are_seen_as_ever(schema: str) -> None:
    deployment = groups_of(2)
    deployment.nodes |= {"/zkcoord": "", "/zkcoord/schema": schema}
    assert group_names(deployment.read) == ("g000", "g001")
    assert dict(read_cluster(deployment.read).topics) == {"t": (0,)}


def test_a_deployment_without_groups_or_without_brokers_is_one() -> None:
    brokers, groups = groups_of(0), groups_of(1)
    groups.nodes = {path: text for path, text in groups.nodes.items() if not path.startswith("/brokers")}
    assert (group_names(brokers.read), group_names(groups.read)) == ((), ("g000",))
    with pytest.raises(UsageError, match="there is neither /consumers nor /brokers"):
        group_names(Deployment({}).read)


def test_an_old_group_may_be_called_like_a_node_of_the_layout_draft() -> None:
    deployment = groups_of(0)
    deployment.nodes |= {"/zkcoord": "", "/consumers": "", "/consumers/groups": "", "/consumers/g": ""}
    for layout, names in (("legacy", ("g", "groups")), ("draft", ("g",))):
        deployment.nodes["/zkcoord/schema"] = f'{{"version":1,"revision":"0003","layout":"{layout}"}}'
        assert group_names(deployment.read) == names
