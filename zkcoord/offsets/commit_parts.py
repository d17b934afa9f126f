"""How commits of a group go to Kafka: they are divided into requests that the brokers accept, and their answers are
interpreted."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from zkcoord.core.model import TopicPartition
from zkcoord.core.tenure import CommitOutcome, KafkaCommit
from zkcoord.errors import UnavailableError, UsageError, ZkcoordError
from zkcoord.kafka.client import librdkafka
from zkcoord.offsets.metadata import MAX_BYTES, decode_commit, encode_metadata
from zkcoord.offsets.ports import Commits
from zkcoord.tree.writes import parts

COMMIT_BYTES = 64
"""Bytes of one partition in a request and in the broker's log, without its group, topic and metadata. The commits of
one request become one batch of the broker's log, which accepts 1 MB by default. So they are divided like the writes of
a multi."""

IN_USE = {"UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "REBALANCE_IN_PROGRESS", "NON_EMPTY_GROUP", "FENCED_INSTANCE_ID"}
IN_USE |= {"STALE_MEMBER_EPOCH", "FENCED_MEMBER_EPOCH"}  # in the protocol of KIP-848

Translate = Callable[[Any, str], ZkcoordError]
"""Makes zkcoord's error from a KafkaError and a description of what was done."""


class NoGroupError(ZkcoordError):
    """Kafka does not know the group: nobody has committed for it there."""


def native_parts(group: str, commits: Commits) -> list[tuple[list[TopicPartition], list[Any]]]:
    """Divide the commits into requests: for each its partitions, and their commits as librdkafka takes them."""
    module = librdkafka()
    metadata = {p: encode_metadata(commit) for p, commit in commits.items()}
    cut = parts(sorted(commits), lambda p: COMMIT_BYTES + len(group) + len(p.topic) + len(metadata[p]))
    return [(part, [module.TopicPartition(*p, commits[p].offset, metadata[p]) for p in part]) for part in cut]


def outcome_of(
    done: Collection[TopicPartition],
    failed: Mapping[TopicPartition, ZkcoordError],
    unanswered: Collection[TopicPartition] = (),
) -> CommitOutcome:
    """Distinguish refused from unknown: a cluster that cannot be reached may have taken a commit, or may take it
    late."""
    unknown = {p: error for p, error in failed.items() if p in unanswered or isinstance(error, UnavailableError)}
    refused = {p: error for p, error in failed.items() if p not in unknown}
    return CommitOutcome(done=frozenset(done), refused=refused, unknown=unknown)


def commits_in(told: Iterable[Any], group: str, translate: Translate) -> Commits:
    """Return the commits in Kafka's answer about partitions. Raises the error if one of them has an error."""
    found: dict[TopicPartition, KafkaCommit] = {}
    for one in told:
        if one.error is not None:
            raise translate(one.error, f"tell the offset of {one.topic}-{one.partition} of {group}")
        if one.offset >= 0:
            found[TopicPartition(one.topic, one.partition)] = decode_commit(one.offset, one.metadata)
    return found


def refusal(error: Any, doing: str, group: str, translate: Translate) -> ZkcoordError:
    """Turn a confluent_kafka.KafkaError about a group into zkcoord's error. `translate` handles errors that are not
    about groups."""
    if error.name() == "GROUP_ID_NOT_FOUND":
        return NoGroupError(f"Kafka failed to {doing}: it has no such group")
    if error.name() in IN_USE:
        return UsageError(
            f"Kafka refused to {doing}: consumers of Kafka's own protocol use the group id {group}; stop them, or"
            " give them a group id of their own"
        )
    if error.name() == "OFFSET_METADATA_TOO_LARGE":
        return UsageError(
            f"Kafka refused to {doing}: the brokers' setting offset.metadata.max.bytes is less than"
            f" {MAX_BYTES}; raise it"
        )
    return translate(error, doing)
