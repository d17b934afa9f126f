"""The brokers' own addresses lead to another cluster. Its answers to commits and to tools do not count, and nothing is
written to it on purpose."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.kafka.coordinator_away import HERE, CoordinatorAway
from tests.kafka.two_clusters import TwoClusters, two_clusters
from tests.offsets.test_kafka_store import ours
from tests.waiting import wait_until
from zkcoord.core.model import TopicPartition
from zkcoord.core.tenure import CommitOutcome
from zkcoord.errors import UnavailableError, UsageError
from zkcoord.kafka import coordinators
from zkcoord.kafka.client import KafkaClient
from zkcoord.offsets.group_consumer import GroupConsumer
from zkcoord.offsets.kafka_store import KafkaCommits

P0 = TopicPartition(TwoClusters.topic, 0)
METADATA, COMMIT = 3, 8
OTHER = "is another cluster now"


@pytest.fixture
def both() -> Iterator[TwoClusters]:
    with two_clusters((2, 5)) as found:
        yield found


def committed(store: GroupConsumer, offset: int) -> CommitOutcome:
    """Commit as soon as the coordinator of groups is there."""
    outcomes = list[CommitOutcome]()
    wait_until(lambda: outcomes.append(store.commit({P0: ours(offset)})) or bool(outcomes[-1].done), "Kafka answers")  # type: ignore[func-returns-value]
    return outcomes[-1]


def sees_broken(store: GroupConsumer) -> bool:
    """True once the store sees that a connection has ended. A commit before that is sent, but never counts as done."""
    with store._renewed.used() as client:
        store._poll(client.native)
    return store._same.doubtful


def stands(both: TwoClusters, to: int) -> dict[TopicPartition, int]:
    """Return the group's offsets in one of the clusters."""
    with closing(GroupConsumer("g", both.address(to), {}, timeout_ms=60_000)) as store:
        return {each: commit.offset for each, commit in store.read([P0]).items()}


def test_f311_a_commit_to_another_cluster_is_not_even_sent(both: TwoClusters) -> None:
    with closing(GroupConsumer("g", both.servers, {}, timeout_ms=5_000)) as store:
        assert committed(store, 1).done == {P0}
        both.way.lead(1)
        wait_until(lambda: sees_broken(store), "it sees that its connections have ended")
        sent = both.way.asked.count(COMMIT)

        def refused() -> bool:
            try:
                return not store.commit({P0: ours(2)}).unknown
            except UsageError as error:
                return OTHER in str(error)

        for _ in range(2):
            wait_until(refused, "the commit is refused")
        assert both.way.asked.count(COMMIT) == sent
        assert (stands(both, 0), stands(both, 1)) == ({P0: 1}, {})
        both.way.lead(0)

        def taken() -> bool:
            try:
                return bool(store.commit({P0: ours(2)}).done)
            except UsageError:
                return False

        wait_until(taken, "the first cluster takes it")
        assert (stands(both, 0), stands(both, 1)) == ({P0: 2}, {})


def test_f311_a_commit_whose_answer_may_be_another_clusters_is_not_done(both: TwoClusters) -> None:
    """The brokers go while a commit is under way. librdkafka sends it again, to the cluster that has their names
    then."""
    with closing(GroupConsumer("g", both.servers, {}, timeout_ms=8_000)) as store:
        assert committed(store, 1).done == {P0}
        both.way.held = {COMMIT}
        found = list[object]()

        def commit() -> None:
            try:
                found.append(store.commit({P0: ours(2)}))
            except UsageError as error:
                found.append(error)

        sent = both.way.asked.count(COMMIT)
        thread = threading.Thread(target=commit)
        thread.start()
        wait_until(lambda: both.way.asked.count(COMMIT) > sent, "the commit is under way")
        both.way.held = set()
        both.way.lead(1)
        thread.join(60)
        (outcome,) = found
        if isinstance(outcome, CommitOutcome):
            assert (outcome.done, outcome.unknown.keys()) == (frozenset(), {P0})
        else:
            assert OTHER in str(outcome)
        assert stands(both, 0) == {P0: 1}


def test_f311_commits_of_another_cluster_are_not_read(both: TwoClusters) -> None:
    with closing(GroupConsumer("g", both.address(1), {}, timeout_ms=5_000)) as theirs:
        assert committed(theirs, 5).done == {P0}
    with closing(GroupConsumer("g", both.servers, {}, timeout_ms=5_000)) as store:
        assert committed(store, 1).done == {P0}
        both.way.lead(1)

        def read() -> bool:
            try:
                store.read([P0])
            except UnavailableError:
                return False
            return True

        with pytest.raises(UsageError, match=OTHER):
            wait_until(read, "commits are read")


