"""Brokers that come back while requests about a group's offsets are open. (librdkafka's issue 4605 would abort.)"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Self

import pytest
from confluent_kafka.admin import AdminClient

from tests.kafka.coordinator_away import NOT_COORDINATOR, CoordinatorAway
from tests.kafka.helpers import QUIET
from tests.offsets.test_kafka_store import NOWHERE, new_group, new_topic
from tests.waiting import PATIENCE_SECONDS, wait_until
from zkcoord.embedded.kafka import KafkaBroker
from zkcoord.errors import UnavailableError
from zkcoord.kafka.client import TIMEOUT_MS, KafkaClient
from zkcoord.kafka.coordinators import NEVER_SECONDS
from zkcoord.offsets.kafka_store import KafkaCommits

PAUSES_SECONDS = (0.0, 1.5, 3.0, 5.0)  # how long the broker is away, without its start; requests take 2 s at most


class Program:
    """A process that uses a cluster all the time, and prints its results. It must live, and is ended with the block."""

    def __init__(self, name: str, servers: str, *more: str) -> None:
        command = [sys.executable, "-m", f"tests.offsets.{name}", servers, new_group(), *more]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._told: list[int] = []
        assert self._process.stdout is not None
        lines = self._process.stdout
        self._reads = threading.Thread(target=lambda: self._told.extend(map(int, lines)), daemon=True)
        self._reads.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._process as process:  # closes its pipes
            assert process.stdin is not None
            process.stdin.close()
            try:
                ended = process.wait(PATIENCE_SECONDS)
            finally:
                process.kill()
                self._reads.join()
        assert kind is not None or ended == 0

    def tells(self, times: int, *, nothing: bool = False) -> None:
        """Wait until it has printed `times` further numbers above 0 (`nothing`: zeros). It must not die."""

        def told() -> int:
            return sum((number == 0) is nothing for number in list(self._told))

        before = told()
        wait_until(lambda: told() >= before + times or self._process.poll() is not None, "it goes on")
        assert self._process.poll() is None, f"it died with {self._process.returncode}"


def restart(broker: KafkaBroker, times: int) -> None:
    """Kill the broker and start it again `times` times, while one process commits and one asks. Both must survive."""
    topic = new_topic(AdminClient({"bootstrap.servers": broker.bootstrap_servers}, logger=QUIET), 1)
    with ExitStack() as stack:
        working = (Program(name, broker.bootstrap_servers, topic) for name in ("committing", "asking"))
        programs = [stack.enter_context(program) for program in working]
        for number in range(times + 1):
            if number:
                broker.kill()
                threading.Event().wait(PAUSES_SECONDS[(number - 1) % len(PAUSES_SECONDS)])
                broker.start()
            for program in programs:
                program.tells(6)


@pytest.mark.kafka
def test_f142_f203_a_process_that_commits_and_one_that_asks_survive_a_broker_that_comes_back(
    own_kafka: KafkaBroker,
) -> None:
    restart(own_kafka, 2)


@pytest.mark.kafka
@pytest.mark.long
def test_f142_f203_commits_and_questions_survive_repeated_broker_restarts(
    own_kafka: KafkaBroker,
) -> None:
    restart(own_kafka, 20)


def test_f203_a_tool_survives_a_coordinator_that_comes_when_its_question_has_timed_out() -> None:
    """While the coordinator is away, another broker answers, as in a cluster of several. The tool also ends
    normally."""
    with CoordinatorAway() as cluster, Program("asking", cluster.bootstrap_servers, "t", "1000") as program:
        program.tells(1, nothing=True)
        cluster.come()
        program.tells(3)


def test_f233_a_tool_survives_a_broker_that_is_not_the_coordinator_and_goes_on_when_it_is() -> None:
    with CoordinatorAway() as cluster:
        cluster.error = NOT_COORDINATOR
        cluster.come()
        with Program("asking", cluster.bootstrap_servers, "t", "500") as program:
            program.tells(3, nothing=True)
            cluster.error = 0
            program.tells(3)


def test_f234_a_tool_survives_a_coordinator_that_goes_when_it_is_asked_for_the_group() -> None:
    """The tool's result is then empty, since the coordinator's successor is not known."""
    with CoordinatorAway() as cluster:
        cluster.error, cluster.breaks = NOT_COORDINATOR, True
        cluster.come()
        with Program("asking", cluster.bootstrap_servers, "t", "500") as program:
            program.tells(3, nothing=True)
            cluster.error, cluster.breaks = 0, False
            program.tells(3)


def test_f203_unanswered_questions_end_before_librdkafka_gives_them_up() -> None:
    with KafkaClient(NOWHERE) as client:
        store = KafkaCommits(client, timeout_ms=300)
        asking: list[Callable[[], object]] = [lambda: store.users("g"), lambda: store.forget("g")]
        for ask in (*asking, lambda: store.read(["g"]).of("g")):
            with pytest.raises(UnavailableError, match="of group g: it does not answer"):
                ask()
    assert NEVER_SECONDS * 1_000 > 100 * TIMEOUT_MS
