"""Decides which of Kafka's answers change the tree's mirror of its topics.

Answers may come late, from a broker that lags, from another cluster, or may be incomplete. So the mirror changes only
by what was confirmed:

* Only topics that were asked for by name change the mirror: a list tells which names to ask for.
* A new id of a topic counts when a second answer names it CONFIRM_MS later, and a list of this cluster came between
  the two. An absence counts when all answers, also the lists, say so for ABSENT_MS. A contrary answer starts the time
  again.
* The id of a topic that was replaced or deleted counts again only if that was a mistake. All answers must name this id:
  for ABSENT_MS if it is the last id of its name, and none is mirrored now; else for RETURN_MS.
* While topics are known, a list without topics counts only when lists have been empty for EMPTY_MS.
* An answer without an id changes nothing: it may be about another topic of that name. A new topic without an id is not
  mirrored.
* A description names no cluster, and a broker of another cluster may answer between two lists of this one. So a new
  topic or a new id counts only if its partitions and replicas are those of the last list.
* Under one id the number of partitions never shrinks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from zkcoord.core.topic_answers import (
    Answer,
    Broker,
    Cluster,
    Described,
    Kind,
    Listed,
    Partitions,
    Silent,
    Told,
    shape_of,
)

CONFIRM_MS = 1_000
"""ms after which a second answer confirms another id. A broker that lags behind the controller for longer is taken out
of service by the controller."""

ABSENT_MS = 10_000
"""ms for which all answers must say that there is no such topic. A broker that is cut off from its controller goes
on answering with what it knew before, but some of twenty answers in a row come from other brokers. The delay harms
nobody."""

RETURN_MS = 600_000
"""ms for which all answers must say that a topic is one that was replaced. A broker that is cut off tells such ids, and
while a network is split no other broker may answer. After this time the mirror must be wrong, and must not stay so."""

EMPTY_MS = 300_000
"""ms for which lists without any topic are ignored while some topics are known. A controller with ZooKeeper tells
brokers about each other as soon as they have started, but about topics only when it has elected their leaders. After a
restart of all brokers of a large cluster that takes long."""

DESCRIBE_MAX = 500
"""Topics in one question. A broker answers that in some milliseconds, and librdkafka takes the answer in within 150 ms
of CPU."""

AS_KNOWN = "topics stay as they are known"

NO_TOPICS = f"Kafka names no topic at all, as brokers do that have just started; {AS_KNOWN}"

OVER_MAX = 1_000
"""Number of ended ids that are remembered, newest ones. No broker lags by a thousand deletions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """One topic of the mirror."""

    topic_id: str
    partitions: Partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirror:
    """The mirror as it is in the tree. `over` holds topic and id of those that were replaced or deleted, oldest first.

    `whole`: every topic of the cluster has been mirrored once. Before that, nothing may be concluded from a missing
    topic.
    """

    cluster_id: str = ""  # "": not known yet
    beside: str = ""  # the cluster whose brokers use the same ZooKeeper, by /cluster/id; "": none is named
    topics: Mapping[str, Topic] = field(default_factory=dict)
    brokers: Mapping[int, Broker] = field(default_factory=dict)
    over: tuple[tuple[str, str], ...] = ()
    whole: bool = False


class PutTopic(NamedTuple):
    """Write this topic. `replaces` is the id of the mirrored topic that it replaces, if that is another one."""

    name: str
    topic: Topic
    replaces: str | None = None


class RemoveTopic(NamedTuple):
    """Remove this topic: it was deleted."""

    name: str
    topic_id: str


class PutBroker(NamedTuple):
    """Write this broker."""

    number: int
    broker: Broker


class RemoveBroker(NamedTuple):
    """Remove this broker: it is down, and has no replica."""

    number: int


class NameCluster(NamedTuple):
    """Write the cluster's id into the schema: the tree belongs to this cluster from now on."""

    cluster_id: str


