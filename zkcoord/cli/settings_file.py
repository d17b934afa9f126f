"""The TOML file for settings. The options of every command are at its top, and each command has a table.

    zookeeper = "zk1:2181,zk2:2181"

    [coordinator]
    journal = "/var/lib/zkcoord/journal"

    [group.describe]
    sort = "lag"

The whole file is checked when it is read. It is checked against the options, which are the only list of settings.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click

from zkcoord.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsFile:
    """The values of a file: those of every command by option, and those of single commands as click's `default_map`."""

    path: str
    common: Mapping[str, Any]
    commands: Mapping[str, Any]


def read_settings(path: str, root: click.Group, common: Collection[str], apart: Collection[str]) -> SettingsFile:
    """Read the file. For a key or a value that is not allowed, raise UsageError, which names those that are allowed.

    `common`: the names of the options of every command. `apart`: those among them that a file cannot hold.
    """
    try:
        document = tomllib.loads(Path(path).read_bytes().decode("utf-8"))
    except OSError as error:
        told = f"it cannot be read ({error.strerror or error}); name a file that can be read"
        raise UsageError(f"--config {path}: {told}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"--config {path}: it is no TOML: byte {error.start} is no UTF-8") from None
    except (ValueError, RecursionError) as error:  # also a number that is too long, and lists in too many lists
        raise UsageError(f"--config {path}: it is no TOML: {error}") from None
    options = {flag: option for flag, option in settable(root).items() if option.name not in apart}
    shared: dict[str, Any] = {}
    tables: dict[str, Any] = {}
    for key, value in document.items():
        if isinstance(value, dict) and key in root.commands:
            tables[key] = _table(path, key, value, root.commands[key], common)
        elif key in options:
            option = options[key]
            shared[str(option.name)] = checked(f"--config {path}: {key}", option, value)
        elif key in apart:
            raise UsageError(f"--config {path}: {key} cannot stand in a file: give --{key} on the command line")
        else:
            raise UsageError(_wrong_key(f"--config {path}", key, value, options, root.commands))
    return SettingsFile(path=path, common=shared, commands=tables)


def _table(
    path: str, name: str, document: Mapping[str, Any], command: click.Command, common: Collection[str]
) -> dict[str, Any]:
    options = {flag: option for flag, option in settable(command).items() if option.name not in common}
    below = command.commands if isinstance(command, click.Group) else {}
    found: dict[str, Any] = {}
    for key, value in document.items():
        if isinstance(value, dict) and key in below:
            found[key] = _table(path, f"{name}.{key}", value, below[key], common)
        elif key in options:
            found[str(options[key].name)] = checked(f"--config {path}: {name}.{key}", options[key], value)
        else:
            raise UsageError(_wrong_key(f"--config {path}", f"{name}.{key}", value, options, below))
    return found


def settable(command: click.Command) -> dict[str, click.Option]:
    """Return the options that have a value, by their names in a file. These are the names on the command line without
    dashes."""
    options = [each for each in command.params if isinstance(each, click.Option)]
    return {file_name(each): each for each in options if not each.is_eager or each.name == "config"}


def file_name(option: click.Option) -> str:
    """Return the option's name in a file.

    >>> file_name(click.Option(["-t", "--timeout-ms"]))
    'timeout-ms'
    """
    return max(option.opts, key=len).lstrip("-")


def checked(where: str, option: click.Option, value: Any) -> Any:
    """Return the value as the option takes it. UsageError says what is allowed."""
    wanted = _kind_of(option)
    many = value if isinstance(value, list) and option.multiple else [value]
    if any(type(each) is not wanted for each in many):
        words = {bool: "true or false", int: "a whole number", str: "a text in quotes"}
        also = ", or a list of them" if option.multiple else ""
        raise UsageError(f"{where} is {value!r}, allowed is {words[wanted]}{also}{_range(option)}")
    if any(isinstance(each, str) and not each.strip() for each in many):
        raise UsageError(f"{where} is empty: give a value, or leave it out")
    try:
        return [option.type(each) for each in many] if option.multiple else option.type(value)
    except click.BadParameter as error:
        raise UsageError(f"{where}: {error.message}") from None


def _kind_of(option: click.Option) -> type:
    if option.is_flag:
        return bool
    return int if option.count or isinstance(option.type, click.types.IntParamType) else str


def _range(option: click.Option) -> str:
    kind = option.type
    if not isinstance(kind, click.IntRange) or (kind.min is None and kind.max is None):
        return ""
    return f" from {kind.min} on" if kind.max is None else f" from {kind.min} to {kind.max}"


def _wrong_key(where: str, full: str, value: Any, options: Collection[str], commands: Collection[str]) -> str:
    """Say what is wrong with a key that is neither an option here nor the table of a command."""
    table, dot, key = full.rpartition(".")
    if key in commands:
        return f"{where}: {full} is {value!r}, but it is a command: write its settings below [{full}]"
    known = [*options, *commands]
    near = nearest(key.replace("_", "-"), known)
    hint = f"did you mean {table}{dot}{near}?" if near else f"choose from {', '.join(sorted(known))}"
    return f"{where}: there is no setting {full}: {hint}"


def nearest(name: str, known: Collection[str], alike: float = 0.6) -> str | None:
    """Return the known name that is most similar to this one, if its difflib ratio is at least `alike`; otherwise None.

    >>> nearest("zokeeper", ["zookeeper", "output"]), nearest("x", ["zookeeper"])
    ('zookeeper', None)
    """
    return next(iter(get_close_matches(name, sorted(known), n=1, cutoff=alike)), None)
