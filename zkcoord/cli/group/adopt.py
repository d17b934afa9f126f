"""`zkcoord group adopt|release`: puts groups of old consumers under zkcoord, and gives them back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import click

from zkcoord.cli.inventory import ask_kafka, inventories
from zkcoord.cli.options import Command, Settings, at_least, number_option, pass_settings, refuse_timeout_alone
from zkcoord.cli.output import show, tell
from zkcoord.core.adoption import OLD_STORES, OLD_STRATEGIES, Adoption
from zkcoord.core.words import count
from zkcoord.errors import UsageError
from zkcoord.group_report import has_group, no_such_group
from zkcoord.migrate import BlockingTree, Rehearsal
from zkcoord.operating.adopting import REFUSED, Result, adopt_group, legacy_layout
from zkcoord.operating.adoption_file import adoption_of, read_adoptions
from zkcoord.operating.releasing import named
from zkcoord.operating.releasing import release as release_group
from zkcoord.operating.requesting import turns
from zkcoord.operating.saying import say
from zkcoord.operating.wave_file import refuse_waves_alone

COLUMNS = ("GROUP", "RESULT", "#NOTES", "WHY")


@click.command(cls=Command, example="zkcoord group adopt etl --offsets kafka --strategy range --kafka 1.1 --dry-run")
@click.argument("name", metavar="[G]", required=False)
@click.option("--offsets", type=click.Choice(OLD_STORES), help="Old members' offsets.storage.")
@click.option("--dual-commit", is_flag=True, help="Old members' dual.commit.enabled (only with --offsets kafka).")
@click.option("--strategy", type=click.Choice(OLD_STRATEGIES), help="Old members' partition.assignment.strategy.")
@click.option(
    "--kafka",
    metavar="VERSION",
    help="Version of the old members' library: 0.8, 0.9, 0.10, 0.11, 1.0, 1.1, or an exact one.",
)
@click.option("--retries", type=at_least(1), metavar="N", help="Old members' rebalance.max.retries  [default: 4].")
@click.option("--backoff-ms", type=at_least(0), metavar="N", help="Old members' rebalance.backoff.ms  [default: 2000].")
@click.option(
    "--auto-commit-interval-ms",
    type=at_least(0),
    metavar="N",
    help="Old members' auto.commit.interval.ms  [default: 60000].",
)
@click.option("--exclude-internal", type=click.Choice(["yes", "no"]), help="Old members' exclude.internal.topics.")
@click.option("--broker", metavar="VERSION", help="Version of the brokers.")
@click.option("--from", "file", metavar="FILE", help="Adopt all groups of a file that `zkcoord inventory` wrote.")
@click.option("--wave", "waves", type=at_least(1), multiple=True, metavar="N", help="With --from: only this wave.")
@click.option("--force", is_flag=True, help="Adopt a group even if the tree shows something else.")
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

    The options say what the tree does not show: the configuration of the group's old members. The command compares it
    with the tree, and with --bootstrap-servers also with the offsets in Kafka. From then on consumers of zkcoord may
    join the group, and coordinators serve it. `zkcoord group release` is the way back. The command may be run again: it
    changes only values that differ.
    """
    if name is not None and file is not None:
        raise UsageError(f"group {name} and --from {file} were both given: the file names its groups")
    if name is None and file is None:
        raise UsageError("name one group, or give --from FILE")
    given = {key: value for key, value in told.items() if value is not None and value is not False}  # 0 is a value
    if file is not None and given:
        raise UsageError(f"--{next(iter(given)).replace('_', '-')}: with --from the file says it")
    refuse_waves_alone(waves, file)
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
            for found in inventories(tree, sorted(wanted), ask_kafka(settings, stack))
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


def _print(settings: Settings, results: Sequence[Result], *, dry_run: bool) -> None:
    shown = [[each.group, each.result, each.notes or None, each.why or None] for each in results]
    show(settings, [{**each._asdict(), "dry_run": dry_run} for each in results], COLUMNS, shown)
    if settings.json:
        return
    if dry_run:
        say("notice", "nothing was written: --dry-run")
    if any(each.notes for each in results):
        say("notice", "`zkcoord inventory G` shows the notes on a group")


@click.command(cls=Command, example="zkcoord group release etl --wait")
@click.argument("name", metavar="G")
@click.option("--wait", "waiting", is_flag=True, help="Wait until no consumer of zkcoord is left in the group.")
@number_option("--timeout-ms", default=60_000, text="How long --wait waits.")
@pass_settings
def release(settings: Settings, name: str, waiting: bool, timeout_ms: int) -> None:
    """Give group G back to its old consumers: afterwards nothing of zkcoord's is left of it.

    First stop its consumers of zkcoord. The command is refused while one of them is registered or owns a partition;
    with --wait it waits for them. Offsets stay as they are. If the command breaks off, run it again. It needs no
    coordinator.
    """
    refuse_timeout_alone("--wait", waiting)
    address = settings.zookeeper_address()
    with settings.tree() as tree:
        layout = legacy_layout(tree, address)
        if not has_group(tree, layout, name):
            raise UsageError(no_such_group(name))
        gone = release_group(tree, layout, name, _waits(name, timeout_ms) if waiting else _refuses(name))
    done = f"released; {count(gone, 'node')} removed, offsets untouched"
    text = done if gone else "was not adopted; nothing of zkcoord is left of it"
    tell(settings, {"group": name, "released": gone > 0, "removed_nodes": gone}, f"group {name}: {text}")


def _refuses(group: str) -> Callable[[Sequence[str]], None]:
    def refuse(there: Sequence[str]) -> None:
        raise UsageError(f"group {group} is not released: {named(there)}: stop them first, or give --wait")

    return refuse


def _waits(group: str, timeout_ms: int) -> Callable[[Sequence[str]], None]:
    """Return a function that waits one turn at each call, and raises UnavailableError after `timeout_ms`."""
    turn = turns(timeout_ms)

    def wait(there: Sequence[str]) -> None:
        turn(
            lambda: f"release of group {group}: {named(there)}",
            lambda: f"group {group} is not released after {timeout_ms} ms: {named(there)}: stop them",
        )

    return wait
