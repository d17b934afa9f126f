"""What a program asks its membership to write: commits and announcements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from zkcoord.core.model import TopicPartition

Ranges = Mapping[TopicPartition, tuple[int, int]]
Starts = Mapping[TopicPartition, int]


class CommitRequest(NamedTuple):
    """Next offsets to commit. `starts` maps each partition to the number of the start by which it ran when the
    application decided on the offset. All calls `start` of this consumer are numbered from 1. So no number comes twice,
    and nothing must be remembered of a partition that does not run."""

    offsets: Mapping[TopicPartition, int]
    starts: Starts


class AnnounceRequest(NamedTuple):
    """Ranges to announce. `starts` is as in a commit."""

    ranges: Ranges
    starts: Starts


class Asked(NamedTuple):
    """A request that is not answered yet, with a number of its own."""

    number: int
    request: CommitRequest | AnnounceRequest
