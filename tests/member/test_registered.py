"""One registration's end: nothing that waits for it waits on."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from zkcoord.core.member.requests import AnnounceRequest, CommitRequest
from zkcoord.core.model import TopicPartition
from zkcoord.errors import FencedError
from zkcoord.member.calls import Calls
from zkcoord.member.registered import Registered
from zkcoord.shell.tracker import Tracker
from zkcoord.tree.member import MemberPaths
from zkcoord.tree.paths import DRAFT

T0 = TopicPartition("t", 0)


class _Callbacks:
    def call(self, token: int, name: str, argument: Any) -> None:
        raise AssertionError(f"{name} of an application that reads nothing")


def test_commits_and_announcements_that_wait_end_as_fenced_with_their_registration() -> None:
    """A later registration must not carry them out: the partitions may have had other readers in between."""
    loop: Any = SimpleNamespace(tracker=Tracker())
    paths = MemberPaths(layout=DRAFT, group="g", consumer_id="g_me-1-00000000")
    registered = Registered(loop, paths, Calls(_Callbacks()), lambda name, fields: None, 0)
    futures: list[Future[None]] = [Future(), Future()]
    registered.ask(CommitRequest({T0: 7}, {T0: 1}), futures[0])
    registered.ask(AnnounceRequest({T0: (5, 7)}, {T0: 1}), futures[1])
    registered.lost("its node is gone")
    for future in futures:
        with pytest.raises(FencedError, match="g_me-1-00000000 lost its registration: its node is gone"):
            future.result(timeout=0)
