"""A command of a coordinator to a consumer, as a value. `tree.command` is its codec."""

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

    `ownership`: of a start, partition -> the thread that reads it; of a stop, partition -> the thread meant to be next
    or ""; None = no map = everything (the draft's stop). `owner_versions`: of a start, partition -> the version that
    its own multi gave the owner node; what is not there must be read. `incarnations`: topic -> the number of its mark,
    in a start.
    """

    option: Option
    ownership: Mapping[TopicPartition, str] | None = None
    owner_versions: Mapping[TopicPartition, int] = field(default_factory=dict)
    generation: int = 0
    epoch: int = 0
    offsets: str | None = None  # the offset store's name
    step: int | None = None  # of the offset store's change
    replay: Mapping[TopicPartition, tuple[int, int]] = field(default_factory=dict)  # announced: start, end
    incarnations: Mapping[str, int] = field(default_factory=dict)
    reason: str | None = None
    final: bool = False  # of a reject: its consumer does not register again by itself
