"""A member's requests to Kafka: they have a time limit, run on a thread of their own, and are closed with the
member."""

from __future__ import annotations

import threading
from collections.abc import Collection

import pytest

from tests.waiting import PATIENCE_SECONDS, wait_until
from zkcoord.core.model import TopicPartition
from zkcoord.core.tenure import CommitOutcome, KafkaCommit, Stamp, Tenure
from zkcoord.errors import UnavailableError, UsageError, ZkcoordError
from zkcoord.kafka.client import LATE_MS, TIMEOUT_MS
from zkcoord.offsets.group_commits import TIMEOUT_MS_MIN, GroupCommits, request_ms
from zkcoord.offsets.ports import Commits
from zkcoord.shell.ports import CallDone
from zkcoord.shell.worker import Worker

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
NOW_MS = 1_700_000_000_000
FIVE = {P0: KafkaCommit(offset=5, stamp=Stamp(tenure=Tenure("", 7)))}
STAMPED = {P0: KafkaCommit(offset=5, stamp=Stamp(tenure=Tenure("", 7), at_ms=NOW_MS))}


def now() -> int:
    return NOW_MS


class Stored:
    """A group's commits in memory; it counts how often they were closed."""

    def __init__(self) -> None:
        self.commits: dict[TopicPartition, KafkaCommit] = {}
        self.error: ZkcoordError | None = None
        self.closed = 0

    def read(self, partitions: Collection[TopicPartition]) -> Commits:
        if self.error is not None:
            raise self.error
        return {p: c for p, c in self.commits.items() if p in partitions}

    def commit(self, commits: Commits) -> CommitOutcome:
        if self.error is not None:
            raise self.error
        self.commits |= commits
        return CommitOutcome(done=frozenset(commits))

    def close(self) -> None:
        self.closed += 1


def test_a_commit_has_the_time_and_is_read_as_it_stands() -> None:
    stored = Stored()
    commits = GroupCommits(stored, now)
    assert commits.read((P0, P1)) == {}
    assert commits.commit(FIVE) == CommitOutcome(done=frozenset({P0}))
    assert commits.read((P0, P1)) == STAMPED
    commits.close()
    assert stored.closed == 1


def test_a_read_without_an_answer_raises_and_a_commit_that_cannot_be_sent_is_refused() -> None:
    stored = Stored()
    stored.error = UnavailableError("away")
    with pytest.raises(UnavailableError):
        GroupCommits(stored, now).read((P0,))
    stored.error = UsageError("Kafka needs an extra package")
    assert GroupCommits(stored, now).commit(FIVE).refused == {P0: stored.error}


@pytest.mark.parametrize(
    ("patience_ms", "timeout_ms"), [(20_000, TIMEOUT_MS), (8_000, 8_000 - LATE_MS), (2_000, TIMEOUT_MS_MIN)]
)
def test_a_request_ends_before_its_member_gives_it_up(patience_ms: int, timeout_ms: int) -> None:
    assert request_ms(patience_ms) == timeout_ms


def test_commits_have_a_thread_of_their_own_and_wait_for_no_callback() -> None:
    answers: list[tuple[str, CallDone]] = []
    goes_on, asked = threading.Event(), threading.Event()

    def stop(_: object) -> None:
        asked.wait(PATIENCE_SECONDS)
        goes_on.wait(PATIENCE_SECONDS)

    def answer(done: CallDone) -> None:
        answers.append((threading.current_thread().name, done))

    stored = Stored()
    worker = Worker({"stop": stop}, {"reset": stop}, answer, print, GroupCommits(stored, now).functions())
    worker.start()
    worker.call(1, "stop", ())
    worker.call(2, "reset", ())
    asked.set()
    worker.call(3, "commit", FIVE)
    worker.call(4, "read", (P0,))
    wait_until(lambda: len(answers) == 2, "a commit while callback and question hang")
    assert answers == [
        ("zkcoord-offsets", CallDone(3, CommitOutcome(done=frozenset({P0})))),
        ("zkcoord-offsets", CallDone(4, STAMPED)),
    ]
    goes_on.set()
    worker.stop(PATIENCE_SECONDS)
    assert len(answers) == 4
    assert not worker._log[0]._thread.is_alive()
