"""`zkcoord group`: what groups there are, and how one of them is doing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from zkcoord.cli.group_waiting import REQUESTED, WAIT_TIMEOUT_MS, GroupWait, at, count, waits_for
from zkcoord.cli.options import Group, Settings, at_least, pass_settings
from zkcoord.cli.output import cell, print_json, say, table, warn
from zkcoord.core.model import TopicPartition, consumer_of
from zkcoord.core.record import ZOOKEEPER
from zkcoord.core.stores import lagging
from zkcoord.core.view import GroupView, TopicChange
from zkcoord.errors import UsageError, ZkcoordError
from zkcoord.group_report import GroupReport, TreeReport, deleted_groups, group_names, read_group, read_tree
from zkcoord.migrate import BlockingTree
from zkcoord.tree.paths import Layout

PARTITION_COLUMNS = ("TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID")
MEMBER_COLUMNS = ("CONSUMER-ID", "INSTANCE", "#PARTITIONS", "#COMMANDS", "TOPICS", "NOTE")
STATE_COLUMNS = ("GROUP", "STATE", "GENERATION", "COORDINATOR", "EPOCH", "#COMMANDS", "#MEMBERS", "FAILED", "NOTE")
NUMBERS = ("PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "#PARTITIONS", "#COMMANDS", "#MEMBERS", "GENERATION")
CHANGED = {
    TopicChange.RECREATED: "was deleted and created again: its earlier owners and offsets are dropped before it starts",
    TopicChange.DELETED: "was deleted: its owners and offsets are dropped a minute later",
}

Ends = Mapping[TopicPartition, int]


@click.group(cls=Group)
def group() -> None:
    """Consumer groups."""


@group.command(name="list")
@click.option("--state", is_flag=True, help="Also the state of each.")
@click.option("--all", "all_", is_flag=True, help="Also deleted groups of which the offsets were kept.")
@pass_settings
def list_(settings: Settings, state: bool, all_: bool) -> None:
    """List all groups, without those that were deleted."""
    with settings.tree() as tree:
        above = read_tree(tree, settings.zookeeper_address())
        names = group_names(tree, above.layout) if all_ else _present(tree, above.layout)
        reports = [read_group(tree, above.layout, name) for name in names] if state or settings.json else []
    if settings.json:
        for report in reports:
            print_json(_state(above, report))
    elif state:
        click.echo(table(STATE_COLUMNS, [_state_row(above, report) for report in reports], NUMBERS))
    elif names:
        click.echo("\n".join(cell(name) for name in names))
    if not names and not settings.json:
        say("notice", "there is no group: the first consumer that joins one makes it")


@group.command()
@click.argument("name", metavar="[G]", required=False)
@click.option("--all-groups", is_flag=True, help="Every group instead of one.")
@click.option("--members", is_flag=True, help="Its members instead of its partitions.")
@click.option("--state", is_flag=True, help="Its state instead of its partitions.")
@click.option("--sort", type=click.Choice(["topic", "lag"]), default="topic", show_default=True, help="Its partitions.")
@click.option("--wait", type=click.Choice(["stable"]), help="First wait until the group is stable.")
@click.option("--timeout-ms", type=at_least(0), metavar="N", help=f"Of --wait  [default: {WAIT_TIMEOUT_MS}].")
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

    Log ends and lag need --bootstrap-servers; all else comes from ZooKeeper. With --output json one object a group,
    with all of it.

    Stable is a group that has members, each with its share. --wait waits for that: a group without members, or one
    that does not exist yet, is one whose consumers, or whose first coordinator, are still starting. With --all-groups
    those without members are passed over. Exit code 5 when it took too long; also when the share of a static member
    that is away waits for it all the time.
    """
    if bool(name) is all_groups:
        raise UsageError("name one group, or give --all-groups")
    if members and state:
        raise UsageError("choose one of --members and --state")
    if timeout_ms is not None and not wait:
        raise UsageError("--timeout-ms is how long --wait waits: give `--wait stable` too, or leave it out")
    address, wait_ms = settings.zookeeper_address(), WAIT_TIMEOUT_MS if timeout_ms is None else timeout_ms
    with settings.tree() as tree:
        waiting = GroupWait(tree, address, wait_ms, settings.limits.say_every_ms) if wait else None
        if waiting is not None:
            waiting.for_the_tree()
        above = read_tree(tree, address)
        names = [name] if name else _present(tree, above.layout)
        if waiting is not None:
            reports = [waiting.until_stable(above.layout, one, empty_too=all_groups) for one in names]
            above = read_tree(tree, address)
        else:
            reports = [read_group(tree, above.layout, one) for one in names]
    if above.brokers is not None:
        warn(above.brokers)
    for report in reports:
        for path, problem in sorted(report.problems.items()):
            warn(f"{path}: {problem}")
    by_lag = sort == "lag"
    ends = _log_ends(settings, reports) if settings.json or not (members or state) else {}
    for number, report in enumerate(reports):
        if settings.json:
            print_json(_document(above, report, ends))
        else:
            title = f"Group {cell(report.view.group)}\n" if members and all_groups else ""
            text = _text(above, report, ends, members=members, state=state, by_lag=by_lag)
            click.echo(("\n" if number else "") + title + text)


