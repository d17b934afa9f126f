"""What commands print for programs, held against the schemas in docs/schemas."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import click
import jsonschema

from zkcoord.cli.main import cli

NO_OBJECTS = ("completion", "demo", "offsets export", "top")
"""Commands that print no objects of their own."""

SCHEMAS = Path(__file__).parent.parent.parent / "docs" / "schemas"


def words_of(arguments: Sequence[str]) -> tuple[str, ...]:
    """The command that these arguments call: ("group", "describe").

    >>> words_of(["--output", "json", "group", "describe", "g"])
    ('group', 'describe')
    """
    at: click.Command = cli
    found: list[str] = []
    for each in arguments:
        if isinstance(at, click.Group) and each in at.commands:
            at = at.commands[each]
            found.append(each)
    return tuple(found)


def for_programs(arguments: Sequence[str]) -> bool:
    """True when these arguments ask for JSON."""
    at = [n for n, each in enumerate(arguments) if each == "--output"]
    return bool(at) and list(arguments[at[-1] + 1 : at[-1] + 2]) == ["json"]


@cache
def schema_of(words: tuple[str, ...]) -> dict[str, Any]:
    """The schema of what a command prints, as its file says it."""
    found: dict[str, Any] = json.loads((SCHEMAS / f"{'-'.join(words)}.json").read_text(encoding="utf-8"))
    return found


def closed(schema: Any) -> Any:
    """The schema without room for keys that it does not name: here every key must be documented."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    known = {key: closed(value) for key, value in schema.items()}
    return {"additionalProperties": False, **known} if "properties" in schema else known


def documents(output: str) -> Iterator[Any]:
    """The objects of an output: one a line, or a list of them in a line."""
    for line in output.splitlines():
        found = json.loads(line)
        yield from found if isinstance(found, list) else [found]


def check_printed(arguments: Sequence[str], output: str) -> None:
    """Fail where an output for programs is not what its schema says."""
    words = words_of(arguments)
    if for_programs(arguments) and output and " ".join(words) not in NO_OBJECTS and "--help" not in arguments:
        validator = jsonschema.Draft202012Validator(closed(schema_of(words)))
        for each in documents(output):
            errors = sorted(validator.iter_errors(each), key=str)
            assert not errors, f"{' '.join(words)}: {errors[0].json_path}: {errors[0].message[:300]} in {each}"
