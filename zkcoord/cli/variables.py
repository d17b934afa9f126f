"""The environment variables of options: their names, and variables that look like one but are none."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence

import click

from zkcoord.cli.settings_file import file_name, nearest, settable
from zkcoord.errors import UsageError
from zkcoord.operating.saying import warn

PREFIX = "ZKCOORD"
"""The prefix of all environment variables. The variables of one command's options begin with PREFIX and the command's
words."""

OTHER_VARIABLES = ("ZKCOORD_CACHE", "ZKCOORD_VENV", "ZKCOORD_PYTHON", "ZKCOORD_IVY_SETTINGS")
"""Variables of the embedded servers and of the scripts. They are not settings of a command."""

ALIKE = 0.8
"""The least difflib ratio of a mistyped name. Lower ratios would match ZKCOORD_SERVICE_HOST and similar variables:
Kubernetes gives them to containers if there is a service named zkcoord."""


def variable_of(*words: str) -> str:
    """Return the variable of these words, after PREFIX: the words of a command, then the option's name in a file.

    >>> variable_of("group", "describe", "say-every")
    'ZKCOORD_GROUP_DESCRIBE_SAY_EVERY'
    """
    return "_".join([PREFIX, *words]).replace("-", "_").upper()


def name_variables(context: click.Context) -> None:
    """Give each option of a command its variable. The options of every command, whose values click does not pass to the
    function, have theirs already."""
    words = context.command_path.split()[1:]
    for option in context.command.params:
        if isinstance(option, click.Option) and option.expose_value and not option.is_eager:
            option.envvar = variable_of(*words, file_name(option))


def warn_of_variables(context: click.Context) -> None:
    """Warn about each variable whose name is similar to that of a setting of any command."""
    for name in unknown_variables(context):
        if (near := mistyped(name, context)) is not None:
            warn(f"{name} is no setting: did you mean {near}?")


def unknown_variables(context: click.Context) -> list[str]:
    """Return the variables that begin like settings but that nothing reads. Other commands are loaded only if the
    called command does not read all of them."""
    found = {name for name in os.environ if name.startswith(f"{PREFIX}_") and name not in OTHER_VARIABLES}
    found -= {str(option.envvar) for option in settable(context.command).values()}
    return sorted(found - _known(context)) if found else []


def mistyped(name: str, context: click.Context) -> str | None:
    """Return the setting's variable that this name was meant to be; None if no variable is similar enough."""
    begin = len(PREFIX) + 1
    near = nearest(name[begin:], [known[begin:] for known in _known(context)], ALIKE)
    return None if near is None else f"{PREFIX}_{near}"


def _known(context: click.Context) -> set[str]:
    """Return the variables of all settings."""
    root = context.find_root()
    known = {str(option.envvar) for option in root.command.params if isinstance(option, click.Option)}
    for each in commands_below(root):
        name_variables(each)
        known |= {str(option.envvar) for option in settable(each.command).values()}
    return known


def commands_below(root: click.Context, words: Sequence[str] = ()) -> Iterator[click.Context]:
    """Yield the contexts of all commands, or of the command of `words`, as they would be with the environment and the
    file."""
    at = root
    for word in words:
        commands = _below(at)
        if word not in commands:
            near = nearest(word, commands)
            hint = f"did you mean {near}?" if near else f"`{at.command_path} --help` shows them"
            raise UsageError(f"there is no command {' '.join(words)!r}: {hint}")
        at = click.Context(commands[word], parent=at, info_name=word)
    if not isinstance(at.command, click.Group):
        yield at
    for name, command in sorted(_below(at).items()):
        yield from commands_below(click.Context(command, parent=at, info_name=name))


def _below(context: click.Context) -> Mapping[str, click.Command]:
    return context.command.commands if isinstance(context.command, click.Group) else {}
