"""`zkcoord group`: lists groups, and describes the state of each."""

from __future__ import annotations

from typing import Any

import click

from zkcoord.cli.group.members import MEMBER_COLUMNS, member_row, member_tone
from zkcoord.cli.kafka_options import with_kafka
from zkcoord.cli.loading import OF_GROUP, Commands
from zkcoord.cli.options import Group, Settings, at_least, on_command_line, pass_settings, refuse_timeout_alone
from zkcoord.cli.output import print_json, table, wrapped
from zkcoord.errors import UsageError
from zkcoord.group_report import GroupReport, TreeReport, group_names, read_tree
from zkcoord.operating.advice import advice, of_the_tree
from zkcoord.operating.documents import document, remarks, sentence, state_of, tone_of
from zkcoord.operating.groups import present_groups, reports_of
from zkcoord.operating.members import member_documents
from zkcoord.operating.partitions import Ends, lag_of, owner_of, partitions_of
from zkcoord.operating.saying import Tone, say, warn
from zkcoord.operating.waiting import WAIT_TIMEOUT_MS, GroupWait
from zkcoord.operating.words import cell

PARTITION_COLUMNS = ("TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID")
STATE_COLUMNS = (
    *("GROUP", "STATE", "GENERATION", "COORDINATOR", "EPOCH"),
    *("#COMMANDS", "#MEMBERS", "LAG", "FAILED", "NOTE"),
)
NO_GROUP = "there is no group: the first consumer that joins one makes it"
NUMBERS = ("PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "#PARTITIONS", "#COMMANDS", "#MEMBERS", "GENERATION")


@click.group(cls=Group, commands=Commands(OF_GROUP), example="zkcoord group describe etl")
def group() -> None:
    """List, describe and change consumer groups."""


@group.command(name="list", example="zkcoord group list --state --sort lag")
@click.option("--state", is_flag=True, help="Also show the state and lag of each group.")
@click.option("--all", "all_", is_flag=True, help="Also list deleted groups whose offsets were kept.")
@click.option(
    "--sort", type=click.Choice(["group", "lag"]), default="group", show_default=True, help="Order of --state."
)
@pass_settings
def list_(settings: Settings, state: bool, all_: bool, sort: str) -> None:
    """List all groups, without deleted ones.

    LAG is the sum over all partitions whose lag is known; it needs --bootstrap-servers.
    """
    if sort == "lag" and not state and not settings.json and on_command_line("sort"):
        raise UsageError("--sort lag sorts the table of --state: give that, too")
    lags: dict[str, int | None] = {}
    reports: list[GroupReport] = []
    with settings.tree() as tree:
        above = read_tree(tree, settings.zookeeper_address())
        names = group_names(tree, above.layout) if all_ else present_groups(tree, above.layout)
        if state or settings.json:
            reports = reports_of(tree, above.layout, names)
            reports, ends = with_kafka(settings, tree, above.layout, reports)
            lags = {report.view.group: lag_of(report, ends) for report in reports}
    if sort == "lag":
        reports.sort(key=lambda report: -(lags[report.view.group] or 0))
    if settings.json:
        for report in reports:
            print_json({**state_of(above, report), "lag": lags[report.view.group]})
    elif state:
        rows = [_state_row(above, report, lags[report.view.group]) for report in reports]
        click.echo(table(STATE_COLUMNS, rows, NUMBERS, tones=list(map(tone_of, reports))))
    elif names:
        click.echo("\n".join(cell(name) for name in names))
    if not names and not settings.json:
        say("notice", NO_GROUP)


@group.command(example="zkcoord group describe etl --wait stable")
@click.argument("name", metavar="[G]", required=False)
@click.option("--all-groups", is_flag=True, help="Describe every group instead of one.")
@click.option("--members", is_flag=True, help="Show its members instead of its partitions.")
@click.option("--state", is_flag=True, help="Show its state instead of its partitions.")
@click.option(
    "--sort", type=click.Choice(["topic", "lag"]), default="topic", show_default=True, help="Order of partitions."
)
@click.option("--wait", type=click.Choice(["stable"]), help="First wait until the group is stable.")
@click.option(
    "--timeout-ms", type=at_least(0), metavar="N", help=f"How long --wait waits  [default: {WAIT_TIMEOUT_MS}]."
)
@pass_settings
def describe(
    settings: Settings,
    name: str | None,
    all_groups: bool,
    members: bool,
    state: bool,
    sort: str,
    wait: str | None,
    timeout_ms: int | None,
) -> None:
    """Show the partitions of group G, its members, or its state.

    Log ends and lag need --bootstrap-servers; all else comes from ZooKeeper. --output json prints one object for each
    group, with all of it.

    A group is stable if it has members, and each member has its share. --wait also waits if the group has no members or
    does not exist yet: its consumers, or its first coordinator, may be starting. With --all-groups it does not wait for
    groups without members. The exit code is 3 if the group is FAILED, and 5 if it is not stable in time, for example
    since a share waits for a static member that is away.
    """
    if bool(name) is all_groups:
        raise UsageError("name one group, or give --all-groups")
    if members and state:
        raise UsageError("choose one of --members and --state")
    if sort == "lag" and (members or state) and on_command_line("sort"):
        raise UsageError("--sort lag sorts partitions: leave out --members and --state")
    refuse_timeout_alone("--wait stable", wait is not None)
    address, wait_ms = settings.zookeeper_address(), WAIT_TIMEOUT_MS if timeout_ms is None else timeout_ms
    with settings.tree() as tree:
        waiting = GroupWait(tree, address, wait_ms, settings.limits.say_every_ms) if wait else None
        if waiting is not None:
            waiting.for_the_tree()
        above = read_tree(tree, address)
        names = [name] if name else present_groups(tree, above.layout)
        if waiting is not None:
            reports = [waiting.until_stable(above.layout, one, empty_too=all_groups) for one in names]
            above = read_tree(tree, address)
        else:
            reports = reports_of(tree, above.layout, names)
        reports, ends = with_kafka(settings, tree, above.layout, reports)
    if above.brokers is not None:
        warn(above.brokers)
    for report in reports:
        for path, problem in sorted(report.problems.items()):
            warn(f"{path}: {problem}")
    by_lag = sort == "lag"
    for number, report in enumerate(reports):
        if settings.json:
            print_json(document(above, report, ends))
        else:
            title = f"Group {cell(report.view.group)}\n" if members and all_groups else ""
            text = _text(above, report, ends, members=members, state=state, by_lag=by_lag)
            todo = () if members else advice(above, report)
            click.echo("\n".join([("\n" if number else "") + title + text, *(f"! {cell(each)}" for each in todo)]))
    if not settings.json:
        if not names:
            say("notice", NO_GROUP)
        click.echo("".join(f"! {each}\n" for each in of_the_tree(above) if not members), nl=False)


# what is printed


def _text(above: TreeReport, report: GroupReport, ends: Ends, *, members: bool, state: bool, by_lag: bool) -> str:
    if state:
        return table(STATE_COLUMNS, [_state_row(above, report, lag_of(report, ends))], NUMBERS, tones=[tone_of(report)])
    shown = partitions_of(report, ends)
    if members:
        found = member_documents(above, report, shown)
        return table(MEMBER_COLUMNS, list(map(member_row, found)), NUMBERS, tones=list(map(member_tone, found)))
    if by_lag:
        shown.sort(key=lambda row: -(row["lag"] or 0))
    keys = ("topic", "partition", "current_offset", "log_end_offset", "lag")
    rows = [[*(row[key] for key in keys), owner_of(row)] for row in shown]
    known = [row["lag"] for row in shown if row["lag"] is not None]
    lag = f", lag {sum(known)}" if known else ""
    tones = [None if row["alive"] else Tone.MOVING for row in shown]
    first = wrapped(sentence(above, report) + lag, tone=tone_of(report))
    return "\n".join([first, "", table(PARTITION_COLUMNS, rows, NUMBERS, tones=tones)])


def _state_row(above: TreeReport, report: GroupReport, lag: int | None) -> list[Any]:
    document = state_of(above, report)
    shown: dict[str, Any] = {**document, "coordinator": document["coordinator"] or "NONE ELECTED"}
    keys = ("group", "state", "generation", "coordinator", "epoch", "commands", "member_count")
    return [*(shown[key] for key in keys), lag, shown["failed"], ", ".join(remarks(above, report)) or None]
