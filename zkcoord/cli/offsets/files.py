"""`zkcoord offsets export` and `zkcoord offsets import`: offsets as text, also in the format of Kafka's old tools."""

from __future__ import annotations

import pickle
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from itertools import islice
from typing import IO, TextIO

import click

from zkcoord.cli.files import STANDARD, Progress, naming, new_file, read_from
from zkcoord.cli.kafka_options import kafka_beside
from zkcoord.cli.options import Command, Settings, pass_settings
from zkcoord.cli.output import print_json, show, table
from zkcoord.core.model import TopicPartition
from zkcoord.core.words import count, some
from zkcoord.errors import CorruptError, UnavailableError, UsageError
from zkcoord.group_report import may_name_a_group, no_such_group
from zkcoord.kafka.client import KafkaClient, librdkafka
from zkcoord.migrate import BlockingTree
from zkcoord.offsets.export import behind, export
from zkcoord.offsets.kafka_logs import known_logs
from zkcoord.offsets.kafka_store import KafkaCommits
from zkcoord.offsets.lines import FORMATS, LINE_MAX, LINES, Exported, parsed, written
from zkcoord.offsets.readable import Readable
from zkcoord.offsets.targets import Move
from zkcoord.offsets.writing import NAMED_MAX, Change
from zkcoord.operating.groups import groups_of
from zkcoord.operating.import_check import ImportCheck
from zkcoord.operating.importing import Import
from zkcoord.operating.saying import Anew, say, warn, would_be_refused
from zkcoord.operating.words import cell
from zkcoord.tree.bulk import NODES_AT_ONCE
from zkcoord.tree.paths import Layout

CHANGED = ("GROUP", "TOPIC", "PARTITION", "BEFORE", "AFTER")
UNKNOWN = "whether offsets lie within their logs is not known"
NUMBERS = ("PARTITION", "BEFORE", "AFTER", "OFFSET", "NEW-OFFSET", "OFFSETS", "CHANGED", "CREATED")
WRITTEN = ("GROUP", "OFFSETS", "CHANGED", "CREATED")

file_argument = click.argument("file", metavar="FILE")
group_option = click.option("--group", "names", metavar="G", multiple=True, help="Only this group; may be repeated.")


@click.command(name="export", cls=Command, example="zkcoord offsets export offsets.txt --group etl")
@file_argument
@group_option
@click.option(
    "--format", "form", type=click.Choice(FORMATS), default=LINES, show_default=True, help="Format of each line."
)
@pass_settings
def export_offsets(settings: Settings, file: str, names: tuple[str, ...], form: str) -> None:
    """Write the offsets in ZooKeeper of all groups, or of some, to a new FILE (- is standard output).

    The format `lines` is that of Kafka's old tools ExportZkOffsets and ImportZkOffsets. The format `json` is an object
    on each line. The command only reads, and needs no coordinator. All offsets that can be read are written. The exit
    code is 6 if a node holds no offset, and 2 if some nodes may not be read.
    """
    problems: list[CorruptError] = []
    groups: Counter[str] = Counter()
    progress = Progress("exported")
    with settings.tree() as tree:
        layout, _, known = groups_of(tree, settings.zookeeper_address())
        chosen = [name for name in known if not names or name in names]
        for name in names:
            if name not in known:
                raise UsageError(no_such_group(name))
        readable = Readable(tree.read, layout)
        with new_file(file) as out:
            for found in export(readable.read, layout, chosen):
                if isinstance(found, CorruptError):
                    warn(str(found))
                    problems.append(found)
                    continue
                out.write(written(found, form) + "\n")
                groups[found.group] += 1
                progress.add(1)
        moved, late = behind(readable.read, layout, chosen)
    if moved:
        warn(
            f"{some(moved, NAMED_MAX)} went to another tree (`zkcoord group describe` says where): these are the"
            " offsets as of the move: export them there"
        )
    if late:
        warn(
            f"the offsets of {some(late, NAMED_MAX)} count in Kafka, and ZooKeeper has them as of the last checkpoint:"
            " importing them sets these groups back (`zkcoord offsets verify` shows both)"
        )
    say("notice", f"{count(groups.total(), 'offset')} of {count(len(groups), 'group')} exported")
    readable.refuse("and what is there is not exported")
    if problems:
        raise CorruptError(f"{count(len(problems), 'node')} could not be exported; the first: {problems[0]}")


@click.command(name="import", cls=Command, example="zkcoord offsets import offsets.txt --group etl --dry-run")
@file_argument
@group_option
@click.option("--dry-run", is_flag=True, help="Show what would change, and what prevents it; write nothing.")
@click.option(
    "--force", is_flag=True, help="Import even while old consumers read a group. They may overwrite the offsets."
)
@pass_settings
def import_offsets(settings: Settings, file: str, names: tuple[str, ...], dry_run: bool, force: bool) -> None:
    """Set offsets in ZooKeeper to those in FILE (- is standard input): lines of Kafka's old tools, or JSON lines.

    The whole file is checked before anything is written. The command warns of topics that do not exist, and with
    --bootstrap-servers also of offsets outside of their logs; they are set all the same. If a group's consumers read
    other programs' commits in Kafka, the offsets are set there, too, which needs --bootstrap-servers. The import is
    refused while consumers read a group; a dry run only reports it. Stop them, or pause the group. Old consumers can be
    overruled with --force. Offsets that are not in the file stay as they are. If the import breaks off, run it again.
    """
    with read_from(file) as lines, tempfile.TemporaryFile() as kept, ExitStack() as stack:
        tree = stack.enter_context(settings.tree())
        layout, tree_id, _ = groups_of(tree, settings.zookeeper_address())
        wanted = _checked(lines, names, "standard input" if file == STANDARD else file, kept)
        work = Import(tree=tree, layout=layout, tree_id=tree_id, force=force, dry_run=dry_run)
        client = _kafka(settings, stack, tree, [name for name in wanted if work.needs_kafka(name)])
        store = None if client is None else KafkaCommits(client)
        _tell_odd(kept, tree, layout, client)
        totals = {name: Counter[str]() for name in wanted}
        progress = Progress("compared" if dry_run else "imported")
        for group, offsets in _parts(kept):
            changed = work.write(group, offsets, store)
            totals[group].update(
                offsets=len(offsets), changed=len(changed), created=sum(change.version is None for change in changed)
            )
            if dry_run:
                show_changes(settings, group, changed, CHANGED if len(wanted) > 1 else CHANGED[1:])
            progress.add(len(offsets))
    for obstacle in work.obstacles.values():
        warn(would_be_refused(obstacle))
    _print_totals(settings, totals, dry_run)


