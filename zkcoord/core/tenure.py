"""Decides which offset of a partition counts: the one in ZooKeeper, or the commit in Kafka (docs/offsets.md).

A *tenure* is one write of the partition's offset node. A commit to Kafka names the tenure in which it was made. The
commit counts exactly when the node has not been written since; else the node counts. No clock, no larger number and no
generation decides. So a late commit of a former owner is never believed, and a rewind in ZooKeeper always wins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from zkcoord.core.model import TopicPartition
from zkcoord.errors import ZkcoordError


class Tenure(NamedTuple):
    """One write of an offset node: the tree's id ("" if the tree has none) and the write's transaction."""

    tree: str
    mzxid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """The part of a Kafka commit by which zkcoord recognises its own commits."""

    tenure: Tenure
    incarnation: int = 0  # of the topic; 0: not known
    generation: int = 0  # for people only, as are the next two
    thread: str = ""
    at_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaCommit:
    """A committed offset in Kafka. Without a stamp it is foreign: another program made it."""

    offset: int
    stamp: Stamp | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOutcome:
    """The outcome of each partition of one commit.

    `refused`: Kafka did not take it. `unknown`: Kafka did not answer in time, and the commit may still arrive late.
    """

    done: frozenset[TopicPartition] = frozenset()
    refused: Mapping[TopicPartition, ZkcoordError] = field(default_factory=dict)
    unknown: Mapping[TopicPartition, ZkcoordError] = field(default_factory=dict)

    def error(self) -> ZkcoordError | None:
        """Return the error of the first partition that is not done. None: all are done."""
        failed = {**self.refused, **self.unknown}
        return failed[min(failed)] if failed else None


class OffsetNode(NamedTuple):
    """A partition's offset node. `offset` is None when it holds no offset (empty, negative or unreadable)."""

    offset: int | None
    mzxid: int


class Rule(Enum):
    """How offsets are read from the two stores of one group."""

    ZOOKEEPER = "zookeeper"  # Kafka is not read
    TENURE = "tenure"  # the stores `dual` and `kafka` of zkcoord
    OLD_IN_KAFKA = "old-kafka"  # others had the group and committed only to Kafka: a foreign commit is theirs
    OLD_DUAL = "old-dual"  # only old members, which commit to both and start at the larger offset


class Source(Enum):
    """The store whose offset counts."""

    NONE = "none"  # the reset policy decides
    ZOOKEEPER = "zookeeper"
    KAFKA = "kafka"


class Counted(NamedTuple):
    """The offset that counts, and its store. None: the reset policy decides."""

    offset: int | None
    source: Source


NOTHING = Counted(None, Source.NONE)


def of_earlier_incarnation(commit: KafkaCommit, incarnation: int) -> bool:
    """True for a commit about an earlier topic of this name. `incarnation`: the topic's present one, 0 if unknown."""
    return commit.stamp is not None and 0 < commit.stamp.incarnation < incarnation


def in_tenure(node: OffsetNode | None, commit: KafkaCommit, tree: str) -> bool:
    """True if the node has not been written since the write that the commit names."""
    return node is not None and commit.stamp is not None and commit.stamp.tenure == Tenure(tree, node.mzxid)


def counted(
    rule: Rule, node: OffsetNode | None, commit: KafkaCommit | None, *, tree: str = "", incarnation: int = 0
) -> Counted:
    """Return the offset that counts. `node` None: there is no node. `commit` None: Kafka has no commit.

    `tree` is the id of this tree, `incarnation` the number of the topic's present incarnation (0: not known).
    """
    if rule is Rule.ZOOKEEPER or commit is None or of_earlier_incarnation(commit, incarnation):
        return _of(node)
    if rule is Rule.OLD_DUAL:
        return max(_of(node), Counted(commit.offset, Source.KAFKA), key=_larger)
    old_members = rule is Rule.OLD_IN_KAFKA and commit.stamp is None
    if node is None or old_members or in_tenure(node, commit, tree):
        return Counted(commit.offset, Source.KAFKA)
    return _of(node)


def _of(node: OffsetNode | None) -> Counted:
    return NOTHING if node is None or node.offset is None else Counted(node.offset, Source.ZOOKEEPER)


def _larger(found: Counted) -> tuple[int, bool]:
    return -1 if found.offset is None else found.offset, found.source is Source.ZOOKEEPER


class Foreign(Enum):
    """What an owner in the store `kafka` does about a commit that it finds in Kafka before it commits."""

    IGNORE = "ignore"  # an own commit, or the same offset
    ADOPT = "adopt"  # a rewind: read again from there, and write the node at once
    OVERWRITE = "overwrite"  # ahead: following it would skip records that nobody has processed


def foreign(position: int, commit: KafkaCommit | None) -> Foreign:
    """Judge a commit that an owner finds in Kafka. `position`: the next offset that the owner would read."""
    if commit is None or commit.stamp is not None or commit.offset == position:
        return Foreign.IGNORE
    return Foreign.ADOPT if commit.offset < position else Foreign.OVERWRITE
