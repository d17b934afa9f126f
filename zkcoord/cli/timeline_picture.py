"""A picture of hand-overs: partitions against time, coloured by owner, red where nobody reads. Pure; SVG as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from xml.sax.saxutils import escape

COLOURS = ("#4477aa", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb", "#ee8866", "#44bb99")
NOBODY = "#dd0000"
LEFT, ROW, WIDTH, TOP = 180, 18, 900, 40


@dataclass(frozen=True, slots=True)
class Span:
    """Who had a partition from when to when; `owner` None: nobody read it."""

    partition: str
    owner: str | None
    begun_ms: int
    ended_ms: int


def spans(handovers: Sequence[Mapping[str, Any]]) -> list[Span]:
    """What the hand-overs tell of each partition, between the first moment and the last of all of them."""
    moments = [at for each in handovers for at in _moments(each)]
    if not moments:
        return []
    first_ms, last_ms = min(moments), max(moments)
    by_partition: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
    for each in handovers:
        by_partition.setdefault((each["topic"], each["partition"]), []).append(each)
    found = []
    for (topic, number), moves in sorted(by_partition.items()):
        name, since_ms, owner = f"{topic}-{number}", first_ms, moves[0]["from"]
        for move in sorted(moves, key=lambda one: min(_moments(one))):
            released_ms, started_ms = move["released_ms"], move["acknowledged_ms"]
            if released_ms is None:
                continue
            found.append(Span(name, owner, since_ms, released_ms))
            found.append(Span(name, None, released_ms, last_ms if started_ms is None else started_ms))
            since_ms, owner = (last_ms, None) if started_ms is None else (started_ms, move["to"])
        found.append(Span(name, owner, since_ms, last_ms))
    return [each for each in found if each.ended_ms > each.begun_ms and (each.owner is not None or each.begun_ms)]


def _moments(handover: Mapping[str, Any]) -> list[int]:
    names = ("stop_ms", "released_ms", "granted_ms", "acknowledged_ms")
    return [handover[name] for name in names if handover[name] is not None]


def svg(group: str, found: Sequence[Span]) -> str:
    """The picture. Each bar has a title that says who, and for how long."""
    partitions = sorted({each.partition for each in found}, key=lambda name: (name.rpartition("-")[0], _number(name)))
    owners = sorted({each.owner for each in found if each.owner is not None})
    colour = {owner: COLOURS[n % len(COLOURS)] for n, owner in enumerate(owners)}
    first_ms = min((each.begun_ms for each in found), default=0)
    length_ms = max((each.ended_ms for each in found), default=0) - first_ms or 1
    height = TOP + ROW * (len(partitions) + len(owners) + 3)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 20}" height="{height}"'
        ' font-family="sans-serif" font-size="12">',
        f'<text x="8" y="20" font-size="15">{escape(group)}: {length_ms / 1000:.3f} s of hand-overs</text>',
    ]
    place = {name: TOP + ROW * n for n, name in enumerate(partitions)}
    lines += [f'<text x="8" y="{y + 13}">{escape(name)}</text>' for name, y in place.items()]
    for each in found:
        x = LEFT + WIDTH * (each.begun_ms - first_ms) / length_ms
        wide = max(0.5, WIDTH * (each.ended_ms - each.begun_ms) / length_ms)
        fill = NOBODY if each.owner is None else colour[each.owner]
        said = f"{each.partition}: {each.owner or 'nobody'}, {each.ended_ms - each.begun_ms} ms"
        lines.append(
            f'<rect x="{x:.2f}" y="{place[each.partition]}" width="{wide:.2f}" height="{ROW - 3}" fill="{fill}">'
            f"<title>{escape(said)}</title></rect>"
        )
    legend = [*colour.items(), ("nobody", NOBODY)]
    for n, (name, fill) in enumerate(legend):
        y = TOP + ROW * (len(partitions) + 1 + n)
        lines.append(f'<rect x="8" y="{y}" width="12" height="12" fill="{fill}"/>')
        lines.append(f'<text x="26" y="{y + 11}">{escape(name)}</text>')
    return "\n".join([*lines, "</svg>", ""])


def _number(partition: str) -> int:
    return int(partition.rpartition("-")[2])
