"""Requests to the coordinators of groups: when a client of librdkafka is used again, and when it is ended."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from tests.kafka.coordinator_away import (
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    DESCRIBE_GROUPS,
    FIND_COORDINATOR,
    GROUP_AUTHORIZATION_FAILED,
    GROUP_ID_NOT_FOUND,
    HERE,
    NOT_COORDINATOR,
    OFFSET_FETCH,
    TOPIC_AUTHORIZATION_FAILED,
    CoordinatorAway,
)
from tests.waiting import wait_until
from zkcoord.errors import UsageError
from zkcoord.kafka import coordinators
from zkcoord.kafka.coordinators import AT_ONCE_MAX, DELETES, TELLS_OFFSETS, Coordinators
from zkcoord.kafka.native_log import NativeLog

QUESTION, GROUPS = "describe_consumer_groups", {"g": "g", "h": "h"}
LONG_SECONDS = 30.0


class Opened:
    """Asks the coordinators of this cluster, and notes the clients that it opened."""

    def __init__(self, cluster: CoordinatorAway) -> None:
        self._cluster = cluster
        self.clients: list[Any] = []
        self.coordinators = Coordinators(confluent_kafka, self._open, cluster.bootstrap_servers)

    def _open(self, broken: Callable[[], None]) -> Any:
        settings = {"bootstrap.servers": self._cluster.bootstrap_servers}
        self.clients.append(AdminClient(settings, logger=NativeLog(broken)))
        return self.clients[-1]

    def soon_open(self, *wanted: bool) -> None:
        """Wait until each client is open or closed as `wanted` says, in the order in which they were opened."""
        wait_until(lambda: [*map(is_open, self.clients)] == [*wanted], f"open: {wanted}")


def is_open(client: Any) -> bool:
    try:
        client.poll(0)
    except RuntimeError:
        return False
    return True


@pytest.fixture
def cluster() -> Iterator[CoordinatorAway]:
    with CoordinatorAway() as away:
        yield away


@pytest.fixture
def opened(cluster: CoordinatorAway) -> Iterator[Opened]:
    opened = Opened(cluster)
    yield opened
    opened.coordinators.close()


def test_a_client_whose_questions_were_answered_is_asked_again(cluster: CoordinatorAway, opened: Opened) -> None:
    cluster.come()
    for _ in range(2):
        answers = opened.coordinators.ask(QUESTION, GROUPS, LONG_SECONDS)
        assert {group: list(answer.result().members) for group, answer in answers.items()} == {"g": [], "h": []}
    opened.soon_open(True)
    opened.coordinators.close()
    opened.soon_open(False)


def test_f203_a_client_in_which_a_question_is_open_is_ended_and_another_one_asked(
    cluster: CoordinatorAway, opened: Opened
) -> None:
    assert opened.coordinators.ask(QUESTION, GROUPS, 0.2) == {}
    opened.soon_open(False)
    cluster.come()
    assert opened.coordinators.ask(QUESTION, GROUPS, LONG_SECONDS).keys() == GROUPS.keys()
    opened.soon_open(False, True)


def test_a_client_that_answers_behind_the_close_is_ended_then(cluster: CoordinatorAway, opened: Opened) -> None:
    asking = threading.Thread(target=opened.coordinators.ask, args=(QUESTION, GROUPS, LONG_SECONDS))
    asking.start()
    wait_until(lambda: bool(opened.clients), "it is asked")
    opened.coordinators.close()
    opened.soon_open(True)
    cluster.come()
    asking.join()
    opened.soon_open(False)
    with pytest.raises(UsageError, match="closed"):
        opened.coordinators.ask(QUESTION, GROUPS, LONG_SECONDS)


def offsets_of(*groups: str) -> dict[str, Any]:
    return {group: ConsumerGroupTopicPartitions(group) for group in groups}


def test_f234_groups_that_nobody_answers_for_cost_no_other_its_answer(opened: Opened) -> None:
    away = [f"away-{number}" for number in range(2 * AT_ONCE_MAX)]
    answers = dict[str, Any]()

    def answered() -> bool:
        answers.update(opened.coordinators.ask(TELLS_OFFSETS, offsets_of(*away, HERE), 3.0))
        return bool(answers)

    wait_until(answered, "the one that is there has answered in time")
    assert {group: answer.result().topic_partitions for group, answer in answers.items()} == {HERE: []}
    opened.soon_open(*[False] * (len(opened.clients) - 1), True)


def test_f234_a_coordinator_is_not_looked_up_again_after_a_description(
    cluster: CoordinatorAway, opened: Opened
) -> None:
    cluster.come()
    opened.coordinators.ask(QUESTION, GROUPS, LONG_SECONDS)  # a new client looks coordinators up
    groups = [f"many-{number}" for number in range(3 * AT_ONCE_MAX)]
    assert opened.coordinators.ask(TELLS_OFFSETS, offsets_of(*groups), LONG_SECONDS).keys() == {*groups}
    for question in (FIND_COORDINATOR, DESCRIBE_GROUPS, OFFSET_FETCH):
        assert {group: cluster.asked[question, group] for group in groups} == dict.fromkeys(groups, 1)


@pytest.mark.parametrize("error", [NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS, None])
def test_f234_members_are_asked_for_again_through_other_clients(
    cluster: CoordinatorAway, opened: Opened, error: int | None
) -> None:
    """`error` None: the connection is lost."""
    cluster.come()
    cluster.error, cluster.breaks = error or 0, error is None
    told = list[Any]()
    asking = threading.Thread(target=lambda: told.append(opened.coordinators.ask(QUESTION, GROUPS, LONG_SECONDS)))
    asking.start()
    wait_until(lambda: cluster.asked[DESCRIBE_GROUPS, "h"] > 1, "it is asked again")
    cluster.error, cluster.breaks = 0, False
    asking.join()
    assert {group: list(answer.result().members) for group, answer in told[0].items()} == {"g": [], "h": []}
    wait_until(lambda: not is_open(opened.clients[0]) and is_open(opened.clients[-1]), "only who knew them is kept")


@pytest.mark.parametrize(
    ("error", "asked"), [(GROUP_ID_NOT_FOUND, 1), (TOPIC_AUTHORIZATION_FAILED, 1), (GROUP_AUTHORIZATION_FAILED, 0)]
)
def test_f234_offsets_are_asked_for_behind_what_only_a_coordinator_says(
    cluster: CoordinatorAway, opened: Opened, error: int, asked: int
) -> None:
    """Any other error is the answer: a user who may not describe a group may not read its offsets, either."""
    cluster.come()
    cluster.error = error
    answers = opened.coordinators.ask(TELLS_OFFSETS, offsets_of("g"), LONG_SECONDS)
    failed = answers["g"].exception()
    assert failed is not None
    assert (failed.args[0].code(), cluster.asked[OFFSET_FETCH, "g"]) == (error, asked)


class Played:
    """An AdminClient that answers at once, with `error` if there is one. It tells its cluster's id unless `silent`."""

    def __init__(self) -> None:
        self.error: int | None = None
        self.silent = False
        self.ended = False  # True: a connection has ended, which the next poll reports
        self.asked = list[str]()  # requests about groups, and "cluster"

    def coordinators(self, config: dict[str, str] | None = None) -> Coordinators:
        """Return the coordinators for these groups."""
        return Coordinators(confluent_kafka, self._open, "h:1", config)

    def _open(self, broken: Callable[[], None]) -> Played:
        self._broken = broken
        return self

    def _answer(self, question: str, group: str) -> dict[str, Future[Any]]:
        self.asked.append(question)
        answer = Future[Any]()
        if self.error is None:
            answer.set_result(group)
        else:
            answer.set_exception(KafkaException(KafkaError(self.error)))
        return {group: answer}

    def describe_consumer_groups(self, groups: list[str], *, request_timeout: float) -> dict[str, Future[Any]]:
        return self._answer(QUESTION, *groups)

    def delete_consumer_groups(self, groups: list[str], *, request_timeout: float) -> dict[str, Future[Any]]:
        return self._answer(DELETES, *groups)

    def list_topics(self, _topic: str, *, timeout: float) -> Any:
        self.asked.append("cluster")
        if self.silent:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return SimpleNamespace(cluster_id="c")

    def poll(self, _seconds: float) -> None:
        if self.ended:
            self.ended = False
            self._broken()

    def __exit__(self, *_: object) -> None:
        """Do nothing, since nothing is open."""


