"""Judges Kafka: whether its topics are in ZooKeeper, how long it keeps offsets, whether it is this cluster. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from zkcoord.doctor.facts import Finding, GroupFacts, KafkaFacts, Severity, TreeFacts

AREA = "kafka"
RETENTION_CONFIG, VERSION_CONFIG = "offsets.retention.minutes", "inter.broker.protocol.version"
CHECKPOINT_MINUTES = 60  # commits in Kafka are made again when they are so old
DAY_MINUTES = 24 * 60


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
    epoch = tree.controller.get("kraftControllerEpoch")
    moving = tree.migrating or (isinstance(epoch, int) and epoch >= 0)
    if tree.brokers == 0:
        what = "no broker is registered: Kafka is down, or its brokers run in KRaft mode"
        remedy = (
            "start Kafka. In KRaft mode new topics and partitions do not reach ZooKeeper: zkcoord would not see them"
        )
        yield Finding(Severity.ERR, AREA, what, f"/brokers/ids is empty, {tree.topics} topics are listed", remedy)
    elif moving:
        evidence = "/migration is there" if tree.migrating else f"/controller names the KRaft controller, epoch {epoch}"
        remedy = (
            "move the groups to Kafka's own offsets before that is finished: topics stop to appear in ZooKeeper then"
        )
        yield Finding(Severity.WARN, AREA, "Kafka is on its way from ZooKeeper to KRaft", evidence, remedy)
    else:
        evidence = f"{tree.brokers} brokers and {tree.topics} topics in ZooKeeper"
        yield Finding(Severity.OK, AREA, "ZooKeeper mode", evidence)


def _brokers(tree: TreeFacts, kafka: KafkaFacts, groups: Sequence[GroupFacts]) -> Iterator[Finding]:
    if tree.cluster_id is not None and kafka.cluster_id is not None and tree.cluster_id != kafka.cluster_id:
        evidence = f"the tree says {tree.cluster_id}, the brokers say {kafka.cluster_id}"
        remedy = "correct --zookeeper or --bootstrap-servers"
        yield Finding(Severity.ERR, AREA, "these brokers belong to another cluster", evidence, remedy)
    version = kafka.config.get(VERSION_CONFIG)
    if version is not None:
        yield Finding(Severity.OK, AREA, "protocol version of the brokers", f"{VERSION_CONFIG}={version}")
    yield from _retention(kafka, groups)
    for each in groups:
        if each.users:
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
