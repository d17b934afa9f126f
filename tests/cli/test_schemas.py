"""docs/schemas: each command has a schema of what it prints for programs, as docs/operations.md explains it.

Every other test of this folder that has a command print JSON holds that against its schema (`printed.py`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.cli.printed import NO_OBJECTS, SCHEMAS, check_printed, closed, schema_of
from zkcoord.cli.main import cli
from zkcoord.cli.options import commands_of

FILES = sorted(SCHEMAS.glob("*.json"))
OPERATIONS = (SCHEMAS.parent / "operations.md").read_text(encoding="utf-8")


def keys(schema: Any) -> Iterator[str]:
    """All keys that a schema names."""
    for name, value in schema.items() if isinstance(schema, dict) else ():
        if name == "properties":
            yield from value
        for each in value if isinstance(value, list) else [value]:
            yield from keys(each)
        if name == "properties":
            for each in value.values():
                yield from keys(each)


def test_every_command_that_prints_objects_has_a_schema_and_no_other() -> None:
    known = {words.replace(" ", "-") for words, _ in commands_of(cli) if words not in NO_OBJECTS}
    assert {file.stem for file in FILES} == known


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_schema_is_valid_and_its_keys_are_explained(file: Path) -> None:
    schema = json.loads(file.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    explained = set(re.findall(r"`([^`\n]+)`", OPERATIONS + (SCHEMAS.parent / "commands.md").read_text("utf-8")))
    assert {key for key in keys(schema) if key not in explained} == set()
    assert schema["title"] == f"zkcoord {file.stem.replace('-', ' ')} --output json" or "-" in file.stem


@pytest.mark.parametrize(
    "line",
    [
        '{"group":"g","request":"hold","run":"x"}',
        '{"group":"g","request":"hold","run":"x","state":1}',
        '{"group":"g","request":"hold","run":"x","state":"held","more":1}',
    ],
)
def test_output_that_breaks_its_schema_is_found(line: str) -> None:
    with pytest.raises(AssertionError, match="group hold"):
        check_printed(["group", "hold", "g", "--output", "json"], line)


def test_programs_must_bear_keys_that_a_later_release_adds() -> None:
    schema, document = schema_of(("group", "hold")), {"group": "g", "request": "hold", "run": "x", "state": "held"}
    jsonschema.validate({**document, "more": 1}, schema)
    jsonschema.validate(document, closed(schema))
