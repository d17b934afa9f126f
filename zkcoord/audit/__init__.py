"""Audits groups from outside, by the tree and Kafka alone; writes nothing (docs/monitoring.md)."""
