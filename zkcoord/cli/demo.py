"""`zkcoord demo`: the main job on servers of its own."""

from __future__ import annotations

import click

from zkcoord.cli.options import Command, Settings, pass_settings


@click.command(cls=Command)
@click.option("--keep", is_flag=True, help="Leave it running, and print the commands to look at it.")
@click.option("--seconds", type=int, metavar="N", help="How long records flow beside the events.")
@click.option("--rate", type=int, metavar="N", help="Records a second.")
@click.option("--partitions", type=int, metavar="N", help="Of the topic.")
@pass_settings
def demo(settings: Settings, keep: bool, **chosen: int | None) -> None:
    """Watch a group being rebalanced without a message lost.

    Starts ZooKeeper, Kafka, coordinators and PySpark consumers; while records flow a consumer joins, another is killed,
    and so is the coordinator. Exit code 0 only if nothing was lost.
    """
    from zkcoord.demo import run

    given = {name: value for name, value in chosen.items() if value is not None}
    click.get_current_context().exit(run(keep=keep, output=settings.output, **given))