def test_f311_a_member_that_begins_at_another_cluster_than_it_was_told_commits_nothing_there(
    both: TwoClusters,
) -> None:
    with KafkaClient(both.servers) as client:
        client.partitions()
        told = client.cluster_id
        assert told
        with closing(GroupConsumer("g", both.servers, {}, timeout_ms=5_000, known=lambda: told)) as store:
            assert committed(store, 1).done == {P0}
        both.way.lead(1)
        with closing(GroupConsumer("g", both.servers, {}, timeout_ms=5_000, known=lambda: told)) as store:
            for ask in (lambda: store.commit({P0: ours(2)}), lambda: store.read([P0])):
                with pytest.raises(UsageError, match=OTHER):
                    wait_until(lambda ask=ask: not getattr(ask(), "unknown", True), "an answer")  # type: ignore[misc]
        with pytest.raises(UsageError, match=OTHER):
            wait_until(lambda: bool(KafkaCommits(client).commit("g", {P0: ours(3)}).done), "an answer to a tool")
    assert stands(both, 1) == {}


def test_f311_commits_ask_for_the_cluster_once_and_then_only_after_a_broken_connection(both: TwoClusters) -> None:
    with closing(GroupConsumer("g", both.servers, {}, timeout_ms=30_000)) as store:
        assert committed(store, 1).done == {P0}
        asked = both.way.asked.count(METADATA)
        for offset in range(2, 22):
            assert store.commit({P0: ours(offset)}).done == {P0}
        assert both.way.asked.count(METADATA) == asked
        both.way.lead(0)
        assert committed(store, 22).done == {P0}
        assert both.way.asked.count(METADATA) > asked


def test_f311_a_client_in_place_of_another_asks_for_its_cluster(both: TwoClusters) -> None:
    with closing(GroupConsumer("g", both.servers, {}, timeout_ms=5_000)) as store:
        assert committed(store, 1).done == {P0}
        both.way.lead(1, cut=False)  # only new connections lead to the other cluster
        store._renewed._held = None
        with pytest.raises(UsageError, match=OTHER):
            wait_until(lambda: not store.commit({P0: ours(2)}).unknown, "an answer")
    assert (stands(both, 0), stands(both, 1)) == ({P0: 1}, {})


@pytest.fixture
def groups() -> Iterator[TwoClusters]:
    """Two clusters that have only a group without commits."""
    with CoordinatorAway("first") as first, CoordinatorAway("second") as second:
        found = TwoClusters([first.bootstrap_servers, second.bootstrap_servers])
        with closing(found.way):
            yield found


def test_f315_another_clusters_answers_about_groups_do_not_count(groups: TwoClusters) -> None:
    with KafkaClient(groups.servers) as client:
        store = KafkaCommits(client)
        assert (store.read([HERE]).found, store.users(HERE)) == ({HERE: {}}, [])
        groups.way.lead(1)

        def refused() -> bool:
            told = store.read([HERE])
            assert not told.found
            return OTHER in str(told.unknown[HERE])

        for _ in range(2):
            wait_until(refused, "the offsets are refused")
        with pytest.raises(UsageError, match=OTHER):
            store.users(HERE)
        groups.way.lead(0)
        wait_until(lambda: store.read([HERE]).found == {HERE: {}}, "the first cluster tells")


def test_f315_a_tool_that_was_told_its_cluster_is_told_nothing_of_groups_by_another_one(groups: TwoClusters) -> None:
    with KafkaClient(groups.servers) as client:
        client.list_topics(5)
        groups.way.lead(1, cut=False)  # only new connections lead to the other cluster
        assert OTHER in str(KafkaCommits(client).read([HERE]).unknown[HERE])


def test_f315_no_offsets_are_deleted_in_another_cluster(groups: TwoClusters, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinators, "check_deletes_groups", lambda *_: None)
    with KafkaClient(groups.servers) as client:
        assert KafkaCommits(client).read([HERE]).found == {HERE: {}}
        groups.way.lead(1)
        (kept,) = client.coordinators._idle
        wait_until(lambda: kept.admin.poll(0) == 0 and kept.same.doubtful, "it sees that its connections have ended")
        monkeypatch.setattr(coordinators._Asking, "ask", lambda *_: pytest.fail("the deletion is sent"))

        def refused() -> bool:
            try:
                KafkaCommits(client).forget(HERE)
            except UnavailableError:
                return False
            except UsageError as error:
                return OTHER in str(error)
            return False

        wait_until(refused, "the deletion is refused")


def test_f315_tools_ask_for_the_cluster_of_groups_once_and_then_only_after_a_broken_connection(
    groups: TwoClusters,
) -> None:
    with KafkaClient(groups.servers, leaders_ms=300_000) as client:  # librdkafka asks when it connects
        store = KafkaCommits(client)
        store.read([HERE])
        asked = groups.way.asked.count(METADATA)
        for _ in range(5):
            assert store.read([HERE]).found == {HERE: {}}
        assert groups.way.asked.count(METADATA) <= asked + 1  # the last of these questions may come late
        asked = groups.way.asked.count(METADATA)
        groups.way.lead(0)
        wait_until(lambda: store.read([HERE]).found == {HERE: {}}, "it connects again")
        assert groups.way.asked.count(METADATA) > asked
