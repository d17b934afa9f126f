"""`zkcoord group adopt|release`: groups of old consumers come under zkcoord, and leave it again."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, NamedTuple

import click

from zkcoord.cli.adoption_file import adoption_of, read_adoptions
from zkcoord.cli.group_waiting import count
from zkcoord.cli.inventory import inventories, kafka_offsets
from zkcoord.cli.options import Command, Settings, at_least, pass_settings
from zkcoord.cli.output import print_json, say, table
from zkcoord.cli.releasing import release as release_group
from zkcoord.cli.requesting import PROGRESS_SECONDS, TURN_SECONDS, edit_record
from zkcoord.core.adoption import OLD_STORES, OLD_STRATEGIES, Adoption
from zkcoord.core.record import GroupRecord
from zkcoord.errors import UnavailableError, UsageError, ZkcoordError
from zkcoord.group_report import read_tree
from zkcoord.legacy.adopting import objections
from zkcoord.legacy.findings import problems_of
from zkcoord.legacy.inventory import GroupInventory
from zkcoord.migrate import BlockingTree, Rehearsal
from zkcoord.subscription import check_name
from zkcoord.tree.paths import LEGACY, Layout
from zkcoord.tree.snapshot import Read

COLUMNS = ("GROUP", "RESULT", "NOTES", "WHY")
ADOPTED, CHANGED, UNCHANGED, REFUSED = "adopted", "changed", "unchanged", "refused"
ZOOKEEPER = "zookeeper"  # the only store that consumers of this version use beside old ones
NAMED_MAX = 5  # consumers that a sentence names


class Result(NamedTuple):
    """What became of one group; `notes`: how many the inventory has about it."""

    group: str
    result: str
    notes: int
    why: str = ""


@click.command(cls=Command)
@click.argument("name", metavar="[G]", required=False)
@click.option("--offsets", type=click.Choice(OLD_STORES), help="Their offsets.storage.")
@click.option("--dual-commit", is_flag=True, help="Their dual.commit.enabled (only with --offsets kafka).")
@click.option("--strategy", type=click.Choice(OLD_STRATEGIES), help="Their partition.assignment.strategy.")
@click.option("--kafka", metavar="VERSION", help="Of their library: 0.8, 0.9, 0.10, 0.11, 1.0, 1.1, or an exact one.")
@click.option("--retries", type=at_least(1), metavar="N", help="Their rebalance.max.retries  [default: 4].")
@click.option("--backoff-ms", type=at_least(0), metavar="N", help="Their rebalance.backoff.ms  [default: 2000].")
@click.option(
    "--auto-commit-interval-ms",
    type=at_least(0),
    metavar="N",
    help="Their auto.commit.interval.ms  [default: 60000].",
)
@click.option("--exclude-internal", type=click.Choice(["yes", "no"]), help="Their exclude.internal.topics.")
@click.option("--broker", metavar="VERSION", help="Of the brokers.")
@click.option("--from", "file", metavar="FILE", help="Adopt all groups of a file that `zkcoord inventory` wrote.")
@click.option("--wave", "waves", type=at_least(1), multiple=True, metavar="N", help="With --from: only this wave.")
@click.option("--force", is_flag=True, help="Also where the tree shows something else.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and write nothing.")
@pass_settings
def adopt(
    settings: Settings,
    name: str | None,
    file: str | None,
    waves: tuple[int, ...],
    force: bool,
    dry_run: bool,
    **told: Any,
) -> None:
    """Put group G of old consumers, or all groups of a file, under zkcoord.

    Tell what the tree does not show: how the group's old members are configured. It is compared with what the tree
    shows, with --bootstrap-servers also with the offsets in Kafka. From then on consumers of zkcoord may join the
    group, and coordinators serve it. `zkcoord group release` is the way back. May be run again: what is adopted already
    stays as it is.
    """
    if (name is None) is (file is None):
        raise UsageError("name one group, or give --from FILE")
    given = {key: value for key, value in told.items() if value not in (None, False)}
    if file is not None and given:
        raise UsageError(f"--{next(iter(given)).replace('_', '-')}: with --from the file says it")
    if waves and file is None:
        raise UsageError("--wave chooses among the groups of a file: give --from, too")
    if "exclude_internal" in given:
        given["exclude_internal"] = given["exclude_internal"] == "yes"
    wanted = {g: t.adoption for g, t in read_adoptions(file, waves).items()} if file else {str(name): _told(given)}
    address = settings.zookeeper_address()
    with ExitStack() as stack:
        tree: BlockingTree = stack.enter_context(settings.tree())
        layout = legacy_layout(tree, address)
        into = Rehearsal(tree) if dry_run else tree
        results = [
            adopt_group(into, layout, found.group, wanted.pop(found.group), found, force=force)
            for found in inventories(tree, sorted(wanted), kafka_offsets(settings, stack))
        ]
        results += [adopt_group(into, layout, group, wanted[group], None, force=force) for group in sorted(wanted)]
    _print(settings, results, dry_run=dry_run)
    refused = [result for result in results if result.result == REFUSED]
    if refused and file is None:
        raise UsageError(f"group {name} is not adopted: {refused[0].why}")
    if refused:
        raise UsageError(
            f"{count(len(refused), 'group')} of {len(results)} refused: settle what stands in WHY, or use --force, and "
            "run it again"
        )


def _told(given: Mapping[str, Any]) -> Adoption:
    missing = [f"--{key}" for key in ("offsets", "strategy", "kafka") if key not in given]
    if missing:
        raise UsageError(
            f"{', '.join(missing)} must be told: nobody can see it in the tree (`zkcoord inventory G` shows what can)"
        )
    try:
        return adoption_of(given)
    except UsageError as error:
        raise UsageError(f"--{str(error).replace('_', '-', 1)}") from None


def legacy_layout(tree: BlockingTree, address: str) -> Layout:
    """Return the tree's layout; UsageError if groups are not adopted in it."""
    layout = read_tree(tree, address).layout
    if not layout.adopts:
        raise UsageError(
            f"the tree has the layout {layout.name}, whose groups are zkcoord's own: only in a tree of the layout "
            f"{LEGACY.name} are groups adopted and released"
        )
    return layout


