"""Judges Kafka: whether its topics are in ZooKeeper, how long it keeps offsets, whether it is this cluster. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from zkcoord.core.severity import Severity
from zkcoord.doctor.facts import Finding, GroupFacts, KafkaFacts, TreeFacts
from zkcoord.tree.brokers_move import MEND, BrokersMove
from zkcoord.tree.paths import CONTROLLER, MIGRATION

AREA = "kafka"
RETENTION_CONFIG, VERSION_CONFIG = "offsets.retention.minutes", "inter.broker.protocol.version"
CHECKPOINT_MINUTES = 60  # commits in Kafka are made again when they are so old
DAY_MINUTES = 24 * 60
MOVES = {
    BrokersMove.MOVING: (
        Severity.WARN,
        "Kafka is on its way from ZooKeeper to KRaft",
        f"before the last step of that move {MEND}",
    ),
    BrokersMove.MOVED: (Severity.ERR, "Kafka's brokers have left ZooKeeper for KRaft", MEND),
}


def judge(tree: TreeFacts, kafka: KafkaFacts | None, groups: Sequence[GroupFacts]) -> Iterator[Finding]:
    """All findings about Kafka; `kafka` None: nobody said where it is."""
    yield from _in_zookeeper(tree)
    if kafka is None:
        remedy = "give --bootstrap-servers, and versions, retention and users of the group ids are looked at, too"
        yield Finding(Severity.INFO, AREA, "the brokers were not asked", "no address was given", remedy)
    elif kafka.unreachable is not None:
        yield Finding(
            Severity.ERR, AREA, "the brokers do not answer", kafka.unreachable, "start Kafka, or correct this"
        )
    else:
        yield from _brokers(tree, kafka, groups)


def _in_zookeeper(tree: TreeFacts) -> Iterator[Finding]:
    if tree.from_kafka:
        evidence = f"the tree's schema; cluster {tree.cluster_id or 'not known yet'}"
        yield Finding(Severity.OK, AREA, "topics come from Kafka itself", evidence)
        return
    if tree.topics is None or tree.brokers is None:
        remedy = "give the chroot of Kafka's brokers with ZooKeeper's address, or start Kafka in ZooKeeper mode"
        absent = "/brokers/topics" if tree.topics is None else "/brokers/ids"
        yield Finding(Severity.ERR, AREA, "no Kafka has ever been here", f"there is no {absent}", remedy)
        return
    listed = f"{tree.brokers} brokers and {tree.topics} topics are in ZooKeeper"
    if tree.move is not None:
        severity, what, remedy = MOVES[tree.move]
        yield Finding(severity, AREA, what, f"{MIGRATION} or {CONTROLLER} names a KRaft controller; {listed}", remedy)
    elif tree.brokers == 0:
        what = "no broker is registered: Kafka is down, or its brokers run in KRaft mode"
        yield Finding(Severity.ERR, AREA, what, listed, f"start Kafka; if it runs in KRaft mode, {MEND}")
    else:
        yield Finding(Severity.OK, AREA, "ZooKeeper mode", listed)


def _brokers(tree: TreeFacts, kafka: KafkaFacts, groups: Sequence[GroupFacts]) -> Iterator[Finding]:
    if tree.cluster_id is not None and kafka.cluster_id is not None and tree.cluster_id != kafka.cluster_id:
        evidence = f"the tree says {tree.cluster_id}, the brokers say {kafka.cluster_id}"
        remedy = "correct --zookeeper or --bootstrap-servers"
        yield Finding(Severity.ERR, AREA, "these brokers belong to another cluster", evidence, remedy)
    if not kafka.config:
        remedy = f"look up {RETENTION_CONFIG} in their server.properties; newer brokers tell it"
        what = "the brokers do not tell their configuration: they are older than Kafka 0.11"
        yield Finding(Severity.INFO, AREA, what, f"{kafka.brokers} brokers answer", remedy)
    version = kafka.config.get(VERSION_CONFIG)
    if version is not None:
        yield Finding(Severity.OK, AREA, "protocol version of the brokers", f"{VERSION_CONFIG}={version}")
    yield from _retention(kafka, groups)
    for each in groups:
        if each.users and each.left_to_kafka:
            what = f"group {each.group} is handed over to consumers of Kafka's own protocol"
            yield Finding(Severity.OK, AREA, what, ", ".join(each.users))
        elif each.users:
            severity = Severity.INFO if each.store == "zookeeper" else Severity.ERR
            remedy = "give it another group id: Kafka takes no commits of others while it is there"
            what = f"a consumer of Kafka's own protocol uses group id {each.group}"
            yield Finding(severity, AREA, what, ", ".join(each.users), remedy)


def _retention(kafka: KafkaFacts, groups: Sequence[GroupFacts]) -> Iterator[Finding]:
    text = kafka.config.get(RETENTION_CONFIG)
    if text is None or not text.isdigit():
        return
    minutes, evidence = int(text), f"{RETENTION_CONFIG}={text}"
    concerned = [each.group for each in groups if each.store != "zookeeper"]
    remedy = f"raise {RETENTION_CONFIG}: a week or more"
    if minutes <= 2 * CHECKPOINT_MINUTES:
        severity = Severity.ERR if concerned else Severity.WARN
        what = "Kafka forgets offsets about as soon as they are committed again"
        yield Finding(severity, AREA, what, evidence, f"{remedy}, or a shorter offset_checkpoint_ms")
    elif minutes <= DAY_MINUTES:
        what = "Kafka forgets the offsets of a group that was stopped over a weekend"
        yield Finding(Severity.WARN if concerned else Severity.INFO, AREA, what, evidence, remedy)
    else:
        yield Finding(Severity.OK, AREA, "retention of offsets", evidence)
