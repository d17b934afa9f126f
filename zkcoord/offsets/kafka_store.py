"""Offsets of any consumer groups in Kafka, for tools. They are committed as consumers do it, and read through the admin
client.

Only the admin client tells all of a group's offsets, whatever their topics, and who uses the group id. Consumers do not
need that, and use only `group_consumer`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from zkcoord.core.tenure import CommitOutcome
from zkcoord.errors import ZkcoordError
from zkcoord.kafka.client import TIMEOUT_MS, KafkaClient, librdkafka
from zkcoord.offsets.commit_parts import NoGroupError, commits_in, refusal
from zkcoord.offsets.group_consumer import TIMEOUT_MS_MIN, GroupConsumer
from zkcoord.offsets.ports import Commits, ReadCommits


class KafkaCommits:
    """A `zkcoord.offsets.ports.GroupStore` for one Kafka cluster. Several threads may use it."""

    def __init__(self, client: KafkaClient, *, timeout_ms: int = TIMEOUT_MS) -> None:
        self._client, self._timeout_ms = client, timeout_ms

    def read(self, groups: Collection[str]) -> ReadCommits:
        """Return all commits of these groups."""
        asked = {group: librdkafka().ConsumerGroupTopicPartitions(group) for group in groups}
        found: dict[str, Commits] = {}
        unknown: dict[str, ZkcoordError] = {}
        for group, answer in self._ask("list_consumer_group_offsets", asked, "tell the offsets of group {}").items():
            try:
                if isinstance(answer, ZkcoordError):
                    raise answer
                found[group] = commits_in(answer.topic_partitions, group, self._client.as_error)
            except ZkcoordError as error:
                unknown[group] = error
        return ReadCommits(found=found, unknown=unknown)

    def commit(self, group: str, commits: Commits) -> CommitOutcome:
        """Commit these offsets, as consumers do."""
        client, timeout_ms = self._client, max(TIMEOUT_MS_MIN, self._timeout_ms)
        known = client.cluster_id
        consumer = GroupConsumer(group, client.servers, client.config, timeout_ms=timeout_ms, known=lambda: known)
        try:
            return consumer.commit(commits)
        finally:
            consumer.close()

    def users(self, group: str) -> list[str]:
        """Return the consumers of Kafka's own protocol in this group."""
        answer = self._ask("describe_consumer_groups", {group: group}, "tell the members of group {}")[group]
        if isinstance(answer, ZkcoordError):
            if isinstance(answer, NoGroupError):
                return []
            raise answer
        return sorted(f"{one.client_id} on {one.host}" for one in answer.members)

    def forget(self, group: str) -> None:
        """Remove the group together with all its commits."""
        answer = self._ask("delete_consumer_groups", {group: group}, "delete the offsets of group {}")[group]
        if isinstance(answer, ZkcoordError) and not isinstance(answer, NoGroupError):
            raise answer

    def _ask(self, question: str, groups: Mapping[str, Any], doing: str) -> dict[str, Any]:
        """Return, for each group, the answer or why there is none, at the latest when the timeout is over.

        `doing` describes the request, with {} for the group. The rest is as in `Coordinators.ask`.
        """
        module = librdkafka()
        answers: dict[str, Any] = {}
        try:
            told = self._client.coordinators.ask(question, groups, self._timeout_ms / 1000)
        except ZkcoordError as error:  # it concerns all groups
            return dict.fromkeys(groups, error)
        for group in groups:
            try:
                if group not in told:
                    raise module.KafkaException(module.KafkaError(module.KafkaError._TIMED_OUT))
                answers[group] = told[group].result()
            except module.KafkaException as error:
                answers[group] = refusal(error.args[0], doing.format(group), group, self._client.as_error)
        return answers
