"""`zkcoord config show`: the value of each setting, and its source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import click
from click.core import ParameterSource

from zkcoord.cli.options import COMMON, Group, Origin, Settings, common_options, pass_settings
from zkcoord.cli.output import print_json, table
from zkcoord.cli.settings_file import file_name, settable
from zkcoord.cli.variables import commands_below, mistyped, name_variables, unknown_variables
from zkcoord.errors import UsageError
from zkcoord.operating.saying import warn

COLUMNS = ("COMMAND", "SETTING", "VALUE", "SOURCE")
FROM_ENVIRONMENT, FROM_FILE, DEFAULT = "environment", "file", "default"


class Shown(NamedTuple):
    """A setting. `command` "": a setting of every command. `variable`: the environment variable that sets it."""

    command: str
    name: str
    value: Any
    source: str  # "command line", FROM_ENVIRONMENT, FROM_FILE, DEFAULT
    variable: str


@click.group(cls=Group, example="zkcoord config show coordinator")
def config() -> None:
    """Show the settings of commands: from options, the environment and a file."""


@config.command(example="ZKCOORD_CONFIG=/etc/zkcoord.toml zkcoord config show coordinator")
@click.argument("words", metavar="[COMMAND]...", nargs=-1)
@click.option("--all", "all_", is_flag=True, help="Also show settings that have their default values.")
@pass_settings
def show(settings: Settings, words: Sequence[str], all_: bool) -> None:
    """Show settings, and where each value came from.

    Without COMMAND it shows the options of every command, and those settings of single commands that somebody has set.
    With COMMAND it shows the options of every command, and all settings of COMMAND.

    An option on the command line counts first, then an environment variable, then the file of --config, then the
    default. A value that is not allowed is refused.
    """
    context = click.get_current_context()
    found = list(_common(settings))
    for command in commands_below(context.find_root(), words):
        own = list(_own(command))
        found += own if all_ or words else [each for each in own if each.source != DEFAULT]
    for name in unknown_variables(context):
        if mistyped(name, context) is None:  # else every command says so
            warn(f"{name} is no setting: nothing reads it")
    if settings.json:
        for each in found:
            keys = {"command": each.command or None, "setting": each.name, "value": each.value}
            print_json({**keys, "source": each.source, "variable": each.variable})
        return
    rows = [[each.command or "(every)", each.name, _text(each.value), _where(each, settings)] for each in found]
    click.echo(table(COLUMNS, rows))


def _common(settings: Settings) -> Iterator[Shown]:
    words = {Origin.COMMAND_LINE: "command line", Origin.ENVIRONMENT: FROM_ENVIRONMENT, Origin.FILE: FROM_FILE}
    for option in common_options():
        name = str(option.name)
        source = words.get(settings.origin(name), DEFAULT)
        yield Shown("", file_name(option), getattr(settings, name), source, str(option.envvar))


def _own(context: click.Context) -> Iterator[Shown]:
    """Yield the settings of one command. Raise UsageError for a value that is not allowed."""
    name_variables(context)
    for name, option in settable(context.command).items():
        if option.name not in COMMON:
            told = {ParameterSource.ENVIRONMENT: FROM_ENVIRONMENT, ParameterSource.DEFAULT_MAP: FROM_FILE}
            value, source = option.consume_value(context, {})
            variable = str(option.envvar)
            try:
                value = option.type_cast_value(context, value) if source in told else option.get_default(context)
            except click.BadParameter as error:
                raise UsageError(f"{variable}: {error.message}") from None
            yield Shown(
                context.command_path.partition(" ")[2], name, _known(value), told.get(source, DEFAULT), variable
            )


def _known(value: Any) -> Any:
    """Return the value; None if there is none. click marks that with an object of its own."""
    if isinstance(value, tuple | list):
        return [str(each) for each in value]
    return value if isinstance(value, bool | int | str) else None


def _where(shown: Shown, settings: Settings) -> str:
    if shown.source == FROM_ENVIRONMENT:
        return shown.variable
    if shown.source == FROM_FILE and settings.file is not None:
        return settings.file.path
    return shown.source


def _text(value: Any) -> str | None:
    if isinstance(value, list):
        return ", ".join(value) or None
    return str(value).lower() if isinstance(value, bool) else None if value is None else str(value)
