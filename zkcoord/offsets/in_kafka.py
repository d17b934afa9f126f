"""What a tool that writes offset nodes must also set in Kafka, so that the group continues from the written offsets.

Consumers also continue from other programs' commits: from those of old members, and in the store `kafka` from any that
is lower. zkcoord's own commits need no care: a written node ends their tenure.
"""

from __future__ import annotations

from collections.abc import Mapping

from zkcoord.core.model import TopicPartition
from zkcoord.core.tenure import KafkaCommit, Rule
from zkcoord.offsets.ports import Commits, CommitStore
from zkcoord.offsets.reading import Kept


def set_in_kafka(store: CommitStore, group: str, kept: Kept, offsets: Mapping[TopicPartition, int]) -> None:
    """Commit these offsets where old consumers read them in Kafka, and in place of other programs' commits.

    Call it before the nodes are written. If Kafka does not answer or refuses, it raises the error. Some offsets may be
    committed then; the same call repairs that.
    """
    commits: Commits = {} if kept.rule is Rule.ZOOKEEPER else store.read([group]).of(group)

    def is_followed(partition: TopicPartition) -> bool:
        if kept.rule is Rule.OLD_IN_KAFKA:
            return True
        commit = commits.get(partition)
        return commit is not None and (kept.larger_counts or (not kept.node_counts and commit.stamp is None))

    wanted = {p: KafkaCommit(offset=offset) for p, offset in offsets.items() if is_followed(p)}
    error = store.commit(group, wanted).error() if wanted else None
    if error is not None:
        raise error
