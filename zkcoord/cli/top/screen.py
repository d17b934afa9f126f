"""The screen of `zkcoord top`: what it shows of a reading, and what each key does. Pure."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, NamedTuple

from zkcoord.cli.output import drawn
from zkcoord.core.words import count
from zkcoord.group_report import GroupReport
from zkcoord.operating.documents import RESTING, remarks, sentence, tone_of
from zkcoord.operating.happenings import Sight
from zkcoord.operating.members import Outstanding, command_document, member_documents
from zkcoord.operating.partitions import Ends, lag_of, owner_of, partitions_of
from zkcoord.operating.saying import Tone
from zkcoord.operating.words import cell

HELP = "Up/Down choose  Enter open  Esc back  Tab next table  s sort  r reverse  q quit"
NUMBERS = ("#MEMBERS", "#PARTITIONS", "#COMMANDS", "LAG", "AGE-MS", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET")
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "groups": ("GROUP", "STATE", "#MEMBERS", "#PARTITIONS", "#COMMANDS", "LAG", "NOTE"),
    "partitions": ("TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID"),
    "members": ("CONSUMER-ID", "INSTANCE", "#PARTITIONS", "#COMMANDS", "LAG", "NOTE"),
    "commands": ("AGE-MS", "CONSUMER-ID", "SEQUENCE", "OPTION", "#PARTITIONS", "REFUSED"),
}
TABS = ("partitions", "members", "commands")
ABOVE, BELOW = 4, 1
"""The number of lines above and below the rows. Above: title, notice, left-out columns, header. Below: the keys."""


class Style(Enum):
    """How a line is drawn."""

    PLAIN = "plain"
    TITLE = "title"
    HEADER = "header"
    CHOSEN = "chosen"
    MOVING = "moving"  # something is in progress
    BAD = "bad"  # somebody must act
    HINT = "hint"


STYLES = {None: Style.PLAIN, Tone.MOVING: Style.MOVING, Tone.BAD: Style.BAD}


class Line(NamedTuple):
    """One line of the screen."""

    text: str
    style: Style = Style.PLAIN


class Row(NamedTuple):
    """A row of a table. `key` identifies it in each reading."""

    key: str
    cells: Sequence[Any]
    style: Style = Style.PLAIN


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Everything that the screen shows. `notice`: what could not be read."""

    sight: Sight | None = None
    ends: Ends = field(default_factory=dict)
    commands: Sequence[Outstanding] = ()
    now_ms: int = 0  # this machine's wall clock at the reading
    notice: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """What the user has chosen. `group` None: the list of groups."""

    group: str | None = None
    tab: str = TABS[0]
    chosen: str | None = None  # the key of a row; None: the first row
    listed: str | None = None  # the group that was chosen in the list
    sorting: Mapping[str, tuple[int, bool]] = field(default_factory=dict)  # table -> column, reversed
    over: bool = False

    @property
    def table(self) -> str:
        """The key in COLUMNS of the table that is shown."""
        return "groups" if self.group is None else self.tab


