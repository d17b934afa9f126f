"""Kafka's metadata as a coordinator sees it: brokers that lag, and answers that are late, partial, from another
cluster, or missing.

`/brokers/topics` holds the true state of the simulated cluster. A broker tells the state of some time ago.
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
LATE_MS = 8_000  # a late answer: meanwhile a coordinator has asked again, or another one serves

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
        self.lag_ms = dict.fromkeys(range(brokers), 0)  # the age of the state that each broker tells
        self.answer_ms_max = 5
        self.list_ms = 0  # extra time that a list takes
        self.away = False
        self.silent_rate = 0.0  # of questions that get no answer
        self.partial_rate = 0.0  # of answers that lack topics, or partitions of a topic
        self.no_ids = False  # brokers before 2.8 tell no topic ids
        self.no_topics = False  # brokers have been told of each other, but of no topic
        self.no_controller_rate = 0.0  # of lists that are marked as not whole
        self.few_brokers_rate = 0.0  # of answers that lack brokers
        self.late_rate = 0.0  # of answers that come LATE_MS later
        self.stranger_rate = 0.0  # of connections to a broker of another cluster, which is in the bootstrap list
        self.between_rate = 0.0  # of descriptions from a broker of the other cluster, between two lists of this cluster
        self.alike = False  # the other cluster's topics have the partitions and replicas of this cluster's
        self.strange_next: list[Kind] = []  # the next answer to each of these kinds comes from the other cluster
        self._strange = False  # the client is connected to the other cluster, until its next list
        self.reached: Counter[str] = Counter()  # fault -> how often it happened
        self._told = 0  # number of the state that was told last
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
        """The topics in the true state."""
        return self._truth[-1][1]

    @property
    def states(self) -> Iterator[Mapping[str, Seen]]:
        """All true states so far, oldest first."""
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
        """The line by which a process asks Kafka."""
        return Line(self, process)

    def answer(self, question: Question, draw: Any) -> Answer | None:
        """The answer of some broker to a question asked now; None: no broker answers."""
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
        """The answer of a broker of the other cluster."""
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
    """Implements the Callbacks port: answers come one by one, in order, each after a delay."""

    def __init__(self, metadata: Metadata, process: SimProcess) -> None:
        self._metadata, self._process = metadata, process

    def call(self, token: int, name: str, argument: Any) -> None:
        """Answer later, with the state at the moment of the question or of the answer."""
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
