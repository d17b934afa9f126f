"""Switches a tree from one source of topics to the other: Kafka's own nodes in ZooKeeper, or Kafka's metadata.

This is a migration like every other: the first batch raises the epoch and marks the schema, each further batch checks
that mark, and the last one names the new source. Both sources are compared before it begins. In the mirror a topic is
identified only by its id. So the source changes only after every group's mark of a topic has the topic's id and the
mirror is written. No topic then looks as if it had been created again, and no offset is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from zkcoord.core.topic_mirror import (
    Change,
    Complete,
    Doubt,
    Mirror,
    PutBroker,
    PutTopic,
    RemoveBroker,
    RemoveTopic,
    Topic,
)
from zkcoord.errors import CorruptError, FencedError, SchemaError, UsageError, invariant
from zkcoord.migrate import plan
from zkcoord.migrate.engine import ROUNDS_MAX, Report, Run
from zkcoord.migrate.plan import KAFKA_TOPICS_SINCE, Mark
from zkcoord.migrate.ports import BlockingTree
from zkcoord.tree.brokers_move import cluster_id_of
from zkcoord.tree.bulk import children, data
from zkcoord.tree.paths import BROKERS, CLUSTER_ID, EPOCH, FROM_KAFKA, RECORDS, ROOT, SCHEMA, TOPICS, Layout
from zkcoord.tree.schema import Schema, encode_schema
from zkcoord.tree.snapshot import Node
from zkcoord.tree.topic import Mark as TopicMark
from zkcoord.tree.topic import TopicInfo, decode_mark, encode_mark, same_incarnation, topic_of
from zkcoord.tree.topic_filter import INTERNAL
from zkcoord.tree.topic_mirror import mirror_of, parents_of, writes_of
from zkcoord.tree.writes import SetNode, Transaction, Write

NAMED_MAX = 10
"""How many differences an error lists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterTopics:
    """Kafka's answer about its topics. `nameless`: topics without an id."""

    cluster: Mirror
    nameless: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class TopicSwitch:
    """One operator's run to `goal`, `zookeeper` or `kafka`.

    `ask()` asks Kafka. It is called once, and only if the answer is needed: a run in the other direction that was
    interrupted can be given up while the brokers are away. `accepts`: the switch goes on in spite of differences, since
    the brokers have left ZooKeeper already and Kafka's answer is right. `notes`: differences that do not prevent the
    switch. `obstacles()` names what prevents it in groups: old members.
    """

    tree: BlockingTree
    goal: str
    ask: Callable[[], ClusterTopics]
    run_id: str
    obstacles: Callable[[], Sequence[str]] = tuple
    accepts: bool = False
    report: Report = lambda _: None
    notes: list[str] = field(default_factory=list)
    told: ClusterTopics | None = None  # Kafka's answer
    _doubted: bool = False  # Kafka's answer differs from ZooKeeper

    @property
    def kafka(self) -> ClusterTopics:
        """Return Kafka's answer."""
        if self.told is None:
            self.told = self.ask()
        return self.told

    def check(self) -> list[str]:
        """Return how the topics and their ids differ between the two sources. UsageError for an obstacle that no option
        overrides.

        Kafka's internal topics do not count, unless a group has read them. Brokers create internal topics by
        themselves, also while they move to KRaft, and may leave the node of an earlier one in ZooKeeper. `notes` lists
        these.
        """
        schema = self._schema()
        _refuse_earlier(schema)
        self._check_cluster(schema)
        found = list(self.obstacles())
        if found:
            raise UsageError(f"{_some(found)}: old consumers read /brokers/topics. Replace them first")
        if self.kafka.nameless:
            raise UsageError(
                f"Kafka tells no id of {_some(self.kafka.nameless)}: upgrade the brokers to 2.8 or later, and their "
                "inter.broker.protocol.version"
            )
        self._writes(schema)  # refuses marks that cannot be completed
        different = self._differences(self._zookeeper_topics())
        apart = {topic: text for topic, text in different.items() if topic in INTERNAL - self._marked()}
        self.notes[:] = [f"{text}: no group reads it, so the switch goes on" for text in apart.values()]
        return [text for topic, text in different.items() if topic not in apart]

    def carry_out(self) -> bool:
        """Change the source; False: the tree has this source already. A switch to it that was interrupted is finished;
        a switch in the other direction that was interrupted is given up."""
        run = Run(tree=self.tree, run_id=self.run_id, tree_id=plan.new_tree_id(), report=self.report)
        mark, given_up = self._mark(), False
        while (under_way := plan.read_mark(self._schema())) is not None:
            if (under_way.new, under_way.old) != (mark.old, mark.new):
                break
            given_up = self._give_up(run, under_way) or given_up  # a switch in the other direction was interrupted
        if given_up or (under_way is None and self._schema().topics == self.goal):
            return given_up
        plan.refuse_other(under_way, mark)
        differences = self.check()
        if differences and not self.accepts:
            raise UsageError(
                f"the two sources differ: {_some(differences)}. If a topic was changed just now, run it again; else "
                "look whether ZooKeeper and the bootstrap servers are of one cluster. Where the brokers have left "
                "ZooKeeper already, Kafka is right: --accept-differences"
            )
        self._doubted = bool(differences)
        begun, rounds = False, 0
        while True:
            (node,) = data(self.tree.read, [SCHEMA])
            now = self._schema(node)
            if now.migration is None and now.topics == self.goal:  # also if another run was faster
                return True
            if now.migration == mark.document():
                begun = True
                rounds += self._work(run, now, node, mark)
                invariant(rounds < ROUNDS_MAX, "the switch asks for writes after all were carried out")
            elif begun:
                other = plan.read_mark(now)
                what = "gave it up" if other is None else f"took it over ({other.run})"
                raise FencedError(f"another run {what}: look at the tree with `zkcoord migrate current`")
            else:
                _refuse_earlier(now)  # somebody may have changed the tree since the check
                (epoch,) = data(self.tree.read, [EPOCH])
                run.commit(plan.begin(node, epoch, mark))

    def _mark(self) -> Mark:
        other = "zookeeper" if self.goal == FROM_KAFKA else FROM_KAFKA
        return Mark(old=f"topics {other}", new=f"topics {self.goal}", run=self.run_id)

    def _schema(self, node: Node | None = None) -> Schema:
        schema = plan.read_schema(node if node is not None else data(self.tree.read, [SCHEMA])[0])
        if schema is None:
            raise SchemaError("there is no zkcoord tree: run `zkcoord migrate upgrade`")
        return schema

    def _work(self, run: Run, schema: Schema, node: Node, mark: Mark) -> bool:
        """Carry out what is left; if nothing is left, the last batch, which sets the source. True if all batches were
        committed."""
        invariant(node.stat is not None, "a marked schema has a version")
        version = -1 if node.stat is None else node.stat.version
        try:
            writes = self._writes(schema)
            if found := list(self.obstacles()):
                raise UsageError(f"{_some(found)}: joined meanwhile. Replace them, then run it again")
        except UsageError:
            self._give_up(run, mark)
            raise
        for batch in plan.batches(version, mark, writes):
            if not run.commit(batch):
                return False
        done = replace(schema, topics=self.goal, cluster_id=self.kafka.cluster.cluster_id, migration=None)
        return bool(writes) or run.commit(_end(done, version, f"end {mark.old} -> {mark.new}"))

    def _give_up(self, run: Run, mark: Mark) -> bool:
        """Give up the migration of this mark: the source stays as before. False: the mark is gone or the batch was not
        committed, so read again."""
        (node,) = data(self.tree.read, [SCHEMA])
        schema = self._schema(node)
        if node.stat is None or schema.migration != mark.document():
            return False
        why = f"give up {mark.old} -> {mark.new}"
        return run.commit(_end(replace(schema, migration=None), node.stat.version, why))

    # reading

    def _zookeeper_topics(self) -> dict[str, TopicInfo]:
        (listed,) = children(self.tree.read, [TOPICS])
        nodes = data(self.tree.read, [f"{TOPICS}/{name}" for name in listed.children])
        found = {}
        for name, node in zip(listed.children, nodes, strict=True):
            try:
                found[name] = topic_of(name, node.data) if node.exists else TopicInfo()
            except CorruptError as error:
                raise CorruptError(f"{node.path}: {error}; the broker or an operator must mend it") from error
        return found

    def _check_cluster(self, schema: Schema) -> None:
        """Refuse brokers of another cluster than ZooKeeper's and the tree's."""
        told = self.kafka.cluster.cluster_id
        (node,) = data(self.tree.read, [CLUSTER_ID])
        named = cluster_id_of(node)
        if schema.topics == FROM_KAFKA and schema.cluster_id and schema.cluster_id != told:
            raise UsageError(
                f"the bootstrap servers are of the cluster {told!r}, the tree's topics of {schema.cluster_id!r}: give "
                "--bootstrap-servers of that one"
            )
        if named != told:
            where = f"{CLUSTER_ID} says {named!r}" if named is not None else f"there is no {CLUSTER_ID}"
            raise UsageError(
                f"the bootstrap servers are of the cluster {told!r}, {where}: give --bootstrap-servers of the cluster "
                "whose brokers use this ZooKeeper, and their chroot"
            )
        if self.goal != FROM_KAFKA:
            (listed,) = children(self.tree.read, [BROKERS])
            away = sorted(self.kafka.cluster.brokers.keys() - {int(n) for n in listed.children if n.isdigit()})
            if away:
                raise UsageError(
                    f"brokers {', '.join(map(str, away))} answer, and are not in {BROKERS}: they do not use this "
                    "ZooKeeper (any more), so its topics may be stale"
                )

    def _differences(self, zookeeper: Mapping[str, TopicInfo]) -> dict[str, str]:
        """Return topic -> how the sources differ about it; topics that one source does not have come first."""
        kafka = self.kafka.cluster.topics
        found = {name: f"topic {name} is not in Kafka" for name in sorted(zookeeper.keys() - kafka.keys())}
        found |= {name: f"topic {name} is not in ZooKeeper" for name in sorted(kafka.keys() - zookeeper.keys())}
        for name in sorted(zookeeper.keys() & kafka.keys()):
            info, topic = zookeeper[name], kafka[name]
            if info.topic_id != topic.topic_id:
                found[name] = f"topic {name} is {info.topic_id or 'without id'} in ZooKeeper, {topic.topic_id} in Kafka"
            elif set(info.partitions) != topic.partitions.keys():
                counts = f"{len(info.partitions)} partitions in ZooKeeper, {len(topic.partitions)} in Kafka"
                found[name] = f"topic {name} has {counts}"
        return found

    # writing

    def _writes(self, schema: Schema) -> list[Write]:
        """Return the writes of marks and mirror that are still missing. A switch to ZooKeeper has none, since the
        brokers write the nodes there."""
        if self.goal != FROM_KAFKA:
            return []
        layout = replace(schema, topics=FROM_KAFKA).place
        marks = self._completed_marks(layout)
        nodes = self._mirror_nodes(layout)
        missing = parents_of(nodes, layout)
        if missing:
            return [*marks, *missing]
        return [*marks, *writes_of(self._changes(mirror_of(nodes, layout, "")), nodes, layout)]

    def _changes(self, mirror: Mirror) -> list[Change]:
        """Return the changes that make the mirror equal to the cluster.

        One answer may lack topics if its broker has just started, or lags. So if the answer differs from ZooKeeper,
        nothing is removed from the mirror, and the mirror is not whole until the coordinator has completed it by its
        own requests to Kafka.
        """
        cluster = self.kafka.cluster
        changes: list[Change] = []
        for name, topic in sorted(cluster.topics.items()):
            known = mirror.topics.get(name)
            if known != topic:
                changes.append(PutTopic(name, topic, _replaced(known, topic)))
        for number, broker in sorted(cluster.brokers.items()):
            if mirror.brokers.get(number) != broker:
                changes.append(PutBroker(number, broker))
        if self._doubted:
            return [Doubt(), *changes] if mirror.whole else changes
        changes += [
            RemoveTopic(name, mirror.topics[name].topic_id) for name in sorted(mirror.topics.keys() - cluster.topics)
        ]
        changes += [RemoveBroker(number) for number in sorted(mirror.brokers.keys() - cluster.brokers)]
        return changes if mirror.whole else [*changes, Complete()]

    def _mirror_nodes(self, layout: Layout) -> dict[str, Node]:
        parents = (layout.topics, layout.brokers)
        listed = children(self.tree.read, parents)
        paths = [f"{node.path}/{name}" for node in listed for name in node.children]
        return {node.path: node for node in data(self.tree.read, [*parents, *paths])}

    def _mark_paths(self, layout: Layout) -> list[str]:
        """Return the paths of all groups' marks."""
        lists = children(self.tree.read, list(dict.fromkeys((layout.groups, RECORDS))))
        groups = sorted({name for node in lists for name in node.children})
        below = children(self.tree.read, [layout.marks(group) for group in groups])
        return [f"{node.path}/{topic}" for node in below for topic in node.children]

    def _marked(self) -> set[str]:
        """Return the topics that have a mark of any group: topics that a group has read."""
        return {path.rpartition("/")[2] for path in self._mark_paths(self._schema().place)}

    def _completed_marks(self, layout: Layout) -> list[Write]:
        """Return the writes that add the topics' ids to all groups' marks that have none."""
        paths = self._mark_paths(layout)
        marks = [(node, mark) for node in data(self.tree.read, paths) if (mark := _mark_in(node)) is not None]
        nameless = [(node, mark) for node, mark in marks if mark.topic_id is None]
        names = sorted({node.path.rpartition("/")[2] for node, _ in nameless})
        topics = dict(zip(names, data(self.tree.read, [f"{TOPICS}/{name}" for name in names]), strict=True))
        (root,) = data(self.tree.read, [ROOT])
        writes: list[Write] = []
        for node, mark in nameless:
            topic = topics[node.path.rpartition("/")[2]]
            write = _completed(node, mark, topic, root)
            writes += [] if write is None else [write]
        return writes


