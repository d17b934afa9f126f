"""Members that keep offsets in Kafka, too, and their decisions about these offsets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.core.member.members import ME, NOW, Member, Roomy
from zkcoord.core.fast_replace import fast_replace
from zkcoord.core.member.decisions import AskCommits, CommitToKafka, Decision, Report
from zkcoord.core.member.log import CommitLog, LogCall
from zkcoord.core.member.mirror import Acked, Mirror
from zkcoord.core.member.status import Held, Store
from zkcoord.core.member.view import Position
from zkcoord.core.model import TopicPartition
from zkcoord.core.tenure import CommitOutcome, KafkaCommit, Stamp, Tenure

TREE = "5e0b"
PATIENCE_MS, CHECKPOINT_MS = 2_000, 3_600_000
HELD = Held(ME, 0, 5, 3, 1, incarnation=1, mzxid=70)


def stamped(offset: int, mzxid: int = 70, incarnation: int = 1) -> KafkaCommit:
    """A commit of this member."""
    stamp = Stamp(tenure=Tenure(TREE, mzxid), incarnation=incarnation, generation=1, thread=ME)
    return KafkaCommit(offset=offset, stamp=stamp)


def to_kafka(offsets: Mapping[TopicPartition, int], mzxid: int = 70) -> CommitToKafka:
    """A commit of held partitions."""
    return CommitToKafka(commits={p: stamped(offset, mzxid) for p, offset in offsets.items()})


def reads(*partitions: TopicPartition, starting: int = 0) -> AskCommits:
    """The decision to read these partitions' commits in Kafka."""
    return AskCommits(partitions=partitions, starting=starting)


def failed(why: str, *partitions: TopicPartition) -> Report:
    """The report when Kafka takes no commits."""
    return Report(event="kafka_commits_failed", fields={"partitions": list(partitions), "why": why, "level": "warning"})


WORKS = Report(event="kafka_commits_work", fields={"level": "notice"})


def done(*partitions: TopicPartition) -> CommitOutcome:
    """Kafka took all of these commits."""
    return CommitOutcome(done=frozenset(partitions))


class Keeper(Member):
    """A member in a store with tenures, and its calls to Kafka."""

    def __init__(
        self, *held: TopicPartition, store: str = "dual", level: bool = True, sizes: Roomy | None = None
    ) -> None:
        """It holds these partitions. With `level`, Kafka has acknowledged their offsets."""
        super().__init__(*held, sizes=sizes)
        acked = dict.fromkeys(held, Acked(5, 70, NOW)) if level else {}
        due_ms = NOW + CHECKPOINT_MS if acked else None
        self.memory = fast_replace(
            self.memory,
            held=dict.fromkeys(held, HELD),
            store=Store(store, 1),
            mirror=Mirror(
                acked=acked,
                due_ms=due_ms,
                watched=frozenset(held) if store == "kafka" else frozenset(),
                followed=(self.memory.turns, store),
            ),
        )
        log = CommitLog(tree=TREE, patience_ms=PATIENCE_MS, checkpoint_ms=CHECKPOINT_MS)
        self.has(log=log, positions=dict.fromkeys(held, Position(5, 3, None, 70)))
        self._tokens = 0

    def decides(self, now_ms: int = NOW) -> list[Decision]:
        """The decisions of one step. The calls to Kafka that it decided are made, and earlier answers count as seen."""
        decisions = super().decides(now_ms)
        assert self.view.log is not None
        log = self.view.log.heard()
        for decision in decisions:
            if isinstance(decision, AskCommits):
                log = log.asked(self._token(), LogCall("read", decision.partitions, decision.starting))
            elif isinstance(decision, CommitToKafka):
                log = log.asked(self._token(), LogCall("commit", tuple(decision.commits)))
        self.has(log=log)
        return decisions

    def _token(self) -> int:
        self._tokens += 1
        return self._tokens

    def kafka_answers(self, value: Any = None, error: Exception | None = None) -> None:
        """Kafka answers the oldest call."""
        assert self.view.log is not None
        self.has(log=self.view.log.answered(min(self.view.log.calls), value, error))

    def node(self, partition: TopicPartition, offset: int, version: int, mzxid: int) -> None:
        """The node was read, or is known from the reply to a multi of its own."""
        self.reads({partition: Position(offset, version, None, mzxid)})
