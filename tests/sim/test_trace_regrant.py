"""A release whose outcome is unknown is not done again to the next grant, whose owner node may be another by then."""

from __future__ import annotations

from tests.sim import faults
from tests.sim.actors import GROUP
from tests.sim.field import START
from tests.sim.script import QUIET, Script, on_seeds, releases
from zkcoord.core.model import TopicPartition
from zkcoord.tree.paths import DRAFT


@on_seeds(4)
def test_a_partition_that_was_granted_again_after_an_unknown_release_is_not_released_again(seed: int) -> None:
    """The topic is created again with fewer partitions, and grows: so the owner's node is another one, at the same
    version, and names the same consumer."""
    script = Script(seed, QUIET, consumers=1, coordinators=1, topics={"t": 2})
    script.settle()
    world, process, member = script.world, script.process("consumer0"), script.member("consumer0")
    last = TopicPartition("t", 1)
    world.strike("consumer0", releases, "reply_lost")
    script.delete_topic("t")
    script.create_topic("t", 1)
    world.run_until(lambda: world.struck and process.stores[-1].wire is None, what="the reply is lost")
    faults.cut(world, process)
    path = DRAFT.owner(GROUP, last)
    world.run_until(lambda: world.ensemble.stat(path) is None, what="its owner's node goes")
    script.grow("t", 2)
    world.run_until(lambda: bool(world.ensemble.data(path)), what="it is granted again")
    granted = script.field.commands[GROUP, member].values()
    assert [c.option for c in granted if last in (c.partitions or ())] == [START]
    faults.uncut(world, process)
    script.settle("it reads the new topic")
    assert script.member("consumer0") == member
    world.run_for(5_000)
    script.calm()
