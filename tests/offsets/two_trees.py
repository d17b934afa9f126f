"""Two trees in memory, with a group in the first one."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

from tests.migrate.memory_tree import MemoryTree
from zkcoord.core.adoption import Adoption
from zkcoord.core.model import TopicPartition
from zkcoord.core.moved import MoveState
from zkcoord.core.record import GroupRecord, Request
from zkcoord.core.state import GroupState
from zkcoord.core.tenure import KafkaCommit
from zkcoord.migrate import upgrade
from zkcoord.offsets.move import GroupMove, Moving
from zkcoord.offsets.side import Side
from zkcoord.tree.paths import DRAFT, Layout
from zkcoord.tree.record import encode_record
from zkcoord.tree.registration import MARKER, Registration, encode_registration
from zkcoord.tree.snapshot import parents
from zkcoord.tree.state import encode_state
from zkcoord.tree.topic import Mark, encode_mark

P0, P1, P2 = (TopicPartition("clicks", number) for number in range(3))
ADOPTED = Adoption(offsets="zookeeper", strategy="range", kafka="1.1")
RECORDS = {"draft": GroupRecord(assignor="range"), "legacy": GroupRecord(assignor="range", adoption=ADOPTED)}
OURS = encode_registration(
    Registration(
        subscription={"clicks": 1},
        timestamp="1",
        coordination=MARKER,
        assignors=("sticky",),
        rebalance_timeout_ms=60_000,
        session_timeout_ms=10_000,
    )
)
OLD = b'{"version":1,"subscription":{"clicks":1},"pattern":"static","timestamp":"1"}'
MARK = encode_mark(Mark(incarnation=3, topic_id=None, czxid=7, root_czxid=2))
LATER = encode_mark(Mark(incarnation=4, topic_id=None, czxid=1, root_czxid=1))
COPIED = encode_mark(Mark(incarnation=3, topic_id=None, czxid=0, root_czxid=0))


def put(tree: MemoryTree, nodes: Mapping[str, bytes]) -> None:
    for path, data in nodes.items():
        for above in parents(path):
            tree.nodes.setdefault(above, (b"", 0))
        tree.set(path, data)


def drop_offsets(tree: MemoryTree) -> None:
    """The topic was created again: the coordinator drops what the group has of the earlier one."""
    for partition in (P0, P1):
        tree.nodes.pop(DRAFT.offset("g", partition), None)
    put(tree, {DRAFT.mark("g", "clicks"): LATER})


@dataclass
class Pair:
    """Two trees; the first one has the group g."""

    source: Side
    target: Side
    commits: dict[TopicPartition, KafkaCommit]

    @classmethod
    def of(cls, source: Layout = DRAFT, target: Layout = DRAFT) -> Pair:
        sides = []
        for layout, tree_id in ((source, "aa"), (target, "bb")):
            tree = MemoryTree()
            upgrade(tree, run_id="test", layout=layout.name, tree_id=tree_id)
            put(tree, {"/brokers/topics/clicks": b'{"version":1,"partitions":{"0":[1],"1":[1],"2":[1]}}'})
            sides.append(Side(tree=tree, layout=layout, tree_id=tree_id, address=f"zk-{tree_id}:2181"))
        pair = cls(sides[0], sides[1], {})
        put(
            pair.memory(0),
            {
                source.record("g"): encode_record(RECORDS[source.name]),
                source.state("g"): encode_state(GroupState(generation=7)),
                source.instance("g", "i1"): b'{"last":"x"}',
                source.mark("g", "clicks"): MARK,
                source.offset("g", P0): b"100",
                source.offset("g", P1): b"7",
            },
        )
        for tree in (pair.memory(0), pair.memory(1)):
            tree.commits.clear()
        return pair

    def writes(self) -> int:
        """Return how many multis were sent."""
        return len(self.memory(0).commits) + len(self.memory(1).commits)

    def fault(self, at: int, fault: str) -> None:
        """Let the multi with this number fail, counted over both trees; later ones succeed."""
        number = itertools.count()
        for tree in (self.memory(0), self.memory(1)):
            tree.fault = lambda _: fault if next(number) == at else ""

    def memory(self, number: int) -> MemoryTree:
        tree = (self.source, self.target)[number].tree
        assert isinstance(tree, MemoryTree)
        return tree

    def move(self, run: str = "r1") -> GroupMove:
        return GroupMove(
            source=self.source,
            target=self.target,
            group="g",
            asked=Request(who="ann", when="now", run=run),
            commits=lambda _: self.commits,
        )

    def back(self) -> Pair:
        return Pair(self.target, self.source, self.commits)

    def records(self) -> tuple[GroupRecord | None, GroupRecord | None]:
        return self.source.record("g")[1], self.target.record("g")[1]

    def offsets(self, number: int) -> dict[str, bytes]:
        side = (self.source, self.target)[number]
        folder = side.layout.offsets("g") + "/clicks/"
        return {path[len(folder) :]: data for path, data in self.memory(number).data().items() if folder in path}

    def readable(self) -> list[bool]:
        """Return for each tree whether a consumer that joins there would be given a partition."""
        return [record is not None and record.moved is None for record in self.records()]


def whole(move: GroupMove) -> Moving:
    """Do what the command does for a group without members."""
    found = move.survey()
    if move.begin() is MoveState.GONE:
        move.open()
        return found
    assert move.stopped()
    return move.carry_out()
