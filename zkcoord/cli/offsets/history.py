"""`zkcoord offsets history`: what groups have committed to Kafka, and when, from Kafka's own offset log. It needs
Spark."""

from __future__ import annotations

import csv
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from zkcoord.cli.files import check_beside, new_file
from zkcoord.cli.options import Command, Settings, at_least, pass_settings
from zkcoord.cli.output import show
from zkcoord.core.model import TopicPartition
from zkcoord.errors import UsageError
from zkcoord.kafka.client import KafkaClient
from zkcoord.operating.moments import moment
from zkcoord.operating.saying import warn
from zkcoord.operating.words import at
from zkcoord.plotting import check_picture

COLUMNS = ("GROUP", "TOPIC", "PARTITION", "COMMITS", "LAST", "OFFSET", "LAG", "REWINDS", "NOTE")
NUMBERS = ("PARTITION", "COMMITS", "OFFSET", "LAG", "REWINDS")
STUCK_MS = 600_000
HOUR_MS = 3_600_000
CSV = "--csv "
Row = dict[str, Any]


@click.command(name="history", cls=Command, example="zkcoord offsets history etl --since 2026-11-01T00:00:00")
@click.argument("names", metavar="[G]...", nargs=-1)
@click.option("--since", metavar="TIME", help="Only commits since then: 2026-11-23T10:00 (UTC), or milliseconds.")
@click.option(
    "--stuck-ms",
    type=at_least(1),
    default=STUCK_MS,
    metavar="N",
    show_default=True,
    help="A partition that is behind is stuck after this time without progress.",
)
@click.option(
    "--retention-minutes",
    type=at_least(1),
    default=10_080,
    metavar="N",
    show_default=True,
    help="The brokers' offsets.retention.minutes.",
)
@click.option("--csv", "csv_file", metavar="FILE", help="Also write the table's values to a new CSV file.")
@click.option("--parquet", metavar="FOLDER", help="Also write every commit to a new folder of Parquet files.")
@click.option("--picture", metavar="FILE", help="Draw lag and commits of one group over time: .png, .svg or .pdf.")
@click.option("--master", default="local[*]", metavar="URL", show_default=True, help="Where Spark runs the job.")
@pass_settings
def history(settings: Settings, names: tuple[str, ...], master: str, picture: str | None, **chosen: Any) -> None:
    """Show what groups G (default: all) committed to Kafka: how often, how far, back and forth.

    It reads Kafka's offset log with a Spark job on this machine. Kafka compacts this log: commits that it has removed
    are not counted. NOTE names partitions that are stuck (behind the log's end, with the same offset for --stuck-ms),
    offsets that expired or were removed, and commits of consumers that had lost the partition. --output json prints one
    object for each partition.
    """
    servers, since_ms = settings.needed_kafka_address(), moment("--since", chosen["since"])
    if chosen["csv_file"] is not None:
        check_beside(chosen["csv_file"], CSV)
    if chosen["parquet"] is not None and Path(chosen["parquet"]).exists():
        raise UsageError(f"{chosen['parquet']} exists: name a new folder, or remove that one")
    if picture is not None:
        if not Path(picture).absolute().parent.is_dir():
            raise UsageError(f"{picture}: there is no folder {Path(picture).parent}; name a file that can be made")
        check_picture(Path(picture))
        if len(names) != 1:
            raise UsageError("--picture draws one group: name it")
    _check_spark()
    with KafkaClient(servers, settings.kafka_settings()) as client, ExitStack() as stack:
        from zkcoord.spark.history.commits import commits, log_ranges, report

        # before Spark, whose start takes long, so that a missing part is reported at once
        log_ranges(client, names or None, since_ms)
        spark = stack.enter_context(_spark(master))
        found = commits(spark, servers, names or None, since_ms=since_ms, config=settings.kafka_settings()).persist()
        if chosen["parquet"] is not None:
            found.write.parquet(f"file://{Path(chosen['parquet']).absolute()}")
        rows = [row.asDict() for row in report(found, retention_ms=chosen["retention_minutes"] * 60_000).collect()]
        _complete(rows, client, chosen["stuck_ms"])
        if picture is not None and rows:
            _draw(found, names[0], client, rows, Path(picture))
    show(settings, rows, *report_table(rows, of_one=len(names) == 1), NUMBERS)
    for name in sorted(set(names) - {row["group"] for row in rows}):
        warn(f"the offset log has no commit of group {name}: it commits to ZooKeeper, or there is no such group")
    if chosen["csv_file"] is not None and rows:
        with new_file(chosen["csv_file"], CSV) as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows({**row, "notes": "; ".join(row["notes"])} for row in rows)


