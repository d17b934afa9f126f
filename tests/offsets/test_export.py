"""The export of a large deployment: its memory does not grow with the number of groups. No server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from tests.legacy.test_walk import Deployment
from zkcoord.core.model import TopicPartition
from zkcoord.errors import CorruptError
from zkcoord.offsets.export import export
from zkcoord.offsets.lines import Exported
from zkcoord.tree.bulk import NODES_AT_ONCE
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.snapshot import Kind, Node, Read, Stat

PARTITIONS = 10_000
NAMES = tuple(map(str, range(PARTITIONS)))
STAT = Stat(0, 1, 0)


class Endless:
    """Groups that have one topic of many partitions each, and are made when they are read."""

    def __init__(self) -> None:
        self.nodes = 0
        self.largest = 0

    def read(self, reads: Sequence[Read]) -> tuple[Node, ...]:
        self.largest = max(self.largest, len(reads))
        return tuple(self._answers(reads))

    def _answers(self, reads: Sequence[Read]) -> Iterator[Node]:
        for path, kind, _ in reads:
            if kind is Kind.CHILDREN:
                yield Node(path, kind, STAT, children=NAMES if path.endswith("/t") else ("t",))
            else:
                self.nodes += 1
                yield Node(path, kind, STAT, b"7")


def test_of_a_large_deployment_only_one_part_is_read_ahead() -> None:
    tree = Endless()
    found = export(tree.read, DRAFT, [f"g{number:02}" for number in range(100)])
    assert next(found) == Exported("g00", TopicPartition("t", 0), 7)
    assert (tree.nodes, tree.largest) == (NODES_AT_ONCE, NODES_AT_ONCE)
    assert sum(1 for _ in islice(found, 3 * PARTITIONS)) == 3 * PARTITIONS
    assert tree.nodes == 4 * NODES_AT_ONCE


def test_an_export_is_ordered_and_names_what_holds_no_offset() -> None:
    tree = Deployment(
        {
            DRAFT.offset("g", TopicPartition("t", 10)): "10",
            DRAFT.offset("g", TopicPartition("t", 9)): "9\n",
            DRAFT.offset("g", TopicPartition("s", 0)): "many",
            DRAFT.offset("g", TopicPartition("s", 1)): "-1",
            DRAFT.offset("f", TopicPartition("t", 0)): "1",
            f"{DRAFT.topic_offsets('f', 't')}/x": "1",
        }
    )
    found = [str(each) if isinstance(each, CorruptError) else each for each in export(tree.read, DRAFT, ["f", "g"])]
    assert found == [
        Exported("f", TopicPartition("t", 0), 1),
        "/consumers/groups/g/offsets/s/0: bad offset 'many': not a number; an operator must set it to a number",
        Exported("g", TopicPartition("t", 9), 9),
        Exported("g", TopicPartition("t", 10), 10),
    ]
