"""Calls of `zkcoord` as people write them in pages and manifests: the real parser says whether it takes them."""

from __future__ import annotations

from collections.abc import Sequence

import click

from zkcoord.cli.main import cli


def parse_call(words: Sequence[str]) -> tuple[str, ...]:
    """Parse what follows `zkcoord` as the program would, and run nothing. Returns the words of the command.

    Whatever the parser refuses (`click.UsageError`, `ZkcoordError`) is raised.
    """
    command: click.Command = cli
    context, name, rest = None, "zkcoord", list(words)
    path: list[str] = []
    try:
        while True:
            context = command.make_context(name, rest, parent=context)
            if not isinstance(command, click.Group):
                return tuple(path)
            found, below, rest = command.resolve_command(context, [*context._protected_args, *context.args])
            assert found is not None
            assert below is not None
            name, command = found, below
            path.append(name)
    except click.exceptions.Exit:  # --help, --version
        return tuple(path)
