"""migrating.md from its first step to the last, and back, as it is printed but for addresses: real servers, a real old
consumer. (Its rehearsal has a test of its own.)"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cli.servers import Servers
from tests.integration.test_rehearsed import deployment, nodes, told
from tests.old_consumers.lab import V11, Lab
from tests.old_consumers.test_traffic import create
from tests.pages import shell_block
from tests.waiting import wait_until

pytestmark = [pytest.mark.zookeeper, pytest.mark.kafka, pytest.mark.legacy]


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Lab, Servers]]:
    """A group of one old consumer that owns both partitions, and what the pages' addresses stand for."""
    monkeypatch.chdir(tmp_path)
    with ExitStack() as stack:
        lab, kafka, servers = deployment(stack, tmp_path)
        create(lab, kafka, "clicks", 2)
        for number in ("0", "1"):
            lab.zk.create(lab.path("offsets", "clicks", number), b"0", makepath=True)
        lab.join("here", V11, "topics=clicks:1")
        lab.await_owners({"clicks-0": "etl_here-0", "clicks-1": "etl_here-0"})
        monkeypatch.setenv("ZKCOORD_ZOOKEEPER", servers.zookeeper)
        yield lab, servers


def test_a_group_is_adopted_and_given_back_as_it_is_printed(scene: tuple[Lab, Servers], tmp_path: Path) -> None:
    lab, servers = scene
    places, file = {"zk1:2181/kafka": servers.zookeeper}, tmp_path / "groups.toml"
    before = nodes(lab.zk, "/consumers")

    (see,) = shell_block("migrating.md", "1 See what there is")
    assert [line.split()[:2] for line in servers.play(see, places) if line.startswith("etl")] == [["etl", "old"]]
    (write,) = shell_block("migrating.md", "2 Add what the tree does not show")
    assert [write] == shell_block("commands.md", "The groups of a deployment")
    servers.play(write, places)
    assert [*tomllib.loads(file.read_text("utf-8"))["groups"]] == ["etl"]
    told(file)

    (coordinator,) = shell_block("migrating.md", "4 Set up the tree")
    serving = servers.begin(coordinator, places)
    wait_until(lambda: lab.zk.exists("/zkcoord/schema") is not None, "the tree is set up")
    (observed,) = shell_block("migrating.md", "4 Set up the tree", 2)
    assert "Observed" in servers.play(observed)[1].split()

    look, adopt = shell_block("migrating.md", "5 Adopt groups, in waves")
    assert servers.play(look)[1].split()[:2] == ["etl", "adopted"]
    assert lab.zk.exists("/zkcoord/groups/etl") is None, "the dry run has written nothing"
    assert servers.play(adopt)[1].split()[:2] == ["etl", "adopted"]
    assert servers.play(adopt)[1].split()[:2] == ["etl", "unchanged"]
    assert lab.zk.exists("/zkcoord/groups/etl") is not None

    (release,) = shell_block("migrating.md", "8 Go back")
    servers.play(release.replace(" G", " etl"))
    assert lab.zk.exists("/zkcoord/groups/etl") is None
    servers.end(serving)
    dry_run, uninstall = shell_block("migrating.md", "8 Go back", 2)
    servers.play(dry_run)
    assert lab.zk.exists("/zkcoord/schema") is not None
    servers.play(uninstall)
    assert lab.zk.exists("/zkcoord") is None
    assert nodes(lab.zk, "/consumers") == before
    lab.await_owners({"clicks-0": "etl_here-0", "clicks-1": "etl_here-0"})
