"""Compares the columns of rows with those of a table, in the JSON that Spark and Delta spell types in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from zkcoord.errors import UsageError


def fields_of(schema: str) -> dict[str, Any]:
    """Return the columns of a schema, by name."""
    return {each["name"]: each for each in json.loads(schema)["fields"]}


def check_columns(given: Mapping[str, Any], wanted: Mapping[str, Any], uri: str) -> None:
    """UsageError if the rows do not fit the table `uri`."""
    for name, field in given.items():
        if name not in wanted:
            raise UsageError(
                f"the table {uri} has no column {name!r} (it has {', '.join(wanted)}): add it to the table, or do not "
                "write it"
            )
        if bare(field["type"]) != bare(wanted[name]["type"]):
            raise UsageError(
                f"the column {name!r} is {json.dumps(field['type'])}, and in the table {uri} "
                f"{json.dumps(wanted[name]['type'])}: cast it"
            )
    for name, field in wanted.items():
        if name not in given and not field["nullable"]:
            raise UsageError(f"the table {uri} has the column {name!r}, which may not be null: write it, too")


def bare(kind: Any) -> Any:
    """Return a type without which of its parts may be null, and without comments."""
    if not isinstance(kind, dict):
        return kind
    kept = {key: bare(value) for key, value in kind.items() if key in ("type", "elementType", "keyType", "valueType")}
    if kind.get("type") == "struct":
        kept["fields"] = [(each["name"], bare(each["type"])) for each in kind["fields"]]
    return kept
