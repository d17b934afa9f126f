"""What the poll-style consumer asks of its membership."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from zkcoord.core.model import TopicPartition


class Membership(Protocol):
    """What this consumer asks of zkcoord.Consumer."""

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def commit(self, offsets: Mapping[TopicPartition, int]) -> None: ...
    def report(self, progress: int, lag: int) -> None: ...
    def allowed(self, partition: TopicPartition) -> bool: ...
    @property
    def consumer_id(self) -> str | None: ...
    @property
    def error(self) -> Exception | None: ...


MembershipFactory = Callable[..., Membership]