def frame(screen: Screen, reading: Reading, width: int, height: int) -> list[Line]:
    """Return the lines of a screen of this size, from top to bottom."""
    rows = rows_of(screen, reading)
    columns = COLUMNS[screen.table]
    column, reverse = _sorting(screen)
    header = [f"{name}{'^' if reverse else 'v'}" if n == column else name for n, name in enumerate(columns)]
    (head, *table), left_out = drawn(header, [row.cells for row in rows], NUMBERS, width, columns)
    room = max(1, height - ABOVE - BELOW)
    at = _index(screen, rows)
    first = max(0, min(at - room // 2, len(rows) - room))
    lines = _above(_title(screen, reading), reading.notice, width)
    lines += [Line(f"no room for {', '.join(left_out)}" if left_out else "", Style.HINT)]
    lines += [Line(head.ljust(width), Style.HEADER)]
    for number in range(first, min(first + room, len(rows))):
        chosen = number == at
        lines.append(Line(table[number].ljust(width if chosen else 0), Style.CHOSEN if chosen else rows[number].style))
    if not rows:
        lines.append(Line(_nothing(screen, reading), Style.HINT))
    lines += [Line("")] * (height - BELOW - len(lines))
    more = len(rows) - room
    hint = f"{first + 1}-{first + room} of {len(rows)}  {HELP}" if more > 0 else HELP
    return [Line(_within(line.text, width), line.style) for line in [*lines[: height - BELOW], Line(hint, Style.HINT)]]


def _above(title: str, notice: str, width: int) -> list[Line]:
    """Return the two lines above the table. A long title continues on the second line if there is no notice."""
    if notice:
        return [Line(title, Style.TITLE), Line(cell(notice), Style.BAD)]
    first, *rest = textwrap.wrap(title, width, break_on_hyphens=False)
    return [Line(first, Style.TITLE), Line(" ".join(rest), Style.TITLE)]


def _within(text: str, width: int) -> str:
    """Return the text in at most `width` characters. An ellipsis stands for what is cut off."""
    return text if len(text) <= width else f"{text[: width - 1]}…"


def pressed(screen: Screen, key: str, reading: Reading, page: int = 10) -> Screen:
    """Return the screen after a key was pressed. Special keys have the names of `terminal.KEYS`."""
    rows = rows_of(screen, reading)
    steps = {"up": -1, "k": -1, "down": 1, "j": 1, "page up": -page, "page down": page}
    steps |= {"home": -len(rows), "end": len(rows)}
    if key in steps and rows:
        at = max(0, min(_index(screen, rows) + steps[key], len(rows) - 1))
        return replace(screen, chosen=rows[at].key)
    acts: dict[str, Callable[[], Screen]] = {
        "enter": lambda: _opened(screen, rows),
        "escape": lambda: _back(screen),
        "q": lambda: replace(screen, over=True),
        "tab": lambda: _next_tab(screen),
        "s": lambda: _sorted_by_next(screen),
        "r": lambda: _reversed(screen),
    }
    return acts[key]() if key in acts else screen


def _opened(screen: Screen, rows: Sequence[Row]) -> Screen:
    if screen.group is not None or not rows:
        return screen
    group = rows[_index(screen, rows)].key
    return replace(screen, group=group, listed=group, chosen=None)


def _back(screen: Screen) -> Screen:
    return screen if screen.group is None else replace(screen, group=None, tab=TABS[0], chosen=screen.listed)


def _next_tab(screen: Screen) -> Screen:
    if screen.group is None:
        return screen
    return replace(screen, tab=TABS[(TABS.index(screen.tab) + 1) % len(TABS)], chosen=None)


def _sorting(screen: Screen) -> tuple[int, bool]:
    return screen.sorting.get(screen.table, (0, screen.table == "commands"))


def _sorted_by_next(screen: Screen) -> Screen:
    """Return the screen sorted by the next column. Numbers begin with the largest."""
    columns = COLUMNS[screen.table]
    column = (_sorting(screen)[0] + 1) % len(columns)
    return replace(screen, sorting={**screen.sorting, screen.table: (column, columns[column] in NUMBERS)})


def _reversed(screen: Screen) -> Screen:
    column, reverse = _sorting(screen)
    return replace(screen, sorting={**screen.sorting, screen.table: (column, not reverse)})


def rows_of(screen: Screen, reading: Reading) -> list[Row]:
    """Return the rows of the table that is shown, sorted. Unknown values come last."""
    if reading.sight is None:
        return []
    if screen.group is None:
        rows = [_group_row(reading, reading.sight, report) for report in reading.sight.groups.values()]
    else:
        report = reading.sight.groups.get(screen.group)
        rows = [] if report is None else list(_TABS[screen.tab](reading, reading.sight, report))
    column, reverse = _sorting(screen)
    rows.sort(key=lambda row: row.key)
    known = [row for row in rows if row.cells[column] is not None]
    known.sort(key=lambda row: row.cells[column], reverse=reverse)
    return known + [row for row in rows if row.cells[column] is None]


def _group_row(reading: Reading, sight: Sight, report: GroupReport) -> Row:
    view = report.view
    cells = (
        view.group,
        report.phase.value,
        len(view.members),
        len(report.partitions()),
        report.commands(),
        lag_of(report, reading.ends),
        ", ".join(remarks(sight.above, report)) or None,
    )
    return Row(view.group, cells, STYLES[tone_of(report)])


def _partition_rows(reading: Reading, _sight: Sight, report: GroupReport) -> list[Row]:
    found = []
    for row in partitions_of(report, reading.ends):
        keys = ("topic", "partition", "current_offset", "log_end_offset", "lag")
        style = Style.PLAIN if row["alive"] else Style.MOVING
        found.append(
            Row(f"{row['topic']} {row['partition']:010d}", [*(row[key] for key in keys), owner_of(row)], style)
        )
    return found


def _member_rows(reading: Reading, sight: Sight, report: GroupReport) -> list[Row]:
    found = []
    for each in member_documents(sight.above, report, partitions_of(report, reading.ends)):
        name = each["consumer"] + (" (gone)" if each["away"] else "")
        cells = [name, each["instance"], len(each["partitions"]), len(each["commands"]), each["lag"], each["note"]]
        style = Style.MOVING if each["away"] or each["commands"] else Style.PLAIN
        found.append(Row(name, cells, style))
    return found


def _command_rows(reading: Reading, _sight: Sight, report: GroupReport) -> list[Row]:
    found = []
    for each in reading.commands:
        if each.group == report.view.group:
            known = command_document(each, reading.now_ms)
            partitions = None if known["partitions"] is None else len(known["partitions"])
            keys = ("age_ms", "consumer", "sequence", "option")
            cells = [*(known[key] for key in keys), partitions, known["refused"]]
            style = Style.BAD if known["refused"] else Style.MOVING
            found.append(Row(f"{each.consumer} {known['sequence']}", cells, style))
    return found


_TABS: Mapping[str, Callable[[Reading, Sight, GroupReport], Sequence[Row]]] = {
    "partitions": _partition_rows,
    "members": _member_rows,
    "commands": _command_rows,
}


def _index(screen: Screen, rows: Sequence[Row]) -> int:
    keys = [row.key for row in rows]
    return keys.index(screen.chosen) if screen.chosen in keys else 0


def _title(screen: Screen, reading: Reading) -> str:
    at = time.strftime("%H:%M:%S", time.localtime(reading.now_ms / 1000))
    if reading.sight is None:
        return f"zkcoord {at}  reading"
    groups, above = reading.sight.groups, reading.sight.above
    if screen.group is not None:
        report = groups.get(screen.group)
        lag = lag_of(report, reading.ends) if report is not None else None
        known = "" if lag is None else f", lag {lag}"
        return f"Group {cell(screen.group)}: gone" if report is None else sentence(above, report) + known
    moving = sum(report.phase not in RESTING for report in groups.values())
    commands = sum(report.commands() for report in groups.values())
    serving = "NO COORDINATOR" if above.coordinator is None else f"coordinator {cell(above.coordinator)}"
    counted = f"{count(len(groups), 'group')}, {moving} not at rest, {count(commands, 'command')} outstanding"
    return f"zkcoord {at}  {serving}, epoch {above.epoch}  {counted}"


def _nothing(screen: Screen, reading: Reading) -> str:
    if reading.sight is None:
        return ""
    if screen.group is None:
        return "there is no group: the first consumer that joins one makes it"
    return {"commands": "all commands were obeyed"}.get(screen.tab, f"no {screen.tab}")
