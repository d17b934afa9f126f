"""Asks the brokers about themselves: the cluster's id, which brokers are up, and the configuration of one of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from zkcoord.kafka.client import KafkaClient, librdkafka

ANSWER_SECONDS = 10.0
VERSION_CONFIG = "inter.broker.protocol.version"


class Cluster(NamedTuple):
    """The brokers' answers."""

    brokers: int
    cluster_id: str | None
    config: Mapping[str, str]
    """Configuration of the broker with the smallest id, without values that nobody may see. Empty: the brokers are
    older than 0.11, and do not tell it."""
    gone: tuple[int, ...] = ()
    """The ids of brokers that should have replicas and that the other brokers do not see."""
    leaderless: tuple[str, ...] = ()
    """Partitions without a leader, in order: nobody can read them or write to them."""


def protocol_line(cluster: Cluster) -> str | None:
    """Return the version line of the protocol between the brokers. None: they do not tell it.

    >>> protocol_line(Cluster(1, None, {VERSION_CONFIG: "0.11.0-IV2"})), protocol_line(Cluster(1, None, {}))
    ('0.11', None)
    """
    found = re.match(r"[0-9]+\.[0-9]+", cluster.config.get(VERSION_CONFIG, ""))
    return None if found is None else found[0]


def describe_cluster(client: KafkaClient) -> Cluster:
    """Ask the brokers. Raises UnavailableError if nobody answers, and UsageError if credentials or rights are
    refused."""
    away = client.check_credentials()
    if away is not None:
        raise away
    module, admin = librdkafka(), client.admin()
    listed = client.list_topics(ANSWER_SECONDS)
    brokers = sorted(listed.brokers)
    told = Cluster(len(brokers), listed.cluster_id, {}, *_missing(listed))
    resource = module.admin.ConfigResource(module.admin.ConfigResource.Type.BROKER, str(brokers[0]))
    (future,) = admin.describe_configs([resource], request_timeout=ANSWER_SECONDS).values()
    try:
        entries = future.result(ANSWER_SECONDS + 1)
    except module.KafkaException as error:
        if error.args[0].name() == "_UNSUPPORTED_FEATURE":
            return told
        raise client.as_error(error.args[0], "describe a broker") from error
    config = {name: entry.value for name, entry in entries.items() if entry.value is not None}
    return told._replace(config=config)


def _missing(listed: Any) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """The missing brokers, and the partitions without a leader, by librdkafka's description of the cluster."""
    partitions = [
        (topic.topic, number, partition)
        for topic in listed.topics.values()
        for number, partition in topic.partitions.items()
    ]
    named = {broker for _, _, partition in partitions for broker in partition.replicas}
    leaderless = sorted((topic, number) for topic, number, partition in partitions if partition.leader < 0)
    return tuple(sorted(named - set(listed.brokers))), tuple(f"{topic}-{number}" for topic, number in leaderless)
