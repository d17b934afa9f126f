"""Each command's help ends with an example, which the command's own parser takes; shells complete."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest

from tests.cli.program import Run
from zkcoord.cli.examples import EXAMPLES
from zkcoord.cli.main import cli


def commands(group: click.Group = cli, above: str = "") -> Iterator[tuple[str, click.Command]]:
    """All commands that are no groups, by their words."""
    for name, command in sorted(group.commands.items()):
        words = f"{above} {name}".strip()
        if isinstance(command, click.Group):
            yield from commands(command, words)
        else:
            yield words, command


def test_every_command_has_an_example_and_no_other() -> None:
    assert sorted(EXAMPLES) == sorted(words for words, _ in commands())


@pytest.mark.parametrize(("words", "command"), list(commands()), ids=lambda each: str(each))
def test_the_help_shows_the_example_and_the_parser_takes_it(words: str, command: click.Command, run: Run) -> None:
    help_text = run(*words.split(), "--help").stdout

    assert help_text.endswith(f"Example:\n  {EXAMPLES[words]}\n")
    (call,) = re.findall(rf"zkcoord {words}[^)\n]*", EXAMPLES[words])
    typed = shlex.split(call)[1 + len(words.split()) :]
    command.make_context(words, typed, resilient_parsing=False)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_each_shell(shell: str, run: Run) -> None:
    result = run("completion", shell)

    assert result.exit_code == 0, result.stderr
    assert "_ZKCOORD_COMPLETE" in result.stdout
    known = shutil.which(shell)
    assert known or "CI" not in os.environ, f"scripts/test installs {shell}, as root"
    if known:
        subprocess.run([shell, "-n"], input=result.stdout, text=True, check=True)


def test_the_program_answers_what_a_shell_asks() -> None:
    asked = {"_ZKCOORD_COMPLETE": "bash_complete", "COMP_WORDS": "zkcoord group des", "COMP_CWORD": "2"}
    code = "import sys; from zkcoord.cli.main import main; sys.argv = ['zkcoord']; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **asked}, capture_output=True, text=True, check=False
    )
    assert "plain,describe" in done.stdout, done.stderr
