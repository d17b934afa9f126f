"""Colours go to terminals only, and nowhere when NO_COLOR is set."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.cli.group_tree import World
from tests.cli.program import PATIENCE_SECONDS, Run
from tests.cli.terminal import Terminal
from zkcoord.shell.zk.blocking import Tree

pytestmark = pytest.mark.zookeeper


@pytest.fixture
def world(chroot: str) -> Iterator[World]:
    with Tree(chroot) as tree:
        yield World(tree, chroot)


def colours(*words: str, **environment: str) -> set[str]:
    """The colours in a terminal once this command has ended."""
    with closing(Terminal(*words, width=120, **environment)) as terminal:
        terminal.process.wait(PATIENCE_SECONDS)
        terminal.until_closed()
        return terminal.colours() - {"default"}


def test_moves_and_problems_have_colours_on_a_terminal(world: World) -> None:
    world.settle()
    calm = colours("group", "list", "--state", "--zookeeper", world.address)
    world.start_for_a()
    moving = ("group", "list", "--state", "--zookeeper", world.address)

    assert (calm, colours(*moving)) == (set(), {"brown"}), "brown is the terminal's yellow"
    assert colours("group", "describe", "nothing", "--zookeeper", world.address) == {"red"}
    for forbidden in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert colours(*moving, **forbidden) == set()


def test_a_pipe_gets_no_colours(world: World, run: Run) -> None:
    world.settle()
    world.start_for_a()

    for words in (["list", "--state"], ["describe", "g"], ["commands"], ["describe", "nothing"]):
        result = run("group", *words, "--zookeeper", world.address)
        assert "\x1b" not in result.stdout + result.stderr
