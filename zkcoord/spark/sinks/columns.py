"""Compares the columns of rows with those of a table, in the JSON format that Spark and Delta use for types."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from zkcoord.errors import UsageError

UNSPLITTABLE = ("binary", "float", "double")


def fields_of(schema: str) -> dict[str, Any]:
    """Return the columns of a schema, by name."""
    return {each["name"]: each for each in json.loads(schema)["fields"]}


def check_columns(given: Mapping[str, Any], wanted: Mapping[str, Any], uri: str) -> None:
    """Raises UsageError if the rows do not fit the table `uri`."""
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


def check_split(given: Mapping[str, Any], split: Iterable[str], uri: str) -> None:
    """Raises UsageError for rows that lack one of these columns, by which the table `uri` is partitioned, or whose
    values cannot be distinguished: a NaN equals nothing, and bytes have no text that all readers share."""
    for name in split:
        if name not in given:
            raise UsageError(f"the table {uri} is partitioned by {name!r}, which the rows lack: write it, too")
        kind = given[name]["type"]
        if kind in UNSPLITTABLE:
            raise UsageError(
                f"the table {uri} is partitioned by {name!r}, which is {kind}: partition it by a column of another type"
            )


def bare(kind: Any) -> Any:
    """Return a type without its nullability and its comments."""
    if not isinstance(kind, dict):
        return kind
    kept = {key: bare(value) for key, value in kind.items() if key in ("type", "elementType", "keyType", "valueType")}
    if kind.get("type") == "struct":
        kept["fields"] = [(each["name"], bare(each["type"])) for each in kind["fields"]]
    return kept