class Complete(NamedTuple):
    """Note that the mirror is whole."""


class Doubt(NamedTuple):
    """Note that the mirror may lack topics: nothing is concluded from a missing one until it is whole again."""


Change = PutTopic | RemoveTopic | PutBroker | RemoveBroker | NameCluster | Complete | Doubt


class Suspect(NamedTuple):
    """What one answer said against the mirror: another id, or "" for an absence; when, and after how many lists."""

    says: str
    since_ms: int
    lists: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What was asked and answered in this term. `due` are the topics to ask for by name next."""

    suspects: Mapping[str, Suspect] = field(default_factory=dict)
    lists: int = 0  # number of lists of this cluster
    since_ms: int = 0  # when the first list came
    empty_since_ms: int | None = None  # since when lists name no topic; None: the last one named some
    shapes: Mapping[str, str] | None = None  # by the last list
    due: frozenset[str] = frozenset()
    left_out: frozenset[str] = frozenset()
    # topics of which the last answer told nothing that counts: asking again can wait
    nameless: frozenset[str] = frozenset()  # topics without an id
    checked: str = ""  # the last name in the running check of all ids
    named: str = ""  # the last name in the running round over the topics that groups name
    last: Kind = Kind.DESCRIBE
    cluster_ms: int | None = None  # when the brokers were last told; None: ask for them
    problems: Mapping[Kind, str] = field(default_factory=dict)
    # kind of answers -> what is wrong with them, and who must act

    @property
    def urgent(self) -> bool:
        """True when the next question should not wait for the next poll."""
        return not self.problems and not self.due <= self.left_out

    @property
    def problem(self) -> str | None:
        """What is wrong with Kafka's answers, and who must act. None: nothing."""
        if self.problems:
            return next(iter(self.problems.values()))
        if not self.nameless:
            return None
        more = f" and of {len(self.nameless) - 1} others" if len(self.nameless) > 1 else ""
        return (
            f"Kafka tells no id of topic {min(self.nameless)}{more}, and a topic without an id is not mirrored: "
            "upgrade the brokers to 2.8 or later"
        )

    def with_problem(self, kind: Kind, why: str | None) -> Memory:
        """Return a copy with this problem for this kind of answers; with None without one."""
        others = {each: text for each, text in self.problems.items() if each is not kind}
        return replace(self, problems=others if why is None else {kind: why, **others})


def take(mirror: Mirror, memory: Memory, answer: Answer, now_ms: int) -> tuple[Memory, tuple[Change, ...]]:
    """Take in an answer. Return the changes that it makes to the mirror."""
    match answer:
        case Silent(kind, why):
            asked_ms = now_ms if kind is Kind.CLUSTER else memory.cluster_ms  # lists must not wait for it
            after = replace(memory, last=Kind.DESCRIBE, cluster_ms=asked_ms)
            return after.with_problem(kind, f"{why}; {AS_KNOWN}"), ()
        case Described():
            return _described(mirror, memory, answer, now_ms)
        case _:
            if not answer.cluster_id or (isinstance(answer, Listed) and not answer.whole):
                why = f"Kafka names no controller: look at its brokers; {AS_KNOWN}"
                asked_ms = now_ms if isinstance(answer, Cluster) else memory.cluster_ms  # lists must not wait for it
                return replace(memory, cluster_ms=asked_ms).with_problem(Kind.LIST, why), ()
            if mirror.cluster_id and answer.cluster_id != mirror.cluster_id:
                return Memory().with_problem(Kind.LIST, another_cluster(answer.cluster_id, mirror.cluster_id)), ()
            if not mirror.cluster_id and mirror.beside and answer.cluster_id != mirror.beside:
                return Memory().with_problem(Kind.LIST, strangers(answer.cluster_id, mirror.beside)), ()
            if isinstance(answer, Cluster):
                return _cluster(mirror, memory, answer, now_ms)
            if mirror.topics and not answer.shapes:
                since_ms = now_ms if memory.empty_since_ms is None else memory.empty_since_ms
                if now_ms < since_ms + EMPTY_MS:
                    return replace(memory, empty_since_ms=since_ms).with_problem(Kind.LIST, NO_TOPICS), ()
            return _listed(mirror, memory, answer, now_ms)


