"""Traces of hand-overs by OpenTelemetry."""
