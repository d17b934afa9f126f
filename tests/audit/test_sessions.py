"""An audit that goes on outlives its session, on a real ZooKeeper that ends it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import nullcontext
from importlib import import_module
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.cli.group_tree import P1, World
from tests.cli.program import Run
from tests.waiting import PATIENCE_SECONDS, wait_until
from zkcoord.audit.checks import Suspicion
from zkcoord.cli.audit import FOUND
from zkcoord.cli.options import Settings
from zkcoord.errors import UnavailableError
from zkcoord.shell.zk.blocking import Tree
from zkcoord.tree.paths import DRAFT

pytestmark = pytest.mark.zookeeper
audit = import_module("zkcoord.cli.audit")  # the command of this name hides it


@pytest.fixture
def world(chroot: str) -> Iterator[World]:
    with Tree(chroot) as tree:
        yield World(tree, chroot)


def expire(tree: Tree, address: str) -> None:
    """End the tree's session at the server, as when it has expired."""
    other = KazooClient(address, client_id=tree._store.session.client_id)
    other.start(timeout=PATIENCE_SECONDS)
    other.stop()
    other.close()

    def over() -> bool:
        try:
            tree.sync()
        except UnavailableError as error:
            return "session is over" in str(error)
        return False

    wait_until(over, "the program knows that its session is over")


def test_f188_an_audit_whose_session_has_expired_reads_on_in_another_one(
    world: World, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.settle()
    world.put(DRAFT.coordinator, b"1")
    trees: list[Tree] = []
    asked, open_tree, told = threading.Event(), Settings.tree, audit._tell

    def opened(settings: Settings) -> Tree:
        trees.append(open_tree(settings))
        return trees[-1]

    def until_found(finding: Suspicion, **how: Any) -> None:
        told(finding, **how)
        if finding.check == "dead-owner":
            asked.set()

    def expire_and_plant() -> None:
        try:
            wait_until(lambda: trees and trees[0].session_id, "it reads")
            expire(trees[0], world.address)
            world.put(DRAFT.owner("g", P1), b"g_gone-1-cccccccc-0")
            assert asked.wait(PATIENCE_SECONDS)
        finally:
            asked.set()

    monkeypatch.setattr(Settings, "tree", opened)
    monkeypatch.setattr(audit, "stopping", lambda: nullcontext(asked))
    monkeypatch.setattr(audit, "_tell", until_found)
    thread = threading.Thread(target=expire_and_plant)
    thread.start()
    short = ("--interval-ms", "100", "--patience-ms", "0")
    result = run("audit", "--zookeeper", world.address, *short)
    thread.join()

    assert "ERR dead-owner g clicks-1" in result.stdout
    assert (result.exit_code, len(trees) > 1) == (FOUND, True)
