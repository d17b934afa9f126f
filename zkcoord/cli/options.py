"""The options that every command takes, before or after the subcommand, and their values."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from enum import IntEnum
from typing import Any

import click
from click.core import ParameterSource

from zkcoord import logs, settings
from zkcoord.cli.settings_file import SettingsFile, read_settings
from zkcoord.cli.variables import name_variables, variable_of, warn_of_variables
from zkcoord.core.given import NUMBER_MAX
from zkcoord.errors import UsageError, ZkcoordError
from zkcoord.metrics.address import parse_address
from zkcoord.shell.zk.blocking import Tree
from zkcoord.shell.zk.config import ZooKeeperConfig, load_config

ZOOKEEPER, BOOTSTRAP_SERVERS = variable_of("zookeeper"), variable_of("bootstrap-servers")
SESSION_LOG = "zkcoord.zk"
SENTENCE_MAX = 1_000  # characters; longer than every sentence
HELP = {"help_option_names": ["-h", "--help"]}


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a tool waits for others, and how often it says what it waits for."""

    tree_wait_ms: int = settings.TOOL_TIMEOUT_MS
    log_ends_wait_ms: int = 10_000
    say_every_ms: int = 5_000


class Origin(IntEnum):
    """The source of a value. The larger source counts."""

    DEFAULT = 0
    FILE = 1
    ENVIRONMENT = 2
    COMMAND_LINE = 3


@dataclass(slots=True)
class Settings:
    """The common options. If an option is repeated, the last one counts; each `-v` adds one."""

    zookeeper: str | None = None
    bootstrap_servers: str | None = None
    command_config: str | None = None
    zookeeper_config: str | None = None
    output: str = "table"
    log_format: str = "text"
    verbose: int = 0
    config: str | None = None
    limits: Limits = Limits()  # not an option; tests use other limits
    origins: dict[str, Origin] = field(default_factory=dict)  # of the options that were given
    file: SettingsFile | None = None  # that `config` names

    def origin(self, name: str) -> Origin:
        """Return the source of an option's value."""
        return self.origins.get(name, Origin.DEFAULT)

    def keep(self, name: str, value: Any, origin: Origin) -> None:
        """Keep a common option's value, except if its known value has a larger source."""
        if origin >= self.origin(name):
            setattr(self, name, value)
            self.origins[name] = origin

    def keep_file(self, found: SettingsFile) -> None:
        """Keep the common options of a file, instead of those of an earlier file."""
        defaults = Settings()
        for name in [name for name, origin in self.origins.items() if origin is Origin.FILE]:
            del self.origins[name]
            setattr(self, name, getattr(defaults, name))
        for name, value in found.common.items():
            self.keep(name, value, Origin.FILE)
        self.file = found

    @property
    def json(self) -> bool:
        """True if the output is for programs."""
        return self.output == "json"

    def zookeeper_address(self) -> str:
        """Return ZooKeeper's address. Raise UsageError if the user gave none."""
        if not self.zookeeper:
            raise UsageError(
                f"where is ZooKeeper? give --zookeeper HOST:PORT[,HOST:PORT…][/chroot], or set {ZOOKEEPER}"
            )
        return self.zookeeper

    def kafka_address(self) -> str | None:
        """Return Kafka's address; None if the user gave none."""
        return self.bootstrap_servers or None

    def needed_kafka_address(self) -> str:
        """Return Kafka's address. Raise UsageError if the user gave none."""
        if not self.bootstrap_servers:
            raise UsageError(
                f"where is Kafka? give --bootstrap-servers HOST:PORT[,HOST:PORT…], or set {BOOTSTRAP_SERVERS}"
            )
        return self.bootstrap_servers

    def zookeeper_settings(self) -> ZooKeeperConfig:
        """Read the settings for authentication and encryption from the given file."""
        return load_config(self.zookeeper_config) if self.zookeeper_config is not None else ZooKeeperConfig()

    def kafka_settings(self) -> dict[str, str]:
        """Read librdkafka's settings from the given file of Kafka client properties."""
        from zkcoord.kafka.client import load_command_config

        return load_command_config(self.command_config) if self.command_config is not None else {}

    def tree(self, on_change: Callable[[str | None], None] | None = None) -> Tree:
        """Open a session for a tool that waits for each answer. `on_change`: as for `Tree`."""
        wait_ms, config = self.limits.tree_wait_ms, self.zookeeper_settings()
        return Tree(self.zookeeper_address(), deadline_ms=wait_ms, config=config, on_change=on_change)

    def configure_log(self, usual_level: int) -> None:
        """Set the log up. Text begins at the command's usual level. JSON has all events for programs. Each `-v` logs
        more."""
        level = min(usual_level, logging.INFO) if self.log_format == "json" else usual_level
        handler = logs.configure(self.log_format, max(logging.DEBUG, level - 10 * self.verbose))
        handler.addFilter(_not_said_by_the_command)


