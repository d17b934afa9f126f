"""Moments that people write: a date and time, or milliseconds since 1970."""

from __future__ import annotations

from datetime import UTC, datetime

from zkcoord.errors import UsageError

DIGITS_MIN, DIGITS_MAX = 12, 15
"""A number of 12 to 15 digits is milliseconds: they have had 12 since 1973. A shorter number is a date, or a mistake,
for example 20261123. A longer one is in another unit: microseconds have 16."""


def moment(option: str, text: str | None) -> int | None:
    """Return the value of an option in milliseconds since 1970; None if the option is not given. A time without a zone
    is UTC.

    >>> [moment("--since", text) for text in ("2026-11-23T10:00", "2026-11-23T10:00+01:00", "1795428000000")]
    [1795428000000, 1795424400000, 1795428000000]
    """
    if text is None:
        return None
    digits = len(text) if text.isascii() and text.isdigit() else 0
    if DIGITS_MIN <= digits <= DIGITS_MAX:
        return int(text)
    try:
        told = datetime.fromisoformat("" if digits > DIGITS_MAX else text)
        seconds = (told if told.tzinfo else told.replace(tzinfo=UTC)).timestamp()
        if seconds < 0:  # Kafka takes some of these for the ends of the log
            raise ValueError("before 1970")
    except ValueError as error:
        shapes = "2026-11-23T10:00 (UTC), 2026-11-23T10:00+01:00, or milliseconds since 1970"
        raise UsageError(f"{option} {text!r} is no time: write {shapes}") from error
    return int(seconds * 1000)
