"""The assignment that the coordinator wants. The assignor is asked again when one of its inputs has changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from zkcoord.core.assignors import AssignmentError, Assignor, AssignorInput, ask, unassigned
from zkcoord.core.budget import limited, moves, waiting
from zkcoord.core.difference import KeptDifference
from zkcoord.core.exclusions import exclude
from zkcoord.core.fast_replace import fast_replace
from zkcoord.core.instances import is_static, remembered, stable_name, to_remember
from zkcoord.core.model import Subscriber, TopicPartition, consumer_of
from zkcoord.core.quarantine import Exclusions
from zkcoord.core.view import STOP, GroupView, Instance, Member

Digest = Callable[[Mapping[TopicPartition, str]], str]

PROBLEM_CHARS_MAX = 1_000
"""Characters of a problem in the group's state. The limit is needed since an exception's text may have any length."""

SHOWN_MAX = 10
"""Number of partitions that a problem names one by one."""


@dataclass(frozen=True)
class Target:
    """Invariant: `wanted` and its digest are the answer to `_key`, which holds all inputs except the owners.

    Owners are left out because a stable assignor gives the same answer on every tree on the way to its target
    (`assignors/sticky/sticky.py`).

    `assignment` is what is to be reached now: `wanted`, except for moves that a budget leaves for later (`waiting`).
    """

    assignment: Mapping[TopicPartition, str] = field(default_factory=dict)
    topics: frozenset[str] = frozenset()  # of the assignment
    digest: str = ""
    instances: Mapping[str, Instance] = field(default_factory=dict)  # the static members that the state must remember
    problem: str | None = None  # why the assignment differs from the requested one
    unanswered: bool = False  # the assignor gave no valid answer: the last target and the generation stay
    until: TopicPartition | None = None
    waiting: Mapping[TopicPartition, str] = field(default_factory=dict)
    # partition that a later raise moves -> present thread
    wanted: Mapping[TopicPartition, str] = field(default_factory=dict)
    reserved: Mapping[TopicPartition, str] = field(default_factory=dict)
    # in addition to `wanted`: shares of absent members
    from_owners: KeptDifference = field(default_factory=KeptDifference)
    # difference from the owners to `wanted`, while the group has a budget
    _wanted_digest: str = ""
    _static: Mapping[str, str] = field(default_factory=dict)  # consumer id of a static member -> instance
    _limited: object = None  # inputs of `assignment` and `digest` under a budget
    _key: object = None
    _asked: Sequence[Member] = ()
    _subscribers: tuple[Subscriber, ...] = ()  # invariant: made from `_asked`
    _name: str = ""  # name of the assignor that was asked last

    def forgotten(self) -> Target:
        """Return a copy that asks the assignor again at the next step, even if no input has changed."""
        return fast_replace(self, _key=None)

    def asked(
        self,
        view: GroupView,
        name: str,
        eligible: Sequence[Member],
        digest: Digest,
        assignors: Mapping[str, Assignor],
        away: Sequence[Member] = (),
        exclusions: Exclusions = Exclusions(),
    ) -> Target:
        """The target of this view. The assignor is asked again only if an input has changed, so a step costs only its
        changes.

        `away` are static members whose share waits for them. The assignor is asked for them, too, and they are given
        nothing else. `exclusions` names partitions that must go to another member than the assignor says, or to nobody.
        """
        members = sorted([*eligible, *away], key=lambda m: m.consumer_id)
        subscribers = self._subscribers if members == self._asked else tuple(map(_subscriber, members))
        absent = frozenset(m.consumer_id for m in away)
        key = (
            name,
            subscribers,
            view.topics,
            view.record.weights,
            view.record.racks,
            view.replica_racks,
            absent,
            exclusions.pairs,
            exclusions.newer and (exclusions.newer, [m.czxid for m in members]),
            frozenset(exclusions.quarantined),
        )
        target = self
        if self._key != key:
            question = _question(view, subscribers, remembered(view, members))
            target = fast_replace(self, _key=key, _name=name, _asked=members, _subscribers=subscribers)
            try:
                answer = ask(assignors[name], question)
            except AssignmentError as error:
                why = _cut(
                    f"the assignor {name!r} gave no usable answer: {error}; its author must mend it. The group stays as"
                    " it is, what has no owner waits; it is asked again when members, topics or the record change"
                )
                target = fast_replace(target, unanswered=True, problem=why)
            else:
                left = unassigned(question, answer)
                allowed = exclude(question, answer, absent, exclusions, _joined(eligible))
                static = {m.consumer_id: m.instance for m in members if m.instance is not None and is_static(m)}
                target = fast_replace(target, _static=static)._answered(allowed, eligible, absent, digest)
                problem = "; ".join(filter(None, (_no_room(left), target._not_waited_for(eligible)))) or None
                target = fast_replace(target, unanswered=False, problem=problem)
        if target.unanswered:
            question = _question(view, subscribers, remembered(view, members))
            return target._last_answer(view, question, exclusions, _joined(eligible))
        return target.within_budget(view, view.state.until, digest)

    def _answered(
        self,
        answer: Mapping[TopicPartition, str],
        eligible: Sequence[Member],
        absent: frozenset[str],
        digest: Digest,
    ) -> Target:
        reserved = {p: thread for p, thread in answer.items() if consumer_of(thread) in absent} if absent else {}
        wanted = {p: t for p, t in answer.items() if p not in reserved} if reserved else answer
        answered = fast_replace(
            self,
            instances=to_remember(answer, eligible, self._name),
            wanted=wanted,
            topics=frozenset(map(itemgetter(0), wanted)),
            reserved=reserved,
            _limited=None,
        )
        return fast_replace(answered, _wanted_digest=answered._digest(wanted, digest))

    def _not_waited_for(self, eligible: Sequence[Member]) -> str | None:
        """The static members whose shares have no room in the state."""
        names = sorted(
            {m.instance for m in eligible if m.instance is not None and is_static(m)} - self.instances.keys()
        )
        if not names:
            return None
        return _cut(
            f"the shares of {', '.join(names)} do not wait for them: too many topics; let more consumers share them"
        )

    def _digest(self, assignment: Mapping[TopicPartition, str], digest: Digest) -> str:
        """The digest of an assignment and of the shares that wait for absent members. Threads have stable names in
        it."""
        whole = {**assignment, **self.reserved} if self.reserved else assignment
        return digest({p: stable_name(t, self._static) for p, t in whole.items()} if self._static else whole)

    def within_budget(self, view: GroupView, until: TopicPartition | None, digest: Digest) -> Target:
        """Return a copy that leaves partitions after `until` where they are, if the record limits the moves."""
        if not limited(view):
            until, left, from_owners = None, {}, self.from_owners
        else:
            from_owners = self.from_owners.between(view.owners, self.wanted)
            left = waiting(moves(view, self.wanted, from_owners.value.misplaced), until)
        if self._limited == left:
            same = self.until == until and self.waiting == left and self.from_owners is from_owners
            return self if same else fast_replace(self, until=until, waiting=left, from_owners=from_owners)
        if left:
            assignment: Mapping[TopicPartition, str] = {**self.wanted, **left}
            digested = self._digest(assignment, digest)
        else:
            assignment, digested = self.wanted, self._wanted_digest
        return fast_replace(
            self,
            until=until,
            waiting=left,
            assignment=assignment,
            digest=digested,
            _limited=left,
            from_owners=from_owners,
        )

    def next_moves(self, view: GroupView, digest: Digest, *, at_rest: bool) -> Target:
        """Return a copy with the moves that a raise may make now: the next `max_moves` when at rest, else none."""
        misplaced = self.from_owners.between(view.owners, self.wanted).value.misplaced
        moving = list(moves(view, self.wanted, misplaced))[: view.record.policy.max_moves if at_rest else 0]
        return self.within_budget(view, moving[-1] if moving else None, digest)

    def _last_answer(
        self, view: GroupView, given: AssignorInput, exclusions: Exclusions, joined: Mapping[str, int]
    ) -> Target:
        """The last target's thread, if it can still have the partition; else the next thread that an outstanding stop
        names; else the present owner; else nobody ("")."""
        stopping = _stopping(view)
        threads = {s.consumer_id: s.threads for s in given.subscribers}
        living = view.living_threads()

        def may_read(partition: TopicPartition, thread: str) -> bool:
            consumer, _, number = thread.rpartition("-")
            return int(number or 0) < threads.get(consumer, {}).get(partition.topic, 0)

        found = {}
        for topic, ids in given.partitions.items():
            for partition in (TopicPartition(topic, number) for number in ids):
                if partition in exclusions.quarantined:
                    continue
                owner = given.owned.get(partition, "")
                choices = (self.wanted.get(partition, ""), stopping.get(partition, ""), owner)
                free = owner not in living
                found[partition] = next(
                    (
                        t
                        for t in choices
                        if t and may_read(partition, t) and not exclusions.excludes(partition, consumer_of(t), joined)
                    ),
                    "" if free else owner,
                )
        topics = frozenset(given.partitions)
        return fast_replace(self, assignment=found, topics=topics, until=view.state.until, waiting={}, _limited=None)


def _subscriber(member: Member) -> Subscriber:
    return Subscriber(
        consumer_id=member.consumer_id, threads=member.threads, rack=member.rack, capacity=member.capacity
    )


def _joined(eligible: Iterable[Member]) -> dict[str, int]:
    """Consumer -> the czxid of its registration, for members that can be given partitions."""
    return {m.consumer_id: m.czxid for m in eligible}


def _question(
    view: GroupView, subscribers: tuple[Subscriber, ...], known: Mapping[TopicPartition, str]
) -> AssignorInput:
    """The group as an assignor sees it: partitions of outstanding stops count as free (docs/protocol.md, section 8).

    `known` holds what counts as owned where none of the subscribers owns the partition.
    """
    wanted = {topic for s in subscribers for topic in s.threads}
    topics = {topic: ids for topic, ids in view.topics.items() if topic in wanted}
    eligible_ids = {s.consumer_id for s in subscribers}
    eligible_threads = {thread for thread in view.living_threads() if consumer_of(thread) in eligible_ids}
    owned = {p: thread for p, (thread, _) in view.owners.items() if thread in eligible_threads}
    for partition in _stopping(view):
        owned.pop(partition, None)
    return AssignorInput(
        subscribers=subscribers,
        partitions=topics,
        owned={**known, **owned} if known else owned,
        weights=view.record.weights,
        racks={**view.replica_racks, **{p: frozenset({rack}) for p, rack in view.record.racks.items()}},
    )


def _stopping(view: GroupView) -> dict[TopicPartition, str]:
    """The partitions of outstanding stops: partition -> the thread that is meant to have it next, "" for none.

    Partitions that another member owns by now are left out: their former owner has released them before the rest.
    """
    found: dict[TopicPartition, str] = {}
    for consumer_id, channel in view.channels.items():
        for command in channel.commands:
            if command.option == STOP and command.threads:
                for partition, thread in command.threads.items():
                    owner = view.owners.get(partition)
                    holder = "" if owner is None else consumer_of(owner.thread)
                    if holder == consumer_id or holder not in view.members:
                        found[partition] = thread or found.get(partition, "")
    return found


def _no_room(left: Sequence[TopicPartition]) -> str | None:
    if not left:
        return None
    names = ", ".join(map(str, left[:SHOWN_MAX])) + (", …" if len(left) > SHOWN_MAX else "")
    return _cut(f"no consumer has room for {len(left)} partitions ({names}): start more, or with a larger capacity")


def _cut(text: str) -> str:
    return text if len(text) <= PROBLEM_CHARS_MAX else text[: PROBLEM_CHARS_MAX - 1] + "…"