def _not_said_by_the_command(record: logging.LogRecord) -> bool:
    """Return False for an error that ends a session for good. The library logs it, but the command prints it at its
    end."""
    cause = record.args[0] if isinstance(record.args, tuple) and record.args else None
    return not (record.name == SESSION_LOG and record.levelno == logging.ERROR and isinstance(cause, ZkcoordError))


class Address(click.types.StringParamType):
    """`HOST:PORT`. `listens`: the command listens there; otherwise it connects to it."""

    name = "address"

    def __init__(self, *, listens: bool = True) -> None:
        self._listens = listens

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text unchanged. Refuse a text that is not an address."""
        try:
            parse_address(value, "", listens=self._listens)
        except UsageError as error:
            self.fail(str(error).strip(), param, ctx)
        return str(value)


def at_least(smallest: int, most: int | None = None) -> click.IntRange:
    """Return click's type for a whole number from `smallest` on, without click's name "integer range"."""
    kind = click.IntRange(smallest, most)
    kind.name = "whole number"
    return kind


def number_option(*names: str, default: int, text: str, least: int = 0) -> Callable[..., Any]:
    """A decorator: an option whose value is a whole number from `least` on. Its help is `text` with the default."""
    kind = at_least(least)
    return click.option(*names, type=kind, default=default, show_default=True, metavar="N", help=text)


MEMBER_FLAGS = {name: each for name, each in settings.settings_of(settings.MemberOptions).items() if each.flag}


def member_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator: the options for the settings of a membership."""
    defaults = settings.MemberOptions()
    for name, each in reversed(MEMBER_FLAGS.items()):
        flag, metavar = each.flag.split()
        default = getattr(defaults, name)
        how: dict[str, Any] = {"default": default, "show_default": bool(default)}
        if name == "assignors":
            how = {"multiple": True}  # without any, the consumer's own default counts
        elif each.kind == "number":
            how["type"] = at_least(each.least, None if each.most == NUMBER_MAX else each.most)
        elif name == "metrics":
            how["type"] = Address()
        command = click.option(flag, name, metavar=metavar, help=each.help, **how)(command)
    return command


def on_command_line(name: str) -> bool:
    """Return True if the running command's option stands on the command line.

    A value of the environment or of a file is for every call, also for those to which it does not apply.
    """
    return click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE


def refuse_timeout_alone(waiting: str, given: bool) -> None:
    """Raise UsageError if --timeout-ms stands on the command line, and the option `waiting`, which waits so long, was
    not given."""
    if not given and on_command_line("timeout_ms"):
        raise UsageError(f"--timeout-ms is how long {waiting} waits: give {waiting}, too, or leave --timeout-ms out")


COMMON = frozenset(each.name for each in fields(Settings)) - {"limits", "origins", "file"}
ONLY_HERE = frozenset({"config", "verbose"})
"""Common options that a file cannot hold."""

FILES = ("FILE", "FOLDER", "FILE|FOLDER")
"""What stands for the name of a file in the help of options and arguments."""


def common_options() -> list[click.Option]:
    """Make new instances of the options that every command takes."""
    return [
        _option("--zookeeper", metavar="H:P[,H:P…][/CHROOT]", help=f"ZooKeeper's address (or {ZOOKEEPER})."),
        _option("--bootstrap-servers", metavar="H:P[,H:P…]", help=f"Kafka's address (or {BOOTSTRAP_SERVERS})."),
        _option("--command-config", metavar="FILE", help="Kafka client properties."),
        _option("--zookeeper-config", metavar="FILE", help="ZooKeeper authentication and TLS."),
        _option("--output", type=click.Choice(["table", "json"]), help="A table for people, or JSON for programs."),
        _option("--log-format", type=click.Choice(list(logs.FORMATS)), help="The format of the log on standard error."),
        _option("-v", "--verbose", count=True, help="Log more. -vv logs everything."),
        _option(
            "--config", metavar="FILE", help=f"A file of settings, in TOML (or {variable_of('config')}).", is_eager=True
        ),
    ]


def _option(*names: str, **attributes: Any) -> click.Option:
    variable = variable_of(names[-1].lstrip("-"))
    return click.Option(list(names), expose_value=False, callback=_keep, envvar=variable, **attributes)


def _refuse_empty(option: click.Parameter, value: Any) -> None:
    """Refuse an empty value, for example from an unset variable of a script. It would choose another server, or name a
    folder instead of a file."""
    if any(isinstance(each, str) and not each.strip() for each in (value if isinstance(value, tuple) else (value,))):
        raise UsageError(f"{option.opts[0]} is empty: give a value, or leave the option out")