def _present(tree: BlockingTree, layout: Layout) -> list[str]:
    """Return all groups that were not deleted, in order."""
    names = group_names(tree, layout)
    deleted = deleted_groups(tree, layout, names)
    return [name for name in names if name not in deleted]


def _log_ends(settings: Settings, reports: Sequence[GroupReport]) -> Ends:
    """Return where the logs end. Without Kafka nothing is known; a warning says so."""
    from zkcoord.kafka.client import KafkaClient, librdkafka
    from zkcoord.kafka.lag import log_ends

    servers = settings.kafka_address()
    partitions = [partition for report in reports for partition in report.partitions()]
    if servers is None or not partitions:
        return {}
    try:
        librdkafka()
    except UsageError as error:  # all else is known without it
        warn(f"{error}; no log ends and no lag are shown")
        return {}
    try:
        with KafkaClient(servers, settings.kafka_settings()) as client:
            found = log_ends(client, partitions, timeout_ms=settings.limits.log_ends_wait_ms)
    except UsageError:
        raise
    except ZkcoordError as error:
        warn(f"{error}; no log ends and no lag are shown")
        return {}
    alike: dict[str, list[str]] = {}
    for partition, reason in sorted(found.unknown.items()):
        alike.setdefault(reason.replace(str(partition), ""), []).append(reason)
    for first, *others in alike.values():
        warn(first + (f" (and so for {count(len(others), 'further partition')})" if others else ""))
    return found.ends


# what is printed


def _text(above: TreeReport, report: GroupReport, ends: Ends, *, members: bool, state: bool, by_lag: bool) -> str:
    if state:
        return table(STATE_COLUMNS, [_state_row(above, report)], NUMBERS)
    if members:
        rows = [_member_row(member) for member in _members(report)]
        return table(MEMBER_COLUMNS, rows + _awaited_rows(above, report), NUMBERS)
    shown = _partitions(report, ends)
    if by_lag:
        shown.sort(key=lambda row: -(row["lag"] or 0))
    rows = [
        [
            row["topic"],
            row["partition"],
            row["current_offset"],
            row["log_end_offset"],
            row["lag"],
            None if row["owner"] is None else row["owner"] + ("" if row["alive"] else " (gone)"),
        ]
        for row in shown
    ]
    known = [row["lag"] for row in shown if row["lag"] is not None]
    lag = f", lag {sum(known)}" if known else ""
    return "\n".join([_sentence(above, report) + lag, "", table(PARTITION_COLUMNS, rows, NUMBERS)])


def _sentence(above: TreeReport, report: GroupReport) -> str:
    """Describe the group's state in one line."""
    view = report.view
    words = [
        f"Group {view.group}: {report.phase.value}",
        f"generation {view.state.generation}",
        f"coordinator {_coordinator(above)}",
        f"epoch {above.epoch}",
        f"{count(report.commands(), 'command')} outstanding",
        count(len(view.members), "member"),
    ]
    if view.state.failed is not None:
        words.append(f"FAILED: {view.state.failed.error}")
    return cell(", ".join([*words, *_remarks(above, report)]))


def _remarks(above: TreeReport, report: GroupReport) -> list[str]:
    """Say what the state alone does not tell."""
    view = report.view
    quarantined = [f"{partition} ({entry.why})" for partition, entry in sorted(view.state.quarantined.items())]
    words = ["DELETED: only its offsets were kept"] if report.deleted else []
    words += [f"this group {view.record.moved.where()}"] if view.record.moved is not None else []
    words += [f"NOT ADOPTED: `zkcoord group adopt {view.group}`"] if view.observed else []
    words += [f"{view.mode.mode.value}: {view.mode.why}"] if not (view.mode.coordinated or view.observed) else []
    words += [f"QUARANTINED: {'; '.join(quarantined)}"] if quarantined else []
    words += _store_remarks(view)
    words += [
        f"{REQUESTED.get(name, name)} by {wish.get('who', 'somebody')}" for name, wish in sorted(report.wishes.items())
    ]
    if not report.paused:
        away = {name: waits_for(above, awaited) for name, awaited in report.awaited.items()}
        words += [f"static member {name} is away: {what}" for name, what in away.items()]
    words += [f"topic {topic} {what}" for topic, what in _changed(report).items()]
    return words + ([f"PROBLEM: {view.state.problem}"] if view.state.problem else [])


def _store_remarks(view: GroupView) -> list[str]:
    """Say where offsets are kept, and who has not followed yet; nothing of a group that was never moved."""
    record, waits = view.record, lagging(view)
    words = [] if record.store_name == ZOOKEEPER else [f"offset store {record.store_name} (step {record.store_step})"]
    if waits:
        first = next(iter(waits))
        more = f" and {len(waits) - 1} more" if len(waits) > 1 else ""
        words.append(f"STEP TO {record.store_name} NOT DONE: {first} {waits[first]}{more}")
    return words


