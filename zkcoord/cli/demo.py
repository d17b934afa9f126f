"""`zkcoord demo`: shows the main purpose of zkcoord, on servers that it starts itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from zkcoord.cli.options import Command, Origin, Settings, pass_settings
from zkcoord.errors import UsageError
from zkcoord.settings import DEMO_PARTITIONS, DEMO_RATE, DEMO_SECONDS


@click.command(cls=Command, example="zkcoord demo --seconds 30")
@click.option("--keep", is_flag=True, help="Leave it running, and print the commands to look at it.")
@click.option("--seconds", type=int, metavar="N", help=f"How long records flow beside the events ({DEMO_SECONDS}).")
@click.option("--rate", type=int, metavar="N", help=f"Records a second ({DEMO_RATE:,}).")
@click.option("--partitions", type=int, metavar="N", help=f"Of the topic ({DEMO_PARTITIONS}).")
@click.option("--kafka", type=int, metavar="3|4", help="Version of the brokers (3). Kafka 4 has no ZooKeeper.")
@click.option("--migration", is_flag=True, help="Show how a group of Kafka's old consumers is taken over instead.")
@pass_settings
def demo(settings: Settings, keep: bool, migration: bool, **chosen: int | None) -> None:
    """Watch a group being rebalanced without a message lost.

    Starts ZooKeeper, Kafka, coordinators and PySpark consumers; while records flow a consumer joins, another is killed,
    and so is the coordinator. Exit code 0 only if nothing was lost.

    The servers are its own, and end with it: --zookeeper and --bootstrap-servers are refused.
    """
    for name, option in (("zookeeper", "--zookeeper"), ("bootstrap_servers", "--bootstrap-servers")):
        if settings.origin(name) is Origin.COMMAND_LINE:
            raise UsageError(f"the demo starts servers of its own: leave {option} out")
    from zkcoord.demo import Options, run
    from zkcoord.demo.migration.options import MIGRATION

    given: dict[str, Any] = {name: value for name, value in chosen.items() if value is not None}
    if migration and (fixed := given.keys() & {"seconds", "partitions", "kafka"}):
        raise UsageError(f"--{min(fixed)} is for the main job: leave it out with --migration")
    options = replace(MIGRATION if migration else Options(), keep=keep, output=settings.output, **given)
    click.get_current_context().exit(run(options))