def _refuse_bytes(option: click.Parameter, value: Any) -> None:
    """Refuse text with bytes that are not of this terminal's encoding: no name or address has any. Python stands for
    them with code points that cannot be encoded. A file's name may have any bytes."""
    for each in value if isinstance(value, tuple) else (value,):
        if isinstance(each, str) and option.metavar not in FILES and not each.isprintable():
            try:
                each.encode("utf-8")
            except UnicodeEncodeError:
                raise UsageError(
                    f"{each!r} has bytes that are not of this terminal's encoding: write it anew"
                ) from None


def _keep(context: click.Context, option: click.Parameter, value: Any) -> None:
    known = context.ensure_object(Settings)
    name = option.name or ""
    source = context.get_parameter_source(name)
    if source is ParameterSource.COMMANDLINE:
        _refuse_empty(option, value)
        _refuse_bytes(option, value)
        more = known.verbose if name == "verbose" and known.origin(name) is Origin.COMMAND_LINE else 0
        known.keep(name, value + more if name == "verbose" else value, Origin.COMMAND_LINE)
    elif source is ParameterSource.ENVIRONMENT:
        known.keep(name, value, Origin.ENVIRONMENT)
    else:
        return
    if name == "config" and known.config == value:
        use_file(context, value)
    if name == "log_format":  # now, so that errors in the rest of the command line are reported in this format, too
        known.configure_log(logs.NOTICE)


def use_file(context: click.Context, path: str) -> None:
    """Use the values of this file: the common ones now, and those of commands as their defaults from now on."""
    known, above = context.ensure_object(Settings), context.find_root()
    root = above.command
    if known.file is None or known.file.path != path:
        if not isinstance(root, click.Group):
            raise TypeError(f"{root} has no commands")
        known.keep_file(read_settings(path, root, COMMON, ONLY_HERE))
    chain: list[click.Context] = []
    at: click.Context | None = context
    while at is not None:
        chain.insert(0, at)
        at = at.parent
    values: Any = {} if known.file is None else known.file.commands
    for each in chain:
        if each is not above:
            values = values.get(each.info_name, {})
        each.default_map = values


def format_options(command: click.Command, context: click.Context, formatter: click.HelpFormatter) -> None:
    """Write the options of the help: first the command's own, then those of every command."""
    own: list[tuple[str, str]] = []
    common: list[tuple[str, str]] = []
    for option in command.get_params(context):
        record = option.get_help_record(context) if isinstance(option, click.Option) else None
        if record is not None:
            (common if option.name in COMMON else own).append(record)
    for title, records in (("Options", own), ("Options of every command", common)):
        if records:
            with formatter.section(title):
                formatter.write_dl(records)


class _Listed(click.Command):
    """Takes the common options, and ends its help with an example.

    `example`: a shell line. It omits ZooKeeper's address, which is in ZKCOORD_ZOOKEEPER.
    """

    def __init__(self, *args: Any, example: str = "", **attributes: Any) -> None:
        attributes.setdefault("context_settings", HELP)
        super().__init__(*args, **attributes)
        self.params += common_options()
        self.example = example

    def get_short_help_str(self, limit: int = 45) -> str:
        """Return the whole first sentence of the help for the list of the parent command. click would cut it."""
        return super().get_short_help_str(limit=max(limit, SENTENCE_MAX))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """See the function with this name."""
        format_options(self, ctx, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the example at the end."""
        if self.example:
            with formatter.section("Example"):
                formatter.write(f"  {self.example}\n")


class Command(_Listed):
    """A command. It sets the log up before it runs."""

    def __init__(self, *args: Any, usual_log_level: int = logs.NOTICE, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self._usual_log_level = usual_log_level

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments, after the options have got their environment variables."""
        name_variables(ctx)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        ctx.ensure_object(Settings).configure_log(self._usual_log_level)
        warn_of_variables(ctx)
        for option in self.params:
            value = ctx.params.get(option.name or "")
            _refuse_bytes(option, value)
            if isinstance(option, click.Option):
                _refuse_empty(option, value)
        return super().invoke(ctx)


class Group(_Listed, click.Group):
    """A command with commands: a noun of the command line."""

    command_class = Command

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """See the function with this name. The commands come first."""
        self.format_commands(ctx, formatter)
        super().format_options(ctx, formatter)


def commands_of(group: click.Group, above: str = "") -> Iterator[tuple[str, Command]]:
    """Yield all commands of the command line by their words ("group describe"), without the groups of commands."""
    for name, command in sorted(group.commands.items()):
        words = f"{above} {name}".strip()
        if isinstance(command, click.Group):
            yield from commands_of(command, words)
        elif isinstance(command, Command):
            yield words, command


pass_settings: Callable[..., Any] = click.make_pass_decorator(Settings, ensure=True)
