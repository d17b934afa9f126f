"""One ZooKeeper in a container, where each test has a chroot of its own; and three of them with Kafka beside them."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterator

import pytest

from tests.containers.ensemble import Box, Ensemble
from tests.containers.group import Group
from tests.containers.image import Say, zookeeper_image
from tests.containers.server import ContainerZooKeeper
from zkcoord.errors import UnavailableError
from zkcoord.shell.zk.blocking import Tree
from zkcoord.tree.writes import CreateNode, Transaction

NUMBERS = itertools.count(1)
SEATS = 5


def teller(config: pytest.Config) -> Say:
    """Shows a line of progress at once."""
    capture = config.pluginmanager.getplugin("capturemanager")
    reporter = config.pluginmanager.getplugin("terminalreporter")

    def say(line: str) -> None:
        with capture.global_and_fixture_disabled():
            if reporter is None:  # a worker of pytest-xdist, whose standard error is that of the run
                print(f"\n{line}", file=sys.stderr, flush=True)
                return
            reporter.ensure_newline()
            reporter.write_line(line)

    return say


@pytest.fixture(scope="session")
def image(request: pytest.FixtureRequest) -> str:
    """ZooKeeper's image; where there is none its tests are left out, and fail with `CI` set."""
    try:
        return zookeeper_image(teller(request.config))
    except UnavailableError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))


@pytest.fixture(scope="module")  # gone with its last test, not at the end of everything
def container(image: str) -> Iterator[ContainerZooKeeper]:
    """It serves when a test begins; a test that pauses or stops it brings it back."""
    with ContainerZooKeeper(image) as server:
        yield server


@pytest.fixture(scope="package")  # two modules need it; it starts in 20 s
def ensemble(image: str) -> Iterator[tuple[Ensemble, list[Box]]]:
    """The ensemble, and containers in whose networks processes run."""
    with Ensemble(image) as running:
        yield running, [running.box() for _ in range(SEATS)]


@pytest.fixture
def group(container: ContainerZooKeeper) -> Iterator[Group]:
    """An empty group, without coordinator or member."""
    container.await_ready()
    path = f"/test-{next(NUMBERS)}"
    with Tree(container.hosts) as tree:
        assert not tree.commit(Transaction(writes=(CreateNode(path),))).reason
    with Group(container.hosts + path) as group:
        yield group
