"""Questions to the coordinators of groups: when a client of librdkafka's is asked again, and when it is ended."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from tests.kafka.coordinator_away import CoordinatorAway
from tests.kafka.helpers import QUIET
from tests.waiting import wait_until
from zkcoord.errors import UsageError
from zkcoord.kafka.coordinators import Coordinators

QUESTION, GROUPS = "describe_consumer_groups", {"g": "g", "h": "h"}
LONG_SECONDS = 30.0


class Opened:
    """Asks the coordinators of this cluster, and remembers through which clients."""

    def __init__(self, cluster: CoordinatorAway) -> None:
        self._cluster = cluster
        self.clients: list[Any] = []
        self.coordinators = Coordinators(confluent_kafka, self._open)

    def _open(self) -> Any:
        self.clients.append(AdminClient({"bootstrap.servers": self._cluster.bootstrap_servers}, logger=QUIET))
        return self.clients[-1]

    def soon_open(self, *wanted: bool) -> None:
        """Wait until the clients, in the order in which they were opened, are open, or not."""
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
