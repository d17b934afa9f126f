"""The incarnation of a topic that the next start will name, computed from the nodes alone."""

from __future__ import annotations

import pytest

from zkcoord.incarnations import incarnations_in
from zkcoord.tree.paths import DRAFT, ROOT, SCHEMA, TOPICS
from zkcoord.tree.schema import Schema, encode_schema
from zkcoord.tree.snapshot import Kind, Node, Read, Stat
from zkcoord.tree.topic import Mark, encode_mark

TOPIC = b'{"version":3,"partitions":{"0":[1]}}'
WITH_ID = b'{"version":3,"topic_id":"new","partitions":{"0":[1]}}'
MARK = Mark(incarnation=4, topic_id=None, czxid=30, root_czxid=3)


def marked(mark: Mark, topic: bytes = TOPIC) -> dict[str, tuple[bytes, int]]:
    schema = encode_schema(Schema(revision="0001", layout="draft"))
    return {
        SCHEMA: (schema, 5),
        ROOT: (b"", 3),
        DRAFT.mark("g", "t"): (encode_mark(mark), 31),
        f"{TOPICS}/t": (topic, 30),
    }


def without(path: str) -> dict[str, tuple[bytes, int]]:
    return {each: known for each, known in marked(MARK).items() if each != path}


@pytest.mark.parametrize(
    ("nodes", "found"),
    [
        (marked(MARK), {"t": 4}),
        (marked(Mark(incarnation=4, topic_id=None, czxid=29, root_czxid=3)), {"t": 5}),
        (marked(Mark(incarnation=4, topic_id="old", czxid=30, root_czxid=3), WITH_ID), {"t": 5}),
        (marked(Mark(incarnation=4, topic_id="new", czxid=29, root_czxid=3), WITH_ID), {"t": 4}),
        (marked(Mark(incarnation=4, topic_id=None, czxid=29, root_czxid=2)), {"t": 4}),  # the tree was copied
        (without(f"{TOPICS}/t"), {}),
        (without(DRAFT.mark("g", "t")), {}),
        (without(SCHEMA), {}),
        (marked(MARK) | {DRAFT.mark("g", "t"): (b"{", 31)}, {}),
        (marked(MARK) | {DRAFT.mark("g", "t"): (b"", 31)}, {}),
        (marked(MARK, b"{"), {}),
    ],
)
def test_a_topics_incarnation_is_the_marks_or_the_next_one(
    nodes: dict[str, tuple[bytes, int]], found: dict[str, int]
) -> None:
    def read(reads: list[Read]) -> list[Node]:
        answers = []
        for each in reads:
            data, czxid = nodes.get(each.path, (b"", None))
            answers.append(Node(each.path, Kind.DATA, None if czxid is None else Stat(0, czxid, 0), data))
        return answers

    assert incarnations_in(read, "g", ["t"]) == found  # type: ignore[arg-type]
