"""Offsets in both stores, ZooKeeper and Kafka: reading, committing, comparing, exporting and importing them."""