def test_f315_an_answer_does_not_count_while_nobody_tells_of_which_cluster_it_is() -> None:
    played = Played()
    asking = played.coordinators()
    played.silent = True
    assert asking.ask(QUESTION, {"g": "g"}, LONG_SECONDS) == {}
    played.silent = False
    assert asking.ask(QUESTION, {"g": "g"}, LONG_SECONDS).keys() == {"g"}


def test_f315_an_answer_of_a_kept_client_whose_connection_ended_since_its_last_one_is_in_doubt() -> None:
    played = Played()
    asking = played.coordinators()
    assert asking.ask(QUESTION, {"g": "g"}, LONG_SECONDS).keys() == {"g"}
    played.ended = played.silent = True
    assert asking.ask(QUESTION, {"g": "g"}, LONG_SECONDS) == {}


def test_librdkafkas_own_errors_start_no_question_about_a_cluster() -> None:
    played = Played()
    played.error, played.silent = KafkaError._TIMED_OUT, True
    assert played.coordinators().ask(QUESTION, {"g": "g"}, LONG_SECONDS).keys() == {"g"}
    assert played.asked == [QUESTION]


def test_a_deletion_whose_connection_was_lost_may_have_been_made_and_is_not_sent_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(coordinators, "check_deletes_groups", lambda *_: None)
    played = Played()
    played.error = KafkaError._TRANSPORT
    answers = played.coordinators().ask(DELETES, {"g": "g"}, LONG_SECONDS)
    assert (answers.keys(), played.asked) == ({"g"}, ["cluster", DELETES])


@pytest.mark.parametrize(("config", "clusters"), [({}, 1), ({"log_level": "3"}, 2)])
def test_f315_a_kept_client_without_connection_news_is_asked_for_its_cluster_each_time(
    config: dict[str, str], clusters: int
) -> None:
    played = Played()
    asking = played.coordinators(config)
    for _ in range(2):
        asking.ask(QUESTION, {"g": "g"}, LONG_SECONDS)
    assert (played.asked.count(QUESTION), played.asked.count("cluster")) == (2, clusters)
