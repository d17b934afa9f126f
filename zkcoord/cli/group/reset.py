"""`zkcoord group reset-offsets`: sets a group's offsets, like kafka-consumer-groups."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import click

from zkcoord.cli.files import opened
from zkcoord.cli.kafka_options import kafka_client
from zkcoord.cli.offsets.files import show_changes
from zkcoord.cli.options import Command, Settings, at_least, number_option, pass_settings, refuse_timeout_alone
from zkcoord.core.model import TopicPartition
from zkcoord.core.words import count
from zkcoord.errors import UsageError
from zkcoord.offsets.targets import from_file
from zkcoord.operating.resetting import WAIT_MS, How, goal_of, reset_group
from zkcoord.operating.saying import say

COLUMNS = ("TOPIC", "PARTITION", "OFFSET", "NEW-OFFSET")


@click.command(
    name="reset-offsets",
    cls=Command,
    example="zkcoord group reset-offsets etl --to-earliest --topic clicks:0,1 --dry-run",
)
@click.argument("name", metavar="G")
@click.option("--to-earliest", "earliest", is_flag=True, help="To the start of each log.")
@click.option("--to-latest", "latest", is_flag=True, help="To the end of each log.")
@click.option("--to-offset", "offset", type=at_least(0), metavar="N", help="To offset N.")
@click.option("--to-datetime", "datetime_", metavar="T", help="To the first record of this time or later.")
@click.option("--shift-by", "shift", type=int, metavar="N", help="Forwards by N, or backwards by -N.")
@click.option("--from-file", "file", metavar="FILE", help="To the offsets in FILE.")
@click.option(
    "--topic",
    "topics",
    metavar="T[:P,P]",
    multiple=True,
    help="Only this topic, or these partitions of it; may be repeated.",
)
@click.option("--dry-run", is_flag=True, help="Show the new offsets; write nothing.")
@click.option("--stop-first", is_flag=True, help="Stop the group's consumers, and let them go on afterwards.")
@number_option("--timeout-ms", default=WAIT_MS, text="How long --stop-first waits.")
@pass_settings
def reset_offsets(
    settings: Settings,
    name: str,
    topics: tuple[str, ...],
    dry_run: bool,
    stop_first: bool,
    timeout_ms: int,
    file: str | None,
    **given: Any,
) -> None:
    """Set the offsets of group G: in all topics in which it has offsets, or in some.

    Needs --bootstrap-servers. New offsets lie within the logs. The command is refused while consumers read the group.
    With --stop-first the group's coordinator first stops the consumers. They stay members, and go on from the new
    offsets. If that breaks off, run it again; after ten minutes the coordinator pauses the group.
    """
    given["datetime"] = given.pop("datetime_")
    goal = goal_of(dict(given, file=file))
    refuse_timeout_alone("--stop-first", stop_first)
    named = None if file is None else _read_file(file, name)
    with ExitStack() as stack:
        tree = stack.enter_context(settings.tree())
        client = stack.enter_context(kafka_client(settings))
        how = How(dry_run=dry_run, stop_first=stop_first, timeout_ms=timeout_ms)
        changed, found = reset_group(tree, settings.zookeeper_address(), client, name, goal, topics, how, named)
    for note in found.notes:
        say("notice", note)
    show_changes(settings, name, changed, COLUMNS)
    what = "would change; nothing was written" if dry_run else "changed"
    say("notice", f"{count(len(changed), 'offset')} of {len(found.offsets)} {what}")


def _read_file(file: str, group: str) -> dict[TopicPartition, int]:
    with opened(file, "--from-file ") as lines:
        try:
            return from_file(lines, group)
        except UsageError as error:
            raise UsageError(f"--from-file {file}: {error}") from None
