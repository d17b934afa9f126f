"""A group's mode over time, from registrations as they are read."""

from __future__ import annotations

import pickle
from dataclasses import replace

from tests.legacy.groups import static, wildcard
from tests.legacy.test_modes import ADOPTED, NOW, OLD, OURS, POKE, ours
from zkcoord.core.mode import GroupMode, Mode
from zkcoord.legacy.mode_watch import ModeWatch
from zkcoord.legacy.modes import GRACE_MS
from zkcoord.tree.known_topics import KnownTopics
from zkcoord.tree.paths import LEGACY
from zkcoord.tree.snapshot import Kind, Node, Stat

IDS = LEGACY.ids("g")


class Watched:
    """A watch of group g, whose topics nobody has read."""

    def __init__(self) -> None:
        self.watch, self.topics, self.czxid = ModeWatch("g"), KnownTopics(LEGACY), 0

    def lists(self, *names: str) -> None:
        """The list of members was read."""
        self._take(Node(IDS, Kind.CHILDREN, Stat(0, 1, 0), children=names))

    def reads(self, name: str, text: str | None) -> None:
        """A registration was read. None: it does not exist."""
        self.czxid += 1
        path = f"{IDS}/{name}"
        stat = Stat(0, self.czxid, 1)
        self._take(Node(path, Kind.DATA, None) if text is None else Node(path, Kind.DATA, stat, text.encode()))

    def _take(self, node: Node) -> None:
        address = LEGACY.parse(node.path)
        assert address is not None
        self.watch.take(address, node)

    def found(self, now_ms: int = NOW) -> GroupMode:
        """The group's mode, with its reason and plan."""
        return self.watch.mode(ADOPTED, self.topics, now_ms, left=False)

    def mode(self, now_ms: int = NOW) -> Mode:
        """The group's mode."""
        return self.found(now_ms).mode


def test_a_member_whose_registration_was_read_as_gone_counts_no_more_though_the_list_still_names_it() -> None:
    group = Watched()
    group.lists(OURS, OLD)
    group.reads(OURS, ours(t=1))
    group.reads(OLD, static(t=1))
    assert group.mode() is Mode.MIXED
    group.reads(OLD, None)
    assert group.mode() is Mode.COORDINATED


def test_nothing_is_kept_of_members_that_are_gone() -> None:
    group, sizes = Watched(), list[int]()
    for number in range(30):
        name = f"{OLD[:-2]}{number + 10}"
        group.lists(name)
        group.reads(name, static(t=1))
        group.mode()
        group.lists()
        group.mode()
        sizes.append(len(pickle.dumps(group.watch)))
    assert sizes[-1] == sizes[1]


def test_a_registration_that_is_made_again_has_its_whole_grace_again() -> None:
    group = Watched()
    for began_ms in (NOW, NOW + GRACE_MS):
        group.lists(OLD)
        group.reads(OLD, "")
        assert group.mode(began_ms) is Mode.MIXED
        assert group.mode(began_ms + GRACE_MS - 1) is Mode.MIXED
        assert group.mode(began_ms + GRACE_MS) is Mode.OBSERVE
        group.lists()
        assert group.mode(began_ms + GRACE_MS) is Mode.COORDINATED


def test_a_registration_that_was_made_again_between_two_looks_has_its_whole_grace_again() -> None:
    group = Watched()
    group.lists(OLD)
    group.reads(OLD, "")
    assert group.mode() is Mode.MIXED
    group.reads(OLD, "")  # another node: it has another czxid
    assert group.mode(NOW + GRACE_MS) is Mode.MIXED
    assert group.mode(NOW + 2 * GRACE_MS) is Mode.OBSERVE


def test_nothing_is_kept_of_members_that_came_and_went_between_two_looks() -> None:
    group, sizes = Watched(), list[int]()
    for number in range(30):
        group.reads(f"{OLD[:-2]}{number + 10}", "")
        group.lists()
        group.mode()
        sizes.append(len(pickle.dumps(group.watch)))
    assert sizes[-1] == sizes[1]


def test_a_member_whose_registration_says_later_that_it_is_a_poke_is_none_any_more() -> None:
    group = Watched()
    group.reads(POKE, static(t=1))
    assert group.mode() is Mode.MIXED
    group.reads(POKE, static())
    assert group.mode() is Mode.COORDINATED


def test_a_mode_that_is_computed_again_and_equal_is_the_same_object() -> None:
    """Whoever has made something of it makes it again only for another object."""
    group = Watched()
    group.reads(OLD, static(t=1))
    first = group.found()
    group.reads(POKE, static())
    assert group.found() is first


def test_no_topic_is_wanted_for_a_plan_while_all_members_are_ours() -> None:
    group = Watched()
    group.reads(OURS, ours(t=1))
    assert group.watch.topics(ADOPTED, {"t", "u"}) == frozenset()
    group.reads(OLD, static(u=1))
    assert group.watch.topics(ADOPTED, {"t", "u"}) == {"t", "u"}


def test_an_internal_topic_that_a_wildcard_takes_has_the_group_observed_though_nobody_can_read_its_node() -> None:
    group = Watched()
    group.topics.listed = frozenset({"t", "__transaction_state"})
    group.reads(OLD, wildcard("_.*"))
    assert group.mode() is Mode.MIXED
    told = replace(ADOPTED, exclude_internal=False)
    assert group.watch.mode(told, group.topics, NOW, left=False).mode is Mode.OBSERVE
