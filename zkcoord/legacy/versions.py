"""The only place that knows what differs between the versions of the old consumers."""

from __future__ import annotations

import re
from dataclasses import dataclass

from zkcoord.core.given import shown
from zkcoord.errors import UsageError

_VERSION = re.compile(r"([0-9]{1,3})\.([0-9]{1,3})(?:\.([0-9]{1,3}))?(?:\.[0-9]{1,3})?(?:-[a-z0-9]{1,20})?")
_NEWEST = 999  # the third number of a version such as `0.11`, which names a release line: its newest version is meant
_OFFSETS, _TRANSACTIONS = "__consumer_offsets", "__transaction_state"


@dataclass(frozen=True, slots=True, order=True)
class OldVersion:
    """A version of the old consumer, by its first three numbers."""

    numbers: tuple[int, int, int]
    text: str

    @property
    def jackson(self) -> bool:
        """True if it reads registrations by Jackson. Older versions use Scala's JSON parser, which fails at fractions
        and at numbers beyond 32 bits."""
        return self.numbers >= (1, 0, 0)

    @property
    def doubles_backslashes(self) -> bool:
        """True if it doubles each backslash of a text that is no JSON, and reads it again."""
        return self.numbers >= (1, 0, 1)

    @property
    def round_robin(self) -> bool:
        """True if it has `partition.assignment.strategy`. Older versions ignore the setting and compute range."""
        return self.numbers >= (0, 8, 2)

    @property
    def equal_subscriptions(self) -> bool:
        """True if its round robin refuses groups in which topics have different threads (until KAFKA-2434)."""
        return self.numbers < (0, 10, 2)

    @property
    def fails_without_topics(self) -> bool:
        """True if its round robin fails when no member subscribes to any topic (KAFKA-1648)."""
        return self.numbers < (0, 9, 0)

    @property
    def hashed_as(self) -> tuple[str, str]:
        """The texts around topic and number in a partition's name, which round robin hashes (KAFKA-5822); see
        `deal`."""
        return ("", "-") if self.numbers >= (1, 0, 0) else ("[", ",]")

    @property
    def internal(self) -> frozenset[str]:
        """The topics that `exclude.internal.topics` keeps from wildcards."""
        if self.numbers >= (0, 11, 0):
            return frozenset({_OFFSETS, _TRANSACTIONS})
        return frozenset({_OFFSETS}) if self.numbers >= (0, 8, 2) else frozenset()


def old_version(text: str) -> OldVersion:
    """Return the named version. A release line (`0.11`) means its newest version. UsageError for a version without the
    old consumer.

    >>> old_version("0.8.2.2").numbers, old_version("1.0").doubles_backslashes
    ((0, 8, 2), True)
    """
    found = _VERSION.fullmatch(text)
    if found is None:
        raise UsageError(f"{shown(text)} is no version of Kafka: write it as 0.8.2.2, or 1.1")
    numbers = (int(found[1]), int(found[2]), _NEWEST if found[3] is None else int(found[3]))
    if not (0, 8, 0) <= numbers < (1, 2, 0):
        raise UsageError(f"Kafka {text} has no ZooKeeper consumer that is known here: 0.8.0 to 1.1.1 have")
    return OldVersion(numbers, text)
