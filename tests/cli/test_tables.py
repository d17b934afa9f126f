"""Tables fit the terminal: text loses its middle, numbers and what goes to a pipe stay whole."""

from __future__ import annotations

import pytest

from zkcoord.cli.output import table

HEADER = ("TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID")
RIGHT = HEADER[1:5]
ROWS = [
    ["clicks", n, 1_000_000 + n, 1_000_123, 123 - n, "etl_machine-17.example.org-1795229172529-931c1cca-0"]
    for n in range(3)
]


@pytest.mark.parametrize("width", [80, 72, 70])
def test_a_line_takes_no_more_than_the_terminal_has(width: int) -> None:
    lines = table(HEADER, ROWS, RIGHT, width).splitlines()

    assert max(map(len, lines)) <= width
    assert [line.split()[1:5] for line in lines[1:]] == [[str(cell) for cell in row[1:5]] for row in ROWS]
    assert all("…" in line and line.endswith("-0") for line in lines[1:])


def test_what_cannot_be_cut_is_shown_whole() -> None:
    assert table(HEADER, ROWS, RIGHT, 20).splitlines()[0].split() == list(HEADER)


def test_without_a_terminal_nothing_is_cut() -> None:
    assert "…" not in table(HEADER, ROWS, RIGHT)
    assert table(HEADER, ROWS, RIGHT).splitlines()[1].endswith(ROWS[0][5])  # type: ignore[arg-type]
