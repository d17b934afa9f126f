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
    """Invariant: `assignment` and `digest` belong to `key`, which holds all that they depend on."""

    assignment: Mapping[TopicPartition, str] = field(default_factory=dict)
    digest: str = ""
    _key: object = None

    def look(self, view: GroupView, assignor: str, eligible: Sequence[Member], digest: Digest) -> None:
        """Ask the assignor again unless everything that it was asked about still holds: a step costs its change."""
        subscribers = tuple(
            Subscriber(consumer_id=m.consumer_id, threads=m.threads)
            for m in sorted(eligible, key=lambda m: m.consumer_id)
        )
        key = (
            assignor,
            tuple((s.consumer_id, tuple(sorted(s.threads.items()))) for s in subscribers),
            view.topics,
        )
        if self._key == key:
            return
        question = _question(view, subscribers)
        answer = ASSIGNORS[assignor](question)
        check_assignment(question, answer)
        self._key, self.assignment, self.digest = key, answer, digest(answer)


def _question(view: GroupView, subscribers: tuple[Subscriber, ...]) -> AssignorInput:
    """The group as the assignor sees it: what an outstanding stop is about counts as free (design, "Failover")."""
    wanted = {topic for s in subscribers for topic in s.threads}
    topics = {topic: ids for topic, ids in view.topics.items() if topic in wanted}
    eligible_ids = {s.consumer_id for s in subscribers}
    owned = {p: t for p, t in view.held() if consumer_of(t) in eligible_ids}
    preferred: dict[TopicPartition, str] = {}
    for channel in view.channels.values():
        for command in channel.commands:
            if command.option == "stop-fetcher" and command.threads:
                for partition, thread in command.threads.items():
                    owned.pop(partition, None)
                    if thread and consumer_of(thread) in eligible_ids:
                        preferred[partition] = thread
    return AssignorInput(subscribers=subscribers, partitions=topics, owned=owned, preferred=preferred)
