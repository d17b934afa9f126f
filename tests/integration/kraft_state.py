"""What a cluster on its way to KRaft looks like, for the report of a test that failed: ZooKeeper, brokers, logs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from zkcoord.embedded.kafka import LOG4J
from zkcoord.embedded.server import Server

NODES = ("/controller", "/controller_epoch", "/migration", "/brokers/ids")
PARTITIONS_OF = "/brokers/topics/{}/partitions"
TOLD_BY = re.compile(r"response to UpdateMetadata request sent by controller (\d+) ")
LINES = 60  # of each server's log
ASK_SECONDS = 5.0
TOLD = {  # by Kafka: who leads, what the controllers tell ZooKeeper, and what brokers are told of partitions
    "kafka.controller": "INFO",
    "state.change.logger": "INFO",
    "org.apache.kafka.metadata.migration": "INFO",
    "kafka.server.KafkaServer": "INFO",
    "kafka.zk.KafkaZkClient": "INFO",
}


def talkative(folder: Path) -> tuple[str, ...]:
    """The options of a JVM whose server logs that, too."""
    file = folder / "talkative.properties"
    file.write_text(LOG4J + "".join(f"log4j.logger.{name}={level}\n" for name, level in TOLD.items()), encoding="utf-8")
    return (f"-Dlog4j.configuration={file.as_uri()}",)


def leaders_told(brokers: Iterable[Server]) -> set[int]:
    """The ids of those that last told the brokers of partitions, as these have logged it (`talkative`)."""
    return {int(TOLD_BY.findall(broker.log.read_text("utf-8", errors="replace"))[-1]) for broker in brokers}


def in_zookeeper(client: KazooClient, topic: str) -> list[str]:
    """What Kafka has there of who leads, and of the topic's partitions."""
    states = PARTITIONS_OF.format(topic)
    lines = ["in ZooKeeper:"]
    for path in [*NODES, *(f"{states}/{number}/state" for number in sorted(_children(client, states)))]:
        try:
            content, stat = client.get(path)
            text = (content or b"").decode()
        except NoNodeError:
            lines.append(f"  {path}: none")
            continue
        below = f" children {_children(client, path)}" if stat.children_count else ""
        lines.append(f"  {path}: {text}{below} (version {stat.version}, session {stat.owner_session_id})")
    return lines


def _children(client: KazooClient, path: str) -> list[str]:
    with suppress(NoNodeError):
        return list(client.get_children(path))
    return []


def told_by_brokers(admin: AdminClient, topic: str) -> list[str]:
    """What a broker knows of the others, and of the topic's partitions."""
    try:
        told = admin.list_topics(timeout=ASK_SECONDS)
    except KafkaException as error:
        return [f"brokers: {error}"]
    lines = [f"brokers: {sorted(told.brokers)}, the controller is {told.controller_id}"]
    partitions = told.topics[topic].partitions.values() if topic in told.topics else ()
    return lines + [f"  {topic}-{p.id}: leader {p.leader}, in sync {p.isrs}, error {p.error}" for p in partitions]


def ends_of_logs(servers: Iterable[Server]) -> list[str]:
    """The last lines of each."""
    lines: list[str] = []
    for server in servers:
        state = "runs" if server.running else "has ended"
        lines.append(f"{server.name} in {server.data_dir} {state}; its log ends with:")
        if server.log.exists():
            lines += server.log.read_text("utf-8", errors="replace").splitlines()[-LINES:]
    return lines
