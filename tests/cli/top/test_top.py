"""`zkcoord top` in a terminal, on a real server."""

import signal
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from tests.cli.group_tree import A, B, World
from tests.cli.program import PATIENCE_SECONDS, Run
from tests.cli.terminal import DOWN, ENTER, ESCAPE, TAB, Terminal
from zkcoord.embedded import EmbeddedZooKeeper
from zkcoord.shell.zk.blocking import Tree
from zkcoord.tree.paths import DRAFT

pytestmark = pytest.mark.zookeeper


@pytest.fixture
def world(chroot: str) -> Iterator[World]:
    with Tree(chroot) as tree:
        yield World(tree, chroot)


@pytest.fixture
def top(world: World) -> Iterator[Callable[..., Terminal]]:
    """Starts `zkcoord top` on the world."""
    started: list[Terminal] = []

    def start(**how: str) -> Terminal:
        started.append(Terminal("top", "--zookeeper", world.address, "--interval-ms", "200", **how))
        return started[-1]

    yield start
    for each in started:
        each.close()


def rows(lines: list[str]) -> list[list[str]]:
    """The words of the table's rows."""
    return [line.split() for line in lines[4:-1] if line]


def test_groups_are_shown_and_opened_and_change_as_they_change(world: World, top: Callable[..., Terminal]) -> None:
    world.put(DRAFT.ids("other"))
    world.settle()
    terminal = top()
    terminal.until(
        lambda lines: (
            "NO COORDINATOR, epoch 0  2 groups, 0 not at rest, 0 commands outstanding" in lines[0]
            and rows(lines) == [["g", "Stable", "1", "2", "0", "-", "-"], ["other", "Empty", "0", "0", "0", "-", "-"]]
        )
    )

    world.member(B)
    world.start_for_a()
    terminal.until(lambda lines: rows(lines)[:1] == [["g", "AwaitingSync", "2", "2", "1", "-", "-"]])

    terminal.press(ENTER)
    owned = [["clicks", "0", "100", "-", "-", f"{A}-0"], ["clicks", "1", "-", "-", "-", f"{A}-0"]]
    terminal.until(
        lambda lines: lines[0].startswith("Group g: AwaitingSync, generation 7") and rows(lines) == owned,
    )
    terminal.press(TAB)
    members = [[A, "etl-1", "2", "1", "-"], [B, "-", "0", "0", "-"]]
    terminal.until(lambda lines: lines[3].startswith("CONSUMER-ID") and [row[:5] for row in rows(lines)] == members)
    terminal.press(TAB)
    commands = [[A, "0000000003", "start-fetcher"]]
    terminal.until(lambda lines: lines[3].startswith("AGE-MS") and [row[1:4] for row in rows(lines)] == commands)

    terminal.press(ESCAPE)
    terminal.until(lambda lines: lines[3].startswith("GROUP"))
    terminal.press(DOWN + ENTER)
    terminal.until(lambda lines: lines[0].startswith("Group other: Empty"))
    terminal.press("q")
    assert terminal.process.wait(PATIENCE_SECONDS) == 0


@pytest.mark.parametrize("environment", [{}, {"NO_COLOR": "1"}])
def test_colours_are_shown_unless_they_are_forbidden(
    world: World, top: Callable[..., Terminal], environment: dict[str, str]
) -> None:
    world.settle()
    world.start_for_a()
    world.put(DRAFT.ids("a"))
    terminal = top(**environment)
    terminal.until(lambda lines: len(rows(lines)) == 2 and lines[-1])

    assert ("brown" in terminal.colours()) is not bool(environment), "brown is the terminal's yellow"
    terminal.process.send_signal(signal.SIGTERM)
    assert terminal.process.wait(PATIENCE_SECONDS) == 0


def test_a_tree_that_is_not_there_is_told_when_the_terminal_is_as_before(chroot: str) -> None:
    with closing(Terminal("top", "--zookeeper", chroot)) as terminal:
        code = terminal.process.wait(PATIENCE_SECONDS)
        terminal.until(lambda lines: any("error: no zkcoord tree at" in line for line in lines))
    assert code == 7


def test_a_locale_that_this_machine_does_not_have_is_no_obstacle(top: Callable[..., Terminal], world: World) -> None:
    """Shells of other machines hand their locale on, as ssh does."""
    world.settle()
    terminal = top(LC_ALL="xx_XX.UTF-8")
    terminal.until(lambda lines: rows(lines) == [["g", "Stable", "1", "2", "0", "-", "-"]])
    terminal.press("q")
    assert terminal.process.wait(PATIENCE_SECONDS) == 0


def test_without_a_terminal_it_names_what_to_use_instead(run: Run) -> None:
    result = run("top", "--zookeeper", "h:1")

    assert (result.exit_code, "`zkcoord group list --state`" in result.stderr) == (2, True)


def test_while_zookeeper_is_away_the_last_sight_stays_and_the_screen_says_so() -> None:
    with EmbeddedZooKeeper(fsync=False) as server:
        with Tree(server.hosts) as tree:
            World(tree, server.hosts).settle()
        with closing(Terminal("top", "--zookeeper", server.hosts, "--interval-ms", "200")) as terminal:
            terminal.until(lambda lines: [row[:2] for row in rows(lines)] == [["g", "Stable"]])
            server.stop()
            terminal.until(
                lambda lines: "did not answer" in lines[1] and [row[:2] for row in rows(lines)] == [["g", "Stable"]]
            )
            server.start()
            terminal.until(lambda lines: not lines[1].strip())
