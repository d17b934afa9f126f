"""Creates a topic, for people who have none of Kafka's own tools."""

from __future__ import annotations

import re

from zkcoord.errors import UsageError
from zkcoord.kafka.client import KafkaClient, librdkafka

NAME = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")
ANSWER_SECONDS = 15.0
REPLICATED_SECONDS = 10.0
"""s that the controller waits until brokers know the topic."""

NO_DEFAULT = "these brokers have no default replication factor (that needs Kafka 2.4): give --replication-factor"
NO_DEFAULT_TOLD = "_UNSUPPORTED_FEATURE"
"""librdkafka reports this before it asks the brokers. With a replication factor it means brokers older than 0.10.1."""

REFUSED = {
    "TOPIC_ALREADY_EXISTS": "it exists already: `zkcoord topic describe {0}` shows it",
    "INVALID_REPLICATION_FACTOR": "{1}; start more brokers, or give a smaller --replication-factor",
    "UNSUPPORTED_VERSION": NO_DEFAULT,
    "INVALID_PARTITIONS": "{1}; give another number of partitions",
    "POLICY_VIOLATION": "{1}; ask whoever runs Kafka what its policy allows",
}
"""Brokers' errors -> their meaning for the user; {0} is the topic, {1} the broker's text."""


def check_name(name: str) -> None:
    """Raises UsageError for a name that no topic can have."""
    if not NAME.fullmatch(name):
        raise UsageError(f"{name!r} can be no topic: a name has 1 to 249 letters, digits, dots, dashes and underscores")


def create_topic(client: KafkaClient, name: str, partitions: int, replication_factor: int | None = None) -> None:
    """Create the topic. Without a replication factor the brokers' default is used (since Kafka 2.4).

    Raises UsageError if Kafka refuses it, and UnavailableError if nobody answers.
    """
    check_name(name)
    module = librdkafka()
    wanted = module.admin.NewTopic(name, partitions, -1 if replication_factor is None else replication_factor)
    times = {"request_timeout": ANSWER_SECONDS, "operation_timeout": REPLICATED_SECONDS}
    try:
        client.admin().create_topics([wanted], **times)[name].result(ANSWER_SECONDS + 1)
    except module.KafkaException as error:
        told = error.args[0].name()
        refused = NO_DEFAULT if (told, replication_factor) == (NO_DEFAULT_TOLD, None) else REFUSED.get(told)
        if refused is None:
            raise client.as_error(error.args[0], f"create topic {name}") from error
        said = error.args[0].str().strip().rstrip(".")
        raise UsageError(f"Kafka does not create topic {name}: {refused.format(name, said)}") from error
