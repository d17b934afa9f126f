"""Makes the values that the page's templates show, from readings. Pure. It uses the commands' functions for values that
commands show, too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from zkcoord.audit.checks import Suspicion
from zkcoord.audit.seen import Seen
from zkcoord.core import words
from zkcoord.core.model import Phase, TopicPartition
from zkcoord.core.severity import Severity
from zkcoord.group_report import GroupReport, TreeReport
from zkcoord.operating.documents import sentence, state_of
from zkcoord.operating.handovers import COLUMNS as TIMELINE_COLUMNS
from zkcoord.operating.handovers import NUMBERS as TIMELINE_NUMBERS
from zkcoord.operating.handovers import row as timeline_row
from zkcoord.operating.members import member_documents
from zkcoord.operating.partitions import partitions_of
from zkcoord.operating.timeline_picture import spans, svg
from zkcoord.operating.words import at, cell, printable
from zkcoord.page.reading import HandOvers, Look, Reading, lag_of

ROWS = 200
"""Rows on one page of a table."""
SHOWN_MAX = 50
PICTURE = (600, 80)
QUIET = (Phase.STABLE.value, Phase.EMPTY.value, Phase.DEAD.value)
ORDERS = ("name", "lag", "state")
PARTITION_ORDERS = ("topic", "lag")


def shown(value: Any) -> Any:
    """Make a value safe to display, as the command line does. The templates then escape it.

    >>> shown(None), shown("a\\tb"), shown(7)
    ('-', 'a\\\\tb', '7')
    """
    return value if isinstance(value, Markup) else cell(value)


def segment(name: str) -> str:
    """Return the name as a part of a URL's path.

    >>> segment("a/b c")
    'a%2Fb%20c'
    """
    return quote(name, safe="")


def moment(wall_ms: int | None) -> str | None:
    """Return a time of the wall clock as text, in the time zone of the page's machine."""
    return None if wall_ms is None else at(wall_ms)


