"""Kafka for plain Python services: a poll-style consumer whose partitions zkcoord's coordinator assigns."""

from zkcoord.kafka.consumer import KafkaConsumer

__all__ = ["KafkaConsumer"]
