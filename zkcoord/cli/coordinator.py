"""`zkcoord coordinator`: stands for election, and serves while it is elected."""

from __future__ import annotations

import gc
import logging
import sys
from collections.abc import Sequence

import click

from zkcoord.cli.options import Address, Command, Settings, at_least, number_option, pass_settings
from zkcoord.cli.output import tell
from zkcoord.cli.page import beside_coordinator, http_options
from zkcoord.core.retention import RETENTION_MS
from zkcoord.errors import UnavailableError
from zkcoord.page.beside import check_packages, page_beside
from zkcoord.serving.asker import INTERVAL_MS
from zkcoord.settings import SESSION_TIMEOUT_MS
from zkcoord.signals import stopping
from zkcoord.tree.codec import INT32_MAX
from zkcoord.tree.paths import FROM_ZOOKEEPER, LAYOUTS, TOPIC_SOURCES

INNER_METRICS = "127.0.0.1:0"
"""The address of the coordinator's metrics, if only --http is given: any free port. The page beside the coordinator
reads timelines from it."""
COLLECTOR = (100_000, 20, 100)
"""Python's thresholds for collecting garbage in cycles, in a coordinator and in `zkcoord consume`. These programs keep
up to a million small values, and make hardly any cycle. Python's usual 700 new objects per collection would cost a
fifth of a coordinator's time."""
SWITCH_SECONDS = 0.0005
"""The longest time that a coordinator's thread computes while another thread waits. The connection's thread sends
transactions while the loop makes the next ones, so ZooKeeper works at the same time. With Python's usual 5 ms,
sending begins only when the last transaction is made."""


@click.command(
    cls=Command,
    usual_log_level=logging.INFO,
    example="zkcoord coordinator --zookeeper zk1:2181 --journal /var/lib/zkcoord/journal",
)
@click.option(
    "--id",
    "coordinator_id",
    type=at_least(0, INT32_MAX),
    metavar="N",
    help="Number of this coordinator (default: the smallest free one).",
)
@click.option(
    "--layout",
    type=click.Choice(list(LAYOUTS)),
    default="draft",
    show_default=True,
    help="Where the nodes of the tree are.",
)
@number_option(
    "--session-timeout-ms",
    default=SESSION_TIMEOUT_MS,
    text="A killed coordinator is replaced after this time. ZooKeeper may shorten or lengthen it.",
    least=1,
)
@number_option(
    "--group-retention-ms",
    default=RETENTION_MS,
    text="A group without members and offsets is forgotten after this time.",
    least=1,
)
@click.option(
    "--topics",
    type=click.Choice(TOPIC_SOURCES),
    default=FROM_ZOOKEEPER,
    show_default=True,
    help="Source of topics: Kafka's nodes in ZooKeeper, or Kafka's metadata (needs --bootstrap-servers).",
)
@number_option(
    "--topics-interval-ms",
    default=INTERVAL_MS,
    text="Time between two reads of Kafka's metadata, if topics come from there.",
    least=1,
)
@click.option(
    "--journal", metavar="FOLDER", help="Keep a journal of every step in this folder; scripts/replay plays it again."
)
@click.option("--metrics", type=Address(), metavar="HOST:PORT", help="Serve metrics and health at this address.")
@click.option(
    "--http", type=Address(), metavar="HOST:PORT", help="Serve a web page at this address, from a process of its own."
)
@http_options
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
    http: str | None,
    token_file: str | None,
    names: Sequence[str],
    prefix: str | None,
) -> None:
    """Run a coordinator until SIGTERM or SIGINT.

    Any number of coordinators may run: one serves, the others stand by. On an empty tree the coordinator applies the
    first revision. It prints one line at each election that it wins. If OpenTelemetry's variables are set (for example
    OTEL_EXPORTER_OTLP_ENDPOINT), it traces hand-overs.
    """
    from zkcoord.coordinator import Coordinator

    address = settings.zookeeper_address()

    def serving(number: int, epoch: int) -> None:
        try:
            document = {"coordinator": number, "epoch": epoch, "layout": layout, "zookeeper": address}
            text = f"coordinator {number} serves: epoch {epoch}, layout {layout}, ZooKeeper {address}"
            tell(settings, document, text)
        except OSError:  # nobody reads the line; the groups still need a coordinator
            logging.getLogger("zkcoord.cli").warning("cannot write to standard output")

    if http is not None:
        check_packages()  # first: they include the metrics' package, which would be reported instead
    gc.set_threshold(*COLLECTOR)
    sys.setswitchinterval(SWITCH_SECONDS)
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
        metrics=metrics or (INNER_METRICS if http is not None else None),
    )
    page = beside_coordinator(settings, http, token_file, names, prefix, lambda: running.metrics_port)
    with stopping(running.stop) as asked, page_beside(page):
        running.run()
        if not asked.is_set():
            raise UnavailableError("the coordinator ended without being asked to")
