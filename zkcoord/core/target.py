"""The assignment that the coordinator wants, asked for again when what it depends on has changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from zkcoord.core.assignors import ASSIGNORS, AssignorInput, check_assignment
from zkcoord.core.model import Subscriber, TopicPartition, consumer_of
from zkcoord.core.view import GroupView, Member

Digest = Callable[[Mapping[TopicPartition, str]], str]


@dataclass(slots=True)
class Target:
    """Invariant: what stands here belongs to `_key`, which holds all that it depends on."""

    assignment: Mapping[TopicPartition, str] = field(default_factory=dict)
    topics: frozenset[str] = frozenset()  # of the assignment
    digest: str = ""
    _key: object = None

    def forget(self) -> None:
        """Ask the assignor again at the next look, whatever has changed."""
        self._key = None

    def look(self, view: GroupView, assignor: str, eligible: Sequence[Member], digest: Digest) -> None:
        """Ask the assignor again unless everything that it was asked about still holds: a step costs its change."""
        subscribers = tuple(
            Subscriber(consumer_id=m.consumer_id, threads=m.threads)
            for m in sorted(eligible, key=lambda m: m.consumer_id)
        )
        key = (
            assignor,
            tuple((s.consumer_id, s.threads) for s in subscribers),
            view.topics,
        )
        if self._key == key:
            return
        question = _question(view, subscribers)
        answer = ASSIGNORS[assignor](question)
        check_assignment(question, answer)
        self._key, self.assignment, self.digest = key, answer, digest(answer)
        self.topics = frozenset(partition.topic for partition in answer)


def _question(view: GroupView, subscribers: tuple[Subscriber, ...]) -> AssignorInput:
    """The group as the assignor sees it: what an outstanding stop is about counts as free (design, "Failover")."""
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
    return AssignorInput(subscribers=subscribers, partitions=topics, owned=owned, preferred=preferred)