def _offsets(lines: TextIO, names: tuple[str, ...]) -> Iterator[Exported]:
    number = 0
    while line := lines.readline(LINE_MAX):
        number += 1
        found = parsed(line, number)
        if found is not None and (not names or found.group in names):
            yield found


def _checked(lines: TextIO, names: tuple[str, ...], file: str, kept: IO[bytes]) -> list[str]:
    """Keep the offsets of the file on disk, and return its groups, in order. Raise UsageError for a line that cannot be
    parsed."""
    try:
        groups = sorted(_keep(_offsets(lines, names), kept))
    except UsageError as error:
        raise UsageError(f"{file}, {error}") from None
    wrong = next((name for name in groups if not may_name_a_group(name)), None)
    if wrong is not None:
        raise UsageError(f"{file}: no group can be called {wrong!r}: mend the file")
    missing = sorted(set(names) - set(groups))
    if missing:
        raise UsageError(f"{file} has no offset of group {some(missing)}: check the names (--group)")
    if not groups:
        warn(f"{file} has no offset: nothing is imported")
    return groups


def _keep(offsets: Iterator[Exported], kept: IO[bytes]) -> set[str]:
    """Write some offsets at a time, by group. If a partition is named twice, its last offset counts."""
    known: set[str] = set()
    while part := list(islice(offsets, NODES_AT_ONCE)):
        groups: dict[str, dict[TopicPartition, int]] = {}
        for found in part:
            groups.setdefault(found.group, {})[found.partition] = found.offset
        known |= groups.keys()
        with naming(tempfile.gettempdir()):
            pickle.dump(groups, kept)
            kept.flush()
    return known


def _parts(kept: IO[bytes]) -> Iterator[tuple[str, Mapping[TopicPartition, int]]]:
    """Yield the offsets that `_keep` has written: some at a time, by group."""
    kept.seek(0)
    with suppress(EOFError):
        while True:
            yield from pickle.load(kept).items()


def _tell_odd(kept: IO[bytes], tree: BlockingTree, layout: Layout, client: KafkaClient | None) -> None:
    """Warn about topics, partitions and offsets that an import sets although they do not exist, as far as that is
    known."""
    told, logs = (None, None) if client is None else (client.partitions(), known_logs(client, Anew()))
    check, progress = ImportCheck(tree.read, layout, told, logs), Progress("looked up")
    for _, part in _parts(kept):
        check.look(part)
        if logs is not None:
            progress.add(len(part))
    for line in check.lines():
        warn(line)


def _kafka(settings: Settings, stack: ExitStack, tree: BlockingTree, groups: Sequence[str]) -> KafkaClient | None:
    """Open Kafka, if the command has brokers' addresses. Raise UsageError if it has none and one of these groups needs
    Kafka. If no group needs Kafka, it may be unreachable."""
    if not groups:
        return None if settings.kafka_address() is None else _kafka_if_there(settings, stack, tree)
    if settings.kafka_address() is None:
        raise UsageError(
            f"group {groups[0]} goes on from other programs' commits in Kafka, too, so these must be set as well: give"
            " --bootstrap-servers"
        )
    return kafka_beside(settings, stack, tree)


def _kafka_if_there(settings: Settings, stack: ExitStack, tree: BlockingTree) -> KafkaClient | None:
    try:
        librdkafka()
    except UsageError as error:
        warn(f"{error}; {UNKNOWN}")
        return None
    try:
        return kafka_beside(settings, stack, tree)
    except UnavailableError as error:
        warn(f"{error}; {UNKNOWN}")
        return None


def show_changes(
    settings: Settings, group: str, changed: Sequence[Change | Move], header: Sequence[str] = CHANGED
) -> None:
    """Print the offsets that change, one a line; nothing if none change. `header`: all columns, or all except GROUP."""
    rows = [[group, *each.partition, each.before, each.after] for each in changed]
    keys = ("group", "topic", "partition", "before", "after")
    show(
        settings,
        [dict(zip(keys, row, strict=True)) for row in rows],
        header,
        [row[-len(header) :] for row in rows],
        NUMBERS,
        nothing="",
    )


def _print_totals(settings: Settings, totals: Mapping[str, Counter[str]], dry_run: bool) -> None:
    if dry_run:
        changed = sum(each["changed"] for each in totals.values())
        say("notice", f"{count(changed, 'offset')} of {count(len(totals), 'group')} would change; nothing was written")
    elif settings.json:
        for group, each in totals.items():
            document = {"offsets": each["offsets"], "changed": each["changed"], "created": each["created"]}
            print_json({"group": group, **document})
    else:
        rows = [[cell(group), each["offsets"], each["changed"], each["created"]] for group, each in totals.items()]
        click.echo(table(WRITTEN, rows, NUMBERS))
