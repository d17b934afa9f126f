"""Calls of `zkcoord` in documentation and manifests: the real parser decides whether it accepts them."""

from __future__ import annotations

from collections.abc import Sequence

import click

from zkcoord.cli.main import cli


def parse_call(words: Sequence[str]) -> tuple[str, ...]:
    """Parse the arguments of `zkcoord` as the program does, and run nothing. Return the words of the command.

    If the parser refuses them, its error is raised (`click.UsageError`, `ZkcoordError`).
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
