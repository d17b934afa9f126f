"""A group's view, with the data of topics, brokers and coordinators."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from zkcoord.core.mode import GroupMode, Mode
from zkcoord.core.model import TopicPartition
from zkcoord.core.state import Announced
from zkcoord.core.view import (
    START,
    Channel,
    GroupView,
    Instance,
    Member,
    OffsetSeen,
    Owner,
    QueuedCommand,
    TopicChange,
    Wildcard,
)
from zkcoord.tree.known_topics import KnownTopics
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.snapshot import Kind, Node, Stat
from zkcoord.tree.topic import Mark, MarkSeen
from zkcoord.tree.view import GroupNodes
from zkcoord.tree.whole_view import NO_INPUTS, Environment, Needs, expanded, needs, needs_of, view_of

T = frozenset({"t"})
MARK = Mark(incarnation=3, topic_id=None, czxid=7, root_czxid=2)
NODES = GroupNodes(view=GroupView(group="g"), marks={"t": MarkSeen(MARK, 0)})


def topics(*, czxid: int = 7, listed: frozenset[str] | None = T, exists: bool = True) -> KnownTopics:
    """The topic t with two partitions, both with a replica on broker 1."""
    known = KnownTopics(DRAFT)
    known.listed = listed
    data = json.dumps({"version": 1, "partitions": {"0": [1], "1": [1]}}).encode()
    known.take(Node("/brokers/topics/t", Kind.DATA, Stat(0, czxid, 0) if exists else None, data))
    return known


def around(known: KnownTopics) -> Environment:
    """Broker 1 is in the rack r."""
    return Environment(topics=known, racks={1: "r"}, root_czxid=2, protocols=(1, 3))


def test_a_view_has_the_partitions_of_what_members_subscribe_to_and_what_coordinators_speak() -> None:
    view, _ = view_of(NODES, Needs(T), around(topics()))
    assert view == GroupView(group="g", topics={"t": (0, 1)}, protocols=(1, 3))


def test_known_racks_are_told_and_an_absent_brokers_as_the_state_noted_it() -> None:
    here, _ = view_of(NODES, Needs(T, racked=True), around(topics()))
    assert (here.brokers, set(here.replica_racks.values())) == ({1: "r"}, {frozenset({"r"})})
    noted = replace(NODES, view=replace(NODES.view, state=replace(NODES.view.state, brokers={1: "noted"})))
    away, _ = view_of(noted, Needs(T, racked=True), replace(around(topics()), racks={}))
    assert (away.brokers, set(away.replica_racks.values())) == ({1: "noted"}, {frozenset({"noted"})})


def test_recreated_and_deleted_marked_topics_are_told() -> None:
    for known, change in (
        (topics(), {}),
        (topics(czxid=8), {"t": TopicChange.RECREATED}),
        (topics(exists=False, listed=frozenset()), {"t": TopicChange.DELETED}),
        (topics(exists=False, listed=None), {}),  # without a list of topics, this says nothing
    ):
        view, _ = view_of(NODES, Needs(T), around(known))
        assert view.changed == change


def test_a_topic_that_nobody_subscribes_to_is_not_compared_with_its_mark() -> None:
    view, _ = view_of(NODES, Needs(), around(topics(czxid=8)))
    assert view.changed == {}


def test_unchanged_parts_are_not_made_again() -> None:
    view, made = view_of(NODES, Needs(T, racked=True), around(topics()))
    again, same = view_of(replace(NODES, view=view), Needs(T, racked=True), around(topics()), made)
    assert (again is view, same) == (True, made)
    other, _ = view_of(replace(NODES, view=view), Needs(), around(topics()), made)
    assert (other.topics, other.brokers) == ({}, {})
    assert view_of(NODES, Needs(T, racked=True), around(topics()), NO_INPUTS)[0] == view


def test_a_wildcard_gives_its_member_its_topics_and_absent_static_members_count() -> None:
    wild = Wildcard("t.*", False, 2)
    plain = Member(consumer_id="b", czxid=2, threads={"u": 1})
    members = {"a": Member(consumer_id="a", czxid=1, wildcard=wild), "b": plain}
    takes = {"t": 2}
    found = expanded(members, lambda wildcard: takes)
    assert (found["a"].threads, found["b"]) == (takes, plain)
    assert expanded(found, lambda wildcard: takes) is found
    away = Instance(last_id="c", hold_ms=1, threads={"v": 1}, share={}, rack="r")
    assert needs(found, {"i": away}) == Needs(frozenset({"t", "u", "v"}), racked=True)
    beside = replace(NODES, view=replace(NODES.view, members=found))
    assert needs_of(beside, frozenset({"o"})) == Needs(frozenset({"o", "t", "u"}))  # the topics of old members, too


@pytest.mark.parametrize(
    "what",
    [
        *("a topic's incarnation", "a broker's rack", "a rack that was noted", "the root", "a mark", "a member's rack"),
        *("a claim", "a start in a channel", "a receiver's registration", "what coordinators speak"),
    ],
)
def test_each_thing_that_a_view_is_made_of_has_its_part_made_again(what: str) -> None:
    known, nodes, wanted = topics(), NODES, Needs(T, racked=True)
    around_it = replace(around(known), racks={})
    if what == "a member's rack":
        wanted = Needs(T)
    start = QueuedCommand(sequence="0", version=0, option=START, threads={TopicPartition("t", 0): "a-0"})
    channels = {"a": Channel(consumer_id="a", version=1, commands=(start,))}
    if what == "a receiver's registration":
        nodes = replace(nodes, view=replace(nodes.view, claims=True, channels=channels))
    elif what in ("a claim", "a start in a channel"):
        members = {"a": Member(consumer_id="a", czxid=1)}
        nodes = replace(nodes, view=replace(nodes.view, claims=True, members=members))
    view, made = view_of(nodes, wanted, around_it)
    nodes = replace(nodes, view=view)
    if what == "a topic's incarnation":
        data = json.dumps({"version": 1, "partitions": {"0": [1], "1": [1], "2": [1]}}).encode()
        known.take(Node("/brokers/topics/t", Kind.DATA, Stat(0, 8, 0), data))
        known.changes += 1
    elif what == "a broker's rack":
        around_it = replace(around_it, racks={1: "r"}, rack_changes=1)
    elif what == "a rack that was noted":
        nodes = replace(nodes, view=replace(view, state=replace(view.state, brokers={1: "noted"})))
    elif what == "the root":
        around_it = replace(around_it, root_czxid=5)
    elif what == "a mark":
        nodes = replace(nodes, marks={"t": MarkSeen(replace(MARK, czxid=6), 1)})
    elif what == "a claim":
        nodes = replace(nodes, claims={TopicPartition("t", 1): Owner("a-0", 1)})
    elif what == "a start in a channel":
        nodes = replace(nodes, view=replace(view, channels=channels))
    elif what == "a receiver's registration":
        nodes = replace(nodes, view=replace(view, members={"a": Member(consumer_id="a", czxid=1)}))
    elif what == "what coordinators speak":
        around_it = replace(around_it, protocols=(1, 2))
    else:
        wanted, around_it = Needs(T, racked=True), replace(around_it, racks={1: "r"})
    now, _ = view_of(nodes, wanted, around_it, made)
    anew, _ = view_of(nodes, wanted, around_it)
    assert now == anew
    assert now != nodes.view
    assert what not in ("a start in a channel", "a receiver's registration") or now.owners != view.owners


def test_committed_offsets_and_claims_to_delete_are_those_of_the_present_owners_and_mode() -> None:
    partitions = (p0, p1) = (TopicPartition("t", 0), TopicPartition("t", 1))
    a = Channel(consumer_id="a", version=1, held=frozenset({p0}))
    dead = Channel(consumer_id="dead", version=1, announced=dict.fromkeys(partitions, Announced(5, 9, 7)))
    evicted = Channel(consumer_id="evicted", version=1, evicted_ms=6_000)
    channels = {each.consumer_id: each for each in (a, dead, evicted)}
    before = GroupView(group="g", claims=True, members={"a": Member(consumer_id="a", czxid=1)}, channels=channels)
    claims = {p0: Owner("a-0", 0), p1: Owner("evicted-0", 0)}
    offsets = {p0: OffsetSeen("5", 2), p1: OffsetSeen("7", 3)}
    nodes = GroupNodes(view=before, claims=claims, offsets=offsets)
    view, made = view_of(nodes, Needs(), around(topics()))
    assert (view.committed, view.claim_offsets) == ({p1: 7}, {p1: 3})
    mixed = GroupMode(mode=Mode.MIXED)
    beside, _ = view_of(replace(nodes, view=view), Needs(), replace(around(topics()), mode=mixed), made)
    assert beside.committed == {p0: 5, p1: 7}
