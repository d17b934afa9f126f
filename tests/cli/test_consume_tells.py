"""README's line for `zkcoord consume`, in a terminal, says something in every state of the group: on real servers."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager

import pytest

from tests.cli.program import PATIENCE_SECONDS
from tests.cli.servers import Servers
from tests.cli.terminal import Terminal
from tests.integration import brokers
from tests.integration.brokers import BOTH, servers_of
from tests.pages import shell_block

pytestmark = pytest.mark.kafka
PARTITIONS = 4
LINE = shell_block("README.md", "Start it")[3]


@pytest.fixture(scope="module", params=BOTH)
def world(request: pytest.FixtureRequest) -> Iterator[brokers.Servers]:
    """Servers for all tests here, with each kind of brokers; a test has a topic and a group of its own."""
    with servers_of(request.param, {}) as found:
        yield found


@pytest.fixture
def servers(world: brokers.Servers, monkeypatch: pytest.MonkeyPatch) -> Iterator[Servers]:
    """Those servers, in the environment; what a test starts on them ends with it."""
    kafka = world.kafka.bootstrap_servers
    monkeypatch.setenv("ZKCOORD_ZOOKEEPER", world.zookeeper)
    monkeypatch.setenv("ZKCOORD_BOOTSTRAP_SERVERS", kafka)
    if world.coordinator:
        monkeypatch.setenv("ZKCOORD_COORDINATOR_TOPICS", world.coordinator["topics"])
    with ExitStack() as programs:
        yield Servers(world.zookeeper, kafka, programs)


@pytest.fixture
def served(servers: Servers) -> Servers:
    """The same with a coordinator."""
    servers.start("coordinator").line(having="serves")
    return servers


@contextmanager
def consuming(servers: Servers, name: str) -> Iterator[Callable[[str], None]]:
    """README's line with this topic and group, in a terminal; gives what waits until it shows a text."""
    words = servers.words(LINE, {"clicks": name, "etl": name})
    assert words == ["consume", "--group", name, "--topic", name, "--from-beginning"]
    with closing(Terminal(*words, width=1000)) as terminal:

        def shows(what: str) -> None:
            terminal.until(lambda lines: re.search(what, "\n".join(lines)) is not None)

        yield shows
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.process.wait(PATIENCE_SECONDS) == 0


def test_without_a_coordinator_it_says_that_one_must_serve(servers: Servers) -> None:
    servers.fill(PARTITIONS, 0, "alone")
    with consuming(servers, "alone") as shows:
        shows("no partition: .*a coordinator must ")
        servers.start("coordinator")
        shows("reads alone-0, alone-1, alone-2, alone-3")


def test_it_names_a_topic_that_is_absent_and_reads_it_once_it_is_made(served: Servers) -> None:
    with consuming(served, "absent") as shows:
        shows("topic_missing .*topic=absent.*create the topic")
        served.fill(PARTITIONS, PARTITIONS, "absent")
        shows("reads absent-0")
        shows("record 3")


def test_where_there_is_nothing_to_read_it_says_that_it_waits(served: Servers) -> None:
    served.fill(PARTITIONS, 0, "empty")
    with consuming(served, "empty") as shows:
        shows("reads empty-0, empty-1, empty-2, empty-3")
        shows("no record yet: it waits for new ones")


def test_in_a_pause_it_says_that_its_partitions_are_gone_and_what_a_group_must_not_be(served: Servers) -> None:
    served.fill(PARTITIONS, 0, "paused")
    with consuming(served, "paused") as shows:
        shows("reads paused-0")
        served.call("group", "pause", "paused")
        shows("reads nothing now: its partitions were taken away")
        shows("no partition: .*neither paused, held nor moved away; see `zkcoord group describe`")


def test_a_consumer_of_a_held_group_is_told_why_it_reads_nothing(served: Servers) -> None:
    served.fill(PARTITIONS, 0, "held")
    with consuming(served, "held") as first_shows:
        first_shows("reads held-0, held-1, held-2, held-3")
        served.call("group", "hold", "held")
        with consuming(served, "held") as second_shows:
            second_shows("no partition: .*neither paused, held nor moved away; see `zkcoord group describe`")
            served.call("group", "resume", "held")
            second_shows("reads held-")
