"""Judges Kafka: whether its topics are in ZooKeeper, how long it keeps offsets, and whether ZooKeeper is of the same
cluster. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from zkcoord.core.offset_store import offset_store
from zkcoord.core.severity import Severity
from zkcoord.core.words import count, some
from zkcoord.doctor.facts import ACTS, CALLER, Finding, GroupFacts, KafkaFacts, TreeFacts
from zkcoord.tree.brokers_move import KEEP_STILL, MEND, BrokersMove
from zkcoord.tree.paths import CONTROLLER, MIGRATION

AREA = "kafka"
RETENTION_CONFIG, VERSION_CONFIG = "offsets.retention.minutes", "inter.broker.protocol.version"
CHECKPOINT_MINUTES = 60  # the age at which a commit in Kafka is made again
DAY_MINUTES = 24 * 60
MOVES = {
    BrokersMove.MOVING: (
        Severity.WARN,
        "Kafka is on its way from ZooKeeper to KRaft",
        f"before the last step of that move {MEND}",
    ),
    BrokersMove.MOVED: (Severity.ERR, "Kafka's brokers have left ZooKeeper for KRaft", MEND),
}


def judge(tree: TreeFacts | None, kafka: KafkaFacts | None, groups: Sequence[GroupFacts]) -> Iterator[Finding]:
    """Return all findings about Kafka. `tree` None: ZooKeeper could not be read. `kafka` None: no address was given."""
    if tree is not None:
        yield from _in_zookeeper(tree)
        yield from _controllers(tree)
    if kafka is None:
        remedy = "give --bootstrap-servers, and versions, retention and users of the group ids are looked at, too"
        yield Finding(Severity.INFO, AREA, "the brokers were not asked", "no address was given", remedy, CALLER)
    elif kafka.unreachable is not None:
        yield _silent(tree, kafka.unreachable)
    else:
        yield from _missing(kafka)
        yield from _brokers(tree or TreeFacts(), kafka, groups)


def _silent(tree: TreeFacts | None, why: str) -> Finding:
    """Judge brokers that do not answer. If brokers are registered in ZooKeeper, they hold sessions, so they run: the
    network to them is cut, or the address is wrong."""
    what = "the brokers do not answer"
    if tree is None or tree.from_kafka or not tree.brokers:
        who = f"{ACTS[AREA]}, or {CALLER}"
        return Finding(Severity.ERR, AREA, what, why, "start Kafka, or correct --bootstrap-servers", who)
    evidence = f"{why}; {count(tree.brokers, 'broker')} registered in ZooKeeper"
    remedy = (
        "brokers hold sessions in ZooKeeper, so they run: mend the network from here to their listeners, or correct"
        " --bootstrap-servers and security.protocol; a broker that was killed or hangs looks so until its session ends"
    )
    return Finding(Severity.ERR, AREA, what, evidence, remedy, f"whoever runs the network, or {CALLER}")


def _missing(kafka: KafkaFacts) -> Iterator[Finding]:
    gone = ", ".join(map(str, kafka.gone))
    if kafka.leaderless:
        evidence = f"{some(kafka.leaderless)}; " + (f"gone: broker {gone}" if gone else "every broker is there")
        remedy = "start the broker that is gone; look at the logs of those that have the replicas"
        what = f"{count(len(kafka.leaderless), 'partition')} without a leader: nobody can read or write there"
        yield Finding(Severity.ERR, AREA, what, evidence, remedy)
    if kafka.gone:
        evidence = f"partitions have replicas on it; {count(kafka.brokers, 'broker')} answered for"
        remedy = "start it, or move its replicas (kafka-reassign-partitions.sh): fewer copies are left meanwhile"
        yield Finding(Severity.WARN, AREA, f"broker {gone} is gone", evidence, remedy)


def _in_zookeeper(tree: TreeFacts) -> Iterator[Finding]:
    if tree.from_kafka:
        evidence = f"the tree's schema; cluster {tree.cluster_id or 'not known yet'}"
        yield Finding(Severity.OK, AREA, "topics come from Kafka itself", evidence)
        return
    if tree.topics is None or tree.brokers is None:
        remedy = "give the chroot of Kafka's brokers with ZooKeeper's address, or start Kafka in ZooKeeper mode"
        absent = "/brokers/topics" if tree.topics is None else "/brokers/ids"
        who = f"{CALLER}, or {ACTS[AREA]}"
        yield Finding(Severity.ERR, AREA, "no Kafka has ever been here", f"there is no {absent}", remedy, who)
        return
    listed = f"{tree.brokers} brokers and {tree.topics} topics are in ZooKeeper"
    if tree.move is not None:
        severity, what, remedy = MOVES[tree.move]
        evidence = f"{MIGRATION} or {CONTROLLER} names a KRaft controller; {listed}"
        yield Finding(severity, AREA, what, evidence, remedy, ACTS["fleet"])
    elif tree.brokers == 0:
        what = "no broker is registered: Kafka is down, or its brokers run in KRaft mode"
        yield Finding(Severity.ERR, AREA, what, listed, f"start Kafka; if it runs in KRaft mode, {MEND}")
    else:
        yield Finding(Severity.OK, AREA, "ZooKeeper mode", listed)


def _controllers(tree: TreeFacts) -> Iterator[Finding]:
    if tree.controllers_write:
        what = "the KRaft controllers write to ZooKeeper: the move may go on, or be taken back"
        yield Finding(Severity.OK, AREA, what, f"kraft_metadata_offset in {MIGRATION} grows")
    elif tree.controllers_write is False:
        what = "the KRaft controllers do not write to ZooKeeper: brokers that still use it are told of nothing"
        yield Finding(Severity.ERR, AREA, what, f"kraft_metadata_offset in {MIGRATION} does not grow", KEEP_STILL)


def _brokers(tree: TreeFacts, kafka: KafkaFacts, groups: Sequence[GroupFacts]) -> Iterator[Finding]:
    if tree.cluster_id is not None and kafka.cluster_id is not None and tree.cluster_id != kafka.cluster_id:
        evidence = f"the tree says {tree.cluster_id}, the brokers say {kafka.cluster_id}"
        remedy = "correct --zookeeper or --bootstrap-servers"
        yield Finding(Severity.ERR, AREA, "these brokers belong to another cluster", evidence, remedy, CALLER)
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
            severity = Severity.INFO if not offset_store(each.store).tenured else Severity.ERR
            remedy = "give it another group id: Kafka takes no commits of others while it is there"
            what = f"a consumer of Kafka's own protocol uses group id {each.group}"
            yield Finding(severity, AREA, what, ", ".join(each.users), remedy, "whoever runs that consumer")


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
