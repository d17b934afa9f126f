"""Offsets of any consumer groups in Kafka, for tools: asked for and committed through the admin client.

librdkafka 2.16 may abort the whole process when a broker comes back after an admin request to a group's coordinator
timed out (its issue 4605). So nothing is asked of a coordinator unless a broker has just answered another question. The
rest is left to tools, which can be run again; consumers use `group_consumer`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from zkcoord.core.model import TopicPartition
from zkcoord.core.tenure import CommitOutcome, KafkaCommit
from zkcoord.errors import ZkcoordError
from zkcoord.kafka.client import AWAY, LATE_MS, TIMEOUT_MS, KafkaClient, librdkafka
from zkcoord.offsets.commit_parts import NoGroupError, native_parts, outcome_of, refusal
from zkcoord.offsets.metadata import MAX_BYTES, decode_commit
from zkcoord.offsets.ports import Commits, ReadCommits


class KafkaCommits:
    """A `zkcoord.offsets.ports.GroupStore` on one Kafka cluster. Safe for several threads."""

    def __init__(
        self, client: KafkaClient, *, timeout_ms: int = TIMEOUT_MS, metadata_max_bytes: int = MAX_BYTES
    ) -> None:
        self._client, self._timeout_ms, self._metadata_max_bytes = client, timeout_ms, metadata_max_bytes

    def read(self, groups: Collection[str]) -> ReadCommits:
        """Return all commits of these groups."""
        module, admin = librdkafka(), self._client.admin()
        away = self._away(f"tell the offsets of {len(groups)} groups")
        if away is not None:
            return ReadCommits(found={}, unknown=dict.fromkeys(groups, away))
        futures: dict[str, Any] = {}
        for group in groups:
            asked = [module.ConsumerGroupTopicPartitions(group)]
            futures |= admin.list_consumer_group_offsets(asked, request_timeout=self._timeout_ms / 1000)
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
        away = self._away(f"commit offsets of group {group}")
        if away is not None:
            return outcome_of((), dict.fromkeys(commits, away))
        sent: list[tuple[list[TopicPartition], Any]] = []
        for part, named in native_parts(group, commits, self._metadata_max_bytes):
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
        return outcome_of(done, failed)

    def users(self, group: str) -> list[str]:
        """Return the consumers of Kafka's own protocol in this group."""
        admin, doing = self._client.admin(), f"tell the members of group {group}"
        away = self._away(doing)
        if away is not None:
            raise away
        (future,) = admin.describe_consumer_groups([group], request_timeout=self._timeout_ms / 1000).values()
        answer = self._answer(future, doing, group)
        if isinstance(answer, ZkcoordError):
            if isinstance(answer, NoGroupError):
                return []
            raise answer
        return sorted(f"{one.client_id} on {one.host}" for one in answer.members)

    def forget(self, group: str) -> None:
        """Remove the group, and with it all its commits."""
        admin, doing = self._client.admin(), f"delete the offsets of group {group}"
        away = self._away(doing)
        if away is not None:
            raise away
        (future,) = admin.delete_consumer_groups([group], request_timeout=self._timeout_ms / 1000).values()
        answer = self._answer(future, doing, group)
        if isinstance(answer, ZkcoordError) and not isinstance(answer, NoGroupError):
            raise answer

    def _away(self, doing: str) -> ZkcoordError | None:
        """Why no broker answers; None: one did just now."""
        module = librdkafka()
        try:
            asked = self._client.admin().describe_cluster(request_timeout=self._timeout_ms / 1000)
            asked.result((self._timeout_ms + LATE_MS) / 1000)
        except module.KafkaException as failed:
            error = failed.args[0]
        except TimeoutError:
            error = module.KafkaError(module.KafkaError._TIMED_OUT)
        else:
            return None
        return self._client.as_error(error, doing) if error.name() in AWAY else None

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
        return refusal(error, doing, group, self._metadata_max_bytes, self._client.as_error)
