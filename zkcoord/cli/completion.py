"""`zkcoord completion`: prints a script by which a shell completes commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from zkcoord.cli.options import Command
from zkcoord.errors import UsageError

SHELLS = ("bash", "zsh", "fish")
# click reads this variable, whose name it makes from the program's name
PROGRAM, VARIABLE = "zkcoord", "_ZKCOORD_COMPLETE"


@click.command(cls=Command, example='eval "$(zkcoord completion bash)"')
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print a script that completes commands and options in SHELL.

    To have it in each new shell: for bash, add eval "$(zkcoord completion bash)" to ~/.bashrc. For zsh, add eval
    "$(zkcoord completion zsh)" to ~/.zshrc. For fish, run once: zkcoord completion fish >
    ~/.config/fish/completions/zkcoord.fish
    """
    kind = get_completion_class(shell)
    if kind is None:
        raise UsageError(f"click knows no shell {shell}: upgrade click")
    try:
        script = kind(click.get_current_context().find_root().command, {}, PROGRAM, VARIABLE).source()
    except RuntimeError as error:  # click asks bash for its version
        raise UsageError(str(error)) from error
    click.echo(script)
