"""How a consumer becomes a member: what it does from the nodes that it has read."""

from __future__ import annotations

from zkcoord.member.joining import Joining
from zkcoord.shell.tracker import Tracker
from zkcoord.tree.member import MemberPaths
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.snapshot import Node, Stat

MINE, OTHERS = 7, 8  # sessions


def test_a_name_that_another_session_has_registered_is_spent() -> None:
    """Its registration would be refused for ever."""
    for session, owns in ((MINE, True), (OTHERS, False)):
        tracker = Tracker()
        paths = MemberPaths(layout=DRAFT, group="g", consumer_id="g_me-1-00000000")
        joining = Joining(paths, MINE, b"{}", tracker)
        assert joining.next_transaction(b"") is None
        nodes = [
            Node(read.path, read.kind, Stat(0, 1, session if read.path == paths.registration else 0))
            for read in tracker.take(1)
        ]
        assert not joining.spent
        for node in tracker.answered(1, nodes):
            joining.take(node)
        assert joining.registered() is owns
        assert joining.spent
