"""`python -m zkcoord.cli.replay` (scripts/replay): replays a coordinator's journals, and compares the decisions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from zkcoord.errors import CorruptError, UsageError, ZkcoordError
from zkcoord.operating.words import printable
from zkcoord.shell.journal.files import files_of
from zkcoord.shell.journal.replay import Difference, replay

DIFFERS = 1
LINE_CHARACTERS_MAX = 400


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path), metavar="FILE|FOLDER…")
@click.option("--show", is_flag=True, help="Print what each step put out, not only differences.")
def main(paths: tuple[Path, ...], show: bool) -> None:
    """Play a coordinator's journal again with this version, and compare what it decides and writes.

    Each file begins with a checkpoint, so each can be played by itself. Exit code 0: every step put out the same; 1:
    one did not, and is printed. Play only journals that you trust: a checkpoint can hold any Python object.
    """
    try:
        files = files_of(paths)
    except UsageError as error:
        raise click.UsageError(str(error)) from error
    same = True
    for file in files:
        try:
            same = _play(file, show) and same
        except ZkcoordError as error:
            click.echo(f"error: {file}: {error}", err=True)
            raise click.exceptions.Exit(error.exit_code) from error
    raise click.exceptions.Exit(0 if same else DIFFERS)


def _play(file: Path, show: bool) -> bool:
    steps = decided = 0
    with file.open(encoding="utf-8", errors="strict") as journal:
        try:
            for played in replay(journal):
                steps += 1
                decided += sum("event" in output for output in played.outputs)
                if show:
                    for output in played.outputs:
                        click.echo(f"{file.name} step {played.step} at {played.mono_ms} ms: {_short(output)}")
                if played.difference is not None:
                    click.echo(f"{file}: step {played.step}, at {played.mono_ms} ms, puts out something else now:")
                    _tell(played.difference)
                    return False
        except UnicodeDecodeError as error:
            raise CorruptError(f"no text ({error}): this is no journal") from error
    click.echo(f"{file}: {steps} steps, {decided} events: the same")
    return True


def _tell(difference: Difference) -> None:
    for sign, outputs, others in (("-", difference.was, difference.now), ("+", difference.now, difference.was)):
        for output in outputs:
            if output not in others:
                click.echo(f"  {sign} {_short(output)}")
    if sorted(map(json.dumps, difference.was)) == sorted(map(json.dumps, difference.now)):
        click.echo("  the same in another order")


def _short(output: dict[str, Any]) -> str:
    text = printable(json.dumps(output, separators=(",", ":")))
    return text if len(text) <= LINE_CHARACTERS_MAX else f"{text[:LINE_CHARACTERS_MAX]}… ({len(text)} characters)"


if __name__ == "__main__":
    main(prog_name="scripts/replay")
