"""Computes how many partitions of each topic each class of threads reads, so that loads are as even as possible.

Loads are as even as possible when no chain of classes can pass a partition from one thread to another that has at least
two fewer. The sorted loads are then the smallest possible (a convex flow without an improving cycle is optimal). That
is stronger than Kafka's sticky balance, which considers only chains of length one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from zkcoord.core.assignors.sticky.classes import ThreadClass


class Flow:
    """Partitions assigned from topics to classes. A class's load is spread evenly over its threads.

    `shares` maps, for each class, a topic to its number of partitions. `readers` maps a topic to the classes that may
    read it, ascending.
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
        self._givers = list(range(len(classes)))

    def top(self, index: int) -> int:
        """Return the load of the fullest thread of a class."""
        return -(-self.load[index] // self.threads[index])

    def bottom(self, index: int) -> int:
        """Return the load of the emptiest thread of a class."""
        return self.load[index] // self.threads[index]

    def settle(self) -> Flow:
        """Complete the flow, and make its loads as even as possible.

        From an empty flow the result depends on classes and sizes alone.
        """
        # topics with the fewest readers first
        for topic in sorted(self.sizes, key=lambda name: (len(self.readers[name]), name)):
            here = sum(self.shares[index][topic] for index in self.readers[topic])
            self._pour(topic, self.sizes[topic] - here)
        self._improve()
        return self

    def settled_from(self, held: list[dict[str, int]], givers: list[int]) -> Flow:
        """Return another most even flow, near to what each class holds. `held` maps, for each class, a topic to its
        number of partitions.

        Of equal choices, the classes first in `givers` give first; within a class, the topics first in `held`.
        """
        flow = Flow(self._classes, self.sizes)
        flow._givers = givers
        for index, counts in enumerate(held):
            flow.shares[index] = {**counts, **{topic: 0 for topic in flow.shares[index] if topic not in counts}}
            flow.load[index] = sum(counts.values())
        return flow.settle()

    def copy(self) -> Flow:
        """Return an independent copy of this flow."""
        flow = Flow(self._classes, self.sizes)
        flow.shares = [dict(shares) for shares in self.shares]
        flow.load = list(self.load)
        return flow

    def _pour(self, topic: str, count: int) -> None:
        """Give `count` partitions to the topic's readers, the emptiest first, as water finds its level."""
        readers, load, threads = self.readers[topic], self.load, self.threads
        low = min(self.bottom(index) for index in readers)
        high = max(self.bottom(index) for index in readers) + 2 + count // sum(threads[index] for index in readers)
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
        """Pass partitions along chains until no chain leads from a thread to one with at least two fewer."""
        classes = range(len(self.load))
        top = max(map(self.top, classes))
        even: set[int | str] = set()  # no arc leads out of this set: a chain that does not begin in it never enters it
        while top > min(map(self.bottom, classes)) + 1:
            sources = [index for index in self._givers if self.top(index) == top and index not in even]
            if not _Phase(self, sources, top, even).run():
                top = max(self.top(index) for index in classes if self.top(index) < top)
            elif not any(self.top(index) == top for index in sources):
                top = max(self.top(index) for index in classes if self.top(index) <= top)

    def push(self, chain: list[tuple[int, str, int]]) -> None:
        """Move the largest amount along `chain` that still goes from a thread with at least two more than the taker."""
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


class _Phase:
    """One phase of Dinic's algorithm: all shortest chains from threads at `top` to threads with at least two fewer.

    Distances are measured once, breadth first. Every chain along them is pushed. A node that leads nowhere is never
    visited again. So a phase costs one visit of each share, plus the moves.

    `even` holds nodes that are not visited. When no possible taker is in reach, all reached nodes are added to it:
    their loads are as even as possible, and stay so.
    """

    def __init__(self, flow: Flow, sources: list[int], top: int, even: set[int | str]) -> None:
        self._flow, self._sources, self._top, self._even = flow, sources, top, even
        self._arcs: dict[int | str, Iterator[int | str]] = {}  # arcs that were not tried yet
        self._now: dict[int | str, int | str | None] = {}  # the arc that is in use
        self._distance: dict[int | str, int] = dict.fromkeys(sources, 0)

    def run(self) -> bool:
        """Push all chains; True if anything was moved."""
        if not self._measure():
            return False
        pushed = False
        for source in self._sources:
            while self._flow.top(source) == self._top:
                chain = self._chain(source)
                if not chain:
                    break
                self._flow.push(chain)
                pushed = True
        return pushed

    def _measure(self) -> bool:
        """Measure the distances. True if a possible taker is in reach."""
        shares, readers, distance, even = self._flow.shares, self._flow.readers, self._distance, self._even
        queue: list[int | str] = list(self._sources)
        for node in queue:  # grows while it is walked
            steps: Iterable[int | str] = readers[node] if isinstance(node, str) else shares[node]
            further = distance[node] + 1
            for step in steps:
                if step in distance or step in even:
                    continue
                if isinstance(node, str) or shares[node][str(step)]:
                    distance[step] = further
                    queue.append(step)
        if any(isinstance(node, int) and self._flow.bottom(node) <= self._top - 2 for node in queue):
            return True
        even.update(queue)
        return False

    def _chain(self, source: int) -> list[tuple[int, str, int]]:
        """Return the next chain from `source`, walking depth first along the distances. Empty: there is none left."""
        nodes: list[int | str] = [source]
        while nodes:
            node = nodes[-1]
            if isinstance(node, int) and node != source and self._flow.bottom(node) <= self._top - 2:
                return [
                    (int(giver), str(topic), int(taker))
                    for giver, topic, taker in zip(nodes[0::2], nodes[1::2], nodes[2::2], strict=False)
                ]
            step = self._step(node)
            if step is None:
                nodes.pop()
                if nodes:
                    self._now[nodes[-1]] = None  # that arc leads nowhere any more
            else:
                nodes.append(step)
        return []

    def _step(self, node: int | str) -> int | str | None:
        """Return the node at the end of the current arc, or of the next one. None: no arc is left."""
        shares, readers, further = self._flow.shares, self._flow.readers, self._distance[node] + 1
        if node not in self._arcs:
            self._arcs[node] = iter(readers[node] if isinstance(node, str) else shares[node])
        step = self._now.get(node)
        while step is None or not (isinstance(node, str) or shares[node][str(step)]):
            step = next(self._arcs[node], None)
            if step is None:
                return None
            if self._distance.get(step) != further:
                step = None
        self._now[node] = step
        return step
