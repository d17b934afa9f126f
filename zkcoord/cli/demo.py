"""`zkcoord demo`: shows the main purpose of zkcoord, on servers that it starts itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from zkcoord.cli.options import Command, Origin, Settings, pass_settings
from zkcoord.errors import UsageError
from zkcoord.settings import DEMO_PARTITIONS, DEMO_RATE, DEMO_SECONDS


@click.command(cls=Command, example="zkcoord demo --seconds 30")
@click.option("--keep", is_flag=True, help="Leave the demo running, and print commands that look at it.")
@click.option(
    "--seconds",
    type=int,
    metavar="N",
    help=f"Seconds that records flow, without the time of the events ({DEMO_SECONDS}).",
)
@click.option("--rate", type=int, metavar="N", help=f"Records a second ({DEMO_RATE:,}).")
@click.option("--partitions", type=int, metavar="N", help=f"Partitions of the topic ({DEMO_PARTITIONS}).")
@click.option("--kafka", type=int, metavar="3|4", help="Version of the brokers (3). Kafka 4 has no ZooKeeper.")
@click.option("--migration", is_flag=True, help="Show instead how a group of Kafka's old consumers is taken over.")
@pass_settings
def demo(settings: Settings, keep: bool, migration: bool, **chosen: int | None) -> None:
    """Watch a group rebalance without losing a message.

    It starts ZooKeeper, Kafka, coordinators and PySpark consumers. While records flow, a consumer joins, another
    consumer is killed, and the coordinator is killed. The exit code is 0 only if nothing was lost.

    The demo uses servers of its own, and stops them at its end. It refuses --zookeeper and --bootstrap-servers.
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
