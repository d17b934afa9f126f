"""Translates librdkafka's errors into zkcoord's: the class of each, and who must act.

An error of librdkafka is a confluent_kafka.KafkaError here, recognised by its name. So this module does not import
confluent_kafka.
"""

from __future__ import annotations

import re
from typing import Any

from zkcoord.errors import RefusedError, UnavailableError, UnknownPartitionError, UsageError, ZkcoordError
from zkcoord.kafka.log_throttle import VARIES

SILENCE = re.compile(r"(Failed to [a-z ]+: )?Local: (Broker transport failure|Timed out)")
"""librdkafka's texts for a broker that does not answer."""

DENIED = {"_AUTHENTICATION", "_SSL", "SASL_AUTHENTICATION_FAILED", "UNSUPPORTED_SASL_MECHANISM", "ILLEGAL_SASL_STATE"}
UNKNOWN = {"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "UNKNOWN_TOPIC_ID", "TOPIC_EXCEPTION"}
SETTING = {"_INVALID_ARG", "_CONFLICT"}
OLD = {"_UNSUPPORTED_FEATURE", "UNSUPPORTED_VERSION"}
ALL_DOWN = "_ALL_BROKERS_DOWN"
NO_LEADERS = "_NOENT"  # librdkafka's name for: none of the requested partitions exists, or has a leader
AWAY = {
    *(ALL_DOWN, "_DESTROY_BROKER", "_RESOLVE", "_TIMED_OUT", "_TIMED_OUT_QUEUE", "_TRANSPORT"),
    *("BROKER_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "FENCED_LEADER_EPOCH"),
    *("KAFKA_STORAGE_ERROR", "LEADER_NOT_AVAILABLE", "NETWORK_EXCEPTION", "NOT_CONTROLLER", "NOT_COORDINATOR"),
    *("NOT_LEADER_FOR_PARTITION", "OFFSET_NOT_AVAILABLE", "REPLICA_NOT_AVAILABLE", "REQUEST_TIMED_OUT"),
    *("THROTTLING_QUOTA_EXCEEDED", "UNKNOWN_LEADER_EPOCH", "_WAIT_CACHE", "_WAIT_COORD", NO_LEADERS),
}


def translate(error: Any, servers: str, doing: str) -> ZkcoordError:
    """Turn a confluent_kafka.KafkaError into zkcoord's error, which says who must act."""
    name, text = error.name(), error.str().strip()
    if name in DENIED or name.endswith("AUTHORIZATION_FAILED"):
        return RefusedError(f"Kafka at {servers} refused to {doing}: {text}; check the client's credentials and rights")
    if name in UNKNOWN:
        return UnknownPartitionError(f"Kafka at {servers} could not {doing}: {text}; check the topic's name")
    if name in OLD:
        return UsageError(f"could not {doing}: {text}; Kafka at {servers} is too old for it")
    if name in SETTING:
        return UsageError(f"could not {doing}: {text}; check the Kafka client's settings")
    if name in AWAY or error.retriable():
        why = SILENCE.sub("it does not answer", text)
        return UnavailableError(f"Kafka at {servers} did not {doing}: {why}; check that it runs, then try again")
    return ZkcoordError(f"Kafka at {servers} failed to {doing}: {text} ({name})")


def unreachable(error: Any, servers: str) -> UnavailableError:
    """Say that no broker can be reached, with the reason from the confluent_kafka.KafkaError."""
    why = SILENCE.sub("it does not answer", VARIES.sub("", error.str()))
    return UnavailableError(
        f"Kafka at {servers} cannot be reached: {why}; check that it runs, the address, and security.protocol"
    )