def _check_spark() -> None:
    if find_spec("pyspark") is None:
        raise UsageError("this needs an extra package: pip install 'zkcoord[spark]'")


@contextmanager
def _spark(master: str) -> Iterator[Any]:
    from zkcoord.embedded import spark_environment
    from zkcoord.spark.session import QUIET, spark_session

    environment = spark_environment(quiet=True)
    spark = spark_session(
        "zkcoord offsets history", environment=environment, master=master, log_level="OFF", config=QUIET
    )
    try:
        yield spark
    finally:
        spark.stop()


def _complete(rows: Sequence[Row], client: KafkaClient, stuck_ms: int) -> None:
    """Add to the rows what Kafka knows now, and what a person should look at."""
    stand = {TopicPartition(row["topic"], row["partition"]) for row in rows if row["removed_ms"] is None}
    ends, _ = client.ask_offsets(stand, "latest", "read_uncommitted") if stand else ({}, {})
    now_ms = int(time.time() * 1000)
    for row in rows:
        end = ends.get(TopicPartition(row["topic"], row["partition"])) if row["removed_ms"] is None else None
        row["lag"] = None if end is None or row["offset"] is None else end - row["offset"]
        spent_ms = (row["last_ms"] or 0) - (row["first_ms"] or 0)
        row["commits_per_hour"] = round((row["commits"] - 1) * HOUR_MS / spent_ms, 1) if spent_ms else None
        row["stuck"] = bool(row["lag"]) and row["lag"] > 0 and now_ms - (row["changed_ms"] or 0) >= stuck_ms
        row["notes"] = list(_notes(row))


def _notes(row: Mapping[str, Any]) -> Iterator[str]:
    if row["removed_ms"] is not None:
        yield f"{'expired' if row['expired'] else 'removed'} {at(row['removed_ms'])}"
    if row["stuck"]:
        yield f"stuck since {at(row['changed_ms'])}"
    if row["rewinds"]:
        yield f"went back by up to {row['furthest']}"
    if row["earlier_tenure"]:
        yield f"{row['earlier_tenure']} commits of an earlier tenure"
    if row["unreadable"]:
        yield f"{row['unreadable']} records that cannot be read"


def report_table(rows: Sequence[Row], *, of_one: bool) -> tuple[Sequence[str], list[list[Any]]]:
    """Return the header and the lines for people. `of_one`: one group was named, so its name has no column."""
    shown = [
        [
            *(row[name] for name in ("group", "topic", "partition", "commits")),
            row["last_ms"] and at(row["last_ms"]),
            *(row[name] for name in ("offset", "lag", "rewinds")),
            "; ".join(row["notes"]),
        ]
        for row in rows
    ]
    return (COLUMNS[1:], [row[1:] for row in shown]) if of_one else (COLUMNS, shown)


def _draw(found: Any, group: str, client: KafkaClient, rows: Sequence[Row], file: Path) -> None:
    from zkcoord.spark.history.commits import ends_at, progress
    from zkcoord.spark.history.lag import Progress, draw, over_time, span_ms

    times = [row[name] for row in rows for name in ("first_ms", "last_ms") if row[name] is not None]
    if not times:
        raise UsageError(f"group {group} has no commit left in the offset log: there is nothing to draw")
    length_ms = span_ms(min(times), max(times))
    told = [
        Progress(TopicPartition(row.topic, row.partition), row.at_ms, row.commits, row.rewinds, row.offset)
        for row in progress(found, length_ms).collect()
    ]
    draw(group, over_time(told, length_ms, lambda partitions, at_ms: ends_at(client, partitions, at_ms)), file)
