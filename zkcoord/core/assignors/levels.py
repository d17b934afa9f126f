"""How many partitions of each topic each class of threads reads, so that loads are as even as they can be.

Loads are as even as possible when no chain of classes can pass a partition along from a thread to another that has at
least two fewer: then the sorted loads are the smallest there are (a convex flow without an improving cycle is optimal).
That is stronger than Kafka's sticky balance, which looks at chains of length one.
"""

from __future__ import annotations

from collections.abc import Mapping

from zkcoord.core.assignors.classes import ThreadClass


class Flow:
    """Partitions on their way from topics to classes. A class's load is spread evenly over its threads.

    `shares` by class: topic to number of its partitions; `readers`: topic to the classes that may read it, ascending.
    """

    def __init__(self, classes: list[ThreadClass], sizes: Mapping[str, int]) -> None:
        self.sizes = sizes
        self._classes = classes
        self.shares: list[dict[str, int]] = [dict.fromkeys(group.topics, 0) for group in classes]
        self.readers: dict[str, list[int]] = {}
        for index, group in enumerate(classes):
            for topic in group.topics:
                self.readers.setdefault(topic, []).append(index)
        self.threads = [len(group.threads) for group in classes]
        self.load = [0] * len(classes)

    def top(self, index: int) -> int:
        """The load of the fullest thread of a class."""
        return -(-self.load[index] // self.threads[index])

    def bottom(self, index: int) -> int:
        """The load of the emptiest thread of a class."""
        return self.load[index] // self.threads[index]

    def settle(self) -> Flow:
        """Complete the flow, and make its loads as even as they can be.

        Starting from an empty flow the result depends on classes and sizes alone.
        """
        for topic in sorted(self.sizes, key=lambda name: (len(self.readers[name]), name)):  # least choice first
            here = sum(self.shares[index][topic] for index in self.readers[topic])
            self._pour(topic, self.sizes[topic] - here)
        self._improve()
        return self

    def settled_from(self, held: list[dict[str, int]]) -> Flow:
        """Another most even flow, near to what each class holds: `held` by class, topic to number of partitions."""
        flow = Flow(self._classes, self.sizes)
        for index, counts in enumerate(held):
            flow.shares[index].update(counts)
            flow.load[index] = sum(counts.values())
        return flow.settle()

    def copy(self) -> Flow:
        """The same flow, free to change."""
        flow = Flow(self._classes, self.sizes)
        flow.shares = [dict(shares) for shares in self.shares]
        flow.load = list(self.load)
        return flow

    def _pour(self, topic: str, count: int) -> None:
        """Give `count` partitions to the topic's readers, the emptiest first, as water finds its level."""
        readers, load, threads = self.readers[topic], self.load, self.threads
        low = min(self.bottom(index) for index in readers)
        high = max(self.bottom(index) for index in readers) + count + 1
        while low < high and count:  # the lowest level at which all fits
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

    def _improve(self) -> None:
        """Pass partitions along chains until none leads from a thread to one with at least two fewer."""
        classes = range(len(self.load))
        top = max(map(self.top, classes))
        while top > min(map(self.bottom, classes)) + 1:
            sources = [index for index in classes if self.top(index) == top]
            chain = self._chain(sources, top - 2)
            if chain:
                self._push(chain)
            else:  # what these classes can reach is as even as it can be, and stays so
                top = max(self.top(index) for index in classes if self.top(index) < top)

    def _chain(self, sources: list[int], most: int) -> list[tuple[int, str, int]]:
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
                    if self.bottom(taker) <= most:
                        return _walk_back(arrived, taker)
                    queue.append(taker)
        return []

    def _push(self, chain: list[tuple[int, str, int]]) -> None:
        """Move as much along `chain` as still takes from a thread with at least two more than the taker's."""
        first, last = chain[0][0], chain[-1][2]
        low, high = 1, min(self.shares[giver][topic] for giver, topic, _ in chain)
        while low < high:
            amount = (low + high + 1) // 2
            gives = -(-(self.load[first] - amount + 1) // self.threads[first])
            takes = (self.load[last] + amount - 1) // self.threads[last]
            if gives - takes >= 2:
                low = amount
            else:
                high = amount - 1
        for giver, topic, taker in chain:
            self.shares[giver][topic] -= low
            self.shares[taker][topic] += low
        self.load[first] -= low
        self.load[last] += low


def _walk_back(arrived: Mapping[int, tuple[int, str, int]], last: int) -> list[tuple[int, str, int]]:
    chain: list[tuple[int, str, int]] = []
    while last in arrived:
        chain.append(arrived[last])
        last = arrived[last][0]
    return chain[::-1]