def another_cluster(found: str, wanted: str) -> str:
    """Say that the brokers belong to another cluster."""
    return (
        f"the brokers are of the cluster {found!r}, this tree's topics are of {wanted!r}: give --bootstrap-servers of "
        f"that cluster; {AS_KNOWN}"
    )


def strangers(found: str, beside: str) -> str:
    """Say that a new tree takes no topics from a cluster other than that of its ZooKeeper."""
    return (
        f"the brokers are of the cluster {found!r}, and /cluster/id beside this tree names {beside!r}: give "
        "--bootstrap-servers of that cluster, or correct ZooKeeper's address and chroot; no topic is taken from it"
    )


def _listed(mirror: Mirror, memory: Memory, answer: Listed, now_ms: int) -> tuple[Memory, tuple[Change, ...]]:
    if not mirror.cluster_id:
        return replace(memory, last=Kind.DESCRIBE).with_problem(Kind.LIST, None), (NameCluster(answer.cluster_id),)
    before = memory.shapes
    if before is None:
        before = {name: shape_of(topic.partitions) for name, topic in mirror.topics.items()}
    names = answer.shapes.keys()
    changed = {name for name, shape in answer.shapes.items() if before.get(name) != shape}
    due = changed | (names ^ mirror.topics.keys()) | memory.suspects.keys()
    fresh = not answer.brokers <= mirror.brokers.keys()
    after = replace(
        memory,
        suspects={name: one for name, one in memory.suspects.items() if bool(one.says) == (name in names)},
        lists=memory.lists + 1,
        since_ms=memory.since_ms if memory.lists else now_ms,
        empty_since_ms=None if names else memory.empty_since_ms,
        shapes=answer.shapes,
        due=memory.due | due,
        left_out=(memory.left_out & (names | mirror.topics.keys())) - (changed if memory.lists else set()),
        cluster_ms=None if fresh else memory.cluster_ms,
    ).with_problem(Kind.LIST, None)
    confirmed = memory.lists > 0 and now_ms >= memory.since_ms + CONFIRM_MS
    lacking = (names | before.keys()) - mirror.topics.keys()  # a single list may come from a broker that lags
    if not mirror.whole and confirmed and not lacking and after.cluster_ms is not None:
        return after, (Complete(),)
    return after, ()


def _cluster(mirror: Mirror, memory: Memory, answer: Cluster, now_ms: int) -> tuple[Memory, tuple[Change, ...]]:
    changes: list[Change] = [
        PutBroker(number, broker)
        for number, broker in sorted(answer.brokers.items())
        if mirror.brokers.get(number) != broker
    ]
    away = mirror.brokers.keys() - answer.brokers.keys()
    if away:
        used = {number for topic in mirror.topics.values() for ids in topic.partitions.values() for number in ids}
        changes += [RemoveBroker(number) for number in sorted(away - used)]
    return replace(memory, cluster_ms=now_ms).with_problem(Kind.CLUSTER, None), tuple(changes)


