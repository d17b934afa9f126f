"""Kafka's metadata as a coordinator is told it: brokers that lag, answers that are late, partial, of another cluster,
or do not come.

What `/brokers/topics` holds is the truth of the simulated cluster. A broker tells what was true some time ago.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tests.sim.process import SimProcess
from tests.sim.world import World
from tests.sim.zookeeper import Txn
from zkcoord.core.topic_answers import Answer, Broker, Cluster, Described, Kind, Listed, Question, Told, shape_of
from zkcoord.errors import UnavailableError
from zkcoord.shell.ports import CallDone

CLUSTER = "cluster-1"
TOPICS = "/brokers/topics"
SILENT_MS = 3_000  # how long a client waits for an answer that does not come
LATE_MS = 8_000  # a late answer: a coordinator asked meanwhile, or another one serves

STRANGER = "cluster-of-others"
STRANGE = {"t": (0,), "v": (0, 1), "x": (0, 1)}
"""Topic -> partitions of another cluster, one of whose brokers is in the bootstrap list."""


class Seen(NamedTuple):
    """A topic at some time."""

    topic_id: str | None
    partitions: Mapping[int, tuple[int, ...]]


class Metadata:
    """One cluster. Its faults are attributes that a test or a storm sets."""

    def __init__(self, world: World, brokers: int = 3) -> None:
        self.world = world
        self.cluster_id = CLUSTER
        self.brokers = {number: Broker(f"b{number}", 9092, f"rack{number % 2}") for number in range(brokers)}
        self.lag_ms = dict.fromkeys(range(brokers), 0)  # how old the state is that a broker tells
        self.answer_ms_max = 5
        self.list_ms = 0  # how much longer a list takes
        self.away = False
        self.silent_rate = 0.0  # of questions that nobody answers
        self.partial_rate = 0.0  # of answers that leave topics, or a topic's partitions, out
        self.no_ids = False  # brokers of before 2.8
        self.no_topics = False  # brokers that were told of each other only
        self.no_controller_rate = 0.0  # of lists that are not whole, with any topics
        self.few_brokers_rate = 0.0  # of answers that leave brokers out
        self.late_rate = 0.0  # of answers that come LATE_MS later
        self.stranger_rate = 0.0  # of connections to a broker of another cluster, which is in the bootstrap list
        self.between_rate = 0.0  # of descriptions that one of its brokers gives, though lists are this cluster's
        self.alike = False  # its topics have the partitions and replicas of this cluster's
        self.strange_next: list[Kind] = []  # the next answer to such a question is that broker's
        self._strange = False  # the client is connected to that one: it stays so until its next list
        self.reached: Counter[str] = Counter()  # fault -> how often it came
        self._told = 0  # which state was told last
        self.asked: list[tuple[int, Question]] = []
        self._truth: list[tuple[int, dict[str, Seen]]] = [(0, self._now())]
        world.ensemble.on_applied.append(self._applied)

    def _applied(self, txn: Txn) -> None:
        if any(path.startswith(TOPICS) for path, _, _ in txn.changes):
            self._truth.append((self.world.now_ms, self._now()))

    def _now(self) -> dict[str, Seen]:
        found = {}
        for name in self.world.ensemble.names(TOPICS):
            document = json.loads(self.world.ensemble.data(f"{TOPICS}/{name}") or b"{}")
            numbered = document.get("partitions", {})
            found[name] = Seen(document.get("topic_id"), {int(n): tuple(ids) for n, ids in numbered.items()})
        return found

    @property
    def now(self) -> Mapping[str, Seen]:
        """The topics as they are."""
        return self._truth[-1][1]

    @property
    def states(self) -> Iterator[Mapping[str, Seen]]:
        """The topics as they were, one state after the other."""
        return (state for _, state in self._truth)

    def seen(self, broker: int) -> dict[str, Seen]:
        """The topics as this broker knows them."""
        if self.no_topics:
            return {}
        at_ms = self.world.now_ms - self.lag_ms[broker]
        number = max(sum(time_ms <= at_ms for time_ms, _ in self._truth) - 1, 0)
        self.reached["older than the answer before"] += number < self._told
        self._told = number
        return self._truth[number][1]

    def connect(self, process: SimProcess) -> Line:
        """The thread of a process that asks."""
        return Line(self, process)

    def answer(self, question: Question, draw: Any) -> Answer | None:
        """What some broker answers now; None: none does."""
        self.asked.append((self.world.now_ms, question))
        if self.away or draw() < self.silent_rate:
            return None
        if self._by_stranger(question.kind, draw):
            return self._strangers(question)
        known = self.seen(int(draw() * len(self.brokers)))
        match question.kind:
            case Kind.CLUSTER:
                return Cluster(self.cluster_id, self._brokers_told(draw))
            case Kind.LIST:
                return self._list(known, draw)
            case Kind.DESCRIBE:
                return self._description(question.topics, known, draw)

    def _by_stranger(self, kind: Kind, draw: Any) -> bool:
        if kind is Kind.LIST and self.stranger_rate:
            self._strange = draw() < self.stranger_rate
        once = kind in self.strange_next
        if once:
            self.strange_next.remove(kind)
        between = kind is Kind.DESCRIBE and self.between_rate > 0 and draw() < self.between_rate
        strange = once or between or (self._strange and self.stranger_rate > 0)
        self.reached["another cluster"] += strange
        self.reached["another cluster between two lists"] += between
        return strange

    def _strangers(self, question: Question) -> Answer:
        """What the broker of another cluster answers."""
        own: dict[str, Told] = {
            name: Told(f"strange-{name}", self._stranger_partitions(name)) for name in sorted(STRANGE)
        }
        if question.kind is Kind.CLUSTER:
            return Cluster(STRANGER, {9: Broker("b9", 9092)})
        if question.kind is Kind.LIST:
            return Listed(STRANGER, frozenset({9}), {name: shape_of(one.partitions or {}) for name, one in own.items()})
        return Described({name: own.get(name, Told(missing=True)) for name in question.topics})

    def _stranger_partitions(self, name: str) -> Mapping[int, tuple[int, ...]]:
        if self.alike and name in self.now:
            return self.now[name].partitions
        return dict.fromkeys(STRANGE[name], (9,))

    def _brokers_told(self, draw: Any) -> dict[int, Broker]:
        if draw() >= self.few_brokers_rate:
            return self.brokers
        self.reached["few brokers"] += 1
        return {number: broker for number, broker in self.brokers.items() if draw() < 0.5}

    def _list(self, known: Mapping[str, Seen], draw: Any) -> Listed:
        shapes = {name: shape_of(seen.partitions) for name, seen in known.items()}
        if draw() < self.partial_rate:
            self.reached["part of the list"] += 1
            shapes = {name: shape for name, shape in shapes.items() if draw() < 0.5}
        if draw() < self.no_controller_rate:
            self.reached["no controller"] += 1
            some = {name: shape for name, shape in shapes.items() if draw() < 0.3}
            return Listed(self.cluster_id, frozenset(self.brokers), some, whole=False)
        return Listed(self.cluster_id, frozenset(self._brokers_told(draw)), shapes)

    def _description(self, topics: Sequence[str], known: Mapping[str, Seen], draw: Any) -> Described:
        told = {}
        for name in topics:
            if draw() < self.partial_rate:
                told[name] = Told()
                continue
            seen = known.get(name)
            if seen is None:
                told[name] = Told(missing=True)
                continue
            some = draw() < self.partial_rate
            partitions = {n: ids for n, ids in seen.partitions.items() if not some or draw() < 0.5}
            no_id = self.no_ids or draw() < self.partial_rate
            self.reached["no id"] += no_id
            told[name] = Told(None if no_id else seen.topic_id, partitions)
        return Described(told)


class Line:
    """Implements the Callbacks port: answers come one after the other, each after a while."""

    def __init__(self, metadata: Metadata, process: SimProcess) -> None:
        self._metadata, self._process = metadata, process

    def call(self, token: int, name: str, argument: Any) -> None:
        """Answer later: the state is that of the moment of asking, or of the answer."""
        world, metadata = self._metadata.world, self._metadata
        rng = world.rng
        early = metadata.answer(argument, rng.random) if rng.random() < 0.5 else False
        delay_ms = 1 + int(rng.random() * metadata.answer_ms_max)
        if argument.kind is Kind.LIST:
            delay_ms += metadata.list_ms
        if metadata.late_rate and rng.random() < metadata.late_rate:
            delay_ms += LATE_MS
            metadata.reached["late"] += 1

        def done() -> None:
            answer = metadata.answer(argument, rng.random) if early is False else early
            if answer is None:
                self._process.after(SILENT_MS, lambda: self._silent(token))
            else:
                self._process.inbox.put(CallDone(token, answer))

        self._process.after(delay_ms, done)

    def _silent(self, token: int) -> None:
        self._process.inbox.put(CallDone(token, None, UnavailableError("Kafka at b:9092 did not list its topics")))