def _changed(report: GroupReport) -> dict[str, str]:
    """Name the topics that differ from what the group knew."""
    return {topic: CHANGED[change] for topic, change in sorted(report.view.changed.items()) if change in CHANGED}


def _coordinator(above: TreeReport) -> str:
    if above.coordinator is not None:
        return above.coordinator
    if above.epoch_since_ms is None or not above.epoch:
        return "NONE ELECTED"
    return f"NONE ELECTED (the last one was at {at(above.epoch_since_ms)})"


def _state_row(above: TreeReport, report: GroupReport) -> list[Any]:
    document = _state(above, report)
    shown: dict[str, Any] = {**document, "coordinator": document["coordinator"] or "NONE ELECTED"}
    keys = ("group", "state", "generation", "coordinator", "epoch", "commands", "member_count", "failed")
    return [*(shown[key] for key in keys), ", ".join(_remarks(above, report)) or None]


def _member_row(member: Mapping[str, Any]) -> list[Any]:
    topics = ",".join(f"{topic}:{threads}" for topic, threads in member["topics"].items())
    return [
        member["consumer"],
        member["instance"],
        len(member["partitions"]),
        len(member["commands"]),
        topics,
        member["note"],
    ]


def _awaited_rows(above: TreeReport, report: GroupReport) -> list[list[Any]]:
    """Return static members that are away, in the columns of the members."""
    known = report.view.instances
    return [
        [
            f"{awaited.consumer} (gone)",
            name,
            len(awaited.partitions),
            0,
            ",".join(f"{topic}:{threads}" for topic, threads in sorted(known[name].threads.items())),
            f"away: {waits_for(above, awaited)}",
        ]
        for name, awaited in report.awaited.items()
    ]


def _document(above: TreeReport, report: GroupReport, ends: Ends) -> dict[str, Any]:
    """Return all that is known of the group."""
    return {
        **_state(above, report),
        "members": _members(report),
        "partitions": _partitions(report, ends),
        "problems": dict(sorted(report.problems.items())),
        "brokers": above.brokers,
    }


def _state(above: TreeReport, report: GroupReport) -> dict[str, Any]:
    view = report.view
    return {
        "group": view.group,
        "state": report.phase.value,
        "settled": report.settled,
        "generation": view.state.generation,
        "coordinator": above.coordinator,
        "epoch": above.epoch,
        "commands": report.commands(),
        "member_count": len(view.members),
        "deleted": report.deleted,
        "failed": None if view.state.failed is None else view.state.failed.error,
        "quarantined": {str(partition): entry.why for partition, entry in sorted(view.state.quarantined.items())},
        "problem": view.state.problem,
        "offset_store": {
            "name": view.record.store_name,
            "step": view.record.store_step,
            "waits_for": lagging(view),
        },
        "mode": view.mode.mode.value,
        "mode_reason": view.mode.why or None,
        "old_members": sorted(view.mode.old),
        "changed_topics": _changed(report),
        "awaited": {
            name: {
                "consumer": awaited.consumer,
                "partitions": [str(partition) for partition in awaited.partitions],
                "hold_ms": awaited.hold_ms,
                "until_ms": awaited.until_ms(above),
            }
            for name, awaited in report.awaited.items()
        },
        "wishes": dict(report.wishes),
        "moved": None if view.record.moved is None else view.record.moved.where(),
    }


def _members(report: GroupReport) -> list[dict[str, Any]]:
    """Return all members, by consumer id."""
    owned: dict[str, list[str]] = {}
    for partition, owner in sorted(report.view.owners.items()):
        owned.setdefault(consumer_of(owner.thread), []).append(str(partition))
    return [_member(report, name, owned.get(name, [])) for name in sorted(report.view.members)]


def _member(report: GroupReport, name: str, partitions: list[str]) -> dict[str, Any]:
    view = report.view
    member, channel = view.members[name], view.channels.get(name)
    draft_only = channel is not None and not member.speaks_protocol
    notes = [
        "knows only the draft" if draft_only else None,
        "no topic matches its wildcard" if member.wildcard is not None and not member.threads else None,
        report.idle.get(name),
    ]
    return {
        "consumer": name,
        "instance": member.instance,
        "topics": dict(sorted(member.threads.items())),
        "partitions": partitions,
        "commands": [
            {"sequence": c.sequence, "option": c.option, "partitions": c.threads and sorted(map(str, c.threads))}
            for c in (channel.commands if channel else ())
        ],
        "note": "; ".join(filter(None, notes)) or None,
    }


def _partitions(report: GroupReport, ends: Ends) -> list[dict[str, Any]]:
    from zkcoord.kafka.lag import lag

    rows = []
    offsets = {partition: report.offsets.get(partition) for partition in report.partitions()}
    for partition, behind in lag(offsets, ends).items():
        owner = report.view.owners.get(partition)
        consumer = consumer_of(owner.thread) if owner and owner.thread else None
        rows.append(
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "current_offset": offsets[partition],
                "log_end_offset": ends.get(partition),
                "lag": behind,
                "owner": owner.thread if owner and owner.thread else None,
                "consumer": consumer,
                "alive": consumer in report.view.members,
            }
        )
    return rows
