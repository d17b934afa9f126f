"""Metrics and health of coordinators and consumers over HTTP (docs/monitoring.md). Off by default."""
