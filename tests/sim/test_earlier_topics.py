"""F196: a tool sets offsets for a topic that was created again since its group read the earlier topic."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.sim.actors import GROUP
from tests.sim.script import Script, on_seeds
from tests.sim.store_tool import ToolTree
from zkcoord.core.model import TopicPartition
from zkcoord.errors import UsageError
from zkcoord.offsets.earlier_topics import refuse_earlier
from zkcoord.offsets.targets import Targets, Where
from zkcoord.offsets.writing import readers_of
from zkcoord.operating.importing import Import
from zkcoord.operating.resetting import Reset
from zkcoord.tree.paths import DRAFT

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
WANTED = {T0: 20, T1: 20}


def created_again(seed: int) -> Script:
    """A group whose members have left, and whose topic was created again since."""
    group = Script(seed, consumers=1, topics={"t": 2})
    group.settle()
    group.world.run_for(3_000)
    group.leave("consumer0")
    group.world.run_for(3_000)
    group.delete_topic("t")
    group.create_topic("t", 2)
    group.world.run_for(70_000)
    return group


def reset(group: Script) -> None:
    """Set offsets as `zkcoord group reset-offsets --to-offset` does."""
    tree = ToolTree(group.world.ensemble)
    how = {"compute": lambda: Targets(WANTED, []), "to_kafka": lambda _offsets: None, "goal": Where.OFFSET}
    Reset(tree=tree, layout=DRAFT, group=GROUP, **how).write(readers_of(tree.read, DRAFT, GROUP).guard)


def imported(group: Script) -> None:
    """Set offsets as `zkcoord offsets import` does."""
    Import(tree=ToolTree(group.world.ensemble), layout=DRAFT).write(GROUP, WANTED, None)


@pytest.mark.parametrize("sets", [reset, imported])
@on_seeds()
def test_f196_a_recreated_topics_offsets_are_set_once_the_earlier_ones_are_gone(
    seed: int, sets: Callable[[Script], None]
) -> None:
    """Offsets that were set before would be dropped with those of the earlier topic when a member joins, and the reset
    policy would decide."""
    group = created_again(seed)
    with pytest.raises(UsageError, match="topic t was deleted and created again since group g read it"):
        sets(group)
    group.request("pause")
    group.join("consumer1")
    group.world.run_until(lambda: group.incarnation("t") == 2, what="the earlier topic's offsets are dropped")
    sets(group)
    group.resume()
    began_ms = group.world.now_ms
    group.world.run_until(lambda: len(group.journal("start", since_ms=began_ms)) == 2, what="it reads")
    assert {entry.partition: entry.start for entry in group.journal("start", since_ms=began_ms)} == WANTED


def test_f196_nothing_is_refused_of_topics_that_stand_that_are_new_or_that_are_gone() -> None:
    group = Script(1, consumers=1, topics={"t": 2, "u": 1})
    group.settle()
    group.delete_topic("u")
    refuse_earlier(ToolTree(group.world.ensemble).read, DRAFT, GROUP, {"t", "u", "new"})
