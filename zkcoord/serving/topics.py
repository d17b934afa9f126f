"""All topics as a coordinator knows them: their names, their partitions, and the groups that want them.

The list of topics is watched. It comes in one reply, however long it is. A topic's own node is watched while some group
wants the topic. A change concerns only the groups that want the topic, also by a wildcard. For each wildcard the taken
topics are kept, so a new topic is matched once against each wildcard in use, and the other topics are not matched
again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set

from zkcoord.core.view import Wildcard
from zkcoord.errors import CorruptError
from zkcoord.serving.shared_wants import SharedWants
from zkcoord.shell.tracker import Tracker
from zkcoord.tree.known_topics import KnownTopics
from zkcoord.tree.paths import Layout
from zkcoord.tree.snapshot import Kind, Node
from zkcoord.tree.topic_filter import taken

Problem = Callable[[str, str | None], None]


class TopicTable(KnownTopics):
    """The topics of one session, each followed while some group wants it.

    The scope of the list is its path. The scope of a topic is its node's path.
    """

    def __init__(self, tracker: Tracker, layout: Layout, problem: Problem, shared: Callable[[str], bool]) -> None:
        """`problem` takes a topic's path, and what is wrong with it or None. `shared` is as for `SharedWants`."""
        super().__init__(layout)
        self._wants = SharedWants(tracker, shared)
        self._tracker, self._problem = tracker, problem
        self._gone: frozenset[str] = frozenset()  # topics that the last list lacks and the list before had
        self._first_list = False  # True if the last list was the first one
        self._wanted: dict[str, set[str]] = {}  # topic -> groups; invariant: exactly these topics are followed
        self._topics_of: dict[str, frozenset[str]] = {}  # group -> topics
        self._wildcards_of: dict[str, frozenset[Wildcard]] = {}  # group -> wildcards
        self._named: frozenset[str] | None = frozenset()  # cache of `named`; None: to be computed again
        self._taken: dict[Wildcard, Mapping[str, int]] = {}  # wildcard in use -> the topics of `listed` that it takes
        self._wants.want(layout.topics, Kind.CHILDREN, watch=True, scope=layout.topics)

    def end(self) -> None:
        """Stop following the list. No group wants a topic any more."""
        self._wants.unwant(self.layout.topics, Kind.CHILDREN)

    def follows(self, path: str) -> bool:
        """True when some group wants the topic of this node."""
        return self._name(path) in self._wanted

    def about(self, node: Node) -> bool:
        """True if the node is the list of topics or a topic."""
        above = self.layout.topics
        return node.path.startswith(f"{above}/") or (node.path == above and node.kind is Kind.CHILDREN)

    # what groups want

    def use(self, group: str, wildcards: frozenset[Wildcard]) -> None:
        """Set the group's wildcards."""
        self._named = None
        self._wildcards_of[group] = wildcards
        used = frozenset[Wildcard]().union(*self._wildcards_of.values())
        for wildcard in self._taken.keys() - used:
            del self._taken[wildcard]
            self._problem(_named(wildcard), None)
        for wildcard in used - self._taken.keys():
            self._taken[wildcard] = self._take(wildcard, self.listed or frozenset())

    def threads(self, wildcard: Wildcard) -> Mapping[str, int]:
        """Topic -> number of threads, for the topics that a wildcard in use takes now. It is the same object while
        nothing changes."""
        return self._taken[wildcard]

    def want(self, group: str, topics: frozenset[str]) -> None:
        """Set the topics that the group wants. A topic that no group wants is not followed."""
        before = self._topics_of.get(group, frozenset())
        if before != topics:
            self._named = None
        self._topics_of[group] = topics
        for topic in sorted(before - topics):
            self._wanted[topic].discard(group)
            if not self._wanted[topic]:
                del self._wanted[topic]
                self.drop(topic)
                self._wants.unwant(self.layout.topic(topic))
                self._problem(self.layout.topic(topic), None)
        for topic in sorted(topics - before):
            path = self.layout.topic(topic)
            self._wanted.setdefault(topic, set()).add(group)
            self._wants.want(path, watch=True, scope=path)

    @property
    def named(self) -> frozenset[str]:
        """The topics that groups want, apart from those that their wildcards take: as a rule, the topics that they
        subscribe to by name."""
        if self._named is None:
            found = set[str]()
            for group, topics in self._topics_of.items():
                taken_by = [self._taken[wildcard] for wildcard in self._wildcards_of.get(group, ())]
                found |= topics.difference(*taken_by)
            self._named = frozenset(found)
        return self._named

    def read_again(self, topics: Iterable[str]) -> None:
        """Read the list and these topics again."""
        self._tracker.touch(self.layout.topics, Kind.CHILDREN)
        for topic in sorted(topics):
            self._tracker.touch(self.layout.topic(topic))

    def forget(self, group: str) -> None:
        """Forget the group: it is gone."""
        self.want(group, frozenset())
        self.use(group, frozenset())
        del self._topics_of[group], self._wildcards_of[group]

    def _take(self, wildcard: Wildcard, names: Set[str]) -> dict[str, int]:
        """Those of `names` that the wildcard takes. Empty when the regex takes too long, which is logged."""
        problem, found = None, list[str]()
        try:
            found = taken(wildcard.regex, sorted(names), black_list=wildcard.black_list)
        except CorruptError as error:
            problem = f"{error}: who registered it must change it; it is given none of {len(names)} topics"
        self._problem(_named(wildcard), problem)
        return dict.fromkeys(found, wildcard.threads)

    # what was read

    def read(self, node: Node) -> set[str]:
        """Take in a node that was read. Returns the groups that it may concern."""
        self.changes += 1
        if node.path == self.layout.topics:
            return self._read_list(node)
        return self._read_topic(node) if self.follows(node.path) else set()

    def _read_list(self, node: Node) -> set[str]:
        self._first_list = self.listed is None
        before, self.listed = self.listed or frozenset(), frozenset(node.children) if node.exists else None
        now = self.listed or frozenset()
        self._gone = before - now
        changed = set()
        for wildcard, threads in self._taken.items():
            more = self._take(wildcard, now - before)
            if more or not threads.keys().isdisjoint(before - now):
                kept = {topic: count for topic, count in threads.items() if topic in now}
                self._taken[wildcard] = kept | more
                changed.add(wildcard)
        return {group for group, wildcards in self._wildcards_of.items() if not changed.isdisjoint(wildcards)}

    def _read_topic(self, node: Node) -> set[str]:
        problem = None
        try:
            info = self.take(node)
            if info is None:
                problem = "there is no such topic: create it; who subscribes to it waits"
            elif not info.partitions:
                problem = "the topic has no partitions: its creator must add some; who subscribes to it waits"
        except CorruptError as error:
            problem = f"{error}: the broker or an operator must mend it; what was known still holds"
        self._problem(node.path, problem)
        return set(self._wanted[self._name(node.path)])

    def _name(self, path: str) -> str:
        return path[len(self.layout.topics) + 1 :]

    # what is known

    def misses(self, topics: Set[str]) -> bool:
        """True when the last list was the first one and lacks one of these topics, or when one of them has left the
        list."""
        first = self._first_list and self.listed is not None and not topics <= self.listed
        return first or not self._gone.isdisjoint(topics)

    def clean(self, topics: Set[str], *, listing: bool) -> bool:
        """True when none of these topics (with `listing`: nor the list) is still to be read."""
        scopes = self._tracker.unclean()
        above = self.layout.topics
        if listing and above in scopes:
            return False
        return not any(scope.startswith(above) and self._name(scope) in topics for scope in scopes)


def _named(wildcard: Wildcard) -> str:
    """The name of a wildcard in its problem's log line."""
    return f"wildcard {wildcard.regex[:200]}"
