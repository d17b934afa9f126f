"""The page on a real ZooKeeper: a tree made by hand, and what asks the page, by Starlette's test client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from starlette.testclient import TestClient

from tests.cli.group_tree import World
from zkcoord.page.reading import Reader
from zkcoord.page.serve import Served, app_of
from zkcoord.shell.zk.blocking import Tree

ADDRESS = "http://127.0.0.1:8080"
TOKEN = "a-token-of-a-test"

Open = Callable[..., TestClient]


@pytest.fixture
def world(chroot: str) -> Iterator[World]:
    """A tree that the test writes."""
    with Tree(chroot) as tree:
        yield World(tree, chroot)


@pytest.fixture
def open_page(chroot: str) -> Iterator[Open]:
    """Gives a client of a page of this chroot, after its first reading; arguments are fields of `Served`."""
    with ExitStack() as stack:

        def opened(base: str = ADDRESS, interval_ms: int = 3_600_000, **fields: object) -> TestClient:
            served = Served(address=chroot, open_tree=lambda: Tree(chroot), **{"kafka": None, **fields})  # type: ignore[arg-type]
            client = None if served.kafka is None else stack.enter_context(served.kafka())
            reader = Reader(
                served.open_tree, chroot, client=client, timelines=served.timelines, interval_ms=interval_ms
            )
            stack.callback(reader.stop)
            reader.start()
            assert reader.first.wait(120)
            client = stack.enter_context(TestClient(app_of(served, reader), base_url=base))
            client.reader = reader  # type: ignore[attr-defined]
            return client

        yield opened