def part_of(rows: Sequence[Any], page: int) -> dict[str, Any]:
    """Return the rows of a page and its number, the numbers of all pages, and the number of all rows. Pages count from
    1; a number that is too large means the last page."""
    pages = list(range(1, max(1, -(-len(rows) // ROWS)) + 1))
    number = min(max(page, 1), pages[-1])
    return {"rows": rows[(number - 1) * ROWS : number * ROWS], "page": number, "pages": pages, "number": len(rows)}


def overview(reading: Reading, order: str, page: int) -> dict[str, Any]:
    """Return the values of the overview: one row for each group, and sums."""
    wrong = Counter(finding.group for finding in reading.findings)
    rows = [_group_row(reading.above, seen, wrong[name]) for name, seen in reading.groups.items()]
    if order == "lag":
        rows.sort(key=lambda row: -(row["lag"] or 0))
    elif order == "state":
        rows.sort(key=lambda row: (row["state"] in QUIET, row["state"]))
    known = [row["lag"] for row in rows if row["lag"] is not None]
    return {
        **part_of(rows, page),
        "orders": ORDERS,
        "order": order,
        "partitions": sum(row["partitions"] for row in rows),
        "lag": sum(known) if known else None,
        "wrong": len(reading.findings),
        "serving": serving(reading.above),
        "brokers": reading.above.brokers,
    }


def _group_row(above: TreeReport, seen: Seen, wrong: int) -> dict[str, Any]:
    report, view = seen.report, seen.report.view
    return {
        "name": view.group,
        "state": report.phase.value,
        "calm": report.phase.value in QUIET,
        "generation": view.state.generation,
        "members": len(view.members),
        "partitions": sum(map(len, view.topics.values())),
        "lag": lag_of(seen),
        "commands": report.commands(),
        "requests": ", ".join(sorted(view.record.requests)) or None,
        "wrong": wrong,
    }


def serving(above: TreeReport) -> str:
    """Say which coordinator serves."""
    return "no coordinator is elected" if above.coordinator is None else f"coordinator {above.coordinator} serves"


def group(look: Look, findings: Sequence[Suspicion], lags: Sequence[tuple[int, int]], order: str, page: int) -> Any:
    """Return the values of one group: state, problems, members, a page of its partitions, its lag over time, and its
    moves.
    """
    report, above = look.seen.report, look.above
    ends = {partition: log.end for partition, log in look.seen.logs.items()}
    partitions = partitions_of(report, ends)
    if order == "lag":
        partitions.sort(key=lambda row: -(row["lag"] or 0))
    name = report.view.group
    moves = report.moves()
    return {
        "name": name,
        "state": state_of(above, report),
        "sentence": sentence(above, report),
        "lag": lag_of(look.seen),
        "lags": lag_picture(lags),
        "members": _members(above, report, partitions),
        **part_of(partitions, page),
        "orders": PARTITION_ORDERS,
        "order": order,
        "findings": [each.document() for each in findings if each.group == name],
        "unreadable": sorted(report.problems.items()),
        "moves": moves[:SHOWN_MAX],
        "moving": len(moves),
    }


def _members(above: TreeReport, report: GroupReport, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the members. Their lag is by Kafka; if that is not known, as they report it."""
    told = {name: channel.lag for name, channel in report.view.channels.items()}
    return [
        {**each, "lag": told.get(each["consumer"]) if each["lag"] is None else each["lag"]}
        for each in member_documents(above, report, rows)
    ]


def timeline(name: str, found: HandOvers) -> dict[str, Any]:
    """Return the last hand-overs as a picture, and the newest of them as rows of a table. `why`: the reason if there
    are none."""
    rows = [dict(zip(TIMELINE_COLUMNS, timeline_row(each), strict=True)) for each in found.found]
    drawn = spans(found.found)
    return {
        "why": found.why,
        "rows": rows[: -SHOWN_MAX - 1 : -1],
        "number": len(rows),
        "svg": Markup(svg(printable(name), drawn)) if drawn else None,
        "columns": TIMELINE_COLUMNS,
        "numbers": TIMELINE_NUMBERS,
    }


def lag_picture(lags: Sequence[tuple[int, int]]) -> dict[str, Any] | None:
    """Return the lag over time as points of a line, with its figures for a description; None for fewer than two
    points."""
    if len(lags) < 2:
        return None
    width, height = PICTURE
    first_ms, last_ms = lags[0][0], lags[-1][0]
    most = max(lag for _, lag in lags)
    length_ms, top = max(1, last_ms - first_ms), max(1, most)
    points = [
        f"{width * (at_ms - first_ms) / length_ms:.1f},{2 + (height - 4) * (1 - lag / top):.1f}" for at_ms, lag in lags
    ]
    return {
        "points": " ".join(points),
        "width": width,
        "height": height,
        "most": most,
        "least": min(lag for _, lag in lags),
        "now": lags[-1][1],
        "since": moment(first_ms),
    }


def commands(reading: Reading) -> list[dict[str, Any]]:
    """Return all outstanding commands, those that have been known for the longest time first."""
    found = []
    for (name, consumer, sequence), since_ms in reading.commands.items():
        channel = reading.groups[name].report.view.channels[consumer]
        command = next(each for each in channel.commands if each.sequence == sequence)
        found.append(
            {
                "group": name,
                "consumer": consumer,
                "sequence": sequence,
                "option": command.option,
                "partitions": some(command.threads),
                "generation": command.generation,
                "since": moment(since_ms),
                "seconds": (reading.at_ms - since_ms) // 1000,
                "error": command.error,
            }
        )
    return sorted(found, key=lambda row: (-row["seconds"], row["group"], row["consumer"], row["sequence"]))


def some(partitions: Mapping[TopicPartition, str] | Iterable[TopicPartition] | None) -> str:
    """Name the partitions; if there are many, only the first ones. None means all partitions of the command's
    receiver."""
    if partitions is None:
        return "all"
    return words.some(sorted(partitions))


def problems(reading: Reading) -> list[dict[str, Any]]:
    """Return all findings, the worst first."""

    def place(each: Suspicion) -> tuple[bool, str, str, str]:
        return each.severity is not Severity.ERR, each.group, each.check, each.subject

    return [each.document() for each in sorted(reading.findings, key=place)]
