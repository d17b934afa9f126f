"""Looks in the file of an import for topics and partitions that do not exist, and for offsets outside of the logs.

An import sets these offsets anyway, as Kafka's own tool does: a topic may be created later, and an old tree has offsets
of deleted topics. But without this check nobody would notice a misspelled name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from zkcoord.core.model import TopicPartition
from zkcoord.core.words import count
from zkcoord.errors import CorruptError
from zkcoord.offsets.verify import Logs
from zkcoord.offsets.writing import NAMED_MAX
from zkcoord.tree.bulk import Reading, children, data
from zkcoord.tree.paths import Layout
from zkcoord.tree.topic import topic_of

COUNTS = "what is set counts once there is one"

LINES_MAX = 20
"""At most 20 topics of each kind get their own line, because an old tree may have offsets of very many deleted
topics."""


@dataclass(slots=True)
class _Odd:
    """The findings of one kind in one topic: the number of offsets, and the first few in words."""

    offsets: int = 0
    words: list[str] = field(default_factory=list)

    def add(self, words: str) -> None:
        self.offsets += 1
        if len(self.words) < NAMED_MAX and words not in self.words:
            self.words.append(words)


class ImportCheck:
    """Looks through one file, some offsets at a time. It keeps a little for each topic, and nothing for each offset."""

    def __init__(
        self, read: Reading, layout: Layout, told: Iterable[TopicPartition] | None = None, logs: Logs | None = None
    ) -> None:
        """`told`: the partitions that Kafka has. `logs` asks Kafka for their logs. None: the command got no brokers'
        addresses."""
        self._read, self._layout, self._logs = read, layout, logs
        self._told: defaultdict[str, set[int]] = defaultdict(set)
        for topic, number in told or ():
            self._told[topic].add(number)
        (folder,) = children(read, [layout.topics])
        self._known = folder.exists or told is not None  # whether the existing topics are known
        self._numbers: dict[str, Collection[int] | None] = {}
        # of topics in the file; None: the topic's node cannot be read
        self._absent: defaultdict[str, _Odd] = defaultdict(_Odd)
        self._beyond: defaultdict[str, _Odd] = defaultdict(_Odd)
        self._outside: defaultdict[str, _Odd] = defaultdict(_Odd)

    def look(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Check some offsets of the file."""
        if not self._known:
            return
        self._learn(sorted({partition.topic for partition in offsets} - self._numbers.keys()))
        there = []
        for partition in sorted(offsets):
            numbers = self._numbers[partition.topic]
            if numbers is None or partition.partition in numbers:
                there.append(partition)
            elif numbers:
                self._beyond[partition.topic].add(str(partition.partition))
            else:
                self._absent[partition.topic].add("")
        for partition, log in sorted(self._logs(there).items()) if self._logs is not None and there else ():
            if not log.start <= offsets[partition] <= log.end:
                self._outside[partition.topic].add(f"{partition} at {offsets[partition]} ({log.start} to {log.end})")

    def _learn(self, topics: list[str]) -> None:
        """Look up the partitions of these topics. A topic that does not exist has none."""
        for topic, node in zip(topics, data(self._read, [self._layout.topic(t) for t in topics]), strict=True):
            try:
                found = set(topic_of(topic, node.data).partitions) if node.exists else set[int]()
            except CorruptError:
                self._numbers[topic] = None
                continue
            found |= self._told.get(topic, set())
            whole = range(len(found))
            self._numbers[topic] = whole if found == set(whole) else frozenset(found)

    def lines(self) -> Iterator[str]:
        """Yield the findings: a line for each topic, with the lines of one kind together."""
        if not self._known:
            yield f"there is no {self._layout.topics} yet: whether the topics of the file exist is not known"
        yield from _first(self._absent, self._of_absent)
        yield from _first(self._beyond, self._of_beyond)
        yield from _first(self._outside, self._of_outside)

    def _of_absent(self, topic: str, odd: _Odd) -> str:
        return (
            f"there is no topic {topic} now ({count(odd.offsets, 'offset')}): correct the name, or leave it: {COUNTS}"
        )

    def _of_beyond(self, topic: str, odd: _Odd) -> str:
        has = count(len(self._numbers[topic] or ()), "partition")
        absent = f"{', '.join(odd.words)} ({count(odd.offsets, 'offset')})"
        return f"topic {topic} has {has} now, and no {absent}: correct the numbers, or leave them: {COUNTS}"

    def _of_outside(self, topic: str, odd: _Odd) -> str:
        return (
            f"topic {topic}: {count(odd.offsets, 'offset')} outside of the log, as {', '.join(odd.words)}: consumers go"
            " on by their reset policy there; `zkcoord group reset-offsets G --from-file FILE` sets offsets within the"
            " logs"
        )


def _first(found: Mapping[str, _Odd], line: Callable[[str, _Odd], str]) -> Iterator[str]:
    topics = sorted(found)
    for topic in topics[:LINES_MAX]:
        yield line(topic, found[topic])
    if len(topics) > LINES_MAX:
        yield f"the same is so of {count(len(topics) - LINES_MAX, 'further topic')}"
