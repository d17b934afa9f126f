"""A group's whole view: its own nodes (`tree.view`), with its topics, brokers and coordinators, its mode, and the nodes
that were looked up. Pure.

`view_of` computes a part again only if its inputs have changed. `ViewInputs` remembers the inputs, so a coordinator's
step costs only the changes. A tool begins with `NO_INPUTS`, so everything is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from operator import is_
from typing import NamedTuple, TypeVar

from zkcoord.core.fast_replace import fast_replace
from zkcoord.core.mode import COORDINATED, GroupMode
from zkcoord.core.ownership import claims_of_evicted
from zkcoord.core.racks import broker_racks, partition_racks, racked
from zkcoord.core.replay import OpenRanges
from zkcoord.core.view import GroupView, Instance, Member, Wildcard
from zkcoord.tree.known_topics import KnownTopics
from zkcoord.tree.looked_up import committed, leftovers, versions
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
    mode: GroupMode = COORDINATED
    looked_up: Set[str] = frozenset()  # topics whose remaining nodes are asked for
    offsets: int | None = None  # the number of the group's offsets, while they are listed


class ViewInputs(NamedTuple):
    """The inputs of each part of the last view."""

    topics: object = None
    racks: object = None
    changed: object = None
    owners: tuple[object, ...] = ()
    opened: OpenRanges = OpenRanges()
    committed: tuple[object, ...] = ()
    claimed: tuple[object, ...] = ()


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
    view, inputs = _with_kafka(nodes, wanted, environment, made_of)
    claims = inputs_of_owners(view, nodes.claims)
    owners = view.owners
    if not _same(claims, made_of.owners):
        owners = _kept(owners, effective_owners(nodes.claims, view.members, view.channels))
    view = _if_other(view, fast_replace(view, owners=owners, mode=environment.mode))
    opened = made_of.opened.seen(view)
    of_committed, of_claims = (opened.found, nodes.offsets), (*claims, nodes.offsets) if claims else ()
    known, claimed = view.committed, view.claim_offsets
    if not _same(of_committed, made_of.committed):
        known = _kept(known, committed(nodes, opened.found))
    if not _same(of_claims, made_of.claimed):
        evicted = [p for partitions in claims_of_evicted(view).values() for p in partitions]
        claimed = _kept(claimed, versions(nodes, evicted))
    found = {topic: leftovers(nodes, topic) for topic in sorted(environment.looked_up)}
    left = {topic: what for topic, what in found.items() if what is not None}
    whole = fast_replace(
        view,
        committed=known,
        claim_offsets=claimed,
        leftovers=_kept(view.leftovers, left),
        offsets=environment.offsets,
    )
    return _if_other(view, whole), inputs._replace(
        owners=claims, opened=opened, committed=of_committed, claimed=of_claims
    )


def _with_kafka(
    nodes: GroupNodes, wanted: Needs, environment: Environment, made_of: ViewInputs
) -> tuple[GroupView, ViewInputs]:
    """The view with its topics, racks and coordinators, and the inputs of these parts."""
    view, wanted_topics, known = nodes.view, wanted.topics, environment.topics
    topics, changed = view.topics, view.changed
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
    whole = fast_replace(
        view,
        topics=topics,
        brokers=brokers,
        replica_racks=replica_racks,
        changed=changed,
        protocols=_kept(view.protocols, environment.protocols),
    )
    return _if_other(view, whole), made_of._replace(topics=of_topics, racks=of_racks, changed=of_marks)


def _if_other(view: GroupView, now: GroupView) -> GroupView:
    """The view as it is now; the former object if it has the same parts."""
    return view if all(map(is_, vars(view).values(), vars(now).values())) else now


def _same(inputs: tuple[object, ...], made_of: tuple[object, ...]) -> bool:
    """True if these are the same objects."""
    return len(inputs) == len(made_of) and all(map(is_, inputs, made_of))


def _kept(known: T, now: T) -> T:
    """The known value if nothing has changed. Then code that compares objects sees no change."""
    return known if now == known else now
