"""A topic is dropped in pieces of bounded size. Each piece checks the mark, and the last one changes it."""

from __future__ import annotations

from dataclasses import replace

from zkcoord.core.decisions import DropTopic
from zkcoord.core.model import TopicPartition
from zkcoord.core.view import GroupView, Leftovers, OffsetSeen, Owner
from zkcoord.tree.drop import drop_topic
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.topic import Mark, MarkSeen, encode_mark
from zkcoord.tree.view import GroupNodes
from zkcoord.tree.writes import ITEMS_MAX, CheckNode, DeleteNode, SetNode, Write

T0, T1, T2 = (TopicPartition("t", n) for n in range(3))
OLD = Mark(incarnation=4, topic_id=None, czxid=5, root_czxid=1)
NEW = Mark(incarnation=1, topic_id=None, czxid=9, root_czxid=1)
MARK = DRAFT.mark("g", "t")
OFFSETS = {T0: OffsetSeen("17", 3), T2: OffsetSeen("x", 0)}


def nodes(**fields: object) -> GroupNodes:
    """A group in which the topic t once had three partitions."""
    view = GroupView(
        group="g",
        owners={T0: Owner("dead-0", 2), T1: Owner("", 7), T2: Owner("", 1)},
        topics={"t": (0, 1)},
        leftovers={"t": Leftovers(offsets=OFFSETS, version=0)},
    )
    return GroupNodes(view=replace(view, **fields), marks={"t": MarkSeen(OLD, 6)})  # type: ignore[arg-type]


def drop(known: GroupNodes, *, again: bool) -> list[list[Write]]:
    """The pieces in which the topic is dropped."""
    offsets = known.view.leftovers["t"].offsets
    return list(
        drop_topic(DropTopic(topic="t", again=again, offsets=offsets, why="x"), known, known.view.owners, NEW, DRAFT)
    )


def test_a_topic_created_again_keeps_the_owners_of_its_partitions_and_is_marked_one_further() -> None:
    assert drop(nodes(), again=True) == [
        [
            SetNode(DRAFT.owner("g", T0), b"", 2),
            DeleteNode(DRAFT.owner("g", T2), 1),
            DeleteNode(DRAFT.offset("g", T0), 3),
            DeleteNode(DRAFT.offset("g", T2), 0),
            SetNode(MARK, encode_mark(replace(NEW, incarnation=5)), 6),
        ]
    ]


def test_a_deleted_topic_goes_with_all_its_nodes() -> None:
    assert drop(nodes(topics={}), again=False) == [
        [
            *(DeleteNode(DRAFT.owner("g", p), version) for p, version in ((T0, 2), (T1, 7), (T2, 1))),
            *(DeleteNode(DRAFT.offset("g", p), version) for p, version in ((T0, 3), (T2, 0))),
            DeleteNode(DRAFT.topic_offsets("g", "t"), 0),
            DeleteNode(MARK, 6),
        ]
    ]


def test_a_large_topic_goes_in_pieces_that_check_the_mark_until_the_last_moves_it() -> None:
    many = {TopicPartition("t", n): OffsetSeen("1", 0) for n in range(2 * ITEMS_MAX)}
    pieces = drop(nodes(owners={}, leftovers={"t": Leftovers(offsets=many, version=0)}), again=True)
    assert [len(piece) for piece in pieces] == [ITEMS_MAX + 1, ITEMS_MAX + 1]
    assert pieces[0][0] == CheckNode(MARK, 6)
    assert pieces[1][-1] == SetNode(MARK, encode_mark(replace(NEW, incarnation=5)), 6)
