"""Checks what brokers are too old for, where librdkafka does not report it but ends the process."""

from __future__ import annotations

from typing import Any

from zkcoord.errors import UsageError

OF_1_1 = "max.incremental.fetch.session.cache.slots"
"""A setting that brokers have since 1.1; they also delete groups since 1.1 (KIP-229). It tells more than
`inter.broker.protocol.version`, which stays behind until somebody raises it."""


def check_deletes_groups(module: Any, admin: Any, seconds: float) -> None:
    """Raises UsageError if the brokers are known to be older than 1.1: librdkafka 2.16 aborts when it asks these.

    Nothing is known of brokers that do not answer, or refuse to tell their configuration. `module` is confluent_kafka
    with its `admin`. `seconds` is for each request.
    """
    try:
        broker = min(admin.list_topics(timeout=seconds).brokers)
        resource = module.admin.ConfigResource(module.admin.ConfigResource.Type.BROKER, str(broker))
        (future,) = admin.describe_configs([resource], request_timeout=seconds).values()
        old = OF_1_1 not in future.result(seconds + 1)
    except module.KafkaException as error:
        old = error.args[0].name() == "_UNSUPPORTED_FEATURE"  # the request came with 0.11
    except TimeoutError:
        return
    if old:
        raise UsageError(
            "these brokers cannot delete a group's offsets: that needs Kafka 1.1. Leave out --offsets; brokers remove"
            " what is not committed again after offsets.retention.minutes"
        )