def _completed(node: Node, mark: TopicMark, topic: Node, root: Node) -> Write | None:
    """Return the write that adds the topic's id to its mark; None: the topic was deleted. UsageError: the topic was
    created again after the mark was written."""
    if topic.stat is None or node.stat is None or root.stat is None:
        return None
    topic_id = topic_of(topic.path.rpartition("/")[2], topic.data).topic_id
    if not same_incarnation(mark, topic_id, topic.stat.czxid, root.stat.czxid):
        raise UsageError(
            f"{topic.path} was created again since {node.path} was written: start a coordinator with --topics "
            "zookeeper until it has dropped what the earlier topic left, then run it again"
        )
    if topic_id is None:
        raise UsageError(f"{topic.path} has no id: upgrade the brokers to 2.8 or later")
    return SetNode(node.path, encode_mark(replace(mark, topic_id=topic_id)), node.stat.version)


def _refuse_earlier(schema: Schema) -> None:
    if schema.revision < KAFKA_TOPICS_SINCE:
        raise UsageError(
            f"the tree is at revision {schema.revision}, which earlier coordinators serve, too: they would read "
            "topics from ZooKeeper. Run `zkcoord migrate upgrade` first"
        )


def _mark_in(node: Node) -> TopicMark | None:
    try:
        return decode_mark(node.data) if node.exists else None
    except CorruptError as error:
        raise CorruptError(f"{node.path}: {error}; an operator must mend it") from error


def _replaced(known: Topic | None, topic: Topic) -> str | None:
    return known.topic_id if known is not None and known.topic_id != topic.topic_id else None


def _end(schema: Schema, version: int, why: str) -> Transaction:
    return Transaction(writes=(SetNode(SCHEMA, encode_schema(schema), version),), why=why)


def _some(names: Sequence[str]) -> str:
    """Name the first NAMED_MAX of these, and say how many more there are."""
    more = f"; and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return "; ".join(names[:NAMED_MAX]) + more
