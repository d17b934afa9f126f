"""Compares the two stores of one partition: a verdict, and what to do about it. Pure."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from zkcoord.core.tenure import (
    Counted,
    KafkaCommit,
    OffsetNode,
    Rule,
    Source,
    counted,
    in_tenure,
    of_earlier_incarnation,
)


class Verdict(Enum):
    """The result of a comparison. "Ahead" and "behind" describe Kafka compared with ZooKeeper."""

    EQUAL = "equal"
    BEHIND = "behind"
    AHEAD = "ahead"
    REWOUND = "rewound"
    FOREIGN = "foreign"
    EXPIRED = "expired"
    ONLY_ZOOKEEPER = "only zookeeper"
    ONLY_KAFKA = "only kafka"
    OUT_OF_RANGE = "out of range"


class Log(NamedTuple):
    """A partition's log: its first offset, and its end (exclusive)."""

    start: int
    end: int


class Judged(NamedTuple):
    """A verdict on one partition, the offset that counts, and what to do ("": nothing)."""

    verdict: Verdict
    counts: Counted
    todo: str = ""


NOT_READ = "nobody reads Kafka's: the group's store is zookeeper"
NEXT_START = "whoever is given the partition next writes both"
NEXT_COMMIT = "the owner's next commit makes them equal"
CHECKPOINT = "ZooKeeper follows with the owner's next checkpoint"
OTHER_TOPIC = "it is of an earlier topic of that name, and counts as none"
RESET = "`zkcoord group reset-offsets` moves the group on purpose"
OLD_KAFKA_LOST = "old members would start by their reset policy: commit it to Kafka again before they start"
OUTSIDE = "the next start goes by the reset policy: set an offset within the log, if that is not wanted"


def judge(
    rule: Rule,
    node: OffsetNode | None,
    commit: KafkaCommit | None,
    *,
    tree: str = "",
    incarnation: int = 0,
    held: bool = False,
    log: Log | None = None,
) -> Judged:
    """Judge one partition that at least one store knows. `held`: a consumer owns it. `log` None: it is not known."""
    counts = counted(rule, node, commit, tree=tree, incarnation=incarnation)
    if counts.offset is not None and log is not None and not log.start <= counts.offset <= log.end:
        where = "behind the end" if counts.offset > log.end else "before the start"
        return Judged(Verdict.OUT_OF_RANGE, counts, f"it lies {where} of the log ({log.start} to {log.end}): {OUTSIDE}")
    if commit is None:
        verdict, todo = _without_commit(rule, held)
    elif rule in (Rule.OLD_DUAL, Rule.OLD_IN_KAFKA) or node is None:
        verdict, todo = _by_value(rule, node, commit)
        if node is None and of_earlier_incarnation(commit, incarnation):
            todo = OTHER_TOPIC
    else:
        same_topic = not of_earlier_incarnation(commit, incarnation)
        verdict, todo = _beside(node, commit, same_topic=same_topic, tenure=in_tenure(node, commit, tree), held=held)
        if rule is Rule.ZOOKEEPER and verdict is not Verdict.EQUAL:
            todo = NOT_READ
    return Judged(verdict, counts, todo)


def _without_commit(rule: Rule, held: bool) -> tuple[Verdict, str]:
    if rule is Rule.OLD_IN_KAFKA:
        return Verdict.EXPIRED, OLD_KAFKA_LOST
    if rule is not Rule.TENURE:
        return Verdict.ONLY_ZOOKEEPER, ""
    return Verdict.EXPIRED, NEXT_COMMIT if held else NEXT_START


def _by_value(rule: Rule, node: OffsetNode | None, commit: KafkaCommit) -> tuple[Verdict, str]:
    if node is None:
        read = rule is not Rule.ZOOKEEPER
        todo = "" if read else "consumers would start by their reset policy: set it in ZooKeeper before they start"
        return Verdict.ONLY_KAFKA, todo
    here = -1 if node.offset is None else node.offset
    verdict = Verdict.EQUAL if commit.offset == here else Verdict.AHEAD if commit.offset > here else Verdict.BEHIND
    if verdict is Verdict.EQUAL or rule is Rule.OLD_IN_KAFKA:
        return verdict, ""
    return verdict, "old members start at the larger one: to set a group back, lower both"


def _beside(
    node: OffsetNode, commit: KafkaCommit, *, same_topic: bool, tenure: bool, held: bool
) -> tuple[Verdict, str]:
    """Judge a partition that both stores know, where zkcoord's rule decides."""
    here = -1 if node.offset is None else node.offset
    later = NEXT_COMMIT if held else NEXT_START
    if not same_topic:
        return Verdict.FOREIGN, OTHER_TOPIC
    if commit.stamp is None:
        if commit.offset > here:
            return Verdict.FOREIGN, f"another program committed it, and it is not followed; {RESET}"
        return Verdict.FOREIGN, f"another program committed it; {later}"
    if tenure:
        if commit.offset == here:
            return Verdict.EQUAL, ""
        if commit.offset > here:
            return Verdict.AHEAD, CHECKPOINT if held else NEXT_START
        return Verdict.REWOUND, f"the owner went back after it had written ZooKeeper; {later}"
    if commit.offset > here:
        return Verdict.REWOUND, f"ZooKeeper was set back after this commit, and counts; {later}"
    return Verdict.BEHIND, f"ZooKeeper was written after this commit, and counts; {later}"


def source_name(counts: Counted) -> str | None:
    """The name of the store that counts, for people. None: neither."""
    return None if counts.source is Source.NONE else counts.source.value
