"""The assignment that the coordinator wants, asked for again when what it depends on has changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from zkcoord.core.assignors import ASSIGNORS, AssignorInput, check_assignment
from zkcoord.core.divert import divert
from zkcoord.core.instances import is_static, remembered, stable_name, to_remember
from zkcoord.core.model import Subscriber, TopicPartition, consumer_of
from zkcoord.core.quarantine import Barred
from zkcoord.core.view import GroupView, Instance, Member

Digest = Callable[[Mapping[TopicPartition, str]], str]


@dataclass(slots=True)
class Target:
    """Invariant: what stands here belongs to `_key`, which holds all that it depends on."""

    assignment: Mapping[TopicPartition, str] = field(default_factory=dict)
    topics: frozenset[str] = frozenset()  # of the assignment
    digest: str = ""
    instances: Mapping[str, Instance] = field(default_factory=dict)  # what it makes of the static members
    _key: object = None

    def forget(self) -> None:
        """Ask the assignor again at the next look, whatever has changed."""
        self._key = None

    def look(
        self,
        view: GroupView,
        assignor: str,
        eligible: Sequence[Member],
        digest: Digest,
        away: Sequence[Member] = (),
        barred: Barred = Barred(),  # noqa: B008 - a frozen value
    ) -> None:
        """Ask the assignor again unless everything that it was asked about still holds: a step costs its change.

        `away`: static members whose share waits for them. They are asked for like the others, and given nothing else.
        `barred`: what goes to somebody else than the assignor says, or to nobody.
        """
        asked = sorted([*eligible, *away], key=lambda m: m.consumer_id)
        subscribers = tuple(Subscriber(consumer_id=m.consumer_id, threads=m.threads) for m in asked)
        absent = frozenset(m.consumer_id for m in away)
        key = (
            assignor,
            tuple((s.consumer_id, s.threads) for s in subscribers),
            view.topics,
            absent,
            barred.pairs,
            frozenset(barred.quarantined),
        )
        if self._key == key:
            return
        question = _question(view, subscribers, remembered(view, asked))
        answer = ASSIGNORS[assignor](question)
        check_assignment(question, answer)
        answer = {p: thread for p, thread in answer.items() if p not in barred.quarantined}
        if absent or barred.pairs:
            owned, pairs = question.owned, barred.pairs
            answer = divert(
                question, answer, lambda p, c: (p, c) in pairs or (c in absent and consumer_of(owned.get(p, "")) != c)
            )
        static = {m.consumer_id: m.instance for m in asked if m.instance is not None and is_static(m)}
        self.digest = digest({p: stable_name(t, static) for p, t in answer.items()} if static else answer)
        self.instances = to_remember(answer, eligible)
        if absent:
            answer = {p: thread for p, thread in answer.items() if consumer_of(thread) not in absent}
        self._key, self.assignment = key, answer
        self.topics = frozenset(partition.topic for partition in answer)


def _question(
    view: GroupView, subscribers: tuple[Subscriber, ...], known: Mapping[TopicPartition, str]
) -> AssignorInput:
    """The group as the assignor sees it: what an outstanding stop is about counts as free (design, "Failover").

    `known`: what counts as owned where nobody of them owns it.
    """
    wanted = {topic for s in subscribers for topic in s.threads}
    topics = {topic: ids for topic, ids in view.topics.items() if topic in wanted}
    eligible_ids = {s.consumer_id for s in subscribers}
    eligible_threads = {thread for thread in view.living_threads() if consumer_of(thread) in eligible_ids}
    owned = {p: thread for p, (thread, _) in view.owners.items() if thread in eligible_threads}
    preferred: dict[TopicPartition, str] = {}
    for channel in view.channels.values():
        for command in channel.commands:
            if command.option == "stop-fetcher" and command.threads:
                for partition, thread in command.threads.items():
                    owned.pop(partition, None)
                    if thread and consumer_of(thread) in eligible_ids:
                        preferred[partition] = thread
    owned = {**known, **owned} if known else owned
    return AssignorInput(subscribers=subscribers, partitions=topics, owned=owned, preferred=preferred)
