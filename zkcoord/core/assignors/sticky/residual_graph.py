"""Maintains one most even distribution that contains everything kept so far. It proves that the walk can be completed.

A thread may keep one more partition if any such distribution *exists*, so the answer must not depend on the
distribution at hand. When that has no room, a *detour* is searched: a cycle in its residual graph that changes no
thread's load level, so that the result is again a most even distribution. If no detour is found, no such distribution
exists.

The graph has three kinds of nodes. A class (int) gives back a partition of a topic that is not kept, or takes one more
partition, which lifts one of its threads to level L. A topic (str) goes to any class that reads it. A level (a tuple
with the number L) lets any class lose a partition from a thread of that level. So a gain at L is always paid by a loss
at L.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from zkcoord.core.assignors.sticky.classes import ThreadClass
from zkcoord.core.assignors.sticky.max_flow import Flow

_Node = int | str | tuple[int]


class ResidualGraph:
    """A most even `flow` with lower bounds: what is kept by class and topic, and by each thread."""

    def __init__(self, classes: list[ThreadClass], base: Flow, held: list[dict[str, int]], givers: list[int]) -> None:
        self.flow = base.settled_from(held, givers) if any(held) else base.copy()
        self._held = held
        self._classes = classes
        self._kept: list[dict[str, int]] = [dict.fromkeys(group.topics, 0) for group in classes]
        self._load = {thread: 0 for group in classes for thread in group.threads}
        self._class_of: dict[str | None, int] = {
            thread: index for index, group in enumerate(classes) for thread in group.threads
        }
        self._at = [{0: len(group.threads)} for group in classes]  # by class: kept load -> number of threads
        self._givers = {topic: dict.fromkeys(readers) for topic, readers in self.flow.readers.items()}
        # topic -> classes that may give one back; a superset
        self._refused: set[tuple[str, int, int]] = set()  # what is kept only grows, so a refusal is final
        self._lead: dict[_Node, dict[_Node, _Node]] = {}
        # goal -> the nodes from which ways led to it, once a start had none

    def walk(self, order: Iterable[tuple[str, int]], owners: Iterable[str | None]) -> list[tuple[str, int]]:
        """Keep each partition with its owner, one after the other, where that is possible. Return the others, in
        order."""
        class_of = self._class_of
        load, all_kept, all_shares = self._load, self._kept, self.flow.shares
        # below this level only the topic can refuse
        easy = [self.flow.bottom(index) - 1 for index in range(len(all_kept))]
        pool = []
        for pair, owner in zip(order, owners, strict=True):
            index = class_of.get(owner)
            if index is None or owner is None:
                pool.append(pair)
                continue
            topic, level, kept = pair[0], load[owner] + 1, all_kept[index]
            if level < easy[index] and topic in kept and kept[topic] < all_shares[index][topic]:
                kept[topic] += 1  # `_at` is not maintained for such levels, since nothing reads it there
            elif not self._keep(topic, index, level):
                pool.append(pair)
                continue
            load[owner] = level
        return pool

    def loads(self, index: int) -> dict[str, int]:
        """Return the threads of a class, in canonical order, with the number of partitions that each keeps."""
        return {thread: self._load[thread] for thread in self._classes[index].threads}

    def _keep(self, topic: str, index: int, level: int) -> bool:
        """Keep one partition of `topic` with a thread of the class, which then has `level` partitions, if that is
        possible.

        It is possible if some most even distribution holds it and all that was kept before.
        """
        kept, at = self._kept[index], self._at[index]
        if topic not in kept:
            return False
        quotient, remainder = divmod(self.flow.load[index], self.flow.threads[index])
        if level > quotient + 1:
            return False
        if (level <= quotient or at.get(level, 0) < remainder) and kept[topic] < self.flow.shares[index][topic]:
            kept[topic] += 1
        elif not self._keep_by_detour(topic, index, level):
            return False
        at[level - 1] = at.get(level - 1, 0) - 1
        at[level] = at.get(level, 0) + 1
        return True

    def _keep_by_detour(self, topic: str, index: int, level: int) -> bool:
        if (topic, index, 0) in self._refused or (topic, index, level) in self._refused:
            return False
        kept, shares = self._kept[index], self.flow.shares[index]
        if kept[topic] == shares[topic] and not self._raise_share(topic, index, self._held[index].get(topic, 0)):
            self._refused.add((topic, index, 0))
            return False
        kept[topic] += 1
        quotient, remainder = divmod(self.flow.load[index], self.flow.threads[index])
        full = level > quotient and self._at[index].get(level, 0) >= remainder
        if level > quotient + 1 or (full and not self._raise_load(index)):
            kept[topic] -= 1
            self._givers[topic][index] = None
            self._refused.add((topic, index, level))
            return False
        return True

    def complete(self, base: Flow) -> list[dict[str, int]]:
        """Return, for each class, topic -> the number of partitions that it is still given. It depends only on what was
        kept.

        Of all most even distributions that contain what was kept, this is the one that, pair by pair of topic and
        class, first comes nearest to `base` from below, then has the most. It uses up `_kept`.
        """
        given = [dict(counts) for counts in self._kept]
        loose = dict(self.flow.sizes)
        for counts in given:
            for topic, count in counts.items():
                loose[topic] -= count
        for topic, readers in self.flow.readers.items():
            self._givers[topic] = {i: None for i in readers if self.flow.shares[i][topic] > given[i][topic]}
        for bounded in (True, False):
            for topic in sorted(loose):
                for index in self.flow.readers[topic]:
                    if loose[topic]:
                        most = base.shares[index][topic] if bounded else self.flow.sizes[topic]
                        loose[topic] -= self._fix(topic, index, most)
        return [
            {topic: count - mine[topic] for topic, count in shares.items() if count > mine[topic]}
            for shares, mine in zip(self.flow.shares, given, strict=True)
        ]

    def _fix(self, topic: str, index: int, most: int) -> int:
        """Raise the lower bound of a share as far as possible, up to `most`. Return by how much it rose."""
        kept, shares = self._kept[index], self.flow.shares[index]
        before = kept[topic]
        kept[topic] = max(before, min(shares[topic], most))
        while shares[topic] < most:
            ways = self._ways_to(topic, index)
            if index not in ways:
                break
            shares[topic] += self._follow(index, topic, ways, most - shares[topic])
            kept[topic] = shares[topic]
        return kept[topic] - before

    def _raise_share(self, topic: str, index: int, most: int) -> bool:
        """Let a class have more of `topic`, towards `most`. False: no most even distribution gives it one more."""
        ways = self._ways_to(topic, index)
        if index not in ways:
            return False
        wanted = max(most - self.flow.shares[index][topic], 1)
        self.flow.shares[index][topic] += self._follow(index, topic, ways, wanted)
        self._givers[topic][index] = None
        return True

    def _raise_load(self, index: int) -> bool:
        """Let a class have one partition more in total. False: no most even distribution gives it one more."""
        level = (self.flow.bottom(index) + 1,)
        ways = self._ways_to(index, level)
        if level not in ways:
            return False
        self.flow.load[index] += self._follow(level, index, ways, 1)
        return True

    def _ways_to(self, goal: _Node, start: _Node) -> dict[_Node, _Node]:
        """Return the nodes from which the residual graph leads to `goal`, each with the next node on a way there. If
        there is a way from `start`, it is among them.

        The search walks backwards from the goal, breadth first, until it meets `start`, or a class that can take from
        `start`. A start that once had no way never gets one, as with refusals.
        """
        if start not in self._lead.get(goal, (start,)):
            return {}
        ways: dict[_Node, _Node] = {goal: goal}
        queue: list[_Node] = [goal]
        spare = self._spare(start) if isinstance(start, int) else []
        for node in queue:  # grows while it is walked
            if isinstance(node, int):
                steps = self._into_class(node, ways)
            elif isinstance(node, str):
                steps = [index for index in self._givers_of(node) if index not in ways]
            else:
                steps = [index for index in self._below(node[0]) if index not in ways]
            for step in steps:
                ways[step] = node
                if step == start:
                    return ways
                if spare and isinstance(step, int):
                    between = next((topic for topic in spare if topic in self._kept[step]), None)
                    if between is not None:
                        ways.setdefault(between, step)
                        ways[start] = between
                        return ways
            queue += steps
        if isinstance(start, int):
            self._lead[goal] = ways
        return ways

    def _into_class(self, index: int, ways: Mapping[_Node, _Node]) -> list[_Node]:
        """Return the topics and the level with an arc to the class that are not in `ways`."""
        steps: list[_Node] = [topic for topic in self._kept[index] if topic not in ways]
        level = (self.flow.top(index),)
        if level not in ways and self._can_lose(index) > 0:
            steps.append(level)
        return steps

    def _spare(self, index: int) -> list[str]:
        """Return the topics of which the class can give a partition back."""
        kept = self._kept[index]
        return [topic for topic, share in self.flow.shares[index].items() if share > kept[topic]]

    def _givers_of(self, topic: str) -> list[int]:
        """Return the classes that can give a partition of the topic back. Those that cannot are not considered
        again."""
        shares, kept, givers = self.flow.shares, self._kept, self._givers[topic]
        found = [index for index in givers if shares[index][topic] > kept[index][topic]]
        if len(found) < len(givers):
            self._givers[topic] = dict.fromkeys(found)
        return found

    def _below(self, level: int) -> list[int]:
        """Return the classes that have a thread which can be lifted to this level."""
        threads = self.flow.threads
        return [n for n, load in enumerate(self.flow.load) if load // threads[n] == level - 1]

    def _can_lose(self, index: int) -> int:
        """Return how many threads of a class may come down from its top level and still hold what they keep."""
        threads, top = self.flow.threads[index], self.flow.top(index)
        return self.flow.load[index] - threads * (top - 1) - self._at[index].get(top, 0) if top else 0

    def _follow(self, start: _Node, goal: _Node, ways: dict[_Node, _Node], wanted: int) -> int:
        """Move as much along the way from `start` to `goal` as it carries, up to `wanted`. Return the amount."""
        arcs, node = [], start
        while node != goal:
            arcs.append((node, ways[node]))
            node = ways[node]
        amount = min(wanted, *(self._carries(tail, head) for tail, head in arcs))
        flow = self.flow
        for tail, head in arcs:
            if isinstance(tail, int):
                if isinstance(head, str):
                    flow.shares[tail][head] -= amount
                else:
                    flow.load[tail] += amount
            elif isinstance(head, int):
                if isinstance(tail, str):
                    flow.shares[head][tail] += amount
                    self._givers[tail][head] = None
                else:
                    flow.load[head] -= amount
        return amount

    def _carries(self, tail: _Node, head: _Node) -> int:
        flow = self.flow
        if isinstance(tail, int):
            if isinstance(head, str):
                return flow.shares[tail][head] - self._kept[tail][head]
            return flow.threads[tail] - flow.load[tail] % flow.threads[tail]
        if isinstance(head, int) and not isinstance(tail, str):
            return self._can_lose(head)
        return flow.sizes[tail] if isinstance(tail, str) else 0
