"""What a coordinator follows of a group when all is at rest, and the view that it has made of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from tests.sim.options import seeds
from tests.sim.scenarios import announcing_storm, storm
from tests.sim.test_churn import life
from tests.sim.test_claims import claiming
from tests.sim.test_failures_tools import Tree
from tests.sim.test_mixed_storms import mixed_storm
from tests.sim.world import World
from zkcoord.core.ownership import claims_of_evicted
from zkcoord.core.replay import OpenRanges
from zkcoord.core.view import Channel, GroupView
from zkcoord.group_report import read_group
from zkcoord.serving.group_watch import GroupWatch
from zkcoord.serving.role import CoordinatorRole
from zkcoord.tree.paths import Place
from zkcoord.tree.reading import below, of_topic, roots
from zkcoord.tree.snapshot import Key, Kind, key_of

SEEDS = 10
PLAYS: dict[str, Callable[[int], World]] = {
    "storm": storm,
    "life": life,
    "ranges": lambda seed: announcing_storm(seed).world,
    "claims": lambda seed: claiming(seed).world,
    "beside old members": lambda seed: mixed_storm(seed).world,
}


def groups(world: World) -> Iterator[GroupWatch]:
    """The groups of the coordinator that serves."""
    for process in world.processes.values():
        role = getattr(getattr(process.actor, "loop", None), "role", None)
        if isinstance(role, CoordinatorRole) and role.term is not None:
            yield from role._groups.values()


def named(world: World, watch: GroupWatch) -> set[Key]:
    """All nodes that the tree names, from the group's roots and its members' topics down, the owners of existing
    partitions, and the offsets that tell whether an announced range counts or a claim may be deleted."""
    group, layout, view = watch.group, watch.layout, watch.nodes.view
    wants = [*roots(group, layout), *(want for topic in watch.needs.topics for want in of_topic(group, topic, layout))]
    found: set[Key] = set()
    while wants:
        path, kind, *_ = wants.pop()
        found.add(key_of(path, kind))
        address = layout.parse(path)
        if kind is Kind.CHILDREN and address is not None:
            wants += below(address, path, world.ensemble.names(path), layout)
    if layout.owners_below_marks:
        marked = [(topic, numbers) for topic, numbers in view.topics.items() if topic in view.marked]
        found |= {f"{layout.mark(group, topic)}/{number}" for topic, numbers in marked for number in numbers}
    asked = [OpenRanges().seen(view).found, *claims_of_evicted(view).values()]
    return found | {layout.offset(group, partition) for partitions in asked for partition in partitions}


def of_earlier_topics(wanted: set[Key], watch: GroupWatch) -> set[Key]:
    """Owners of partitions that a topic has no longer, since it was created again with fewer. Few are followed."""
    at = [(path, watch.layout.partition_at(path)) for path in wanted]
    owners = [(path, found[1]) for path, found in at if found is not None and found[0] is Place.OWNER]
    topics, known = watch.nodes.view.topics, watch.nodes.view.owners
    return {path for path, p in owners if p not in known and p.partition not in topics.get(p.topic, (p.partition,))}


def without_statuses(view: GroupView) -> GroupView:
    """The view without what only statuses tell, since nobody watches these."""
    channels = {
        consumer_id: Channel(consumer_id=consumer_id, version=0, czxid=each.czxid, commands=each.commands)
        for consumer_id, each in view.channels.items()
    }
    return replace(view, channels=channels)


@pytest.mark.parametrize("seed", seeds(SEEDS))
@pytest.mark.parametrize("play", PLAYS.values(), ids=PLAYS)
def test_at_rest_a_coordinator_follows_what_the_tree_names_and_sees_what_a_tool_sees(
    play: Callable[[int], World], seed: int
) -> None:
    world = play(seed)
    watched = list(groups(world))
    assert bool(watched) is (world.ensemble.stat(world.layout.coordinator) is not None)
    for watch in watched:
        wanted = {key for key, want in watch.tracker._wants.items() if want.scope == watch.group}
        assert wanted - of_earlier_topics(wanted, watch) == named(world, watch)
        seen = read_group(Tree(world.ensemble), watch.layout, watch.group).view
        assert without_statuses(watch.nodes.view) == without_statuses(seen)
