"""A group's whole view: its own nodes (`tree.view`), with its topics, brokers and coordinators. Pure.

`view_of` computes a part again only if its inputs have changed. `ViewInputs` remembers the inputs, so a coordinator's
step costs only the changes. A tool begins with `NO_INPUTS`, so everything is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import is_
from typing import NamedTuple, TypeVar

from zkcoord.core.fast_replace import fast_replace
from zkcoord.core.racks import broker_racks, partition_racks, racked
from zkcoord.core.view import GroupView, Instance, Member, Wildcard
from zkcoord.tree.known_topics import KnownTopics
from zkcoord.tree.owners import effective_owners, inputs_of_owners
from zkcoord.tree.topic import changes_of
from zkcoord.tree.view import GroupNodes

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The inputs of a view in addition to the group's nodes. While `rack_changes` is equal, the racks are the same."""

    topics: KnownTopics
    racks: Mapping[int, str | None]  # racks of brokers, as they were read last
    rack_changes: int = 0
    root_czxid: int  # of `/zkcoord`
    protocols: tuple[int, int]


class ViewInputs(NamedTuple):
    """The inputs of each part of the last view."""

    topics: object = None
    racks: object = None
    changed: object = None
    owners: tuple[object, ...] = ()


NO_INPUTS = ViewInputs()


def expanded(members: Mapping[str, Member], threads: Callable[[Wildcard], Mapping[str, int]]) -> Mapping[str, Member]:
    """Members with the topics that their wildcards take now. It is the same mapping while these are the same
    objects."""
    taking = {
        consumer_id: fast_replace(member, threads=taken)
        for consumer_id, member in members.items()
        if member.wildcard is not None and (taken := threads(member.wildcard)) is not member.threads
    }
    return {**members, **taking} if taking else members


class Needs(NamedTuple):
    """The needs of a group in addition to its own nodes: the topics of its members, and whether racks count."""

    topics: frozenset[str] = frozenset()
    racked: bool = False


NO_NEEDS = Needs()


def needs(members: Mapping[str, Member], instances: Mapping[str, Instance]) -> Needs:
    """The needs of these members, which are `expanded`, and of static members: the share of an absent one may wait
    without any member."""
    distinct = {id(member.threads): member.threads for member in members.values()}
    distinct |= {id(known.threads): known.threads for known in instances.values()}
    return Needs(frozenset[str]().union(*distinct.values()), racked(members, instances))


def subscribed(nodes: GroupNodes, threads: Callable[[Wildcard], Mapping[str, int]]) -> GroupNodes:
    """The group with the topics that its members' wildcards take now. It is the same object while these are the
    same."""
    members = expanded(nodes.view.members, threads)
    if members is nodes.view.members:
        return nodes
    return fast_replace(nodes, view=fast_replace(nodes.view, members=members))


def needs_of(nodes: GroupNodes, of_plan: frozenset[str]) -> Needs:
    """The needs of a group that `subscribed` returned. `of_plan` are topics of its old members' plan."""
    wanted = needs(nodes.view.members, nodes.view.instances)
    return wanted._replace(topics=wanted.topics | of_plan)


def completed(
    nodes: GroupNodes, wanted: Needs, environment: Environment, made_of: ViewInputs = NO_INPUTS
) -> tuple[GroupNodes, ViewInputs]:
    """A group that `subscribed` returned with its whole view, and that view's inputs: for a coordinator and for
    tools."""
    view, inputs = view_of(nodes, wanted, environment, made_of)
    return fast_replace(nodes, view=view), inputs


def view_of(
    nodes: GroupNodes, wanted: Needs, environment: Environment, made_of: ViewInputs = NO_INPUTS
) -> tuple[GroupView, ViewInputs]:
    """The whole view, and its inputs. The view's members must be `expanded`, and `wanted` must be their needs."""
    view, wanted_topics, known = nodes.view, wanted.topics, environment.topics
    topics, changed, owners = view.topics, view.changed, view.owners
    brokers, replica_racks = view.brokers, view.replica_racks
    of_topics = (wanted_topics, known.changes)
    if of_topics != made_of.topics:
        topics = _kept(topics, known.partitions(wanted_topics))
    noted = view.state.brokers
    of_racks = (*of_topics, environment.rack_changes, noted) if wanted.racked else ()
    if of_racks != made_of.racks:
        replicas = known.replicas(topics) if wanted.racked else {}
        racks = broker_racks(replicas.values(), environment.racks, noted)
        brokers, replica_racks = _kept(brokers, racks), _kept(replica_racks, partition_racks(replicas, racks))
    of_marks = (nodes.marks, *of_topics, environment.root_czxid)
    if of_marks != made_of.changed:
        now = {topic: known.mark(topic, environment.root_czxid) for topic in nodes.marks.keys() & wanted_topics}
        changed = _kept(changed, changes_of(nodes.marks, now.get, known.deleted))
    of_owners = inputs_of_owners(view, nodes.claims)
    if len(of_owners) != len(made_of.owners) or not all(map(is_, of_owners, made_of.owners)):
        owners = _kept(owners, effective_owners(nodes.claims, view.members, view.channels))
    inputs, protocols = ViewInputs(of_topics, of_racks, of_marks, of_owners), environment.protocols
    parts = (topics, brokers, replica_racks, changed, owners)
    known_parts = (view.topics, view.brokers, view.replica_racks, view.changed, view.owners)
    if protocols == view.protocols and all(map(is_, parts, known_parts)):
        return view, inputs
    whole = fast_replace(
        view,
        topics=topics,
        brokers=brokers,
        replica_racks=replica_racks,
        changed=changed,
        owners=owners,
        protocols=protocols,
    )
    return whole, inputs


def _kept(known: T, now: T) -> T:
    """The known value if nothing has changed. Then code that compares objects sees no change."""
    return known if now == known else now
