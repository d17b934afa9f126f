"""The layout legacy with real programs: from a deployment of old consumers to zkcoord, and out of the tree again."""

from __future__ import annotations

import pytest
from click.testing import CliRunner, Result

from tests.integration.world import World, named
from tests.waiting import wait_until
from zkcoord import Coordinator, SchemaError
from zkcoord.cli.main import cli
from zkcoord.operating.releasing import below

pytestmark = pytest.mark.zookeeper

TOLD = ("--offsets", "zookeeper", "--strategy", "range", "--kafka", "1.1")


def run(world: World, *arguments: str) -> Result:
    """Run the command line in this process."""
    return CliRunner().invoke(cli, [*arguments, "--zookeeper", world.zookeeper], prog_name="zkcoord")


def test_a_group_of_old_consumers_is_adopted_served_released_and_zkcoord_uninstalled(chroot: str) -> None:
    with World(chroot) as world:
        world.topic("t", 2)
        world.topic("u", 1)  # only ours reads it
        world.put("/brokers/ids")
        for path in ("ids", "owners/t", "offsets/t"):
            world.put(f"/consumers/g/{path}")
        world.put("/consumers/g/offsets/t/0", b"5")
        theirs = everything(world, "/consumers")
        with pytest.raises(SchemaError, match="set up the layout that stands beside them, --layout legacy"):
            Coordinator(chroot).run()

        coordinator = world.coordinate("legacy")
        member = world.join("g", "t", "u")
        wait_until(lambda: bool(world.reports.of("waiting")), "it waits for the adoption")
        assert "zkcoord group adopt g" in world.reports.of("waiting")[0]["why"]
        assert everything(world, "/consumers") == theirs

        assert run(world, "group", "adopt", "g", *TOLD).exit_code == 0
        wait_until(lambda: member.held() == [*named("t", 0, 1), *named("u", 0)], "it reads all")
        assert {str(partition): offset for partition, offset in member.begun.items()} == {"t-0": 5, "t-1": 0, "u-0": 0}
        assert world.children("/zkcoord/channels/g") == [member.consumer.consumer_id]
        stays = {f"/consumers/g/{path}" for path in ("owners/u", "offsets/u", "offsets/t/1", "offsets/u/0")}
        assert everything(world, "/consumers").keys() - theirs.keys() - stays == {
            f"/consumers/g/{path}"
            for path in (f"ids/{member.consumer.consumer_id}", "owners/t/0", "owners/t/1", "owners/u/0")
        }
        refused = run(world, "group", "release", "g")
        assert (refused.exit_code, str(member.consumer.consumer_id) in refused.stderr) == (2, True)
        assert "coordinator 0" in run(world, "uninstall").stderr

        member.consumer.stop()
        assert run(world, "group", "release", "g", "--wait").exit_code == 0
        assert (world.children("/zkcoord/groups"), world.children("/zkcoord/channels")) == ([], [])
        left = {path: b"0" if path.endswith(("1", "0")) else b"" for path in stays}  # as an old member leaves it
        assert everything(world, "/consumers") == {**theirs, **left}
        coordinator.stop()
        removed = run(world, "uninstall")
        assert removed.exit_code == 0, removed.stderr
        assert everything(world, "/zkcoord") == {}
        assert everything(world, "/consumers") == {**theirs, **left}


def everything(world: World, path: str) -> dict[str, bytes]:
    """All nodes at and below a path."""
    return {each: world.data(each) for each, _ in below(world.tree, [path])}
