"""When a member saw its commands, and their outcomes. The status tells these times. No decision depends on them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from zkcoord.core.fast_replace import fast_replace
from zkcoord.core.member.application import FirstRecords
from zkcoord.core.member.told import Named, Told
from zkcoord.core.member.view import MemberView
from zkcoord.core.model import TopicPartition

COMMANDS_MAX = 32
"""Number of parts of commands in the status, newest ones, about 100 bytes each. A coordinator reads the status after
each acknowledgement, and a member has one under way at a time. It may be about several starts, and a stop may be
released in parts."""

FIRSTS_MAX, FIRSTS_MS = 64, 10
"""Number of entries about first records in the status, newest ones; ms within which first records of one start share an
entry."""


@dataclass(frozen=True, kw_only=True)
class Times:
    """The times of a member's commands, as an immutable value."""

    seen: Mapping[str, int] = field(default_factory=dict)  # sequence -> when first seen, of commands in the channel
    told: tuple[Told, ...] = ()  # entries about commands, oldest first; then those about first records, oldest first
    started: Mapping[TopicPartition, Named] = field(default_factory=dict)  # held partition -> the start that granted it

    def seeing(self, view: MemberView, now_ms: int) -> Times:
        """Return a copy with the commands that are in the channel; the same object when none came or went."""
        commands, seen = view.commands, self.seen
        if not commands and not seen:
            return self
        standing = {s: seen.get(s, now_ms) for s, received in commands.items() if received is not None}
        return self if standing == seen else fast_replace(self, seen=standing)

    def stopped(
        self, view: MemberView, sequence: str, rested: Mapping[TopicPartition, int | None], now_ms: int
    ) -> Times:
        """Return a copy with partitions whose release is sent now. `rested` maps each to when it was stopped; None: it
        did not run."""
        command, seen_ms = self._named(view, sequence), self.seen.get(sequence)
        parts: dict[int | None, list[TopicPartition]] = {}
        for partition, at_ms in sorted(rested.items()):  # the order of a set must not decide what is written
            parts.setdefault(seen_ms if at_ms is None else at_ms, []).append(partition)
        return self._telling(
            Told(
                command=command,
                stops=True,
                partitions=frozenset(partitions),
                seen_ms=seen_ms,
                stopped_ms=at_ms,
                committed_ms=now_ms,
            )
            for at_ms, partitions in parts.items()
        )

    def acknowledged(self, view: MemberView, granted: Mapping[str, Iterable[TopicPartition]]) -> Times:
        """Return a copy with starts that are acknowledged now. `granted` maps a sequence to the partitions held by
        it."""
        return self._telling(
            Told(
                command=self._named(view, sequence),
                stops=False,
                partitions=frozenset(partitions),
                seen_ms=self.seen.get(sequence),
            )
            for sequence, partitions in granted.items()
        )

    def holding(self, told: Iterable[str], held: Iterable[TopicPartition]) -> Times:
        """Return a copy with the partitions that are held by these starts, as `told` names them. Partitions that are
        not held any more are forgotten."""
        sequences = set(told)
        fresh = {
            partition: each.command
            for each in self.told
            if each.command.sequence in sequences and not each.stops and not each.first
            for partition in each.partitions
        }
        if not fresh:
            return self
        started = {**self.started, **fresh}
        return fast_replace(self, started={p: started[p] for p in held if p in started})

    def reading(self, view: MemberView, firsts: Iterable[FirstRecords]) -> Times:
        """Return a copy with the first records that were handed out, if they belong to the start by which the partition
        runs."""
        running, found = view.application.running, dict[tuple[Named, int], tuple[int, list[TopicPartition]]]()
        for starts, at_ms in firsts:
            for partition, number in starts.items():
                command = self.started.get(partition)
                if command is not None and running.get(partition) == number:
                    found.setdefault((command, at_ms // FIRSTS_MS), (at_ms, []))[1].append(partition)
        if not found:
            return self
        return self._telling(
            Told(command=command, stops=False, partitions=frozenset(partitions), first_record_ms=at_ms)
            for (command, _), (at_ms, partitions) in found.items()
        )

    def untold(self, view: MemberView) -> bool:
        """True while the status, as it was read or written, lacks a known first record."""
        said = view.status.timing if view.status is not None else ()
        return said is not self.told and any(each.first and each not in said for each in self.told)

    def _named(self, view: MemberView, sequence: str) -> Named:
        received = view.commands.get(sequence)
        return Named(sequence, 0 if received is None else received.made_ms)

    def _telling(self, entries: Iterable[Told]) -> Times:
        """Return a copy with these entries last. An earlier entry about the same part of a command is replaced, since
        the status is written again."""
        told = self.told
        for new in entries:
            told = (*[each for each in told if not new.replaces(each)], new)
        if told is self.told:
            return self
        commands = [each for each in told if not each.first][-COMMANDS_MAX:]
        firsts = [each for each in told if each.first][-FIRSTS_MAX:]
        return fast_replace(self, told=(*commands, *firsts))


NO_TIMES = Times()
