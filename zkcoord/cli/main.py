"""The command line `zkcoord`: assembles the commands, and turns every error into a line and an exit code."""

from __future__ import annotations

import errno
import logging
import os
import sys
import traceback
from typing import Any, NoReturn, TextIO

import click
from click.core import ParameterSource

from zkcoord.cli.loading import ALL, Commands
from zkcoord.cli.options import Group
from zkcoord.errors import InvariantError, ZkcoordError
from zkcoord.logs import json_log
from zkcoord.operating.saying import say

INTERRUPTED = 130  # as a shell reports SIGINT
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class _PipeClosedError(Exception):
    """Nobody reads standard output any more."""


class _Root(Group):
    """The whole command line. `main` ends the process with an exit code that `zkcoord.errors` documents."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command, and flush its output."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError as error:
            raise _PipeClosedError from error
        return result

    def main(self, *args: Any, **extra: Any) -> NoReturn:
        """Run with these arguments (default: those of the process), then exit."""
        extra["standalone_mode"] = False
        _open_closed_streams()
        for stream in (sys.stdout, sys.stderr):  # a terminal that cannot show a character shows its number
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")
        try:
            done = super().main(*args, **extra)
            code = done if isinstance(done, int) else 0
        except ZkcoordError as error:
            code = _say(str(error), error.exit_code)
        except click.UsageError as error:
            code = _say_usage(error)
        except click.ClickException as error:
            code = _say(error.format_message(), error.exit_code)
        except (click.Abort, KeyboardInterrupt):
            code = INTERRUPTED
        except _PipeClosedError:
            _forget(sys.stdout)
            code = 0
        except OSError as error:
            code = _say(_os_error(error), ZkcoordError.exit_code)
        except Exception as error:
            code = _say_bug(error)
        sys.exit(code)


def _open_closed_streams() -> None:
    """Replace the standard streams by /dev/null if the process was started without them."""
    for name, flags, mode in (("stdin", os.O_RDONLY, "r"), ("stdout", os.O_WRONLY, "w"), ("stderr", os.O_WRONLY, "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, flags), mode, encoding="utf-8"))


def _say(text: str, code: int) -> int:
    try:
        say("error", text, exit_code=code)
    except OSError:  # nobody reads it, or its device is full
        _forget(sys.stderr)
    return code


def _os_error(error: OSError) -> str:
    """Return the error in words. If a device is full and the error names no file, it is our own output, which is then
    dropped."""
    if error.errno not in FULL:
        return str(error)
    if error.filename is None:
        _forget(sys.stdout)
    where = error.filename or "standard output"
    return f"{where} cannot be written ({error.strerror}): make room there, or send it elsewhere"


def _say_usage(error: click.UsageError) -> int:
    if type(error).__name__ == "NoArgsIsHelpError":  # click 8.2 and later: the message is the help
        click.echo(error.format_message(), err=True)
        return error.exit_code
    hint = "" if error.ctx is None else f" (see `{error.ctx.command_path} --help`)"
    return _say(f"{' '.join(_message(error).split())}{hint}", error.exit_code)


def _message(error: click.UsageError) -> str:
    """Return the fault. If the value comes from the environment, the message names its variable."""
    if isinstance(error, click.BadParameter) and error.ctx is not None and error.param is not None:
        source = error.ctx.get_parameter_source(str(error.param.name))
        if source is ParameterSource.ENVIRONMENT:
            return f"{error.param.envvar}: {error.message}"
    return error.format_message()


def _say_bug(error: Exception) -> int:
    if json_log():
        logging.getLogger("zkcoord.cli").critical("a bug in zkcoord", exc_info=error)
    else:
        traceback.print_exception(error, file=sys.stderr)
    return _say(f"a bug in zkcoord: {error!r}; please report it with what stands above", InvariantError.exit_code)


def _forget(stream: TextIO) -> None:
    """Send the rest of a stream that nobody reads to /dev/null. Otherwise the interpreter complains at its end."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
    except (OSError, ValueError):  # the stream is not a file
        return


@click.group(cls=_Root, commands=Commands(ALL), example="zkcoord group describe etl --zookeeper zk1:2181")
@click.version_option(package_name="zkcoord", prog_name="zkcoord", message="%(prog)s %(version)s")
def cli() -> None:
    """A central coordinator for Kafka consumers that find their partitions through ZooKeeper."""


def main() -> NoReturn:
    """The entry point `zkcoord`."""
    cli.main(prog_name="zkcoord")


if __name__ == "__main__":
    main()
