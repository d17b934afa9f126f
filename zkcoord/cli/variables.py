"""The environment variables of options: their names, and those that look like one and are none."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence

import click

from zkcoord.cli.settings_file import file_name, nearest, settable
from zkcoord.errors import UsageError
from zkcoord.operating.saying import warn

PREFIX = "ZKCOORD"
"""Of all environment variables. Those of one command's options begin with PREFIX and its words."""

OTHER_VARIABLES = ("ZKCOORD_CACHE", "ZKCOORD_VENV", "ZKCOORD_IVY_SETTINGS")
"""Variables of the embedded servers and the scripts, which are no settings of a command."""

ALIKE = 0.8
"""So much alike (difflib's ratio) a mistyped name is. Kubernetes gives containers ZKCOORD_SERVICE_HOST and the like, if
there is a service of that name: nobody has mistyped these."""


def variable_of(*words: str) -> str:
    """Return the variable of these words: PREFIX, those of a command, the name of its option in a file.

    >>> variable_of("group", "describe", "say-every")
    'ZKCOORD_GROUP_DESCRIBE_SAY_EVERY'
    """
    return "_".join([PREFIX, *words]).replace("-", "_").upper()


def name_variables(context: click.Context) -> None:
    """Give each option of a command its variable. Those of every command, which its function is not handed, have
    one."""
    words = context.command_path.split()[1:]
    for option in context.command.params:
        if isinstance(option, click.Option) and option.expose_value and not option.is_eager:
            option.envvar = variable_of(*words, file_name(option))


def warn_of_variables(context: click.Context) -> None:
    """Warn of each variable whose name is nearly that of a setting, of whichever command."""
    for name in unknown_variables(context):
        if (near := mistyped(name, context)) is not None:
            warn(f"{name} is no setting: did you mean {near}?")


def unknown_variables(context: click.Context) -> list[str]:
    """Return the variables that begin as settings do, and that nothing reads. Other commands than the called one are
    loaded only if it does not read them all."""
    found = {name for name in os.environ if name.startswith(f"{PREFIX}_") and name not in OTHER_VARIABLES}
    found -= {str(option.envvar) for option in settable(context.command).values()}
    return sorted(found - _known(context)) if found else []


def mistyped(name: str, context: click.Context) -> str | None:
    """Return the setting's variable that was meant by this name; None: no other one is much like it."""
    begin = len(PREFIX) + 1
    near = nearest(name[begin:], [known[begin:] for known in _known(context)], ALIKE)
    return None if near is None else f"{PREFIX}_{near}"


def _known(context: click.Context) -> set[str]:
    """The variables of all settings."""
    root = context.find_root()
    known = {str(option.envvar) for option in root.command.params if isinstance(option, click.Option)}
    for each in commands_below(root):
        name_variables(each)
        known |= {str(option.envvar) for option in settable(each.command).values()}
    return known


def commands_below(root: click.Context, words: Sequence[str] = ()) -> Iterator[click.Context]:
    """The contexts of all commands, or of one, with the environment and the file that they would have."""
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
