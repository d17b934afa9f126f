"""How many partitions of each topic each class of threads reads, so that loads are as even as they can be.

Loads are as even as possible when no chain of classes can pass a partition along from a thread to another that has at
least two fewer: then the sorted loads are the smallest there are (a convex flow without an improving path is optimal).
That is stronger than Kafka's sticky balance, which looks at chains of length one. The result depends on the classes and
the sizes of the topics alone.
"""

from __future__ import annotations

from collections.abc import Mapping

from zkcoord.core.assignors.classes import ThreadClass


def level_shares(classes: list[ThreadClass], sizes: Mapping[str, int]) -> list[dict[str, int]]:
    """By class, in the order given: topic to the number of its partitions that the class reads (zeros left out)."""
    flow = _Flow(classes)
    for topic in sorted(sizes, key=lambda name: (len(flow.readers[name]), name)):  # least choice first
        flow.pour(topic, sizes[topic])
    flow.improve()
    return [{topic: count for topic, count in shares.items() if count} for shares in flow.shares]


class _Flow:
    """Partitions on their way from topics to classes. A class's load is spread evenly over its threads."""

    def __init__(self, classes: list[ThreadClass]) -> None:
        self.shares: list[dict[str, int]] = [dict.fromkeys(group.topics, 0) for group in classes]
        self.readers: dict[str, list[int]] = {}
        for index, group in enumerate(classes):
            for topic in group.topics:
                self.readers.setdefault(topic, []).append(index)
        self._threads = [len(group.threads) for group in classes]
        self._load = [0] * len(classes)

    def pour(self, topic: str, count: int) -> None:
        """Give `count` partitions to the topic's readers, the emptiest first, as water finds its level."""
        readers = self.readers[topic]
        load, threads = self._load, self._threads
        low, high = 0, max(load[index] // threads[index] for index in readers) + count + 1
        while low < high:  # the lowest level at which all fits
            level = (low + high) // 2
            if sum(max(level * threads[index] - load[index], 0) for index in readers) >= count:
                high = level
            else:
                low = level + 1
        for level in (low - 1, low):
            for index in readers:
                amount = min(max(level * threads[index] - load[index], 0), count)
                self.shares[index][topic] += amount
                load[index] += amount
                count -= amount

    def improve(self) -> None:
        """Pass partitions along chains until none leads from a thread to one with at least two fewer."""
        top = max(map(self._top, range(len(self._load))))
        while top > min(map(self._bottom, range(len(self._load)))) + 1:
            sources = [index for index in range(len(self._load)) if self._top(index) == top]
            path = self._path(sources, top - 2)
            if path:
                self._push(path)
            elif sources:
                top = max(self._top(index) for index in range(len(self._load)) if self._top(index) < top)
            else:
                top -= 1

    def _top(self, index: int) -> int:
        """The load of the fullest thread of a class."""
        return -(-self._load[index] // self._threads[index])

    def _bottom(self, index: int) -> int:
        """The load of the emptiest thread of a class."""
        return self._load[index] // self._threads[index]

    def _path(self, sources: list[int], most: int) -> list[tuple[int, str, int]]:
        """The shortest chain of (giving class, topic, taking class) to a class whose emptiest thread has <= `most`."""
        arrived: dict[int, tuple[int, str, int]] = {}
        seen_classes, seen_topics = set(sources), set[str]()
        queue = list(sources)
        for giver in queue:  # grows while it is walked: breadth first
            for topic, count in self.shares[giver].items():
                if count == 0 or topic in seen_topics:
                    continue
                seen_topics.add(topic)
                for taker in self.readers[topic]:
                    if taker in seen_classes:
                        continue
                    seen_classes.add(taker)
                    arrived[taker] = (giver, topic, taker)
                    if self._bottom(taker) <= most:
                        return _walk_back(arrived, taker)
                    queue.append(taker)
        return []

    def _push(self, path: list[tuple[int, str, int]]) -> None:
        """Move as much along `path` as still takes from a thread with at least two more than the taker's."""
        first, last = path[0][0], path[-1][2]
        low, high = 1, min(self.shares[giver][topic] for giver, topic, _ in path)
        while low < high:
            amount = (low + high + 1) // 2
            gives = -(-(self._load[first] - amount + 1) // self._threads[first])
            takes = (self._load[last] + amount - 1) // self._threads[last]
            if gives - takes >= 2:
                low = amount
            else:
                high = amount - 1
        for giver, topic, taker in path:
            self.shares[giver][topic] -= low
            self.shares[taker][topic] += low
        self._load[first] -= low
        self._load[last] += low


def _walk_back(arrived: Mapping[int, tuple[int, str, int]], last: int) -> list[tuple[int, str, int]]:
    path: list[tuple[int, str, int]] = []
    while last in arrived:
        path.append(arrived[last])
        last = arrived[last][0]
    return path[::-1]
