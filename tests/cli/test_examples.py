"""Each command's help ends with an example, which the command's own parser takes; shells complete."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys

import click
import pytest

from tests.cli.program import Run
from zkcoord.cli.main import cli
from zkcoord.cli.options import Command, Group, commands_of

NOUNS = [(name, each) for name, each in sorted(cli.commands.items()) if isinstance(each, Group)]


@pytest.mark.parametrize(("words", "command"), list(commands_of(cli)), ids=lambda each: str(each))
def test_every_command_s_help_shows_its_example_and_its_parser_takes_it(words: str, command: Command, run: Run) -> None:
    help_text = run(*words.split(), "--help").stdout

    assert help_text.endswith(f"Example:\n  {command.example}\n")
    (call,) = re.findall(rf"zkcoord {words}[^)\n]*", command.example)
    typed = shlex.split(call)[1 + len(words.split()) :]
    command.make_context(words, typed, resilient_parsing=False)
    assert [line for line in help_text.splitlines() if len(line) > 80] == []


@pytest.mark.parametrize(("words", "noun"), [("", cli), *NOUNS], ids=lambda each: str(each))
def test_the_help_of_a_noun_shows_one_of_its_commands(words: str, noun: Group, run: Run) -> None:
    assert run(*words.split(), "--help").stdout.endswith(f"Example:\n  {noun.example}\n")
    program, *typed = shlex.split(noun.example)
    assert program == "zkcoord"
    assert typed[: len(words.split())] == words.split()
    command: click.Command = cli
    while isinstance(command, Group):
        command = command.commands[typed.pop(0)]
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
