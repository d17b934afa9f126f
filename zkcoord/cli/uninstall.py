"""`zkcoord uninstall`: removes everything of zkcoord from the tree. Groups of old consumers stay as they are."""

from __future__ import annotations

from collections import Counter

import click

from zkcoord.cli.options import Command, Settings, pass_settings
from zkcoord.cli.output import print_json, table
from zkcoord.core.words import count
from zkcoord.errors import UsageError
from zkcoord.migrate import current
from zkcoord.operating.releasing import below
from zkcoord.operating.saying import say, warn
from zkcoord.operating.uninstalling import obstacles_of, take_away
from zkcoord.tree.paths import ROOT

COLUMNS = ("PATH", "NODES")


@click.command(cls=Command, example="zkcoord uninstall --dry-run")
@click.option("--dry-run", is_flag=True, help="Say what would be removed, and what prevents it; remove nothing.")
@pass_settings
def uninstall(settings: Settings, dry_run: bool) -> None:
    """Remove everything of zkcoord from the tree: /zkcoord, with all adoptions and decisions.

    First stop all coordinators and all consumers of zkcoord. The command is refused while one of them is there, or
    while a migration is in progress. Everything below /consumers stays as it is, also offsets. If the command breaks
    off, run it again.
    """
    address = settings.zookeeper_address()
    with settings.tree() as tree:
        found = below(tree, [ROOT])
        if not found:
            raise UsageError(f"there is nothing of zkcoord at {address}")
        schema = current(tree)
        places = Counter("/".join(path.split("/")[:3]) for path, _ in found)
        obstacles = obstacles_of(tree, schema)
        if not dry_run:
            if obstacles:
                raise UsageError(f"nothing was removed: {'; '.join(obstacles)}")
            take_away(tree, schema)
    if settings.json:
        print_json({"removed": dict(sorted(places.items())), "obstacles": obstacles, "dry_run": dry_run})
        return
    click.echo(table(COLUMNS, sorted(places.items())))
    for obstacle in obstacles:
        warn(obstacle)
    if dry_run:
        say("notice", f"nothing was removed: --dry-run; it would be {count(len(found), 'node')}")
