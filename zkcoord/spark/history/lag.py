"""A group over time: how often it committed, how often it went back, and how far it was behind; and a picture of that.

Kafka is asked for earlier ends of logs, by their records' timestamps. So a lag of long ago lacks the records that were
deleted since.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from zkcoord.core.model import TopicPartition
from zkcoord.plotting import check_picture, save

EndsAt = Callable[[Collection[TopicPartition], int], Mapping[TopicPartition, int]]
SPANS = 120  # spans in a picture: a bar is some pixels wide
SPAN_MS = (1_000, 10_000, 60_000, 600_000, 3_600_000, 6 * 3_600_000, 24 * 3_600_000)


class Progress(NamedTuple):
    """One partition in one span of time. `offset` is the last committed one."""

    partition: TopicPartition
    at_ms: int  # the span's end
    commits: int
    rewinds: int
    offset: int


class Span(NamedTuple):
    """A group in one span of time. `lag` is at the span's end, over the partitions committed so far; None: Kafka does
    not tell."""

    at_ms: int
    commits: int
    rewinds: int
    lag: int | None


def span_ms(first_ms: int, last_ms: int) -> int:
    """Return a round length with which this time has at most SPANS spans; the longest known length if it has more.

    >>> span_ms(0, 3_600_000), span_ms(0, 0)
    (60000, 1000)
    """
    return next((ms for ms in SPAN_MS if (last_ms - first_ms) // ms < SPANS), SPAN_MS[-1])


def over_time(progress: Iterable[Progress], length_ms: int, ends_at: EndsAt) -> list[Span]:
    """Return all spans from the first commit to the last, including those without a commit."""
    by_time: dict[int, list[Progress]] = {}
    for each in progress:
        by_time.setdefault(each.at_ms, []).append(each)
    spans: list[Span] = []
    offsets: dict[TopicPartition, int] = {}
    for at_ms in range(min(by_time), max(by_time) + 1, length_ms) if by_time else ():
        mine = by_time.get(at_ms, [])
        offsets |= {each.partition: each.offset for each in mine}
        ends = ends_at(offsets, at_ms)
        known = [max(0, ends[p] - offset) for p, offset in offsets.items() if p in ends]
        lag = sum(known) if known else None
        spans.append(Span(at_ms, sum(each.commits for each in mine), sum(each.rewinds for each in mine), lag))
    return spans


def draw(group: str, spans: list[Span], file: Path) -> None:
    """Draw lag and commits over time (UTC). The file name's suffix determines the format. Rewinds are red marks on the
    lag."""
    check_picture(file)
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
    from matplotlib.figure import Figure

    times: list[Any] = [datetime.fromtimestamp(span.at_ms / 1000, UTC) for span in spans]
    figure = Figure(figsize=(10, 5.5), layout="constrained")
    lag, commits = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    lag.plot(times, [float("nan") if span.lag is None else span.lag for span in spans], label="lag")
    back = [(at, span.lag or 0) for at, span in zip(times, spans, strict=True) if span.rewinds]
    if back:
        lag.plot(*zip(*back, strict=True), "rv", label="rewind")
        lag.legend()
    lag.set(title=f"group {group}", ylabel="records behind", ylim=(0, None))
    width = (times[1] - times[0]) * 0.9 if len(times) > 1 else 0.01
    commits.bar(times, [span.commits for span in spans], width=width)
    commits.set(ylabel="commits", xlabel="time (UTC)")
    locator = AutoDateLocator(tz=UTC)  # type: ignore[no-untyped-call]
    commits.xaxis.set_major_locator(locator)
    commits.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=UTC))  # type: ignore[no-untyped-call]
    save(figure, file, f"group {group}: lag and commits", said_of(spans))


def said_of(spans: Sequence[Span]) -> str:
    """The picture's content in words: the times, the number of commits and rewinds, the last and the largest known
    lag."""
    if not spans:
        return "no commit"
    first, last = (datetime.fromtimestamp(each.at_ms / 1000, UTC).isoformat() for each in (spans[0], spans[-1]))
    commits, rewinds = sum(each.commits for each in spans), sum(each.rewinds for each in spans)
    known = [each.lag for each in spans if each.lag is not None]
    words = f"lag and commits over time, {first} to {last}; commits: {commits}, rewinds: {rewinds}"
    return f"{words}; lag at the end: {known[-1]}, at most: {max(known)}" if known else f"{words}; lag unknown"