def adopt_group(
    tree: BlockingTree, layout: Layout, group: str, adoption: Adoption, found: GroupInventory | None, *, force: bool
) -> Result:
    """Adopt one group; an error that is about it alone is its result."""
    notes = len(problems_of(found)) if found is not None else 0
    against = objections(found, adoption) if found is not None and not force else ()
    if against:
        return Result(group, REFUSED, notes, "; ".join(against))
    if found is None and tree.read([Read(layout.group(group))])[0].exists:
        return Result(group, REFUSED, notes, "it cannot be read: give this user the right to it (ACL)")
    result = UNCHANGED

    def edit(record: GroupRecord) -> GroupRecord:
        nonlocal result
        before = record.adoption
        if before is None:
            result = ADOPTED
            return replace(record, adoption=adoption, store_name=adoption.store_name)
        if (before.offsets, before.dual_commit) != (adoption.offsets, adoption.dual_commit):
            raise UsageError(
                f"it is adopted with offsets in {before.store_name!r}, not {adoption.store_name!r}: release it first"
            )
        after = replace(adoption, unknown=before.unknown)
        if after != before:  # else it was so, or an earlier attempt, whose answer was lost, has made it so
            result = CHANGED
        return replace(record, adoption=after)

    try:
        check_name("group", group)
        edit_record(tree, layout, group, edit, new=True)
    except UnavailableError:
        raise
    except ZkcoordError as error:
        return Result(group, REFUSED, notes, str(error))
    remarks = [] if found is not None else ["there is no such group yet"]
    if adoption.store_name != ZOOKEEPER:
        store = adoption.store_name
        remarks.append(f"its consumers of zkcoord use the store {store!r}, too: give them brokers' addresses")
    return Result(group, result, notes, "; ".join(remarks))


def _print(settings: Settings, results: Sequence[Result], *, dry_run: bool) -> None:
    if settings.json:
        for each in results:
            print_json({**each._asdict(), "dry_run": dry_run})
        return
    shown = [[each.group, each.result, each.notes or None, each.why or None] for each in results]
    click.echo(table(COLUMNS, shown))
    if dry_run:
        say("notice", "nothing was written: --dry-run")
    if any(each.notes for each in results):
        say("notice", "`zkcoord inventory G` shows the notes on a group")


@click.command(cls=Command)
@click.argument("name", metavar="G")
@click.option("--wait", "waiting", is_flag=True, help="Wait until no consumer of ours is left in the group.")
@click.option(
    "--timeout-ms", type=at_least(0), default=60_000, show_default=True, metavar="N", help="How long --wait waits."
)
@pass_settings
def release(settings: Settings, name: str, waiting: bool, timeout_ms: int) -> None:
    """Give group G back to its old consumers: afterwards nothing of zkcoord's is left of it.

    First stop its consumers of zkcoord: it is refused while one is registered, or waits for that. Offsets stay as they
    are. May be run again when it broke off; needs no coordinator.
    """
    address = settings.zookeeper_address()
    with settings.tree() as tree:
        layout = legacy_layout(tree, address)
        check_name("group", name)
        gone = release_group(tree, layout, name, _waits(name, timeout_ms) if waiting else _refuses(name))
    if settings.json:
        print_json({"group": name, "released": gone > 0, "removed_nodes": gone})
    elif gone:
        click.echo(f"group {name}: released; {count(gone, 'node')} removed, offsets untouched")
    else:
        click.echo(f"group {name}: was not adopted; nothing of zkcoord is left of it")


def _refuses(group: str) -> Callable[[Sequence[str]], None]:
    def refuse(there: Sequence[str]) -> None:
        raise UsageError(f"group {group} is not released: {named(there)}: stop them first, or give --wait")

    return refuse


def _waits(group: str, timeout_ms: int) -> Callable[[Sequence[str]], None]:
    """Waits a turn at each call; UnavailableError when it took too long."""
    began = said = time.monotonic()

    def wait(there: Sequence[str]) -> None:
        nonlocal said
        now = time.monotonic()
        if now - began >= timeout_ms / 1000:
            raise UnavailableError(f"group {group} is not released after {timeout_ms} ms: {named(there)}: stop them")
        if now - said >= PROGRESS_SECONDS:
            say("waiting", f"release of group {group}: {named(there)}")
            said = now
        time.sleep(TURN_SECONDS)

    return wait


def named(there: Sequence[str]) -> str:
    """Say who of ours is in a group."""
    more = f" and {len(there) - NAMED_MAX} more" if len(there) > NAMED_MAX else ""
    verb = "is" if len(there) == 1 else "are"
    return f"{', '.join(there[:NAMED_MAX])}{more} of zkcoord {verb} registered there, or still {verb} an owner"


VERBS: tuple[click.Command, ...] = (adopt, release)
