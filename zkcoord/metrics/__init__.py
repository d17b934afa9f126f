"""Metrics and health of coordinators and consumers over HTTP (docs/monitoring.md). Off unless it is asked for."""
