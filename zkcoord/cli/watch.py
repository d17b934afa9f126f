"""`zkcoord watch`: prints a line for each event of the groups. It only reads."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence

import click

from zkcoord.cli.options import Command, Settings, number_option, pass_settings
from zkcoord.cli.output import print_json
from zkcoord.errors import UnavailableError
from zkcoord.logs import sentence
from zkcoord.operating.happenings import Happening, Sight, happenings, seen_first
from zkcoord.operating.saying import Tone, toned, warn
from zkcoord.operating.watching import Follower
from zkcoord.operating.words import at, cell
from zkcoord.signals import stopping

TOGETHER_SECONDS = 0.05
"""Changes within this time are read together, because a hand-over is several transactions."""

AGAIN_SECONDS = 1.0
"""The pause before ZooKeeper is asked again after it did not answer."""


BAD = ("coordinator_gone", "group_failed", "quarantined", "command_refused", "problem")
"""Events for which somebody must act."""


@click.command(cls=Command, example="zkcoord watch etl --output json")
@click.argument("names", metavar="[G]...", nargs=-1)
@number_option(
    "--interval-ms", default=10_000, text="Time until all is read again, for changes that no watch reports.", least=100
)
@pass_settings
def watch(settings: Settings, names: Sequence[str], interval_ms: int) -> None:
    """Print a line for each event of all groups, or of groups G, until SIGTERM or SIGINT.

    Events: members join, die, are awaited and return; partitions move; commands are sent and done; states, requests,
    offset stores and coordinators change. The first lines show what is there. The command only reads ZooKeeper. It does
    not print what came and went between two readings.
    """
    following = Follower(settings.zookeeper_address(), settings.tree, names, whole_every_ms=interval_ms)
    with following as follower, stopping(follower.changed.set) as asked:
        before: Sight | None = None
        while not asked.is_set():
            try:
                now = follower.read()
            except UnavailableError as error:
                if before is None:
                    raise
                warn(f"{error}; asked again in {AGAIN_SECONDS:.0f} s")
                asked.wait(AGAIN_SECONDS)
                continue
            _tell(seen_first(now) if before is None else happenings(before, now), json=settings.json)
            before = now
            _wait(follower, asked, interval_ms)


def _wait(follower: Follower, asked: threading.Event, interval_ms: int) -> None:
    """Wait until something has changed, or until everything must be read again."""
    if not asked.is_set() and follower.changed.wait(interval_ms / 1000):
        asked.wait(TOGETHER_SECONDS)


def _tell(found: Iterable[Happening], *, json: bool) -> None:
    now_ms = time.time_ns() // 1_000_000
    for each in found:
        if json:
            print_json({"time_ms": now_ms, "event": each.event, "group": each.group, **each.fields})
        else:
            click.echo(toned(line(each, now_ms), Tone.BAD if each.event in BAD else None))


def line(happening: Happening, now_ms: int) -> str:
    """Return the line for people: date and time, the group (`-`: the tree), the event, its fields.

    >>> line(Happening("state_changed", "etl", {"from": "Stable", "to": "Empty"}), 1_500)[19:]
    '.500 etl state_changed from=Stable to=Empty'
    """
    return f"{at(now_ms)}.{now_ms % 1000:03d} {cell(happening.group)} {sentence(happening.event, happening.fields)}"