def _described(mirror: Mirror, memory: Memory, answer: Described, now_ms: int) -> tuple[Memory, tuple[Change, ...]]:
    if memory.shapes is None:  # no list of this cluster was seen yet
        return memory, ()
    judge, changes, asked = _Judge(mirror, memory, memory.shapes, now_ms), list[Change](), answer.topics.keys()
    left_out = set(memory.left_out - asked)
    for name, told in sorted(answer.topics.items()):
        known = mirror.topics.get(name)
        change = judge.added(name, told) if known is None else judge.changed(name, known, told)
        if change is not None:
            changes.append(change)
        elif known is None:
            left_out.add(name)
    known_names = memory.shapes.keys() | mirror.topics.keys()
    again = memory.due & asked & known_names
    behind = {name for name in again if not _as_listed(answer.topics[name], memory.shapes.get(name))}
    nameless = {name for name, told in answer.topics.items() if told.partitions and told.topic_id is None}
    after = replace(
        memory,
        suspects=judge.suspects,
        due=(memory.due - asked) | behind,
        left_out=frozenset((left_out | behind) & known_names),
        nameless=(memory.nameless - asked) | nameless,
    )
    return after.with_problem(Kind.DESCRIBE, None), tuple(changes)


class _Judge:
    """Judges topics that were asked for by name. `suspects` holds what is said against the mirror, including this
    answer."""

    def __init__(self, mirror: Mirror, memory: Memory, shapes: Mapping[str, str], now_ms: int) -> None:
        self.suspects = dict(memory.suspects)
        self._shapes, self._lists, self._now_ms = shapes, memory.lists, now_ms
        self._over, self._last_over = frozenset(mirror.over), dict(mirror.over)  # name -> its latest id

    def added(self, name: str, told: Told) -> Change | None:
        """Return the change that adds a topic that is not mirrored. None: there is no such topic, or the answer lacks a
        part."""
        topic = None
        if told.partitions and told.topic_id is not None and not told.missing:
            topic = Topic(topic_id=told.topic_id, partitions=told.partitions)
            if (name, topic.topic_id) in self._over:
                if name in self._shapes:  # its end may have been a mistake
                    within_ms = ABSENT_MS if self._last_over[name] == topic.topic_id else RETURN_MS
                    return PutTopic(name, topic) if self._confirmed(name, topic.topic_id, within_ms) else None
                topic = None
            elif not self._as_listed(name, told):
                topic = None
        self.suspects.pop(name, None)
        return None if topic is None else PutTopic(name, topic)

    def changed(self, name: str, known: Topic, told: Told) -> Change | None:
        """Return the change to a mirrored topic. None: it stays."""
        if told.missing:
            if name not in self._shapes:
                return RemoveTopic(name, known.topic_id) if self._confirmed(name, "", ABSENT_MS) else None
            self.suspects.pop(name, None)
        elif told.partitions is not None and told.topic_id == known.topic_id:
            self.suspects.pop(name, None)
            merged = {**known.partitions, **told.partitions}
            return None if merged == known.partitions else PutTopic(name, replace(known, partitions=merged))
        elif told.partitions and told.topic_id is not None:
            if not self._as_listed(name, told):
                return None
            fresh = PutTopic(name, Topic(topic_id=told.topic_id, partitions=told.partitions), replaces=known.topic_id)
            within_ms = RETURN_MS if (name, told.topic_id) in self._over else CONFIRM_MS
            return fresh if self._confirmed(name, told.topic_id, within_ms) else None
        return None

    def _as_listed(self, name: str, told: Told) -> bool:
        return _as_listed(told, self._shapes.get(name))

    def _confirmed(self, name: str, says: str, within_ms: int) -> bool:
        known = self.suspects.get(name)
        if known is None or known.says != says:
            self.suspects[name] = Suspect(says, self._now_ms, self._lists)
            return False
        return self._now_ms >= known.since_ms + within_ms and self._lists > known.lists


def _as_listed(told: Told, shape: str | None) -> bool:
    """True when the answer agrees with the last list: then both brokers know the topic's last change."""
    return told.missing if shape is None else told.partitions is not None and shape_of(told.partitions) == shape


def over_with(over: tuple[tuple[str, str], ...], ended: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """The ended ids, with these as the newest."""
    fresh = tuple(dict.fromkeys(ended))
    return (*(one for one in over if one not in fresh), *fresh)[-OVER_MAX:]
