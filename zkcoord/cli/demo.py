"""`zkcoord demo`: the main job on servers of its own."""

from __future__ import annotations

from importlib import import_module

import click

from zkcoord.cli.options import Command


@click.command(cls=Command)
@click.option("--keep", is_flag=True, help="Leave it running, and print the commands to look at it.")
@click.pass_context
def demo(context: click.Context, keep: bool) -> None:
    """Watch a group being rebalanced without a message lost.

    Starts ZooKeeper, Kafka, coordinators and PySpark consumers, lets a consumer join, kills a consumer and a
    coordinator, and counts. Exit code 0 only if nothing was lost.
    """
    context.exit(import_module("zkcoord.demo").run(keep=keep) or 0)
