"""`zkcoord group timeline`: the last hand-overs of a group, as the coordinator that serves keeps them."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from zkcoord.cli.options import Command, Settings, number_option, pass_settings
from zkcoord.cli.output import print_json, table
from zkcoord.cli.timeline_picture import spans, svg
from zkcoord.errors import UnavailableError, UsageError
from zkcoord.metrics.address import parse_address

COLUMNS = ("AT", "PARTITION", "STOP-MS", "GRANT-MS", "START-MS", "UNREAD-MS", "FROM", "TO")
NUMBERS = COLUMNS[2:6]
ANSWER_SECONDS = 10.0
NOT_THERE = 404
STAGES = (("stop_ms", "released_ms"), ("released_ms", "granted_ms"), ("granted_ms", "acknowledged_ms"))


@click.command(cls=Command)
@click.argument("name", metavar="G")
@click.option(
    "--from",
    "addresses",
    multiple=True,
    required=True,
    metavar="HOST:PORT",
    help="Where coordinators serve metrics; may be repeated, the one that serves answers.",
)
@number_option("--last", default=100, text="So many hand-overs.", least=1)
@click.option("--picture", metavar="FILE", help="Also draw them there, as SVG: partitions against time.")
@pass_settings
def timeline(settings: Settings, name: str, addresses: Sequence[str], last: int, picture: str | None) -> None:
    """Show the last hand-overs of group G, with the time of each stage.

    STOP-MS until its reader had released the partition (- where nobody had to), GRANT-MS until the start was sent,
    START-MS until that was acknowledged; UNREAD-MS nobody read it. Needs coordinators with --metrics; each keeps the
    last 10,000 hand-overs of the time that it serves.
    """
    handovers = _fetch(addresses, name)[-last:]
    if picture is not None:
        try:
            Path(picture).write_text(svg(name, spans(handovers)), encoding="utf-8")
        except OSError as error:
            raise UsageError(f"--picture {picture}: it cannot be written ({error.strerror or error})") from error
    if settings.json:
        for each in handovers:
            print_json(each)
    elif handovers:
        click.echo(table(COLUMNS, [_row(each) for each in handovers], NUMBERS))
    else:
        click.echo(f"group {name}: no hand-over yet, since this coordinator serves")


def _row(handover: Mapping[str, Any]) -> list[Any]:
    begun_ms = next(handover[begun] for begun, _ in STAGES if handover[begun] is not None)
    at = time.strftime("%H:%M:%S", time.localtime(begun_ms / 1000)) + f".{begun_ms % 1000:03d}"
    stages = [_between(handover, *each) for each in STAGES]
    unread = _between(handover, "released_ms", "acknowledged_ms")
    partition = f"{handover['topic']}-{handover['partition']}"
    return [at, partition, *stages, unread, handover["from"], handover["to"]]


def _between(handover: Mapping[str, Any], begun: str, ended: str) -> int | None:
    if handover[begun] is None or handover[ended] is None:
        return None
    return int(handover[ended] - handover[begun])


def _fetch(addresses: Sequence[str], group: str) -> list[dict[str, Any]]:
    """Ask one after the other. UsageError if those that answer know no such group, UnavailableError if none answers."""
    answered, why = False, ""
    for address in addresses:
        parse_address(address)
        url = f"http://{address}/handovers?{urllib.parse.urlencode({'group': group})}"
        try:
            with urllib.request.urlopen(url, timeout=ANSWER_SECONDS) as answer:
                return [json.loads(line) for line in answer.read().decode("utf-8").splitlines()]
        except urllib.error.HTTPError as error:
            error.close()
            answered = answered or error.code == NOT_THERE
            why = f"{address}: HTTP {error.code}"
        except OSError as error:
            why = f"{address}: {error}"
        except ValueError as error:
            raise UsageError(f"{address} is no coordinator's address for metrics: {error}") from error
    if answered:
        raise UsageError(f"no coordinator at {', '.join(addresses)} serves a group {group!r}: see `zkcoord group list`")
    raise UnavailableError(f"no coordinator answers ({why}): start it with --metrics, or give its address")
