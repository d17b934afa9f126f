"""`zkcoord offsets migrate`: moves the offsets of groups between ZooKeeper and Kafka, while their consumers read."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import NamedTuple

import click

from zkcoord.cli.group_waiting import count
from zkcoord.cli.migration_file import read_goals
from zkcoord.cli.offset_stores import groups_of, kafka_client
from zkcoord.cli.options import Command, Settings, at_least, pass_settings
from zkcoord.cli.output import print_json, say, table, warn
from zkcoord.cli.requesting import PROGRESS_SECONDS, who_and_when, who_serves
from zkcoord.cli.store_migration import Migration, Places, Stage, Turn, steps
from zkcoord.core.record import STORES
from zkcoord.errors import UnavailableError, UsageError, ZkcoordError
from zkcoord.group_report import no_such_group, read_tree
from zkcoord.migrate import BlockingTree
from zkcoord.offsets.kafka_store import KafkaCommits
from zkcoord.tree.bulk import data
from zkcoord.tree.paths import Layout

COLUMNS = ("GROUP", "FROM", "TO", "STORE", "STEP", "RESULT", "WHY")
TURN_SECONDS = 0.3
TIMEOUT_MS = 600_000
NAMED_MAX = 20  # differences that are printed one by one
MOVED, UNCHANGED, PLANNED, REFUSED, UNFINISHED = "moved", "unchanged", "would be moved", "refused", "not finished"


class Result(NamedTuple):
    """What became of one group. `before`: the store at the beginning."""

    group: str
    before: str
    goal: str
    store: str
    step: int
    result: str
    why: str = ""


@click.command(name="migrate", cls=Command)
@click.argument("name", metavar="[G]", required=False)
@click.option("--to", "goal", type=click.Choice(STORES), help="The store to move to.")
@click.option("--all-groups", is_flag=True, help="Every group instead of one; with --from those of a file.")
@click.option("--from", "file", metavar="FILE", help="With --all-groups: groups, stores and waves, in TOML.")
@click.option("--wave", "waves", type=at_least(1), multiple=True, metavar="N", help="With --from: only this wave.")
@click.option("--dry-run", is_flag=True, help="Show what would be done; write nothing.")
@click.option("--force", is_flag=True, help="Also where offsets differ; the differences are printed.")
@click.option(
    "--timeout-ms",
    type=at_least(0),
    default=TIMEOUT_MS,
    show_default=True,
    metavar="N",
    help="How long a group may be without progress.",
)
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

    Between zookeeper and kafka a group goes through dual. Each step waits until every consumer has taken the one
    before; the step away from dual waits until every offset was seen equal in both stores. Needs --bootstrap-servers,
    a coordinator, and consumers that can use the store. If it breaks off, run it again: it goes on.
    """
    wanted = _wanted(name, goal, all_groups=all_groups, file=file, waves=waves)
    address = settings.zookeeper_address()
    results: list[Result] = []
    with ExitStack() as stack:
        tree = stack.enter_context(settings.tree())
        read_tree(tree, address)  # there is one
        client = stack.enter_context(kafka_client(settings))
        layout, tree_id, names = groups_of(tree, address)
        if name is not None and name not in names:
            raise UsageError(no_such_group(name))
        places = Places(
            tree=tree,
            layout=layout,
            tree_id=tree_id,
            kafka=KafkaCommits(client),
            existing=frozenset(client.partitions()),
        )
        for wave in wanted or [dict.fromkeys(_adopted(tree, layout, names), str(goal))]:
            runs = [
                Migration(places=places, group=group, goal=to, run=who_and_when(), force=force)
                for group, to in wave.items()
            ]
            moving = Movers(runs, timeout_ms, lambda: who_serves(tree, address))
            results += moving.plan() if dry_run else moving.carry_out()
            if not dry_run and any(each.result in (REFUSED, UNFINISHED) for each in results):
                break  # the next wave waits for this one
    _print(settings, results, dry_run=dry_run)
    _raise(results, alone=name is not None)


def _wanted(
    name: str | None, goal: str | None, *, all_groups: bool, file: str | None, waves: Sequence[int]
) -> list[dict[str, str]]:
    """Return the waves: group -> store; none: every group of the tree."""
    if (name is None) is not all_groups:
        raise UsageError("name one group, or give --all-groups")
    if file is not None and not all_groups:
        raise UsageError("--from names the groups itself: give --all-groups with it, and no group")
    if waves and file is None:
        raise UsageError("--wave chooses among the groups of a file: give --from, too")
    if file is not None:
        return read_goals(file, waves, goal)
    if goal is None:
        raise UsageError("where to? give --to zookeeper, --to dual or --to kafka")
    return [] if name is None else [{name: goal}]


def _adopted(tree: BlockingTree, layout: Layout, names: Sequence[str]) -> list[str]:
    """Return those of all groups that are zkcoord's: where groups are adopted, the others are left as they are."""
    if not layout.adopts:
        return list(names)
    records = data(tree.read, [layout.record(name) for name in names])
    return [name for name, node in zip(names, records, strict=True) if node.exists]


