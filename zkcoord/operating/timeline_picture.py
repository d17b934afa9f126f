"""A picture of hand-overs: partitions over time, coloured by owner, red where nobody reads. Pure; the result is SVG
text.

The page draws the picture each second for each viewer. A plotting library (`zkcoord/plotting.py`) is too slow for that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from xml.sax.saxutils import escape

from zkcoord.core.handovers import MOMENTS
from zkcoord.operating.handovers import why_stopped

COLOURS = ("#4477aa", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb", "#ee8866", "#44bb99")
NOBODY = "#dd0000"
TAIL_PERCENT = 10
"""The time that is drawn after the last moment, in percent of the whole: it makes the last owners visible."""
LEFT, ROW, WIDTH, TOP = 180, 18, 900, 40


@dataclass(frozen=True, slots=True)
class Span:
    """The time from `begun_ms` to `ended_ms`, in which `owner` had the partition; None: nobody read it. `why`: how the
    time of the owner's stop was used."""

    partition: str
    owner: str | None
    begun_ms: int
    ended_ms: int
    why: str = ""


def spans(handovers: Sequence[Mapping[str, Any]], tail_percent: int = TAIL_PERCENT) -> list[Span]:
    """Return the spans of each partition, from the first moment of all hand-overs to the last.

    Nothing is drawn while the owner is not known, for example before the first hand-over from a dead consumer.
    `tail_percent`: the time that is added after the last moment, where nothing changes.
    """
    moments = [at for each in handovers for at in _moments(each)]
    if not moments:
        return []
    first_ms, last_ms = min(moments), max(moments)
    last_ms += (last_ms - first_ms) * tail_percent // 100
    by_partition: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
    for each in handovers:
        by_partition.setdefault((each["topic"], each["partition"]), []).append(each)
    found: list[Span] = []
    for (topic, number), moves in sorted(by_partition.items()):
        moves.sort(key=lambda one: min(_moments(one)))
        name, since_ms, owner = f"{topic}-{number}", first_ms, moves[0]["from"]
        for place, move in enumerate(moves):
            released_ms, ended_ms, taker = move.get("released_ms"), move.get("acknowledged_ms"), move["to"]
            if released_ms is None:
                continue
            if ended_ms is None:  # nobody reads it until the next hand-over
                following = moves[place + 1] if place + 1 < len(moves) else None
                ended_ms = last_ms if following is None else min(_moments(following))
                taker = None if following is None else following["from"]
            found += [Span(name, owner, since_ms, released_ms, why_stopped(move))] if owner is not None else []
            found.append(Span(name, None, released_ms, ended_ms))
            since_ms, owner = ended_ms, taker
        found += [Span(name, owner, since_ms, last_ms)] if owner is not None else []
    return [each for each in found if each.ended_ms > each.begun_ms]


def _moments(handover: Mapping[str, Any]) -> list[int]:
    """Return the moments from the decision to the acknowledgement. The first record changes no owner."""
    return [at_ms for name in MOMENTS[:-1] if (at_ms := handover.get(name)) is not None]


def rows(found: Sequence[Span]) -> list[str]:
    """Return the partitions in the order of the picture's rows."""
    return sorted(
        {each.partition for each in found}, key=lambda name: (name.rpartition("-")[0], int(name.rpartition("-")[2]))
    )


def colours(found: Sequence[Span]) -> dict[str, str]:
    """Return a colour for each owner. Colours repeat if there are more owners than colours."""
    owners = sorted({each.owner for each in found if each.owner is not None})
    return {owner: COLOURS[n % len(COLOURS)] for n, owner in enumerate(owners)}


def svg(group: str, found: Sequence[Span]) -> str:
    """Return the picture. The title of each bar names the owner and the duration."""
    partitions, colour = rows(found), colours(found)
    first_ms = min((each.begun_ms for each in found), default=0)
    length_ms = max((each.ended_ms for each in found), default=0) - first_ms or 1
    height = TOP + ROW * (len(partitions) + len(colour) + 3)
    whole = LEFT + WIDTH + 20
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{whole}" height="{height}" viewBox="0 0 {whole} {height}"'
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
        said = f"{said}; {each.why}" if each.why else said
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
