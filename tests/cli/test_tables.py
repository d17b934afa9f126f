"""Tables fit the terminal: text loses its middle, numbers and what goes to a pipe stay whole, and what is left out is
named."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import pytest

import zkcoord.cli
from tests.cli.group_tree import A, World
from tests.cli.program import PATIENCE_SECONDS
from tests.cli.terminal import Terminal
from zkcoord.cli.output import MORE, table
from zkcoord.cli.top import screen
from zkcoord.shell.zk.blocking import Tree
from zkcoord.tree.paths import DRAFT

HEADER = ("TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID")
RIGHT = HEADER[1:5]
ROWS = [
    ["clicks", n, 1_000_000 + n, 1_000_123, 123 - n, "etl_machine-17.example.org-1795229172529-931c1cca-0"]
    for n in range(3)
]

ID = "click-stream-enrichment_machine-17.example.org-1795229172529-931c1cca-0"
CELLS: dict[str, Any] = {
    "STATE": "PreparingRebalance",
    "OPTION": "start-fetcher",
    "COORDINATOR": "0000000042",
    "EPOCH": 117,
    "PID": 4_194_303,
    "PROTOCOLS": "1-3",
    "AT": "2026-11-23 10:00:00.123",
    "GENERATION": 1_204,
    "FAILED": "TopicsDiffer",
    "#COMMANDS": 12,
    "#MEMBERS": 120,
    "#PARTITIONS": 1_200,
    "PARTITION": 1_199,
    "REPLICAS": "101,102,103",
    "STEP": 4,
    "VERDICT": "only zookeeper",
    **dict.fromkeys(("LAST", "SINCE", "WRITTEN", "COMMITTED"), "2026-11-23 10:00:00"),
    **dict.fromkeys(("FROM", "TO", "STORE"), "zookeeper"),
    **dict.fromkeys(("STOP", "SEE", "FINISH", "COMMIT", "GRANT", "START", "UNREAD", "FIRST", "AGE-MS"), 12_345),
    **dict.fromkeys(("CURRENT-OFFSET", "LOG-END-OFFSET", "OFFSET", "NEW-OFFSET", "BEFORE", "AFTER"), 1_234_567_890),
    **dict.fromkeys(("ZOOKEEPER", "KAFKA", "COUNTS", "GOES-ON-AT", "LAG"), 1_234_567_890),
}
"""What a long row has in a column; ID in every other one with text, a number of seven digits in one with numbers."""


class Case(NamedTuple):
    """A table of the command line."""

    where: str
    columns: Sequence[str]
    right: Sequence[str]

    def row(self) -> list[Any]:
        """A long one."""
        return [CELLS.get(name, 1_234_567 if name in self.right else ID) for name in self.columns]


def cases() -> Iterator[Case]:
    """Every tuple of names, called COLUMNS or …_COLUMNS, of the modules of the command line."""
    for module in pkgutil.walk_packages(zkcoord.cli.__path__, "zkcoord.cli."):
        if module.name == "zkcoord.cli.top.terminal":  # needs curses
            continue
        found = importlib.import_module(module.name)
        for name, value in sorted(vars(found).items()):
            if name == "COLUMNS" or name.endswith("_COLUMNS"):
                tables = value if isinstance(value, dict) else {"": value}
                for which, columns in tables.items():
                    yield Case(f"{module.name}.{name} {which}".strip(), columns, getattr(found, "NUMBERS", ()))


CASES = list(cases())


@pytest.mark.parametrize("width", [80, 72, 70])
def test_a_line_takes_no_more_than_the_terminal_has(width: int) -> None:
    lines = table(HEADER, ROWS, RIGHT, width).splitlines()

    assert max(map(len, lines)) <= width
    assert [line.split()[1:5] for line in lines[1:]] == [[str(cell) for cell in row[1:5]] for row in ROWS]
    assert all("…" in line and line.endswith("-0") for line in lines[1:])


@pytest.mark.parametrize("case", CASES, ids=[case.where for case in CASES])
def test_every_table_of_the_command_line_fits_80_columns_or_says_what_it_leaves_out(case: Case) -> None:
    whole = table(case.columns, [case.row()], case.right)
    lines = table(case.columns, [case.row()], case.right, 80).splitlines()

    assert max(map(len, lines)) <= 80
    shown = lines[0].split()
    gone = [name for name in case.columns if name not in shown]
    assert (shown[0] == case.columns[0] and len(shown) >= 3) or len(case.columns) == 2
    assert " ".join(lines[2:]) == (f"left out: {', '.join(gone)}; {MORE}" if gone else "")
    numbers = [str(cell) for name, cell in zip(case.columns, case.row(), strict=True) if name in case.right]
    kept = [cell for cell in lines[1].split() if cell in numbers]
    assert len(kept) == len([name for name in shown if name in case.right]), "a number is whole or not shown"
    assert len(whole.splitlines()) == 2 and "…" not in whole


def test_all_the_tables_that_there_are_were_tried() -> None:
    found = {case.where for case in CASES}

    assert {"zkcoord.cli.group.describe.STATE_COLUMNS", "zkcoord.cli.offsets.verify.COLUMNS"} <= found
    assert {f"zkcoord.cli.top.screen.COLUMNS {name}" for name in screen.COLUMNS} <= found and len(found) >= 20


def test_a_column_without_any_value_goes_before_a_name_is_cut_to_the_bone() -> None:
    header, name = ("GROUP", "FAILED", "NOTE", "LAG"), "click-stream-enrichment"
    rows = [[name, None, "paused by op@host-4", n] for n in range(2)]

    narrow = table(header, rows, ["LAG"], 51).splitlines()

    assert narrow == [
        "GROUP                    NOTE                 LAG",
        "click-stream-enrichment  paused by op@host-4    0",
        "click-stream-enrichment  paused by op@host-4    1",
        "left out: FAILED; --output json has all",
    ]
    assert table(header, [[name, "TopicsDiffer", None, 1]], ["LAG"], 43).splitlines()[-1].startswith("left out: NOTE;")


def test_a_narrow_table_drops_whole_columns_and_never_cuts_a_number() -> None:
    lines = table(HEADER, ROWS, RIGHT, 20).splitlines()

    assert lines[:2] == ["TOPIC   PARTITION", "clicks          0"]
    assert " ".join(lines[4:]) == f"left out: {', '.join(HEADER[2:])}; {MORE}"


def test_without_a_terminal_nothing_is_cut() -> None:
    assert "…" not in table(HEADER, ROWS, RIGHT)
    assert table(HEADER, ROWS, RIGHT).splitlines()[1].endswith(ROWS[0][5])  # type: ignore[arg-type]


@pytest.mark.zookeeper
def test_a_list_of_groups_with_long_names_fits_a_terminal_of_80_columns(chroot: str) -> None:
    name = "click-stream-enrichment-of-the-marketing-department"
    with Tree(chroot) as tree:
        world = World(tree, chroot)
        world.put(DRAFT.ids(name))
        world.settle()
        world.start_for_a()
        with closing(Terminal("group", "list", "--state", "--zookeeper", world.address, width=80)) as terminal:
            assert terminal.process.wait(PATIENCE_SECONDS) == 0
            terminal.until_closed()
            lines = [line for line in terminal.lines() if line]

    assert [line.split()[0] for line in lines] == ["GROUP", "click-…tment", "g", "left"]
    assert lines[2].split()[:2] == ["g", "AwaitingSync"] and A not in lines[2]
    assert lines[3] == f"left out: LAG, FAILED, NOTE; {MORE}"


@pytest.mark.zookeeper
def test_a_sentence_is_broken_between_words_where_the_terminal_ends(chroot: str) -> None:
    with Tree(chroot) as tree:
        World(tree, chroot).settle()
    with closing(Terminal("group", "describe", "g", "--zookeeper", chroot, width=60)) as terminal:
        lines = terminal.until(lambda shown: any("clicks" in line for line in shown))

    assert lines[:3] == [
        "Group g: Stable, generation 7, coordinator NONE ELECTED,",
        "epoch 0, 0 commands outstanding, 1 member",
        "",
    ]
