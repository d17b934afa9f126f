"""Decides the mode of a group in the layout `legacy`, and the plan of a mixed group: a pure function of the group's
registrations, the topics, the adoption and the time.

A member of ours is recognised by its name and by the marker in its registration. Pokes do not count as members. Every
other registration counts as an old member, even if it cannot be read: an old member that cannot read it does not
rebalance.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from zkcoord.core.adoption import Adoption
from zkcoord.core.given import shown
from zkcoord.core.mode import COORDINATED, GroupMode, Mode
from zkcoord.core.words import count, some
from zkcoord.errors import CorruptError
from zkcoord.legacy.clients import MIXES, Client, Library, client_of
from zkcoord.legacy.planning import OldGroup, plan_of
from zkcoord.legacy.reading import OldSubscription, WildcardError, read_as
from zkcoord.legacy.versions import OldVersion, old_version
from zkcoord.tree.registration import POKE
from zkcoord.tree.snapshot import Node
from zkcoord.tree.topic_filter import INTERNAL, MATCH_SECONDS, matches

GRACE_MS = 10_000
"""How long a registration that cannot be read may still be incomplete: kafka-node creates the node before it writes the
data."""


@lru_cache(maxsize=1_000)
def _own_names(group: str) -> re.Pattern[str]:
    return re.compile(rf"{re.escape(group)}_.*-[0-9]+-z[0-9a-f]{{7}}", re.DOTALL)


def named_as_ours(group: str, consumer_id: str) -> bool:
    """True when a consumer of ours may have this name. An old consumer may have it, too: its `consumer.id` is any text.

    >>> named_as_ours("g", "g_h-1416335000123-z1a2b3c4"), named_as_ours("g", "g_h-1416335000123-1a2b3c4d")
    (True, False)
    """
    return _own_names(group).fullmatch(consumer_id) is not None


class Registered(NamedTuple):
    """A member's registration, as it was read from ZooKeeper."""

    text: str
    client: Client
    ours: bool


def member_of(group: str, name: str, node: Node) -> Registered | None:
    """Return the member that this node registers. None: the node is a poke, or does not exist any more."""
    if node.stat is None:
        return None
    client = client_of(group, name, node.data, node.stat.version)
    if name.startswith(f"{group}_{POKE}") and _subscribes_to_nothing(node.data):
        return None
    ours = client.library is Library.ZKCOORD and named_as_ours(group, name)
    return Registered(node.data.decode("utf-8", "replace"), client, ours)


class Readings(NamedTuple):
    """The result of reading all registrations as members of one version do."""

    read: Mapping[str, OldSubscription]
    unreadable: Mapping[str, str]  # name -> why
    regexes: Mapping[str, str]  # name -> why its wildcard cannot be evaluated


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """The members of a group, by their registrations. `of` and `these` make such a value."""

    ours: frozenset[str] = frozenset()
    old: frozenset[str] = frozenset()
    foreign: Mapping[str, str] = field(default_factory=dict)  # name -> the library, and how it was recognised
    unreadable: Mapping[str, str] = field(default_factory=dict)  # name -> why
    texts: Mapping[str, str] = field(default_factory=dict)  # each member's registration

    @classmethod
    def of(cls, group: str, registrations: Mapping[str, Node]) -> Neighbours:
        """Make it from a group's registrations, which are nodes by name."""
        found = {name: member_of(group, name, node) for name, node in registrations.items()}
        return cls.these({name: member for name, member in found.items() if member is not None})

    @classmethod
    def these(cls, members: Mapping[str, Registered]) -> Neighbours:
        """Make it from members by name."""
        foreign, unreadable = dict[str, str](), dict[str, str]()
        names = sorted(members)
        old = [name for name in names if not members[name].ours]
        for name in old:
            library, _, why = members[name].client
            if library is Library.UNKNOWN:
                unreadable[name] = why
            elif library not in MIXES:
                foreign[name] = f"{library.value} ({why})"
        texts = {name: members[name].text for name in names}
        ours = members.keys() - set(old)
        return cls(ours=frozenset(ours), old=frozenset(old), foreign=foreign, unreadable=unreadable, texts=texts)

    def read_by(self, version: OldVersion) -> Readings:
        """Read all registrations as a member of this version does."""
        read, wrong, regexes = dict[str, OldSubscription](), dict[str, str](), dict[str, str]()
        for name, text in self.texts.items():
            try:
                read[name] = read_as(version, text)
            except WildcardError as error:
                regexes[name] = str(error)
            except CorruptError as error:
                wrong[name] = str(error)
        return Readings(read, wrong, regexes)

    def topics(self, adoption: Adoption, names: Iterable[str], *, seconds: float = MATCH_SECONDS) -> frozenset[str]:
        """Return the topics that the plan depends on. `names`: all topics that exist. `seconds`: how long a wildcard
        may take for one of them."""
        readings = self.read_by(old_version(adoption.kafka))
        wanted = _taken(readings, tuple(names), seconds)
        for subscription in readings.read.values():
            if subscription.wildcard is None:
                wanted.update(subscription.counts)
        return frozenset(wanted)


