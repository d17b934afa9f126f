"""Where a member starts a partition: at the offset that counts, by the store that the start names."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from zkcoord.core.fast_replace import fast_replace
from zkcoord.core.member.decisions import AskCommits
from zkcoord.core.member.log import LogAnswer
from zkcoord.core.member.memory import Memory, Start
from zkcoord.core.member.view import MemberView, Position
from zkcoord.core.model import TopicPartition
from zkcoord.core.quarantine import BROKER
from zkcoord.core.tenure import OffsetNode, Rule, counted
from zkcoord.errors import UnavailableError


def committed(view: MemberView, memory: Memory, start: Start, partition: TopicPartition, at: Position) -> int | None:
    """The committed offset. None: there is none."""
    if not memory.store.tenured or view.log is None:
        return at.offset
    node = None if at.version is None else OffsetNode(at.offset, at.mzxid)
    commit, number = start.commits.get(partition), start.grants[partition].incarnation
    rule = Rule.OLD_IN_KAFKA if view.neighbours.old_in_kafka else Rule.TENURE
    return counted(rule, node, commit, tree=view.log.tree, incarnation=number).offset


def known(view: MemberView, memory: Memory, start: Start, partition: TopicPartition, at: Position) -> bool:
    """False when it is certain that nothing is committed."""
    if at.problem is not None or (memory.store.tenured and partition not in start.commits):
        return True
    return committed(view, memory, start, partition, at) is not None


def next_offsets(
    view: MemberView, memory: Memory, start: Start, granted: Mapping[TopicPartition, Position]
) -> dict[TopicPartition, int]:
    """The next offset to read of each partition. -1: it is unknown."""
    first = start.first
    if not memory.store.tenured:  # there are many
        return {p: first.get(p, -1) if at.offset is None else at.offset for p, at in granted.items()}
    known = {p: committed(view, memory, start, p, at) for p, at in granted.items()}
    return {p: first.get(p, -1) if offset is None else offset for p, offset in known.items()}


def ask(memory: Memory, start: Start, partitions: Collection[TopicPartition], now_ms: int) -> tuple[AskCommits, Memory]:
    """Ask Kafka for the commits of these. Each question has a number, so that a late answer is not taken for another
    one's."""
    number = memory.questions + 1
    start = fast_replace(start, asking=number, asked_ms=now_ms)
    memory = fast_replace(memory, start=start, questions=number)
    return AskCommits(partitions=tuple(sorted(partitions)), starting=number), memory


def answered(memory: Memory, answer: LogAnswer) -> Memory:
    """Take in the commits that Kafka told. If Kafka gave an error, these partitions cannot be started."""
    start, call = memory.start, answer.call
    if start is None or call.starting != start.asking:
        return memory
    if answer.error is not None:
        away = isinstance(answer.error, UnavailableError)
        return _refused(memory, start, call.partitions, f"{BROKER}: {answer.error}" if away else str(answer.error))
    commits = {**start.commits, **{p: answer.value.get(p) for p in call.partitions}}
    return fast_replace(memory, start=fast_replace(start, commits=commits, asking=0))


def overdue(view: MemberView, memory: Memory, now_ms: int) -> Memory:
    """Stop waiting for Kafka's answer when the patience is over."""
    start, log = memory.start, view.log
    if start is None or not start.asking or log is None or now_ms < start.asked_ms + log.patience_ms:
        return memory
    why = f"{BROKER}: Kafka did not tell the group's offsets within {log.patience_ms} ms"
    return _refused(memory, start, [p for p in start.grants if p not in start.commits], why)


def _refused(memory: Memory, start: Start, partitions: Collection[TopicPartition], why: str) -> Memory:
    refused = {**start.refused, **{p: why for p in partitions if p not in start.refused}}
    return fast_replace(memory, start=fast_replace(start, refused=refused, asking=0))
