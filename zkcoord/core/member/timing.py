"""When a member saw its commands, and what came of them: told in its status. No decision depends on any of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from zkcoord.core.fast_replace import fast_replace
from zkcoord.core.member.application import FirstRecords
from zkcoord.core.member.told import Named, Told
from zkcoord.core.member.view import MemberView
from zkcoord.core.model import TopicPartition

COMMANDS_MAX = 32
"""So many parts of commands are told, the last ones: some 100 bytes each. A coordinator reads the status behind each
acknowledgement, and a member has one under way at a time. It may be about several starts, and a stop may be released in
parts."""

FIRSTS_MAX, FIRSTS_MS = 64, 10
"""So many entries about first records are told, the last ones. Those of one start within FIRSTS_MS share an entry."""


@dataclass(frozen=True, kw_only=True)
class Times:
    """What a member remembers of its commands' times: a value."""

    seen: Mapping[str, int] = field(default_factory=dict)  # commands that stand: sequence -> first seen at
    told: tuple[Told, ...] = ()  # of commands, oldest first; then first records, likewise
    started: Mapping[TopicPartition, Named] = field(default_factory=dict)  # what is held -> the start that granted it

    def seeing(self, view: MemberView, now_ms: int) -> Times:
        """With the commands that stand; the same object when none came or went."""
        commands, seen = view.commands, self.seen
        if not commands and not seen:
            return self
        standing = {s: seen.get(s, now_ms) for s, received in commands.items() if received is not None}
        return self if standing == seen else fast_replace(self, seen=standing)

    def stopped(
        self, view: MemberView, sequence: str, rested: Mapping[TopicPartition, int | None], now_ms: int
    ) -> Times:
        """With partitions whose release is sent now. `rested`: when each was stopped; None: nothing of it ran."""
        command, seen_ms = self._named(view, sequence), self.seen.get(sequence)
        parts: dict[int | None, list[TopicPartition]] = {}
        for partition, at_ms in sorted(rested.items()):  # what is written must not follow the order of a set
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
        """With starts that are acknowledged now: sequence -> what is held by it."""
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
        """With what is held from these starts on, by what was told of them; what is not held any more is forgotten."""
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
        """With the first records that were handed out, as far as they are of the start by which a partition runs."""
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
        """True while the status, as it was read or written, does not say all that is known of first records."""
        said = view.status.timing if view.status is not None else ()
        return said is not self.told and any(each.first and each not in said for each in self.told)

    def _named(self, view: MemberView, sequence: str) -> Named:
        received = view.commands.get(sequence)
        return Named(sequence, 0 if received is None else received.made_ms)

    def _telling(self, entries: Iterable[Told]) -> Times:
        """With these told last. What was told before of the same part of a command is replaced: it is written again."""
        told = self.told
        for new in entries:
            told = (*[each for each in told if not new.replaces(each)], new)
        if told is self.told:
            return self
        commands = [each for each in told if not each.first][-COMMANDS_MAX:]
        firsts = [each for each in told if each.first][-FIRSTS_MAX:]
        return fast_replace(self, told=(*commands, *firsts))


NO_TIMES = Times()
