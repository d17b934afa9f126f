"""`zkcoord page`: the web page, and the options by which a coordinator runs the page beside itself."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from zkcoord.cli.options import Address, Command, Settings, pass_settings
from zkcoord.cli.output import tell
from zkcoord.errors import UsageError
from zkcoord.metrics.address import parse_address, spelled
from zkcoord.operating.saying import warn
from zkcoord.page.beside import SOCKET, PageBeside, check_packages

if TYPE_CHECKING:
    from zkcoord.page.serve import Served

ADDRESS = "127.0.0.1:8080"
DEADLINE_MS = 5_000
"""How long the page waits for ZooKeeper before it says that ZooKeeper does not answer."""
LOOPBACK = ("127.0.0.1", "::1", "localhost")


def http_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator: the options for the token, further names, and a prefix of all paths."""
    command = click.option(
        "--http-path-prefix",
        "prefix",
        metavar="PATH",
        help="Path of the page at a proxy, if it is not the root: /zkcoord.",
    )(command)
    command = click.option(
        "--http-name",
        "names",
        multiple=True,
        metavar="NAME",
        help="A host name under which a proxy asks; may be repeated.",
    )(command)
    return click.option(
        "--http-token-file", "token_file", metavar="FILE", help="Allow actions to anybody with the token in FILE."
    )(command)


@click.command(
    cls=Command,
    usual_log_level=logging.INFO,
    example="zkcoord page --http 127.0.0.1:8080 --from coordinator-1:9464",
)
@click.option(
    "--http",
    type=Address(),
    metavar="HOST:PORT",
    default=ADDRESS,
    show_default=True,
    help="The address where the page listens.",
)
@http_options
@click.option(
    "--from",
    "timelines",
    type=Address(listens=False),
    multiple=True,
    metavar="HOST:PORT",
    help="A coordinator's --metrics address, for timelines; may be repeated.",
)
@pass_settings
def page(
    settings: Settings,
    http: str,
    token_file: str | None,
    names: Sequence[str],
    prefix: str | None,
    timelines: Sequence[str],
) -> None:
    """Serve a web page of groups, coordinators and problems until SIGTERM or SIGINT.

    Without a token the page is read-only. With a token it offers hold, pause, resume, rebalance and reset, each with
    its plan. `zkcoord coordinator --http` serves the page beside the coordinator. Lag needs --bootstrap-servers.
    """
    check_packages()
    address = parse_address(http)
    from zkcoord.page.serve import listen, serve

    served, beside = _served(settings, token_file, names, prefix, timelines), os.environ.get(SOCKET)
    if beside is None and served.token is not None:
        warn_of_plain(address[0])
    listening = listen(address) if beside is None else socket.socket(fileno=int(beside))
    with listening:
        url = f"http://{spelled(address[0] or '0.0.0.0', listening.getsockname()[1])}{served.prefix}/"
        ready = partial(tell, settings, {"page": url}, f"the page is at {url}")
        serve(served, listening, beside=beside is not None, ready=ready)


def _served(
    settings: Settings, token_file: str | None, names: Sequence[str], prefix: str | None, timelines: Sequence[str]
) -> Served:
    from zkcoord.kafka.client import KafkaClient, librdkafka
    from zkcoord.page.guard import check_prefix, read_token
    from zkcoord.page.serve import Served
    from zkcoord.shell.zk.blocking import Tree

    address, config = settings.zookeeper_address(), settings.zookeeper_settings()
    kafka = settings.kafka_address()
    if kafka is not None:
        librdkafka()

    def reading() -> KafkaClient:  # Kafka may come later
        assert kafka is not None
        return KafkaClient(kafka, settings.kafka_settings())

    return Served(
        address=address,
        open_tree=lambda: Tree(address, deadline_ms=DEADLINE_MS, config=config),
        kafka=None if kafka is None else reading,
        timelines=timelines,
        token=None if token_file is None else read_token(token_file),
        names=frozenset(name.lower() for name in names),
        prefix=check_prefix(prefix or ""),
    )


def warn_of_plain(host: str) -> None:
    """Warn if the token crosses a network without encryption."""
    if host not in LOOPBACK:
        warn("actions are allowed, and tokens cross the network in the clear: listen on 127.0.0.1, behind a TLS proxy")


def beside_coordinator(
    settings: Settings,
    http: str | None,
    token_file: str | None,
    names: Sequence[str],
    prefix: str | None,
    metrics_port: Callable[[], int | None],
) -> PageBeside | None:
    """Return the page that runs beside a coordinator; None without --http. The page listens already.

    Raise UsageError for an address where it cannot listen, for a bad token, and if the packages are missing.
    """
    if http is None:
        if token_file is not None or names or prefix is not None:
            flags = "--http-token-file, --http-name and --http-path-prefix"
            raise UsageError(f"{flags} are settings of the page: give --http HOST:PORT, too")
        return None
    check_packages()
    address = parse_address(http)
    from zkcoord.page.guard import check_prefix, read_token
    from zkcoord.page.serve import listen

    arguments = ["--http", http, "--zookeeper", settings.zookeeper_address(), "--log-format", settings.log_format]
    if token_file is not None:
        read_token(token_file)
        warn_of_plain(address[0])
        arguments += ["--http-token-file", token_file]
    for name in names:
        arguments += ["--http-name", name]
    if prefix is not None:
        arguments += ["--http-path-prefix", check_prefix(prefix)]
    for flag, value in (
        ("--bootstrap-servers", settings.kafka_address()),
        ("--zookeeper-config", settings.zookeeper_config),
        ("--command-config", settings.command_config),
    ):
        arguments += [] if value is None else [flag, value]
    return PageBeside(listen(address), arguments, metrics_port)
