"""Announced ranges: who was about to process what, so that whoever comes next processes exactly that."""

from __future__ import annotations

REPLAY = "replay"
"""What a member offers that takes announced ranges with its starts."""
