"""A coordinator's command to a consumer, as a value. `tree.command` is its codec."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from zkcoord.core.model import TopicPartition
from zkcoord.core.view import OFFSET_STORE, PING, REJECT, START, STOP


class Option(Enum):
    """The kinds of commands."""

    START_FETCHER = START
    STOP_FETCHER = STOP
    OFFSET_STORE = OFFSET_STORE
    REJECT = REJECT
    PING = PING


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command.

    `ownership` maps a partition to a thread. In a start it is the thread that reads the partition; in a stop the thread
    that is meant to be next, or "". None means everything (the draft's stop without a map). `owner_versions`: in a
    start, partition -> the version that the start's own multi gave the owner node; the owner of a missing partition
    must be read. `incarnations`: in a start, topic -> the number in its mark.
    """

    option: Option
    ownership: Mapping[TopicPartition, str] | None = None
    owner_versions: Mapping[TopicPartition, int] = field(default_factory=dict)
    generation: int = 0
    epoch: int = 0
    offsets: str | None = None  # the offset store's name
    step: int | None = None  # number of the change of the offset store
    replay: Mapping[TopicPartition, tuple[int, int]] = field(default_factory=dict)  # announced ranges: start, end
    incarnations: Mapping[str, int] = field(default_factory=dict)
    reason: str | None = None
    final: bool = False  # of a reject: its consumer does not register again by itself
