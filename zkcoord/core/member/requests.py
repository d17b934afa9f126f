"""What a program asks of its membership: commits and announcements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from zkcoord.core.model import TopicPartition

Ranges = Mapping[TopicPartition, tuple[int, int]]
Starts = Mapping[TopicPartition, int]


class CommitRequest(NamedTuple):
    """Next offsets to commit. `starts`: by which start each of these partitions ran when the application decided on
    them: the number of that call `start`, all of this consumer counted from 1 on. So no number comes twice, and nothing
    is to be remembered of a partition that does not run."""

    offsets: Mapping[TopicPartition, int]
    starts: Starts


class AnnounceRequest(NamedTuple):
    """Ranges to announce. `starts`: as of a commit."""

    ranges: Ranges
    starts: Starts


class Asked(NamedTuple):
    """A request that is not answered yet; its number tells it from others."""

    number: int
    request: CommitRequest | AnnounceRequest
