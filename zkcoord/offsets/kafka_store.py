"""Offsets of consumer groups in Kafka, asked for and committed through the admin client, as no member of the group."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from zkcoord.core.model import TopicPartition
from zkcoord.core.tenure import CommitOutcome, KafkaCommit
from zkcoord.errors import UnavailableError, UsageError, ZkcoordError
from zkcoord.kafka.client import LATE_MS, TIMEOUT_MS, KafkaClient, librdkafka
from zkcoord.offsets.metadata import MAX_BYTES, decode_commit, encode_metadata
from zkcoord.offsets.ports import Commits, ReadCommits
from zkcoord.tree.writes import parts

COMMIT_BYTES = 64
"""Of one partition in a request and in the broker's log, beside its group, topic and metadata. A request's commits
become one batch of the broker's log, which takes 1 MB by default: they are cut as a multi is."""

IN_USE = {"UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "REBALANCE_IN_PROGRESS", "NON_EMPTY_GROUP", "FENCED_INSTANCE_ID"}


class NoGroupError(ZkcoordError):
    """Kafka knows nothing of the group: nobody has committed there."""


class KafkaCommits:
    """A `zkcoord.offsets.ports.GroupStore` on one Kafka cluster. Safe for several threads."""

    def __init__(
        self, client: KafkaClient, *, timeout_ms: int = TIMEOUT_MS, metadata_max_bytes: int = MAX_BYTES
    ) -> None:
        self._client, self._timeout_ms, self._metadata_max_bytes = client, timeout_ms, metadata_max_bytes

    def read(self, groups: Collection[str]) -> ReadCommits:
        """Return all commits of these groups."""
        asked = [librdkafka().ConsumerGroupTopicPartitions(group) for group in groups]
        return self._read(asked)

    def read_some(self, group: str, partitions: Collection[TopicPartition]) -> ReadCommits:
        """Return the commits of these partitions of one group."""
        if not partitions:  # librdkafka would take it for all
            return ReadCommits(found={group: {}}, unknown={})
        module = librdkafka()
        named = [module.TopicPartition(*partition) for partition in sorted(partitions)]
        return self._read([module.ConsumerGroupTopicPartitions(group, named)])

    def _read(self, asked: Collection[Any]) -> ReadCommits:
        admin = self._client.admin()
        futures: dict[str, Any] = {}
        for one in asked:
            futures |= admin.list_consumer_group_offsets([one], request_timeout=self._timeout_ms / 1000)
        found: dict[str, Commits] = {}
        unknown: dict[str, ZkcoordError] = {}
        for group, future in futures.items():
            answer = self._answer(future, f"tell the offsets of group {group}")
            commits = answer if isinstance(answer, ZkcoordError) else self._commits(answer, group)
            if isinstance(commits, ZkcoordError):
                unknown[group] = commits
            else:
                found[group] = commits
        return ReadCommits(found=found, unknown=unknown)

    def _commits(self, answer: Any, group: str) -> Commits | ZkcoordError:
        found: dict[TopicPartition, KafkaCommit] = {}
        for one in answer.topic_partitions:
            if one.error is not None:
                return self._client.as_error(one.error, f"tell the offset of {one.topic}-{one.partition} of {group}")
            if one.offset >= 0:
                found[TopicPartition(one.topic, one.partition)] = decode_commit(one.offset, one.metadata)
        return found

    def commit(self, group: str, commits: Commits) -> CommitOutcome:
        """Commit these offsets, in requests that the broker's log takes; all of them under way at once."""
        module, admin = librdkafka(), self._client.admin()
        metadata = {p: encode_metadata(commit, self._metadata_max_bytes) for p, commit in commits.items()}
        sent: list[tuple[list[TopicPartition], Any]] = []
        for part in parts(sorted(commits), lambda p: COMMIT_BYTES + len(group) + len(p.topic) + len(metadata[p])):
            named = [module.TopicPartition(*p, commits[p].offset, metadata[p]) for p in part]
            request = [module.ConsumerGroupTopicPartitions(group, named)]
            (future,) = admin.alter_consumer_group_offsets(request, request_timeout=self._timeout_ms / 1000).values()
            sent.append((part, future))
        done: set[TopicPartition] = set()
        failed: dict[TopicPartition, ZkcoordError] = {}
        for part, future in sent:
            answer = self._answer(future, f"commit offsets of group {group}", group)
            if isinstance(answer, ZkcoordError):
                failed |= dict.fromkeys(part, answer)
                continue
            told = {TopicPartition(one.topic, one.partition): one.error for one in answer.topic_partitions}
            for p in part:
                error = told.get(p)
                if error is None:
                    done.add(p)
                else:
                    failed[p] = self._refusal(error, f"commit the offset of {p} of group {group}", group)
        # a cluster that cannot be reached may have taken the commit, or take it late
        unknown = {p: error for p, error in failed.items() if isinstance(error, UnavailableError)}
        refused = {p: error for p, error in failed.items() if p not in unknown}
        return CommitOutcome(done=frozenset(done), refused=refused, unknown=unknown)

    def users(self, group: str) -> list[str]:
        """Return the consumers of Kafka's own protocol in this group."""
        admin = self._client.admin()
        (future,) = admin.describe_consumer_groups([group], request_timeout=self._timeout_ms / 1000).values()
        answer = self._answer(future, f"tell the members of group {group}", group)
        if isinstance(answer, ZkcoordError):
            if isinstance(answer, NoGroupError):
                return []
            raise answer
        return sorted(f"{one.client_id} on {one.host}" for one in answer.members)

    def forget(self, group: str) -> None:
        """Remove the group, and with it all its commits."""
        admin = self._client.admin()
        (future,) = admin.delete_consumer_groups([group], request_timeout=self._timeout_ms / 1000).values()
        answer = self._answer(future, f"delete the offsets of group {group}", group)
        if isinstance(answer, ZkcoordError) and not isinstance(answer, NoGroupError):
            raise answer

    def _answer(self, future: Any, doing: str, group: str = "") -> Any:
        """Return the answer, or why there is none."""
        module = librdkafka()
        try:
            return future.result((self._timeout_ms + LATE_MS) / 1000)
        except module.KafkaException as error:
            return self._refusal(error.args[0], doing, group)
        except TimeoutError:
            return self._client.as_error(module.KafkaError(module.KafkaError._TIMED_OUT), doing)

    def _refusal(self, error: Any, doing: str, group: str) -> ZkcoordError:
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
                f" {self._metadata_max_bytes}; raise it"
            )
        return self._client.as_error(error, doing)
