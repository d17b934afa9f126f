"""Turns a member's decisions into multis, and computes their sizes."""

from __future__ import annotations

from collections.abc import Mapping

from zkcoord.core.command import Command
from zkcoord.core.fast_replace import fast_replace
from zkcoord.core.member.decisions import (
    AcknowledgeStarts,
    Announce,
    AnswerPing,
    ClaimPartitions,
    CommitOffsets,
    RefuseCommand,
    ReleasePartitions,
    SwitchStore,
    Write,
)
from zkcoord.core.member.status import ACKNOWLEDGED_BYTES_MAX, Batch, Held, MemberStatus, standing
from zkcoord.core.member.told import Told
from zkcoord.core.model import TopicPartition
from zkcoord.core.replay_quota import range_bytes
from zkcoord.core.timing import Timing
from zkcoord.tree import member
from zkcoord.tree.member import Acknowledgement, MemberPaths
from zkcoord.tree.member_view import MemberNodes
from zkcoord.tree.ranges import ranges_text
from zkcoord.tree.status import REFUSED_BYTES_MAX, Status, encode_status
from zkcoord.tree.writes import Transaction

WEIGHED_BYTES = 256 * 1024
"""Bytes of commands and announced ranges, estimated. Below this the whole multi is never near the limit, and needs no
exact computation."""

RANGE_BYTES_MAX = 400
"""The most bytes of one announced range, whatever its topic's name."""

OPERATION_BYTES = 60
"""Bytes of one write, without path and data; or of an offset with its number."""


def plan(decision: Write, nodes: MemberNodes, status: bytes) -> list[Transaction]:
    """The multis of a decision that writes, in order. `status` is the decision's status as data."""
    paths, version = nodes.paths, nodes.view.status_version
    match decision:
        case ClaimPartitions(partitions=partitions):
            return [*member.claim(paths, partitions, nodes.missing(paths.above_claims(partitions)))]
        case AcknowledgeStarts(commands=commands, first=first, refused=refused):
            done = Acknowledgement(commands=commands, status=status, status_version=version)
            missing, record, others = (
                nodes.missing_parents([*first, *refused]),
                decision.record_version,
                decision.statuses,
            )
            return [member.start(paths, first, missing, refused, done, record_version=record, statuses=others)]
        case ReleasePartitions(held=held, offsets=offsets, commands=commands, status=said, tenured=tenured):
            acknowledged = Acknowledgement(commands=commands, status=status, status_version=version)
            gone = [p for p in held if nodes.view.deleted(p)]
            acknowledgement = acknowledged if said is not None else None
            return member.release(paths, held, offsets, acknowledgement, without=gone, tenured=tenured)
        case SwitchStore(held=held, offsets=offsets, commands=commands):
            done = Acknowledgement(commands=commands, status=status, status_version=version)
            return [member.switch(paths, held, offsets, done)]
        case AnswerPing(commands=commands):
            return [
                member.acknowledge(paths, Acknowledgement(commands=commands, status=status, status_version=version))
            ]
        case RefuseCommand(sequence=sequence, why=why):
            return [member.refuse(paths, nodes.commands[sequence], why)]
        case CommitOffsets(held=held, offsets=offsets, status=said):
            return member.commit(paths, held, offsets, None if said is None else (status, version))
        case Announce(offsets=offsets):
            return [member.announce(paths, status, version, offsets)]


TOLD_MS = 300_000
"""ms for which a status tells the times of a command. A first record is told with the commit after it, and that of a
Spark batch comes within Spark's rebalance timeout."""


def encode_member_status(status: MemberStatus, now_ms: int = 0) -> bytes:
    """The status as the channel's data. The ages in its `timing` are counted back from `now_ms`."""
    numbers: dict[tuple[int, str], list[int]] = {}  # by generation and topic
    for (topic, number), mine in status.held.items():
        numbers.setdefault((mine.generation, topic), []).append(number)
    ranges: dict[int, dict[str, str]] = {}
    for (generation, topic), found in numbers.items():
        ranges.setdefault(generation, {})[topic] = ranges_text(found)
    progress, lag = status.said or (None, None)
    return encode_status(
        Status(
            held=ranges,
            batch=status.batch,
            store_name=status.store,
            store_step=status.step,
            refused=status.refused,
            progress=progress,
            lag=lag,
            pinged=status.pinged,
            timing=tuple(_timing(told, now_ms) for told in status.timing if now_ms - told.last_ms <= TOLD_MS),
        )
    )


def _timing(told: Told, now_ms: int) -> Timing:
    times = (told.seen_ms, told.stopped_ms, told.committed_ms, told.first_record_ms)
    ages = [None if at_ms is None else max(0, now_ms - at_ms) for at_ms in times]
    return Timing(told.command.sequence, told.stops, told.command.made_ms, told.bounds, *ages)


class MemberSizes:
    """The sizes of one member's nodes and multis (`core.member.status.Sizes`)."""

    def __init__(self, paths: MemberPaths) -> None:
        self._paths = paths

    def status_bytes(self, status: MemberStatus) -> int:
        """Bytes of the status as the channel's data. A large status contains no `timing`."""
        return len(encode_member_status(fast_replace(status, timing=())))

    def room(self, partitions: list[TopicPartition]) -> int:
        """How many of these partitions, from the first on, one multi can acknowledge or release."""
        return member.room(self._paths, partitions)

    def acknowledgement_bytes(
        self, starts: Mapping[str, Command], command_bytes: int, held: Mapping[TopicPartition, Held], batch: Batch
    ) -> int:
        """The most bytes of the multi that acknowledges these starts, if it is too large; else 0. The size is computed
        before the starts are obeyed, since after that the multi must be sent.

        What a coordinator of zkcoord hands on always fits (`core.replay_quota`): at most 942,000 bytes. This check
        protects a member from other coordinators: a multi above the server's limit would cost the member its session,
        again and again.
        """
        ranges = len(batch) + sum(len(start.replay) for start in starts.values())
        if ranges * RANGE_BYTES_MAX + command_bytes < WEIGHED_BYTES:
            return 0
        paths, named = self._paths, {p for start in starts.values() for p in start.ownership or ()}
        announced = {p: tuple(r) for p, r in standing(held, batch).items()}
        announced |= {p: r for start in starts.values() for p, r in start.replay.items()}
        status = REFUSED_BYTES_MAX + sum(range_bytes(p, r) for p, r in announced.items())
        offsets = sum(
            (1 + len(paths.guard(p, 0))) * (max(len(paths.offset(p)), len(paths.owner(p))) + OPERATION_BYTES)
            for p in named
        )
        above = {paths.layout.topic_offsets(paths.group, p.topic) for p in named}
        parents = sum(len(path) + OPERATION_BYTES for path in above)
        whole = status + offsets + parents + len(starts) * (len(paths.channel) + OPERATION_BYTES)
        return whole if whole > ACKNOWLEDGED_BYTES_MAX else 0