def _subscribes_to_nothing(data: bytes) -> bool:
    try:
        return not read_as(old_version("1.1"), data.decode("utf-8", "replace")).counts
    except CorruptError:
        return False


def mode_of(
    neighbours: Neighbours,
    topics: Mapping[str, tuple[int, ...]],
    adoption: Adoption | None,
    unreadable_since_ms: Mapping[str, int],
    now_ms: int,
    *,
    left: bool = False,
) -> GroupMode:
    """Return the mode of a group. `left`: it was handed over to consumers of Kafka's own protocol. `topics`: at least
    those topics of `Neighbours.topics` that exist.

    `unreadable_since_ms`: name -> when the present data of a registration were first seen. A registration that is not
    in it counts as first seen now. Only registrations that cannot be read are looked up.
    """
    old = neighbours.old
    if not old:
        return COORDINATED
    if adoption is None:
        return _observed(old, "the group was not adopted")
    if left:
        return _observed(old, "it is handed over to consumers of Kafka's own protocol: stop its old members")
    version = old_version(adoption.kafka)
    if neighbours.foreign:
        return _observed(old, f"another library computes another plan: {_named(neighbours.foreign)}")
    readings = neighbours.read_by(version)
    if wrong := {**readings.unreadable, **neighbours.unreadable}:
        since_ms = min(unreadable_since_ms.get(name, now_ms) for name in wrong)
        why = f"no old member can rebalance beside a registration that it cannot read: {_named(wrong)}"
        if now_ms >= since_ms + GRACE_MS:
            return _observed(old, why)
        return GroupMode(mode=Mode.MIXED, why=why, old=old, grace_ends_ms=since_ms + GRACE_MS)
    if readings.regexes:
        return _observed(old, f"old members may evaluate a wildcard by rules of their Java: {_named(readings.regexes)}")
    excluded = version.internal if adoption.exclude_internal else frozenset[str]()
    internal = _internal(readings, [topic for topic in topics if topic in INTERNAL - excluded])
    if internal:
        return _observed(old, f"their wildcards take Kafka's internal topics, ours never do: {', '.join(internal)}")
    plan = plan_of(
        OldGroup(
            version=version,
            assignor=adoption.strategy,
            registrations=neighbours.texts,
            topics=topics,
            exclude_internal=adoption.exclude_internal,
        )
    )
    if plan.owners is None:
        return _observed(old, plan.error or "there is no plan")
    if plan.tied:
        tied = some(plan.tied)
        return _observed(old, f"round robin has equal hashes for {tied}: use range, or rename a topic")
    why = f"it has {count(len(old), 'old member')}: {some(sorted(old))}"
    return GroupMode(mode=Mode.MIXED, why=why, old=old, plan=plan.owners, patience_ms=adoption.patience_ms)


def _observed(old: frozenset[str], why: str) -> GroupMode:
    return GroupMode(mode=Mode.OBSERVE, why=why, old=old)


def _internal(readings: Readings, internal: Sequence[str]) -> list[str]:
    """Return those of the internal topics that the wildcard of any member takes."""
    return sorted(_taken(readings, internal, MATCH_SECONDS)) if internal else []


def _taken(readings: Readings, topics: Sequence[str], seconds: float) -> set[str]:
    """Return those of the topics that the wildcard of any member takes, and the first one for which a wildcard takes
    too long: so the plan meets that one, too. Members share wildcards: each is evaluated once."""
    found = set[str]()
    shared = {(s.wildcard, s.black_list) for s in readings.read.values() if s.wildcard is not None}
    for regex, black_list in sorted(shared):
        for topic in topics:
            try:
                takes = matches(regex, topic, black_list=black_list, seconds=seconds)
            except CorruptError:
                found.add(topic)
                break
            if takes:
                found.add(topic)
    return found


def _named(reasons: Mapping[str, str]) -> str:
    return some([f"{shown(name)} ({why})" for name, why in sorted(reasons.items())])
