"""The code in the pages: Python blocks are run by some test, and their names exist; each command line can be parsed.

This file reads the tests to know which blocks they run: they ask for a block by its page and heading (tests/pages.py).
Blocks that no test runs are listed in ONLY_PARSED with the reason. No Python block may be listed there.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.calls import parse_call
from tests.pages import PAGES, ROOT, asked_for, blocks
from zkcoord.cli.main import cli
from zkcoord.errors import UsageError

OTHERS = {
    "docker",
    ".venv/bin/mkdocs",
    "kafka-topics.sh",
    "kafka-storage.sh",
    "kafka-server-start.sh",
    "kafka-features.sh",
    "(umask",
}
"""Programs of others, whose command lines nobody here can check."""
NO_COMMANDS = {
    "drawing": r"[│▼─]",
    "JSON": r"\A\{",
    "TOML, properties": r"(?m)\A(\[.*\]|[\w.-]+ *=)",
    "nginx": r"\Alocation ",
    "ZooKeeper's shell": r"\Acreate /",
}
ONLY_PARSED = {
    "makes an environment, or runs all checks and tests: continuous integration and people do (.ci/run)": (
        "CONTRIBUTING.md, Run, check, test, 1",
        "CONTRIBUTING.md, The simulated world, 1",
    ),
    "makes an environment; tests/integration/test_demo.py runs the demo out of the wheel": ("README.md, Try it, 1",),
    "typed into ZooKeeper's shell (tests/integration/test_kraft_controllers.py makes the nodes)": (
        "kraft.md, When the controllers do not write to ZooKeeper, 1",
    ),
    "a file of nginx, which is not here (tests/page/test_prefix.py has a proxy's requests)": (
        "page.md, Who can see it, 1",
    ),
}
"""Blocks that no test plays: why."""
ASSIGNMENT = re.compile(r"[A-Z_]+=\S*")


def python_blocks() -> Iterator[Any]:
    """Each Python block of each page. Blocks about Spark need PySpark."""
    for block in (block for page in PAGES for block in blocks(page) if block.python):
        marks = [pytest.mark.spark] if "spark" in block.text else []
        yield pytest.param(block.text, id=block.name, marks=marks)


def wrong_names(code: str) -> list[str]:
    """Names of zkcoord that do not exist, and calls with arguments that the functions do not take."""
    known: dict[str, Any] = {}
    wrong = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            known |= {each.name: importlib.import_module(each.name) for each in node.names if each.name == "zkcoord"}
        elif isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] == "zkcoord":
            module = importlib.import_module(str(node.module))
            wrong += [f"{node.module}.{each.name}" for each in node.names if not hasattr(module, each.name)]
            known |= {each.asname or each.name: getattr(module, each.name, None) for each in node.names}
    made: dict[str, Any] = {}
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Call):
            wrong += _wrong_call(node, known)
        elif isinstance(node, ast.withitem) and isinstance(node.optional_vars, ast.Name):
            made[node.optional_vars.id] = _called(node.context_expr, known)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            made[node.targets[0].id] = _called(node.value, known)
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            kind = made.get(node.value.id)
            if inspect.isclass(kind) and not hasattr(kind, node.attr) and node.attr not in inspect.getsource(kind):
                wrong.append(f"{kind.__name__}.{node.attr}")
    return wrong


def _called(node: ast.expr, known: dict[str, Any]) -> Any:
    """The function or class of zkcoord that an expression calls; None if it calls another one."""
    if not isinstance(node, ast.Call):
        return None
    path = ast.unparse(node.func).split(".")
    found = known.get(path[0])
    for name in path[1:]:
        found = getattr(found, name, None)
    return found


def _wrong_call(node: ast.Call, known: dict[str, Any]) -> list[str]:
    called = _called(node, known)
    if called is None:
        return []
    taken = inspect.signature(called)
    named = {each.arg: None for each in node.keywords if each.arg is not None}
    unpacked = any(each.arg is None for each in node.keywords)
    try:
        (taken.bind_partial if unpacked else taken.bind)(*[None] * len(node.args), **named)
    except TypeError as error:
        return [f"{ast.unparse(node.func)}: {error}"]
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in taken.parameters.values()):
        return [f"{ast.unparse(node.func)} does not say which options it takes"] * bool(named.keys() - taken.parameters)
    return []


def wrong_command(line: str) -> str | None:
    """The problem of a command line that people type; None if there is none."""
    words = shlex.split(re.split(r" {2,}", line)[0], comments=True)  # the rest of the line is a remark about it
    while words and ASSIGNMENT.fullmatch(words[0]):
        words = words[1:]
    program, *rest = words
    if program == "zkcoord":
        try:
            parse_call(rest)
        except Exception as error:
            return f"{line}: {error}"
        return None
    if program == "export":
        names = {each.partition("=")[0] for each in rest if each.startswith("ZKCOORD_")}
        return f"{line}: no such variable" if names - {option.envvar for option in cli.params} else None
    if program == "pip":
        extras = [name for word in rest for found in re.findall(r"\[([a-z,]+)\]", word) for name in found.split(",")]
        setup = (ROOT / "setup.py").read_text("utf-8")
        return f"{line}: no such extra" if any(f'"{each}":' not in setup for each in extras) else None
    if program == "python":
        return None if rest[0] == "-m" or (ROOT / rest[0]).is_file() else f"{line}: there is no {rest[0]}"
    if program.startswith("scripts/"):
        return None if (ROOT / program).is_file() else f"{line}: there is no {program}"
    return None if program in OTHERS or line == ". .venv/bin/activate" else f"{line}: what is that?"


def is_commands(lines: list[str]) -> bool:
    """True for commands that people type; False for a drawing or a file."""
    return not kinds(lines)


def test_every_python_block_is_run_by_a_test() -> None:
    written = {block.name for page in PAGES for block in blocks(page) if block.python}
    assert asked_for("python_block") == written


def test_every_other_block_is_played_or_has_a_reason_to_be_parsed_only() -> None:
    written = {
        block.name
        for page in PAGES
        if page.name not in ("protocol.md", "tutorial.md")  # test_docs.py; cli/test_as_printed.py, test_dashboard.py
        for block in blocks(page)
        if not block.python and "drawing" not in kinds(block.lines)
    }
    played = {name for name in asked_for("shell_block") if not name.startswith("tutorial.md")}
    only_parsed = {name for names in ONLY_PARSED.values() for name in names}
    assert played & only_parsed == set()
    assert played | only_parsed == written


def kinds(lines: list[str]) -> set[str]:
    """The kinds of these lines if they are not commands."""
    return {kind for kind, pattern in NO_COMMANDS.items() if re.search(pattern, "\n".join(lines))}


@pytest.mark.parametrize("block", list(python_blocks()))
def test_python_in_a_page_uses_names_and_options_that_exist(block: str) -> None:
    assert wrong_names(block) == []


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "protocol.md"], ids=lambda page: page.name)
def test_each_line_of_a_shell_block_is_a_command_that_is_taken(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ZKCOORD_CONFIG", raising=False)
    lines = []
    for block in blocks(page):
        if not block.python and is_commands(block.lines):
            lines += block.lines
    assert [wrong for line in lines if (wrong := wrong_command(line))] == []


@pytest.mark.parametrize(
    ("line", "right"),
    [
        ("zkcoord group describe etl --wait stable # comment", True),
        ("zkcoord group hold", False),
        ("zkcoord group reset-offsets etl --to-offset some", False),
        ("zkcoord group describe etl --wait", False),
        ("zkcoord group tell etl", False),
        ("scripts/absent", False),
        ("pip install 'zkcoord[absent]'", False),
        ("export ZKCOORD_ZOOKEPER=a:1", False),
        ("rm -r /", False),
    ],
)
def test_the_check_of_command_lines_finds_what_is_wrong(line: str, right: bool) -> None:
    assert (wrong_command(line) is None) == right


@pytest.mark.parametrize(
    ("code", "wrong"),
    [
        ("import zkcoord\nzkcoord.Consumer('h:1', 'g', ['t'], on_start=1, on_stop=1, on_lost=1, reset=1)", False),
        ("import zkcoord\nzkcoord.Consumer('h:1', 'g', ['t'], on_start=1, on_stop=1, on_loss=1, reset=1)", True),
        ("from zkcoord.kafka import KafkaReader", True),
        ("from zkcoord import Coordinator\nc = Coordinator('h:1')\nc.halt()", True),
    ],
)
def test_the_check_of_python_finds_what_is_wrong(code: str, wrong: bool) -> None:
    assert bool(wrong_names(code)) == wrong


def test_a_call_that_is_refused_says_why() -> None:
    with pytest.raises(UsageError):
        parse_call(["--zookeeper", "", "group", "list"])
