"""Audits groups from outside, from the tree and Kafka alone; writes nothing (docs/monitoring.md)."""
