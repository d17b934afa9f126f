"""Sinks in which each record is once."""
