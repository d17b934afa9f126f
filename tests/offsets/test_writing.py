"""The transactions by which a tool writes offsets. No server."""

from __future__ import annotations

import pytest

from tests.legacy.test_walk import Deployment
from tests.migrate.memory_tree import MemoryTree
from zkcoord.core.model import TopicPartition
from zkcoord.core.moved import Moved, MoveState
from zkcoord.core.record import GroupRecord
from zkcoord.offsets.writing import RecordChangedError, write_offsets
from zkcoord.shell.ports import CommitDone, Outcome
from zkcoord.tree.paths import DRAFT, LEGACY, Layout
from zkcoord.tree.record import encode_record
from zkcoord.tree.writes import CheckNode, CreateNode, SetNode, Transaction

P0, P1 = TopicPartition("t", 0), TopicPartition("u", 0)


class Recorder(Deployment):
    """Carries out transactions, and keeps them."""

    def __init__(self, nodes: dict[str, str]) -> None:
        super().__init__(nodes)
        self.sent: list[Transaction] = []

    def commit(self, transaction: Transaction) -> CommitDone:
        self.sent.append(transaction)
        for write in transaction.writes:
            if isinstance(write, CreateNode | SetNode):
                self.nodes[write.path] = write.data.decode()
        return CommitDone(0, Outcome.COMMITTED)

    def sync(self) -> None:
        """Do nothing, since no server is behind."""


class Losing(Recorder):
    """A tree in which the first `lost` transactions do not arrive, and are not answered."""

    def __init__(self, nodes: dict[str, str], lost: int) -> None:
        super().__init__(nodes)
        self._lost = lost

    def commit(self, transaction: Transaction) -> CommitDone:
        if len(self.sent) < self._lost:
            self.sent.append(transaction)
            return CommitDone(0, Outcome.UNKNOWN)
        return super().commit(transaction)


class Lagging(Recorder):
    """A tree read from a server that does not see the last writes of others until `sync`. Writes that were decided
    before are refused."""

    def __init__(self, nodes: dict[str, str], stale: dict[str, str]) -> None:
        super().__init__(nodes | stale)
        self._unseen = dict(nodes)

    def commit(self, transaction: Transaction) -> CommitDone:
        if not self._unseen:
            return super().commit(transaction)
        self.sent.append(transaction)
        return CommitDone(0, Outcome.REFUSED, reason="BadVersion", failed_at=0)

    def sync(self) -> None:
        self.nodes |= self._unseen
        self._unseen = {}


@pytest.mark.parametrize(("layout", "shared"), [(DRAFT, False), (LEGACY, True)])
def test_nodes_made_beside_old_consumers_are_open_to_them(layout: Layout, shared: bool) -> None:
    """With an ACL configured an old consumer could never commit to an offset that a tool has created."""
    tree = Recorder({layout.offset("g", P0): "7"})
    guard = CheckNode(layout.record("g"), 4)
    write_offsets(tree, layout, "g", {P0: 5, P1: 6}, guard=[guard], why="a test")
    assert [list(transaction.writes) for transaction in tree.sent] == [
        [CreateNode(layout.topic_offsets("g", "u"), shared=shared)],
        [guard, SetNode(layout.offset("g", P0), b"5", 0), CreateNode(layout.offset("g", P1), b"6", shared=shared)],
    ]


@pytest.mark.parametrize("store", ["dual", "kafka"])
def test_f28_an_offset_that_the_node_holds_already_is_written_once_more_where_kafka_may_count(store: str) -> None:
    """Only a write of the node ends the tenure in which Kafka's commit was made, which may have another offset."""
    path = DRAFT.offset("g", P0)
    record = encode_record(GroupRecord(store_name=store)).decode()
    guard = CheckNode(DRAFT.record("g"), 0)
    tree = Recorder({path: "5", DRAFT.record("g"): record})
    assert write_offsets(tree, DRAFT, "g", {P0: 5}, guard=[guard], why="a test") == []
    assert [list(transaction.writes) for transaction in tree.sent] == [[guard, SetNode(path, b"5", 0)]]
    plain = Recorder({path: "5", DRAFT.record("g"): "{}"})
    assert write_offsets(plain, DRAFT, "g", {P0: 5}, guard=[guard], why="a test") == []
    assert plain.sent == []


def test_f28_an_offset_that_the_node_holds_is_written_again_when_that_write_did_not_arrive() -> None:
    """Otherwise the tool would report success, and the commit in Kafka would still count."""
    record = encode_record(GroupRecord(store_name="kafka")).decode()
    tree = Losing({DRAFT.offset("g", P0): "5", DRAFT.record("g"): record}, lost=1)
    guard = CheckNode(DRAFT.record("g"), 0)
    write_offsets(tree, DRAFT, "g", {P0: 5}, guard=[guard], why="a test")
    assert [list(transaction.writes) for transaction in tree.sent] == [
        [guard, SetNode(DRAFT.offset("g", P0), b"5", 0)]
    ] * 2


def test_a_refused_write_is_decided_again_from_what_the_server_reads_once_it_has_caught_up() -> None:
    """Until then the server shows the old node. Writes with its version would be refused again and again."""
    tree = Lagging({DRAFT.offset("g", P0): "7"}, stale={DRAFT.offset("g", P0): "6"})
    write_offsets(tree, DRAFT, "g", {P0: 8}, guard=(), why="a test")
    assert (len(tree.sent), tree.nodes[DRAFT.offset("g", P0)]) == (2, "8")


def test_f278_a_record_made_during_the_writing_is_told_unless_it_is_empty() -> None:
    """Only a new record shows that a group without a record was moved to another tree meanwhile. An empty record is
    made by a coordinator that has seen the group."""
    tree = MemoryTree()
    assert [change.after for change in write_offsets(tree, DRAFT, "g", {P0: 5}, guard=(), why="a test")] == [5]
    path, leaving = DRAFT.record("g"), Moved(state=MoveState.LEAVING, tree="bb", address="zk-bb:2181", run="r")
    tree.meanwhile = lambda _: tree.set(path, b"")
    assert [change.after for change in write_offsets(tree, DRAFT, "g", {P0: 6}, guard=(), why="a test")] == [6]
    tree.meanwhile = lambda _: tree.set(path, encode_record(GroupRecord(moved=leaving)))
    with pytest.raises(RecordChangedError, match=r"group g: somebody made its record \(.*/g\) meanwhile: look there"):
        write_offsets(tree, DRAFT, "g", {P0: 7}, guard=(), why="a test")


def test_a_change_whose_answer_was_lost_is_told_though_it_is_written_once_more() -> None:
    tree = MemoryTree()
    record = encode_record(GroupRecord(store_name="dual"))
    for path in ("/consumers/groups/g/offsets/t", DRAFT.record("g")):
        for end in range(1, path.count("/") + 1):
            tree.nodes.setdefault("/".join(path.split("/")[: end + 1]), (b"", 0))
    tree.set(DRAFT.record("g"), record)
    tree.set(DRAFT.offset("g", P0), b"4")
    tree.fault = lambda n: "after" if n == 0 else ""
    guard = [CheckNode(DRAFT.record("g"), tree.nodes[DRAFT.record("g")][1])]
    done = write_offsets(tree, DRAFT, "g", {P0: 7}, guard=guard, why="a test")
    assert [(change.partition, change.before, change.after) for change in done] == [(P0, 4, 7)]
    assert len(tree.commits) == 2
