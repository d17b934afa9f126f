"""Kafka's security settings are given once, and reach both clients; both clients accept them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from zkcoord.errors import UsageError
from zkcoord.kafka.client import KafkaClient
from zkcoord.spark.settings import READER_DEFAULTS, split_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAAS = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="etl" password="a\\"b";'


def both(config: dict[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the settings for the connector and for librdkafka, without those that are always there."""
    found = split_settings(config)
    known = {*READER_DEFAULTS, "isolation.level"}
    sides = found.reader, found.librdkafka
    return tuple({key: side[key] for key in side if key not in known} for side in sides)  # type: ignore[return-value]


def test_structured_streaming_settings_reach_librdkafka_too() -> None:
    java = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": JAAS}
    java |= {"ssl.truststore.location": "/ca.pem", "ssl.truststore.type": "PEM", "ssl.enabled.protocols": "TLSv1.3"}
    native = {"security.protocol": "sasl_ssl", "sasl.mechanism": "SCRAM-SHA-512", "ssl.ca.location": "/ca.pem"}
    native |= {"sasl.username": "etl", "sasl.password": 'a"b'}
    assert both({f"kafka.{key}": value for key, value in java.items()}) == (java, native)


def test_librdkafkas_spelling_reaches_the_connector_too() -> None:
    native = {"security.protocol": "SASL_SSL", "sasl.mechanisms": "SCRAM-SHA-512"}
    native |= {"sasl.username": "etl", "sasl.password": 'a"b', "ssl.ca.location": "/ca.pem"}
    native |= {"ssl.certificate.location": "/me.pem", "ssl.key.location": "/me.pem"}
    java, asking = both(native)
    assert java == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": JAAS,
        "ssl.truststore.location": "/ca.pem",
        "ssl.truststore.type": "PEM",
        "ssl.keystore.location": "/me.pem",
        "ssl.keystore.type": "PEM",
    }
    assert asking == native | {"security.protocol": "sasl_ssl"}


def test_one_clients_own_settings_are_not_overwritten() -> None:
    java, native = both({"kafka.ssl.truststore.location": "/ca.jks", "librdkafka.ssl.ca.location": "/ca.pem"})
    assert java == {"ssl.truststore.location": "/ca.jks"}
    assert native == {"ssl.ca.location": "/ca.pem"}


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"kafka.ssl.truststore.location": "/ca.jks"}, "export its certificates as PEM"),
        ({"ssl.certificate.location": "/a.pem", "ssl.key.location": "/b.pem"}, "one PEM file"),
        ({"ssl.enabled.protocols": "TLSv1.3"}, "Java client only"),
        ({"kafka.sasl.jaas.config": "com.sun.Krb5LoginModule required;"}, "Krb5LoginModule cannot be used"),
    ],
)
def test_an_untranslatable_setting_is_refused_with_a_remedy(config: dict[str, str], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        split_settings(config)


@pytest.mark.spark
def test_both_clients_take_the_translated_settings(spark: SparkSession) -> None:
    """Nothing listens at the address; a client refuses a wrong setting before it notices that."""
    from zkcoord.core.model import TopicPartition
    from zkcoord.errors import UnavailableError

    config = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512", "kafka.sasl.jaas.config": JAAS}
    found = split_settings(config)
    with KafkaClient("127.0.0.1:1", found.librdkafka, timeout_ms=200) as client, pytest.raises(UnavailableError):
        client.end_offsets([TopicPartition("t", 0)])
    jvm = spark.sparkContext._jvm
    settings = jvm.java.util.HashMap()  # type: ignore[union-attr]
    back = split_settings({**{f"librdkafka.{k}": v for k, v in found.librdkafka.items() if k != "isolation.level"}})
    assert back.librdkafka == found.librdkafka
    native = {k: v for k, v in found.librdkafka.items() if k != "isolation.level"}
    for key, value in split_settings(native).reader.items():
        settings.put(key, value)
    settings.put("bootstrap.servers", "127.0.0.1:1")
    settings.put("key.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer")
    settings.put("value.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer")
    jvm.org.apache.kafka.clients.consumer.KafkaConsumer(settings).close()  # type: ignore[union-attr]
