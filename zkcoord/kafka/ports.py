"""The interface that the poll-style consumer needs from its membership."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Protocol

from zkcoord.core.model import TopicPartition
from zkcoord.settings import MemberChoices


class Membership(Protocol):
    """The part of `zkcoord.Consumer` that this consumer uses."""

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def commit(
        self, offsets: Mapping[TopicPartition, int], starts: Mapping[TopicPartition, int] | None = None
    ) -> None: ...
    def stopped(self, partitions: Collection[TopicPartition], offsets: Mapping[TopicPartition, int]) -> None: ...
    def report(self, progress: int, lag: int) -> None: ...
    def reading(self, partitions: Iterable[TopicPartition]) -> None: ...
    def allowed(self, partition: TopicPartition) -> bool: ...
    def join_when(self, ready: Callable[[], bool], stop_needs_ms: int = 0) -> None: ...
    @property
    def consumer_id(self) -> str | None: ...
    @property
    def error(self) -> BaseException | None: ...


MembershipFactory = Callable[..., Membership]


class Options(MemberChoices, total=False):
    """Settings that a KafkaConsumer passes on unchanged. `zkcoord.Consumer` says what each means."""

    replaces: str | None
