"""`zkcoord offsets`: compares the groups' offsets in ZooKeeper and in Kafka."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import click

from zkcoord.cli.files import check_beside
from zkcoord.cli.kafka_options import kafka_beside
from zkcoord.cli.loading import OF_OFFSETS, Commands
from zkcoord.cli.options import Command, Group, Settings, pass_settings
from zkcoord.cli.output import print_json, table
from zkcoord.core.words import count, some
from zkcoord.errors import UsageError, ZkcoordError
from zkcoord.group_report import no_such_group
from zkcoord.offsets.kafka_logs import known_logs
from zkcoord.offsets.kafka_store import KafkaCommits
from zkcoord.offsets.parquet import ParquetFile
from zkcoord.offsets.verdict import Verdict, source_name
from zkcoord.offsets.verify import GroupVerified, PartitionVerified, verify
from zkcoord.operating.groups import groups_of
from zkcoord.operating.saying import warn
from zkcoord.operating.words import at, cell

COLUMNS = ("TOPIC", "PARTITION", "ZOOKEEPER", "WRITTEN", "KAFKA", "COMMITTED", "COUNTS", "OWNER", "VERDICT")
NUMBERS = ("PARTITION", "ZOOKEEPER", "KAFKA", "COUNTS")
NAMED_MAX = 3  # partitions that a line about what to do names
PARQUET = {
    "group": "text",
    "store": "text",
    "topic": "text",
    "partition": "number",
    "zookeeper_offset": "number",
    "zookeeper_written_ms": "time",
    "kafka_offset": "number",
    "kafka_committed_ms": "time",
    "counts": "number",
    "source": "text",
    "owner": "text",
    "log_start": "number",
    "log_end": "number",
    "verdict": "text",
    "todo": "text",
}


@click.group(cls=Group, commands=Commands(OF_OFFSETS), example="zkcoord offsets verify etl")
def offsets() -> None:
    """Compare, move, export and import the groups' offsets."""


@offsets.command(name="verify", cls=Command, example="zkcoord offsets verify etl --differences")
@click.argument("name", metavar="[G]", required=False)
@click.option("--all-groups", is_flag=True, help="Compare every group instead of one.")
@click.option("--differences", is_flag=True, help="Leave out partitions whose two offsets are equal.")
@click.option("--parquet", metavar="FILE", help="Also write all partitions to a new Parquet file.")
@pass_settings
def verify_offsets(
    settings: Settings, name: str | None, all_groups: bool, differences: bool, parquet: str | None
) -> None:
    """Compare the offsets of group G in both stores, partition by partition, and say what to do.

    It only reads, and needs no coordinator. Partitions without an owner are compared, too. The two stores are read one
    after the other: under traffic a difference may be gone the next time. --output json prints one object for each
    partition. The exit code is not 0 if a group could not be compared as a whole.
    """
    if bool(name) is all_groups:
        raise UsageError("name one group, or give --all-groups")
    if parquet is not None:
        check_beside(parquet, "--parquet ")
    problems: list[ZkcoordError] = []
    totals: Counter[Verdict] = Counter()
    groups = 0
    with ExitStack() as stack:
        tree = stack.enter_context(settings.tree())
        client = kafka_beside(settings, stack, tree)
        file = None if parquet is None else stack.enter_context(ParquetFile(parquet, PARQUET))
        layout, tree_id, names = groups_of(tree, settings.zookeeper_address())
        wanted = names if name is None else [name]
        for found in verify(tree.read, KafkaCommits(client), known_logs(client, warn), layout, wanted, tree=tree_id):
            if name is not None and name not in names and not found.partitions:
                raise UsageError(no_such_group(name))
            groups += 1
            totals.update(row.judged.verdict for row in found.partitions)
            if found.problem is not None:
                warn(f"group {found.group}: {found.problem}")
                problems.append(found.problem)
            documents = [_document(found, row) for row in found.partitions]
            if file is not None:
                file.write(documents)
            _print(settings, found, documents, differences, all_groups)
    if not settings.json:
        click.echo(_summary(groups, totals))
    if problems:
        what = f"{count(len(problems), 'group')} could not be compared as a whole; the first"
        raise type(problems[0])(f"{what}: {problems[0]}")


# the output


def _print(
    settings: Settings, found: GroupVerified, documents: Sequence[dict[str, Any]], differences: bool, titled: bool
) -> None:
    shown = [d for d in documents if not (differences and d["verdict"] == Verdict.EQUAL.value)]
    if settings.json:
        for document in shown:
            print_json(document)
    elif shown:
        if titled:
            click.echo(f"Group {cell(found.group)}")
        click.echo(table(COLUMNS, [_row(document) for document in shown], NUMBERS))
        for line in _todos(found.partitions):
            click.echo(line)
        click.echo("")


def _document(found: GroupVerified, row: PartitionVerified) -> dict[str, Any]:
    stamp = None if row.there is None else row.there.stamp
    unreadable = None if row.here is None else row.here.problem
    return {
        "group": found.group,
        "store": found.store,
        "topic": row.partition.topic,
        "partition": row.partition.partition,
        "zookeeper_offset": None if row.here is None else row.here.node.offset,
        "zookeeper_written_ms": None if row.here is None else row.here.written_ms,
        "kafka_offset": None if row.there is None else row.there.offset,
        "kafka_committed_ms": None if stamp is None else stamp.at_ms,
        "counts": row.judged.counts.offset,
        "source": source_name(row.judged.counts),
        "owner": row.owner,
        "log_start": None if row.log is None else row.log.start,
        "log_end": None if row.log is None else row.log.end,
        "verdict": row.judged.verdict.value,
        "todo": row.judged.todo if unreadable is None else f"{unreadable}: an operator must set it to a number",
    }


def _row(document: Mapping[str, Any]) -> list[Any]:
    times = [
        None if document[key] is None else at(document[key]) for key in ("zookeeper_written_ms", "kafka_committed_ms")
    ]
    return [
        document["topic"],
        document["partition"],
        document["zookeeper_offset"],
        times[0],
        document["kafka_offset"],
        times[1],
        document["counts"],
        document["owner"],
        document["verdict"],
    ]


def _todos(rows: Iterable[PartitionVerified]) -> list[str]:
    """Return one line for each kind of action."""
    alike: dict[tuple[Verdict, str], list[str]] = {}
    for row in rows:
        todo = row.judged.todo
        if row.here is not None and row.here.problem is not None:
            todo = f"{row.here.problem}: an operator must set it to a number"
        if todo:
            alike.setdefault((row.judged.verdict, todo), []).append(str(row.partition))
    lines = [f"{verdict.value}: {todo} ({some(named, NAMED_MAX)})" for (verdict, todo), named in alike.items()]
    return [f"! {cell(line)}" for line in lines]


def _summary(groups: int, totals: Counter[Verdict]) -> str:
    words = [f"{totals[verdict]} {verdict.value}" for verdict in Verdict if totals[verdict]]
    everything = f"{count(groups, 'group')}, {count(totals.total(), 'partition')}"
    return f"{everything}: {', '.join(words)}" if words else f"{everything} with an offset"
