"""librdkafka's mock cluster with several brokers, whose partitions change their leaders when a test says so."""

from __future__ import annotations

import ctypes

from confluent_kafka import cimpl

LIBRARY = ctypes.CDLL(cimpl.__file__)  # finds the functions of the librdkafka that it is linked with
PRODUCER = 0
PARTITIONS = 2

for _name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_mock_cluster_new"):
    getattr(LIBRARY, _name).restype = ctypes.c_void_p
LIBRARY.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p


class MockCluster:
    """Brokers 1 to `brokers`, and a topic with the empty partitions 0 and 1. It lives until the process ends."""

    topic = "clicks"

    def __init__(self, brokers: int) -> None:
        reason = ctypes.create_string_buffer(512)
        conf = ctypes.c_void_p(LIBRARY.rd_kafka_conf_new())
        assert LIBRARY.rd_kafka_conf_set(conf, b"log_level", b"0", reason, len(reason)) == 0, reason.value
        handle = ctypes.c_void_p(LIBRARY.rd_kafka_new(PRODUCER, conf, reason, len(reason)))
        assert handle, reason.value
        self._cluster = ctypes.c_void_p(LIBRARY.rd_kafka_mock_cluster_new(handle, brokers))
        self.servers = str(LIBRARY.rd_kafka_mock_cluster_bootstraps(self._cluster).decode())
        assert LIBRARY.rd_kafka_mock_topic_create(self._cluster, self.topic.encode(), PARTITIONS, 1) == 0

    def lead(self, partition: int, broker: int) -> None:
        """Make this broker the leader of the partition, with a new leader epoch."""
        topic = self.topic.encode()
        assert LIBRARY.rd_kafka_mock_partition_set_leader(self._cluster, topic, partition, broker) == 0

    def down(self, broker: int) -> None:
        """Make the broker end its connections and accept no more. It stays the leader of its partitions."""
        assert LIBRARY.rd_kafka_mock_broker_set_down(self._cluster, broker) == 0

    def delay(self, broker: int, milliseconds: int) -> None:
        """Delay the broker's answers by this time."""
        assert LIBRARY.rd_kafka_mock_broker_set_rtt(self._cluster, broker, milliseconds) == 0
