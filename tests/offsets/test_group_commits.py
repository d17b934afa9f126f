"""What a member's thread asks of Kafka: the client is made when it is needed, bounded in time, and closed."""

from __future__ import annotations

import threading
from collections.abc import Collection

import pytest

from tests.waiting import wait_until
from zkcoord.core.model import TopicPartition
from zkcoord.core.tenure import CommitOutcome, KafkaCommit, Stamp, Tenure
from zkcoord.errors import UnavailableError, UsageError
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
    """A group's commits in memory, and how often they were closed."""

    def __init__(self) -> None:
        self.commits: dict[TopicPartition, KafkaCommit] = {}
        self.away, self.closed = False, 0

    def read(self, partitions: Collection[TopicPartition]) -> Commits:
        if self.away:
            raise UnavailableError("away")
        return {p: c for p, c in self.commits.items() if p in partitions}

    def commit(self, commits: Commits) -> CommitOutcome:
        if self.away:
            return CommitOutcome(unknown=dict.fromkeys(commits, UnavailableError("away")))
        self.commits |= commits
        return CommitOutcome(done=frozenset(commits))

    def close(self) -> None:
        self.closed += 1


def test_the_client_is_made_at_the_first_call_and_only_once() -> None:
    opened: list[Stored] = []

    def opens() -> Stored:
        opened.append(Stored())
        return opened[-1]

    commits = GroupCommits(opens, now)
    assert not opened
    assert commits.read((P0, P1)) == {}
    assert commits.commit(FIVE) == CommitOutcome(done=frozenset({P0}))
    assert commits.read((P0, P1)) == STAMPED
    commits.close()
    commits.close()
    assert [each.closed for each in opened] == [1]


def test_f269_a_client_that_had_no_answer_is_ended_and_the_next_request_goes_through_another_one() -> None:
    opened: list[Stored] = []
    commits = GroupCommits(lambda: opened.append(Stored()) or opened[-1], now)  # type: ignore[func-returns-value]
    assert commits.commit(FIVE).done == {P0}
    opened[0].away = True
    assert commits.commit(FIVE).unknown.keys() == {P0}
    assert commits.read((P0,)) == {}
    opened[1].away = True
    with pytest.raises(UnavailableError):
        commits.read((P0,))
    assert commits.commit(FIVE).done == {P0}
    assert [each.closed for each in opened] == [1, 1, 0]


def test_a_consumer_that_was_stopped_reads_and_commits_nothing_more() -> None:
    made: list[Stored] = []
    commits = GroupCommits(lambda: made.append(Stored()) or made[0], now)  # type: ignore[func-returns-value]
    commits.close()
    with pytest.raises(UsageError, match="was stopped"):
        commits.read((P0,))
    assert set(commits.commit(FIVE).refused) == {P0}
    assert not made


def test_a_read_without_an_answer_raises_and_a_client_that_cannot_be_made_refuses_the_commit() -> None:
    stored = Stored()
    stored.away = True
    with pytest.raises(UnavailableError):
        GroupCommits(lambda: stored, now).read((P0,))

    def opens() -> Stored:
        raise UsageError("Kafka needs an extra package")

    assert str(GroupCommits(opens, now).commit(FIVE).refused[P0]) == "Kafka needs an extra package"


@pytest.mark.parametrize(
    ("patience_ms", "timeout_ms"), [(20_000, TIMEOUT_MS), (8_000, 8_000 - LATE_MS), (2_000, TIMEOUT_MS_MIN)]
)
def test_a_request_ends_before_its_member_gives_it_up(patience_ms: int, timeout_ms: int) -> None:
    assert request_ms(patience_ms) == timeout_ms


def test_commits_have_a_thread_of_their_own_and_wait_for_no_callback() -> None:
    answers: list[tuple[str, CallDone]] = []
    goes_on, asked = threading.Event(), threading.Event()

    def stop(_: object) -> None:
        asked.wait(10)
        goes_on.wait(10)

    def answer(done: CallDone) -> None:
        answers.append((threading.current_thread().name, done))

    stored = Stored()
    worker = Worker({"stop": stop}, {"reset": stop}, answer, print, GroupCommits(lambda: stored, now).functions())
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
    worker.stop(10)
    assert len(answers) == 4
    assert not worker._log[0]._thread.is_alive()
