"""Timelines of hand-overs: read from journals, and drawn."""
