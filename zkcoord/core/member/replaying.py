"""Announced ranges in a start: the application processes them first, exactly as they were announced."""

from __future__ import annotations

from collections.abc import Mapping

from zkcoord.core.fast_replace import fast_replace
from zkcoord.core.member.decisions import AskStart
from zkcoord.core.member.memory import Beginning, Memory, Start
from zkcoord.core.member.view import MemberView
from zkcoord.core.model import TopicPartition
from zkcoord.core.state import Announced


def beginnings(memory: Memory, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, Beginning]:
    """How the application begins each partition at its offset."""
    ranges = _from_here(memory, offsets)
    return {p: Beginning(offset, ranges[p].end if p in ranges else None) for p, offset in offsets.items()}


def _from_here(memory: Memory, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, Announced]:
    return {p: r for p, r in memory.batch.items() if offsets.get(p) == r.start}


def ask_start(
    memory: Memory,
    positions: Mapping[TopicPartition, int],
    incarnations: Mapping[TopicPartition, int],
    *,
    resumes: bool = False,
) -> AskStart:
    """Have the application start these. Ranges announced from these offsets on come first."""
    replay = {p: (r.start, r.end) for p, r in sorted(_from_here(memory, positions).items())}
    return AskStart(positions=positions, incarnations=incarnations, replay=replay, resumes=resumes)


def behind_earlier(view: MemberView, memory: Memory, start: Start) -> tuple[Memory, Start]:
    """Return memory and start with grants of generations that are not below those of ranges that others announced of
    their partitions. A coordinator takes the range of the highest generation for the latest one, and of one generation
    that with the highest end. A plan has no generation, and this member may never have been sent a start."""
    higher = {
        p: grant._replace(generation=generation)
        for p, grant in start.grants.items()
        if (generation := max((r.generation for r in view.announced.get(p, ())), default=0)) > grant.generation
    }
    if not higher:
        return memory, start
    start = fast_replace(start, grants={**start.grants, **higher})
    return fast_replace(memory, start=start), start


def taking_over(view: MemberView, memory: Memory, start: Start, offsets: Mapping[TopicPartition, int]) -> Memory:
    """Return the memory with the ranges that others announced from these offsets on. They are processed first, and are
    in the own status, too."""
    batch = dict(memory.batch)
    for partition, offset in offsets.items() if view.announced else ():
        number = start.grants[partition].incarnation
        counting = [
            r
            for r in view.announced.get(partition, ())
            if r.start == offset and (not number or r.incarnation in (0, number))
        ]
        if counting:
            best = max(counting, key=lambda r: (r.generation, r.end))
            batch[partition] = Announced(best.start, best.end, start.grants[partition].generation, number)
    return memory if batch == memory.batch else fast_replace(memory, batch=batch)
