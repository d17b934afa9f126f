"""`zkcoord coordinator`: stands for election and, when elected, serves."""

from __future__ import annotations

import gc
import logging

import click

from zkcoord.cli.options import Command, Settings, at_least, number_option, pass_settings
from zkcoord.cli.output import print_json
from zkcoord.core.retention import RETENTION_MS
from zkcoord.errors import UnavailableError
from zkcoord.serving.asker import INTERVAL_MS
from zkcoord.settings import SESSION_TIMEOUT_MS
from zkcoord.signals import stopping
from zkcoord.tree.paths import FROM_ZOOKEEPER, LAYOUTS, TOPIC_SOURCES

COLLECTOR = (100_000, 20, 100)
"""How often Python looks for garbage in cycles, in a coordinator and in `zkcoord consume`. They keep up to a million
small values and make hardly a cycle: looking each 700 new ones, as is usual, costs a fifth of a coordinator's time."""


@click.command(cls=Command, usual_log_level=logging.INFO)
@click.option(
    "--id", "coordinator_id", type=at_least(0), metavar="N", help="Its number (default: the smallest free one)."
)
@click.option("--layout", type=click.Choice(list(LAYOUTS)), default="draft", show_default=True, help="Where nodes are.")
@number_option(
    "--session-timeout-ms",
    default=SESSION_TIMEOUT_MS,
    text="A killed one is replaced after this; the server may shorten or lengthen it.",
    least=1,
)
@number_option(
    "--group-retention-ms",
    default=RETENTION_MS,
    text="A group without members and offsets is forgotten after this.",
    least=1,
)
@click.option(
    "--topics",
    type=click.Choice(TOPIC_SOURCES),
    default=FROM_ZOOKEEPER,
    show_default=True,
    help="Where topics come from: Kafka's nodes in ZooKeeper, or its metadata (needs --bootstrap-servers).",
)
@number_option(
    "--topics-interval-ms",
    default=INTERVAL_MS,
    text="How often Kafka is asked, where topics come from its metadata.",
    least=1,
)
@click.option("--journal", metavar="FOLDER", help="Keep a journal of every step there; scripts/replay plays it again.")
@click.option("--metrics", metavar="HOST:PORT", help="Serve metrics and health there.")
@pass_settings
def coordinator(
    settings: Settings,
    coordinator_id: int | None,
    layout: str,
    session_timeout_ms: int,
    group_retention_ms: int,
    topics: str,
    topics_interval_ms: int,
    journal: str | None,
    metrics: str | None,
) -> None:
    """Run a coordinator until SIGTERM or SIGINT.

    Any number may run: one serves, the others stand by. On an empty tree it applies the first revision. Prints one
    line at each election that it wins.
    """
    from zkcoord.coordinator import Coordinator

    address = settings.zookeeper_address()

    def serving(number: int, epoch: int) -> None:
        try:
            if settings.json:
                print_json({"coordinator": number, "epoch": epoch, "layout": layout, "zookeeper": address})
            else:
                click.echo(f"coordinator {number} serves: epoch {epoch}, layout {layout}, ZooKeeper {address}")
        except OSError:  # nobody reads the line; the groups still need a coordinator
            logging.getLogger("zkcoord.cli").warning("cannot write to standard output")

    gc.set_threshold(*COLLECTOR)
    running = Coordinator(
        address,
        coordinator_id,
        layout,
        session_timeout_ms=session_timeout_ms,
        group_retention_ms=group_retention_ms,
        topics=topics,
        bootstrap_servers=settings.kafka_address(),
        kafka_config=settings.kafka_settings(),
        topics_interval_ms=topics_interval_ms,
        zookeeper_config=settings.zookeeper_settings(),
        journal=journal,
        on_serving=serving,
        metrics=metrics,
    )
    with stopping(running.stop) as asked:
        running.run()
        if not asked.is_set():
            raise UnavailableError("the coordinator ended without being asked to")
