"""`zkcoord offsets migrate`: moves the offsets of groups between ZooKeeper and Kafka while their consumers read."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

import click

from zkcoord.cli.kafka_options import kafka_beside
from zkcoord.cli.options import Command, Settings, at_least, number_option, pass_settings
from zkcoord.cli.output import show
from zkcoord.core.offset_store import STORES
from zkcoord.core.words import count
from zkcoord.errors import UnavailableError, UsageError
from zkcoord.group_report import no_such_group, read_tree
from zkcoord.migrate import BlockingTree
from zkcoord.offsets.kafka_store import KafkaCommits
from zkcoord.offsets.standing import standing
from zkcoord.operating.groups import groups_of
from zkcoord.operating.migration_file import read_goals
from zkcoord.operating.requesting import who_and_when, who_serves
from zkcoord.operating.saying import say
from zkcoord.operating.store_migration import Migration, Places
from zkcoord.operating.store_movers import REFUSED, UNFINISHED, Movers, Result
from zkcoord.operating.wave_file import refuse_waves_alone
from zkcoord.tree.bulk import data
from zkcoord.tree.paths import Layout

COLUMNS = ("GROUP", "FROM", "TO", "STORE", "STEP", "RESULT", "WHY")
TIMEOUT_MS = 600_000


@click.command(name="migrate", cls=Command, example="zkcoord offsets migrate etl --to dual --dry-run")
@click.argument("name", metavar="[G]", required=False)
@click.option("--to", "goal", type=click.Choice(STORES), help="The store to move to.")
@click.option("--all-groups", is_flag=True, help="Move every group of zkcoord; with --from the groups of a file.")
@click.option("--from", "file", metavar="FILE", help="With --all-groups: groups, stores and waves, in TOML.")
@click.option("--wave", "waves", type=at_least(1), multiple=True, metavar="N", help="With --from: only this wave.")
@click.option("--dry-run", is_flag=True, help="Show what would be done; write nothing.")
@click.option("--force", is_flag=True, help="Move a group even if offsets differ; the differences are printed.")
@number_option("--timeout-ms", default=TIMEOUT_MS, text="How long a group may be without progress.")
@pass_settings
def migrate_offsets(
    settings: Settings,
    name: str | None,
    goal: str | None,
    all_groups: bool,
    file: str | None,
    waves: tuple[int, ...],
    dry_run: bool,
    force: bool,
    timeout_ms: int,
) -> None:
    """Move the offsets of group G to the store zookeeper, dual or kafka, while its consumers read.

    Between zookeeper and kafka a group goes through dual. Each step waits until every consumer has taken the step
    before. The step away from dual waits until every offset was seen equal in both stores. Needs --bootstrap-servers, a
    coordinator, and consumers that can use the store. If the command breaks off, run it again: it goes on.
    """
    wanted = _wanted(name, goal, all_groups=all_groups, file=file, waves=waves)
    address = settings.zookeeper_address()
    results: list[Result] = []
    with ExitStack() as stack:
        tree = stack.enter_context(settings.tree())
        read_tree(tree, address)  # raises if there is no tree
        client = kafka_beside(settings, stack, tree)
        layout, tree_id, names = groups_of(tree, address)
        if name is not None and name not in names:
            raise UsageError(no_such_group(name))
        places = Places(
            tree=tree,
            layout=layout,
            tree_id=tree_id,
            kafka=KafkaCommits(client),
            existing=standing(tree.read, layout, client.partitions()),
        )
        for wave in wanted or [dict.fromkeys(_adopted(tree, layout, names), str(goal))]:
            runs = [
                Migration(places=places, group=group, goal=to, run=who_and_when(), force=force)
                for group, to in wave.items()
            ]
            moving = Movers(runs, timeout_ms, lambda: who_serves(tree, address))
            results += moving.plan() if dry_run else moving.carry_out()
            if not dry_run and any(each.result in (REFUSED, UNFINISHED) for each in results):
                break  # the next wave waits for this wave
    _print(settings, results, dry_run=dry_run)
    _raise(results, alone=name is not None)


def _wanted(
    name: str | None, goal: str | None, *, all_groups: bool, file: str | None, waves: Sequence[int]
) -> list[dict[str, str]]:
    """Return group -> store for each wave; an empty list stands for all groups of the tree."""
    if (name is None) is not all_groups:
        raise UsageError("name one group, or give --all-groups")
    if file is not None and not all_groups:
        raise UsageError("--from names the groups itself: give --all-groups with it, and no group")
    refuse_waves_alone(waves, file)
    if file is not None:
        return read_goals(file, waves, goal)
    if goal is None:
        raise UsageError("where to? give --to zookeeper, --to dual or --to kafka")
    return [] if name is None else [{name: goal}]


def _adopted(tree: BlockingTree, layout: Layout, names: Sequence[str]) -> list[str]:
    """Return zkcoord's groups among these. In a layout that adopts groups, the others stay as they are."""
    if not layout.adopts:
        return list(names)
    records = data(tree.read, [layout.record(name) for name in names])
    return [name for name, node in zip(names, records, strict=True) if node.exists]


def _print(settings: Settings, results: Sequence[Result], *, dry_run: bool) -> None:
    rows = [[None if value == "" else value for value in each] for each in results]
    show(settings, [dict(zip(map(str.lower, COLUMNS), row, strict=True)) for row in rows], COLUMNS, rows)
    if dry_run:
        say("notice", "nothing was written: --dry-run")


def _raise(results: Sequence[Result], *, alone: bool) -> None:
    """Raise UsageError if a group was refused, and UnavailableError if one is not finished."""
    refused = [each for each in results if each.result == REFUSED]
    late = [each for each in results if each.result == UNFINISHED]
    if refused:
        what = f"group {refused[0].group} is not moved: {refused[0].why}"
        raise UsageError(what if alone else f"{count(len(refused), 'group')} refused; {what}")
    if late:
        what = f"group {late[0].group} is not moved yet: {late[0].why}; run it again to go on"
        hint = "" if late[0].store != "dual" else ", or give --force if these differences do not matter"
        raise UnavailableError(f"{what}{hint}")
