"""Draws pictures into files with matplotlib, which is imported only when there is something to draw."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from zkcoord.core.words import count, some
from zkcoord.errors import UsageError
from zkcoord.operating.timeline_picture import NOBODY, Span, colours, rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS = (".png", ".svg", ".pdf")
DOTS_PER_INCH = 120
ROW_INCHES, HEIGHT_INCHES_MAX = 0.2, 100.0
"""The height of a timeline's row, and of the picture: up to 500 partitions have rows that can be read; with more the
rows are thinner."""
LABELS_MAX = 500
DAY_MS = 86_400_000


def check_picture(file: Path) -> None:
    """Raise UsageError for a file of another kind, and if matplotlib is not installed."""
    if file.suffix.lower() not in KINDS:
        raise UsageError(f"picture {str(file)!r}: its name must end in {', '.join(KINDS)}")
    try:
        import matplotlib as _  # noqa: F401
    except ImportError as error:
        raise UsageError("a picture needs an extra package: pip install 'zkcoord[plot]'") from error


def draw_timeline(group: str, found: Sequence[Span], file: Path) -> None:
    """Draw hand-overs: a row for each partition over time (in this machine's zone), coloured by owner; red: no
    owner."""
    check_picture(file)
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    partitions, colour = rows(found), colours(found)
    height = min(HEIGHT_INCHES_MAX, 2 + ROW_INCHES * (len(partitions) + len(colour) / 2))
    figure = Figure(figsize=(12, height), layout="constrained")
    axes = figure.subplots()
    zone = datetime.now().astimezone().tzinfo
    bars: dict[str, list[tuple[float, float, str]]] = {}
    for each in found:
        begun, ended = each.begun_ms / DAY_MS, each.ended_ms / DAY_MS  # days since 1970: matplotlib's dates
        fill = NOBODY if each.owner is None else colour[each.owner]
        bars.setdefault(each.partition, []).append((begun, ended - begun, fill))
    for n, name in enumerate(partitions):
        axes.broken_barh([bar[:2] for bar in bars[name]], (n - 0.4, 0.8), facecolors=[bar[2] for bar in bars[name]])
    step = -(-len(partitions) // LABELS_MAX) or 1
    axes.set_yticks(range(0, len(partitions), step), partitions[::step], fontsize=8)
    axes.invert_yaxis()
    axes.set(title=f"group {group}: hand-overs", xlabel=f"time ({zone})")
    locator = AutoDateLocator(tz=zone)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=zone))  # type: ignore[no-untyped-call]
    legend = [Patch(color=fill, label=name) for name, fill in [*colour.items(), ("nobody", NOBODY)]]
    figure.legend(handles=legend, loc="outside lower left", ncols=2, fontsize=8)
    save(figure, file, f"group {group}: hand-overs", said_of(found))


def said_of(found: Sequence[Span]) -> str:
    """Describe a timeline in words: its partitions, its time, its owners, and the longest time without an owner."""
    if not found:
        return "no hand-over"
    first, last = (
        datetime.fromtimestamp(ms / 1000).astimezone().isoformat(timespec="milliseconds")
        for ms in (min(each.begun_ms for each in found), max(each.ended_ms for each in found))
    )
    words = f"{count(len(rows(found)), 'partition')} against time, {first} to {last}; {some([*colours(found)])} read"
    gaps = [each for each in found if each.owner is None]
    if not gaps:
        return words
    longest = max(gaps, key=lambda each: each.ended_ms - each.begun_ms)
    return f"{words}; nobody read {longest.partition} for {longest.ended_ms - longest.begun_ms} ms, the longest time"


def save(figure: Figure, file: Path, title: str, description: str) -> None:
    """Write a picture, with its title and a description in its metadata for people who cannot see it."""
    key = "Subject" if file.suffix.lower() == ".pdf" else "Description"
    figure.savefig(file, dpi=DOTS_PER_INCH, metadata={"Title": title, key: description})
