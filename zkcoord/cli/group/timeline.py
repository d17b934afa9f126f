"""`zkcoord group timeline`: the hand-overs of a group, from the serving coordinator or from journals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from zkcoord.cli.options import Address, Command, Settings, number_option, pass_settings
from zkcoord.cli.output import print_json, table
from zkcoord.errors import UsageError
from zkcoord.operating.handovers import COLUMNS, NUMBERS, begun_ms_of, fetch_handovers, row
from zkcoord.operating.moments import moment
from zkcoord.operating.saying import warn
from zkcoord.operating.timeline_picture import spans, svg
from zkcoord.plotting import check_picture, draw_timeline
from zkcoord.shell.journal.files import files_of

KEPT_MAX = 10_000
"""The number of hand-overs that a coordinator keeps for each group."""

SVG = ".svg"
HandOver = Mapping[str, Any]


@click.command(cls=Command, example="zkcoord group timeline etl --from 127.0.0.1:9464 --picture etl.png")
@click.argument("name", metavar="G")
@click.option(
    "--from",
    "addresses",
    type=Address(listens=False),
    multiple=True,
    metavar="HOST:PORT",
    help="A coordinator's --metrics address; may be repeated. The serving coordinator answers.",
)
@click.option(
    "--journal",
    "journals",
    multiple=True,
    metavar="FILE|FOLDER",
    type=click.Path(path_type=Path),
    help="A journal that a coordinator kept; may be repeated. Play only what you trust.",
)
@number_option("--last", default=100, text="Show the last N hand-overs.", least=1)
@click.option("--since", metavar="TIME", help="Only hand-overs since this time: 2026-11-23T10:00 (UTC), or ms.")
@click.option("--until", metavar="TIME", help="Only hand-overs before this time.")
@click.option(
    "--picture", metavar="FILE", help="Also draw partitions over time: .svg, or with zkcoord[plot] .png or .pdf."
)
@pass_settings
def timeline(
    settings: Settings,
    name: str,
    addresses: Sequence[str],
    journals: Sequence[Path],
    last: int,
    since: str | None,
    until: str | None,
    picture: str | None,
) -> None:
    """Show the last hand-overs of group G, with the time of each stage.

    Times are in ms. STOP lasts until the old reader has released the partition (- if there was none). It has three
    parts, as the reader reports them: SEE until it has seen the command, FINISH until its application has stopped,
    COMMIT until offsets are committed and the partition is released. GRANT lasts until the start is sent to the new
    reader, START until the new reader has acknowledged it. UNREAD is GRANT and START together: nobody reads the
    partition. FIRST lasts until the new reader's application is given a record.

    With --from, a coordinator with --metrics answers. It keeps the last 10,000 hand-overs of a group while it serves.
    With --journal, the hand-overs come from a coordinator's journal, which is played again with this version. With
    --since and --until only the journal's files of that time are played. --output json has every moment.
    """
    if bool(addresses) is bool(journals):
        raise UsageError("give --from HOST:PORT of a coordinator with --metrics, or --journal FOLDER of one")
    if picture is not None and not picture.endswith(SVG):
        check_picture(Path(picture))
    since_ms, until_ms = moment("--since", since), moment("--until", until)
    if since_ms is not None and until_ms is not None and since_ms >= until_ms:
        raise UsageError(f"--since {since} is not before --until {until}: give the earlier moment to --since")
    some = since_ms is None and until_ms is None
    found = (
        _journaled(name, journals, since_ms, until_ms)
        if journals
        else fetch_handovers(addresses, name, last if some else KEPT_MAX)
    )
    first_ms, end_ms = since_ms or 0, float("inf") if until_ms is None else until_ms
    handovers = [each for each in found if first_ms <= begun_ms_of(each) < end_ms][-last:]
    if picture is not None:
        _draw(name, handovers, picture)
    if settings.json:
        for each in handovers:
            print_json(each)
    elif handovers:
        click.echo(table(COLUMNS, [row(each, dated=bool(journals)) for each in handovers], NUMBERS))
    else:
        when = "of this time" if not some else "in the journal" if journals else "yet, since this coordinator serves"
        click.echo(f"group {name}: no hand-over {when}")


def _journaled(name: str, journals: Sequence[Path], since_ms: int | None, until_ms: int | None) -> list[dict[str, Any]]:
    from zkcoord.timeline.journal import files_within, journaled

    files = files_of(journals)
    chosen = files_within(files, since_ms, until_ms)
    handovers, groups = journaled(chosen, name, warn)
    if name not in groups and chosen == files:
        known = ", ".join(sorted(groups)) or "none: its coordinator did not serve"
        raise UsageError(f"the journal has no group {name!r}; its groups: {known}")
    return handovers


def _draw(name: str, handovers: Sequence[HandOver], picture: str) -> None:
    try:
        if picture.endswith(SVG):
            Path(picture).write_text(svg(name, spans(handovers)), encoding="utf-8")
        else:
            draw_timeline(name, spans(handovers), Path(picture))
    except OSError as error:
        raise UsageError(f"--picture {picture}: it cannot be written ({error.strerror or error})") from error
