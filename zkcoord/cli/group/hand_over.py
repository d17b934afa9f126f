"""`zkcoord group hand-over|take-back`: hands a group over to consumers of Kafka's own protocol, and takes it back."""

from __future__ import annotations

from contextlib import ExitStack

import click

from zkcoord.cli.kafka_options import kafka_beside
from zkcoord.cli.options import Command, Settings, number_option, pass_settings
from zkcoord.cli.output import show
from zkcoord.errors import UsageError
from zkcoord.group_report import read_tree
from zkcoord.migrate import current
from zkcoord.offsets.kafka_store import KafkaCommits
from zkcoord.offsets.standing import standing
from zkcoord.operating.hand_over import HandOver, Row
from zkcoord.operating.requesting import edit_record
from zkcoord.operating.saying import say

COLUMNS = ("TOPIC", "PARTITION", "ZOOKEEPER", "KAFKA", "GOES-ON-AT")
WAIT_MS = 120_000
timeout = number_option("--timeout-ms", default=WAIT_MS, text="How long to wait until it is done.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Show where each partition would go on; write nothing.")


def _opened(settings: Settings, stack: ExitStack, group: str, *, force: bool = False) -> HandOver:
    tree = stack.enter_context(settings.tree())
    layout = read_tree(tree, settings.zookeeper_address()).layout
    schema = current(tree)
    if schema is None or not schema.tree_id:
        raise UsageError("the tree has no id, which commits in Kafka must name: run `zkcoord migrate upgrade` first")
    edit_record(tree, layout, group, lambda record: record)  # refuses a group that does not exist or was moved
    client = kafka_beside(settings, stack, tree)
    return HandOver(
        tree=tree,
        layout=layout,
        tree_id=schema.tree_id,
        group=group,
        kafka=KafkaCommits(client),
        existing=standing(tree.read, layout, client.partitions()),
        force=force,
    )


def _print(settings: Settings, group: str, rows: list[Row]) -> None:
    keys, shown = [column.lower().replace("-", "_") for column in COLUMNS], [(*row[0], *row[1:]) for row in rows]
    show(
        settings, [{"group": group, **dict(zip(keys, row, strict=True))} for row in shown], COLUMNS, shown, COLUMNS[1:]
    )


@click.command(name="hand-over", cls=Command, example="zkcoord group hand-over etl --dry-run")
@click.argument("name", metavar="G")
@dry_run_option
@timeout
@pass_settings
def hand_over(settings: Settings, name: str, dry_run: bool, timeout_ms: int) -> None:
    """Hand group G over to consumers of Kafka's own protocol (group.protocol=classic or consumer).

    It pauses the group, and makes sure that Kafka has all its offsets. Then stop its consumers, and start Kafka's
    consumers with the same group.id. The group must keep its offsets in Kafka (`zkcoord offsets migrate G --to kafka`).
    It stays paused until `zkcoord group take-back G`. If the command breaks off, run it again.
    """
    with ExitStack() as stack:
        way = _opened(settings, stack, name)
        way.refuse_others()
        try:
            way.refuse_users()
        except UsageError as error:
            if not way.record().handed_over:
                raise
            raise UsageError(f"group {name} is handed over already: {error} before it is handed over again") from None
        if not dry_run:
            way.pause()
            way.wait("hand-over", timeout_ms, settings.zookeeper_address())
            way.leave()
        _print(settings, name, way.rows())
    if dry_run:
        say("notice", "nothing was written; all consumers of the group would stop")
    else:
        say("notice", f"group {name} is paused, and Kafka has its offsets: stop its consumers, start Kafka's")


@click.command(name="take-back", cls=Command, example="zkcoord group take-back etl --dry-run")
@click.argument("name", metavar="G")
@dry_run_option
@click.option(
    "--force", is_flag=True, help="Also take back a group that was not handed over. The offsets in Kafka count."
)
@timeout
@pass_settings
def take_back(settings: Settings, name: str, dry_run: bool, force: bool, timeout_ms: int) -> None:
    """Take group G back from consumers of Kafka's own protocol, which must be stopped.

    The group's consumers go on where Kafka's consumers have committed, forwards or backwards. A group that was not
    handed over is refused unless --force is given. If the command breaks off, run it again.
    """
    with ExitStack() as stack:
        way = _opened(settings, stack, name, force=force)
        if not (way.record().handed_over or force):
            how = "its consumers go on by themselves (`zkcoord group describe`); --force takes what stands in Kafka"
            raise UsageError(f"group {name} is not handed over to Kafka's consumers: {how}")
        way.refuse_others()
        way.refuse_users()
        if not dry_run:
            way.pause()
            way.wait("return", timeout_ms, settings.zookeeper_address())
        rows = way.rows()
        resumed = not dry_run and way.resume()
        _print(settings, name, rows)
    if dry_run:
        said = "nothing was written"
    elif resumed:
        said = f"group {name} goes on from there with zkcoord's consumers"
    else:
        said = (
            f"group {name} stays paused, as it was before: `zkcoord group resume {name}` lets zkcoord's consumers go on"
        )
    say("notice", said)