class Movers:
    """The runs of one wave, side by side. `serving` says who is waited for."""

    def __init__(self, runs: Sequence[Migration], timeout_ms: int, serving: Callable[[], str]) -> None:
        self._runs, self._timeout_ms, self._serving = runs, timeout_ms, serving
        self._before: dict[str, str] = {}  # group -> its store at the beginning
        self._results: dict[str, Result] = {}
        self._last: dict[str, tuple[Turn, float]] = {}  # group -> its last turn that was another one, and when
        self._said = time.monotonic()

    def plan(self) -> list[Result]:
        """Look at each group, and write nothing."""
        for run in self._runs:
            try:
                view, why = run.look()
            except UnavailableError:
                raise
            except ZkcoordError as error:
                self._end(run, Turn(Stage.REFUSED, "", 0, str(error)), REFUSED)
                continue
            store, step = view.record.store_name, view.record.store_step
            self._before[run.group] = store
            left = [] if why else steps(store, run.goal)
            plan = f"{' > '.join([store, *left])}; {count(len(view.members), 'consumer')}"
            result = REFUSED if why else PLANNED if left else UNCHANGED
            self._end(run, Turn(Stage.WAITING, store, step, why or plan), result)
        return self._all()

    def carry_out(self) -> list[Result]:
        """Take turns until every run has ended."""
        try:
            while active := [run for run in self._runs if run.group not in self._results]:
                began = time.monotonic()
                waiting = {run.group: why for run in active if (why := self._turn(run))}
                self._tell(waiting)
                if waiting:
                    time.sleep(max(TURN_SECONDS, time.monotonic() - began))  # large groups are read less often
        except KeyboardInterrupt:
            say("notice", "broken off: run it again to go on")
            raise
        return self._all()

    def _turn(self, run: Migration) -> str:
        """One turn of one run; returns what it waits for, "" if it has ended."""
        try:
            turn = run.turn(int(time.time() * 1000))
        except UnavailableError as error:
            turn = Turn(Stage.WAITING, "", 0, str(error))
        except ZkcoordError as error:
            turn = Turn(Stage.REFUSED, "", 0, str(error))
        if turn.store:
            self._before.setdefault(run.group, turn.store)
        if turn.stage is Stage.WAITING:
            return self._waits(run, turn)
        if turn.stage is Stage.DONE:
            self._print_differences(run)
            self._end(run, turn, UNCHANGED if self._before[run.group] == turn.store else MOVED)
        else:
            self._end(run, turn, REFUSED)
            run.give_up()
        return ""

    def _waits(self, run: Migration, turn: Turn) -> str:
        last, since = self._last.get(run.group, (None, 0.0))
        now = time.monotonic()
        if turn != last:
            if last is not None and last.store and turn.step > last.step:
                say("moved", f"group {run.group}: offsets are kept in {turn.store} from now on (step {turn.step})")
            self._last[run.group] = turn, now
        elif now - since >= self._timeout_ms / 1000:
            self._print_differences(run)
            self._end(run, turn, UNFINISHED)
            return ""
        return turn.why

    def _tell(self, waiting: Mapping[str, str]) -> None:
        if not waiting or time.monotonic() - self._said < PROGRESS_SECONDS:
            return
        self._said = time.monotonic()
        group = min(waiting)
        more = f"; {count(len(waiting) - 1, 'further group')}" if len(waiting) > 1 else ""
        say("waiting", f"group {group}: {waiting[group]} ({self._serving()}){more}")

    def _print_differences(self, run: Migration) -> None:
        """Print the offsets that differ."""
        for each in run.differences[:NAMED_MAX]:
            stands = f"ZooKeeper has {each.zookeeper}, Kafka {each.kafka}, {each.counts} counts"
            warn(f"group {run.group}: {each.partition}: {stands}{each.why and f': {each.why}'}")
        if len(run.differences) > NAMED_MAX:
            warn(f"group {run.group}: {len(run.differences) - NAMED_MAX} more; `zkcoord offsets verify` shows them")

    def _end(self, run: Migration, turn: Turn, result: str) -> None:
        before = self._before.get(run.group, "")
        self._results[run.group] = Result(run.group, before, run.goal, turn.store, turn.step, result, turn.why)

    def _all(self) -> list[Result]:
        return [self._results[run.group] for run in self._runs]


def _print(settings: Settings, results: Sequence[Result], *, dry_run: bool) -> None:
    if settings.json:
        for each in results:
            document = {"group": each.group, "from": each.before or None, "to": each.goal, "store": each.store or None}
            print_json({**document, "step": each.step, "result": each.result, "why": each.why or None})
    else:
        click.echo(table(COLUMNS, [[None if value == "" else value for value in each] for each in results]))
    if dry_run:
        say("notice", "nothing was written: --dry-run")


def _raise(results: Sequence[Result], *, alone: bool) -> None:
    """UsageError if a group was refused, UnavailableError if one is not finished."""
    refused = [each for each in results if each.result == REFUSED]
    late = [each for each in results if each.result == UNFINISHED]
    if refused:
        what = f"group {refused[0].group} is not moved: {refused[0].why}"
        raise UsageError(what if alone else f"{count(len(refused), 'group')} refused; {what}")
    if late:
        what = f"group {late[0].group} is not moved yet: {late[0].why}; run it again to go on"
        hint = "" if late[0].store != "dual" else ", or give --force if these differences do not matter"
        raise UnavailableError(f"{what}{hint}")
