"""Kafka for plain Python services: a poll-style consumer whose partitions come from zkcoord's coordinator."""

from zkcoord.kafka.consumer import KafkaConsumer

__all__ = ["KafkaConsumer"]
