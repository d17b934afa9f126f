"""Groups of old consumers that this program may not read (ACL), beside others; on a real ZooKeeper."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_digest_acl

from tests.cli.old_world import ETL, OldWorld
from tests.cli.program import PATIENCE_SECONDS, Run
from zkcoord.errors import UsageError
from zkcoord.migrate import upgrade
from zkcoord.operating.groups import reports_of
from zkcoord.shell.zk.blocking import Tree
from zkcoord.tree.paths import LEGACY

pytestmark = pytest.mark.zookeeper

SHUT = "/consumers/h/ids"


@pytest.fixture
def world(chroot: str) -> Iterator[OldWorld]:
    """Two groups of old consumers in a tree of the layout legacy; nobody else may read the second one's members."""
    keeper = KazooClient(hosts=chroot, auth_data=[("digest", "alice:secret")])
    keeper.start(timeout=PATIENCE_SECONDS)
    try:
        with Tree(chroot) as tree:
            made = OldWorld(tree, chroot)
            upgrade(tree, run_id="test", layout="legacy")
            made.groups({"g": ETL, "h": {"ids": {}, "offsets": {"views/0": "1"}}})
            keeper.set_acls(SHUT, [make_digest_acl("alice", "secret", all=True)])
            yield made
    finally:
        keeper.stop()
        keeper.close()


def test_f383_a_group_that_may_not_be_read_hides_no_other_one(world: OldWorld, run: Run) -> None:
    where = ("--zookeeper", world.address)
    assert run("group", "list", *where).stdout.split() == ["g", "h"]
    for command in (("group", "list", "--state"), ("group", "describe", "--all-groups"), ("topic", "list")):
        done = run(*command, "--output", "json", *where)
        assert done.exit_code == 0, done.stderr
        assert "group h cannot be read" in done.stderr
        assert done.stdout
    (state,) = [json.loads(line) for line in run("group", "list", "--output", "json", *where).stdout.splitlines()]
    assert state["group"] == "g"
    alone = run("group", "describe", "h", *where)
    assert (alone.exit_code, SHUT in alone.stderr) == (2, True)


def test_f383_an_uninstallation_and_a_wave_pass_it_over(world: OldWorld, run: Run) -> None:
    told = ("--offsets", "zookeeper", "--strategy", "range", "--kafka", "0.11", "--zookeeper", world.address)
    assert run("group", "adopt", "g", *told).exit_code == 0
    refused = run("group", "adopt", "h", *told)
    assert (refused.exit_code, "it cannot be read" in refused.stderr) == (2, True)
    done = run("uninstall", "--zookeeper", world.address)
    assert done.exit_code == 0, done.stderr


def test_a_group_that_is_gone_when_it_is_read_is_left_out_of_several(world: OldWorld) -> None:
    """It was deleted behind the list of groups, and no group was shown."""
    assert [report.view.group for report in reports_of(world.tree, LEGACY, ["g", "gone"])] == ["g"]
    with pytest.raises(UsageError, match="there is no group 'gone'"):
        reports_of(world.tree, LEGACY, ["gone"])
