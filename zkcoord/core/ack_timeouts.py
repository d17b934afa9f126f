"""A coordinator's waits: for acknowledgements, for evicted consumers to stop, and for consumers that join.

All times count from the moment at which THIS coordinator first saw something, on its monotonic clock. A new coordinator
begins again (docs/protocol.md, section 8). A retry writes nothing, since the command is still in its channel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple

from zkcoord.core.model import TopicPartition
from zkcoord.core.view import REJECT, STOP, Channel, GroupView, QueuedCommand

REBALANCE_BACKOFF_MS = 2_000
REBALANCE_BACKOFF_MAX_MS = 30_000
LINGER_MS = 50
"""ms from the first sight of a stop within which its consumer is expected to obey it. Starts wait so long for it."""
JOINING_MS = 60_000
"""ms that a channel without any registration is left alone: its consumer may be joining."""


def backoff_ms(retry: int) -> int:
    """The wait before retry 1, 2, …: doubling from 2 s to 30 s.

    >>> [backoff_ms(n) for n in (1, 2, 3, 4, 5, 6)]
    [2000, 4000, 8000, 16000, 30000, 30000]
    """
    return min(REBALANCE_BACKOFF_MS << (retry - 1), REBALANCE_BACKOFF_MAX_MS)


@lru_cache(maxsize=1_000)
def ack_timeout_ms(rebalance_timeout_ms: int, retries: int) -> int:
    """The time from the first sight of a command to its consumer's eviction: the timeout, and `retries` more with
    backoff.

    >>> ack_timeout_ms(60_000, 4)
    330000
    """
    return rebalance_timeout_ms * (retries + 1) + sum(backoff_ms(n) for n in range(1, retries + 1))


WHOLE = TopicPartition("", -1)
"""Stands in place of a partition when the refused command names none."""


class RetryBackoff(NamedTuple):
    """The back-off of a start that a consumer refused again and again: it is not sent again before `until_ms`."""

    sequence: str = ""  # of the last refused command
    times: int = 0  # number of refused commands
    until_ms: int = 0


_Refused = Mapping[tuple[str, TopicPartition], RetryBackoff]


@dataclass(frozen=True, slots=True)
class AckTimeouts:
    """The first sights of one group. `seen` must be called with every view before any other method."""

    commands: Mapping[tuple[str, str], int] = field(default_factory=dict)  # (consumer, sequence) -> first sight
    evictions: Mapping[str, int] = field(default_factory=dict)
    joining: Mapping[tuple[str, int], int] = field(default_factory=dict)  # (consumer, its channel's czxid)
    refusals: _Refused = field(default_factory=dict)  # (consumer, partition) -> back-off, as statuses tell
    not_understood: _Refused = field(default_factory=dict)
    # the same of commands that were refused as a whole: nothing tells of them once they are removed
    forgave: bool = False  # True once commands count anew although the state still has a failure

    def seen(self, view: GroupView, now_ms: int) -> AckTimeouts:
        """Return a copy with the things that are seen for the first time, and without those that are gone."""
        return AckTimeouts(
            commands={
                key: self.commands.get(key, now_ms)
                for c, channel in view.channels.items()
                for key in ((c, command.sequence) for command in channel.commands)
            },
            evictions={
                c: self.evictions.get(c, now_ms)
                for c, channel in view.channels.items()
                if channel.evicted_ms is not None
            },
            joining={
                (c, channel.czxid): self.joining.get((c, channel.czxid), now_ms)
                for c, channel in view.channels.items()
                if channel.version == 0 and c not in view.members
            },
            refusals={
                (c, partition): _again(self.refusals.get((c, partition), RetryBackoff()), refusal.sequence, now_ms)
                for c, channel in view.channels.items()
                for partition, refusal in channel.refusals.items()
                if not refusal.taken  # a partition that another session has claimed is not available anyway
            },
            not_understood=self._refused_commands(view, now_ms),
            forgave=self.forgave and view.state.failed is not None,
        )

    def _refused_commands(self, view: GroupView, now_ms: int) -> _Refused:
        found = {
            (c, partition): held
            for (c, partition), held in self.not_understood.items()
            if c in view.members and now_ms < held.until_ms + REBALANCE_BACKOFF_MAX_MS
        }
        for c, channel in view.channels.items():
            for command in channel.commands if c in view.members else ():
                for partition in (command.threads or (WHOLE,)) if command.error is not None else ():
                    known = found.get((c, partition), RetryBackoff())
                    found[c, partition] = _again(known, command.sequence, now_ms)
        return found

    def forgiving(self, now_ms: int) -> AckTimeouts:
        """Return a copy in which the waits for all outstanding commands begin now."""
        return replace(self, commands=dict.fromkeys(self.commands, now_ms), forgave=True)

    def trying_again(self) -> AckTimeouts:
        """Return a copy without the back-off of refused starts: they are tried at once."""
        refusals = {key: RetryBackoff(held.sequence) for key, held in self.refusals.items()}
        return replace(self, refusals=refusals, not_understood={})

    def unforgiven(self, view: GroupView) -> bool:
        """True while a command from before the failure is still outstanding, and the generation is the same."""
        failed = view.state.failed
        if failed is None or self.forgave or view.state.generation != failed.since_generation:
            return False
        channels = (channel for c, channel in view.channels.items() if c in view.members)
        since = failed.since_generation
        return any(command.generation <= since for channel in channels for command in channel.commands)

    def start_backs_off(self, consumer_id: str, partition: TopicPartition, now_ms: int) -> bool:
        """True while the back-off of a start that this consumer refused lasts."""
        refusal = self.refusals.get((consumer_id, partition)) if self.refusals else None
        return (refusal is not None and now_ms < refusal.until_ms) or self.backs_off(consumer_id, partition, now_ms)

    def backs_off(self, consumer_id: str, partition: TopicPartition, now_ms: int) -> bool:
        """True while no command about this partition is sent, because its consumer did not understand the last one."""
        refused = self.not_understood.get((consumer_id, partition)) if self.not_understood else None
        return refused is not None and now_ms < refused.until_ms

    def control_backs_off(self, consumer_id: str, now_ms: int) -> bool:
        """The same for commands that name no partition."""
        return self.backs_off(consumer_id, WHOLE, now_ms)

    def in_grace(self, view: GroupView, consumer_id: str, now_ms: int) -> bool:
        """True while the partitions of an evicted consumer are kept from others: it may not have noticed its eviction
        yet."""
        return now_ms < self._grace_ends_ms(view, consumer_id)

    def _grace_ends_ms(self, view: GroupView, consumer_id: str) -> int:
        channel = view.channels.get(consumer_id)
        if channel is None or channel.evicted_ms is None:
            return 0
        session_ms = channel.evicted_ms
        # a shorter grace would let two consumers read
        grace_ms = max(view.record.policy.evict_grace_ms or 0, session_ms)
        return self.evictions.get(consumer_id, 0) + grace_ms

    def abandoned(self, channel: Channel, now_ms: int) -> bool:
        """True when a channel without any registration has been left alone long enough."""
        return now_ms >= self.joining.get((channel.consumer_id, channel.czxid), now_ms) + JOINING_MS

    def overdue(self, view: GroupView, now_ms: int) -> list[tuple[str, QueuedCommand]]:
        """The members that have used up their retries, each with its oldest overdue command, sorted by consumer id."""
        found = []
        for consumer_id in sorted(view.members):
            channel = view.channels.get(consumer_id)
            for command in channel.commands if channel else ():
                if now_ms >= self._timeout_ends_ms(view, consumer_id, command):
                    found.append((consumer_id, command))
                    break
        return found

    def _timeout_ends_ms(self, view: GroupView, consumer_id: str, command: QueuedCommand) -> int:
        """When the timeout of a command ends. A rejected member gets its rebalance timeout once, without retries."""
        retries = 0 if command.option == REJECT else view.record.policy.max_rebalance_retries
        first_ms = self.commands[(consumer_id, command.sequence)]
        return first_ms + ack_timeout_ms(view.members[consumer_id].rebalance_timeout_ms, retries)

    def fresh_stops(self, view: GroupView, now_ms: int) -> list[tuple[QueuedCommand, int]]:
        """The stops that members are about to obey, each with the time until which that is expected."""
        return [
            (command, until_ms)
            for c, channel in view.channels.items()
            if c in view.members
            for command in channel.commands
            if command.option == STOP and now_ms < (until_ms := self.commands[c, command.sequence] + LINGER_MS)
        ]

    def wake_at_ms(self, view: GroupView, now_ms: int) -> int | None:
        """The next moment at which a wait ends. None: the group waits for nothing."""
        times = [self._grace_ends_ms(view, c) for c in self.evictions]
        times += [first_ms + JOINING_MS for first_ms in self.joining.values()]
        times += [held.until_ms for held in (*self.refusals.values(), *self.not_understood.values())]
        times += [
            self._timeout_ends_ms(view, c, command)
            for c, channel in view.channels.items()
            if c in view.members
            for command in channel.commands
        ]
        return min((t for t in times if t > now_ms), default=None)


def _again(known: RetryBackoff, sequence: str, now_ms: int) -> RetryBackoff:
    """The back-off of a refusal that is in the status. Each new refusal extends it."""
    if known.sequence == sequence:
        return known
    return RetryBackoff(sequence, known.times + 1, now_ms + backoff_ms(known.times + 1))
