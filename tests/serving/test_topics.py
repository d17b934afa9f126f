"""The topics that groups name, and those that only a wildcard matches."""

from __future__ import annotations

from typing import cast

from zkcoord.core.view import Wildcard
from zkcoord.serving.topics import TopicTable
from zkcoord.shell.tracker import Tracker
from zkcoord.tree.paths import layout_named
from zkcoord.tree.snapshot import Kind, Node, Stat

LAYOUT = layout_named("draft", "kafka")


class Still:
    """A tracker that never reads anything."""

    def want(self, *_: object, **__: object) -> None: ...
    def unwant(self, *_: object) -> None: ...


def test_topics_that_only_a_wildcard_takes_are_not_named() -> None:
    table = TopicTable(cast("Tracker", Still()), LAYOUT, lambda _path, _why: None, lambda _path: False)
    names = ("clicks", "clicks-eu", "views")
    table.read(Node(LAYOUT.topics, Kind.CHILDREN, Stat(version=0, czxid=1, ephemeral_owner=0), children=names))
    assert table.named == frozenset()
    table.use("a", frozenset())
    table.want("a", frozenset({"views", "later"}))
    assert table.named == {"views", "later"}
    all_clicks = frozenset({Wildcard(regex="clicks.*", black_list=False, threads=1)})
    table.use("b", all_clicks)
    table.want("b", frozenset({"clicks", "clicks-eu"}))
    assert table.named == {"views", "later"}
    table.want("a", frozenset({"clicks"}))  # by name, though the other group's wildcard matches it, too
    assert table.named == {"clicks"}
    table.forget("a")
    assert table.named == frozenset()
