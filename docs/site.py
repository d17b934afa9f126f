"""Pages of the site that are made when it is built (mkdocs.yml): the README and other pages from above this folder, the
reference of the command line from the commands themselves, and that of the Python names from their docstrings."""

from __future__ import annotations

import ast
import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import click
from mkdocs.structure.files import File, Files

from zkcoord.cli.main import cli
from zkcoord.cli.options import COMMON, commands_of, name_variables

ROOT = Path(__file__).parent.parent
ABOVE = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changes.md"}
"""Pages above this folder, and what they are called in the site."""
FILES = ("LICENSE",)
MODULES = ("zkcoord", "zkcoord.kafka", "zkcoord.spark", "zkcoord.assignors", "zkcoord.embedded", "zkcoord.testing")
CHOICES = ("zkcoord.Consumer", "zkcoord.kafka.KafkaConsumer", "zkcoord.spark.SparkConsumer")
"""Classes that take options as `**settings`: their docstrings list them only once they are imported."""


OPTIONS = "Options, each"


def on_files(files: Files, config: Any) -> Files:
    """Called by mkdocs: add the pages."""
    made = {site: (ROOT / name).read_text(encoding="utf-8") for name, site in ABOVE.items()}
    made |= {name: (ROOT / name).read_text(encoding="utf-8") for name in FILES}
    made |= {"reference/commands.md": command_reference(), "reference/python.md": python_reference()}
    for name, text in made.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Called by mkdocs: lead links to where the pages are in the site."""
    for name, site in ABOVE.items():
        markdown = re.sub(rf"\]\((?:\.\./)?{re.escape(name)}", f"]({site}", markdown)
    return markdown.replace("](docs/", "](") if page.file.src_uri in ABOVE.values() else markdown


def command_reference() -> str:
    """The page of all commands."""
    parts = ["# Every command", "What `zkcoord COMMAND --help` says. [The command line](../commands.md) explains it."]
    for below, command in commands_of(cli):
        words = f"zkcoord {below}"
        context = click.Context(command, info_name=words)
        name_variables(context)
        usage = " ".join([words, *command.collect_usage_pieces(context)])
        own = [each for each in command.params if each.name not in COMMON]
        parts += [f"## {words}", f"```text\n{usage}\n```", _prose(command.help or "")]
        parts += [_table(own, context)]
        parts += [f"```text\n{command.example}\n```"]
    common = [each for each in cli.params if each.name in COMMON]
    parts += ["## Options of every command", _table(common, click.Context(cli, info_name="zkcoord"))]
    return "\n\n".join(part for part in parts if part) + "\n"


def _prose(text: str) -> str:
    """A help text, in which what looks like a tag is none."""
    return inspect.cleandoc(text).replace("\b\n", "").replace("<", "&lt;")


def _table(options: list[click.Parameter], context: click.Context) -> str:
    """The options of a command, with the variables that set them."""
    rows = []
    for option in options:
        record = option.get_help_record(context) if isinstance(option, click.Option) else None
        if record is not None:
            variable = f"`{option.envvar}`" if option.envvar else ""
            cells = (f"`{record[0]}`", variable, record[1].replace("<", "&lt;"))
            rows.append(f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |".replace("`", "`"))
    return "\n".join(["| option | variable | meaning |", "| --- | --- | --- |", *rows]) if rows else ""


def python_reference() -> str:
    """The page of all public names: those of each module's `__all__`."""
    parts = ["# Python", "The public names. [Consumers](../consumers.md) explains them, with examples."]
    for module in MODULES:
        parts += [f"## {module}", _module_docstring(module)]
        for name in _public(module):
            whole = f"{module}.{name}"
            parts.append(f"::: {whole}")
            if whole in CHOICES:
                parts.append(_options(getattr(import_module(module), name)))
    return "\n\n".join(parts) + "\n"


def _options(kind: type) -> str:
    """The options that a class lists at the end of its docstring."""
    doc = inspect.getdoc(kind) or ""
    return f"```text\n{doc[doc.index(OPTIONS) :]}\n```"


def _source(module: str) -> ast.Module:
    path = ROOT / module.replace(".", "/")
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(file.read_text(encoding="utf-8"))


def _module_docstring(module: str) -> str:
    return ast.get_docstring(_source(module)) or ""


def _public(module: str) -> list[str]:
    """The names in `__all__`."""
    for node in _source(module).body:
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["__all__"]:
            return sorted(ast.literal_eval(node.value))
    return []
