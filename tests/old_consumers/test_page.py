"""docs/compatibility.md says of each version what its test shows, and in which tier."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest

from tests.integration.test_old_brokers import VERSIONS
from zkcoord.embedded.artifacts import OLD_KAFKA_VERSIONS

PAGE = Path(__file__).parents[2] / "docs" / "compatibility.md"
ABOUT_OTHERS = {"test_page", "test_held_until", "test_script", "test_stale_starts", "test_offset_tools"}
"""This page; what ends a hold; the simulated old member; what explains a start; zkcoord's tools."""
NEVER, ALWAYS, AT_LENGTH = "\u2013", "✓", "✓ long"


def rows() -> list[tuple[str, str, list[str]]]:
    """Module, test and cells of each row about the old consumers."""
    table = PAGE.read_text(encoding="utf-8").partition("## The old consumers")[2].partition("\n## ")[0]
    lines = [line for line in table.splitlines() if line.startswith("| ")][2:]
    form = re.compile(r"\| .* \| (.*) \| (.*) \| (.*) \| `old_consumers/(\w+)\.py::(\w+)` \|")
    found = [form.fullmatch(line) for line in lines]
    return [(row[4], row[5], [row[1], row[2], row[3]]) for row in found if row]


def tiers(test: Any) -> dict[str, str]:
    """Version -> in which tier the test shows something of it; of a test without versions, what its name says."""
    marks = getattr(test, "pytestmark", [])
    whole = AT_LENGTH if any(mark.name == "long" for mark in marks) else ALWAYS
    found: dict[str, str] = {}
    for mark in marks:
        for given in mark.args[1] if mark.name == "parametrize" else ():
            values, own = (given.values, given.marks) if hasattr(given, "marks") else (given, ())
            first = values[0] if isinstance(values, tuple) else values
            tier = AT_LENGTH if any(one.name == "long" for one in own) else whole
            for version in set(first if isinstance(first, tuple) else (first,)).intersection(OLD_KAFKA_VERSIONS):
                found[version] = min(tier, found.get(version, tier), key=len)
    if found:
        return found
    named = [version for version in OLD_KAFKA_VERSIONS if f"_{'_'.join(version.split('.')[:2])}_" in test.__name__]
    return dict.fromkeys(named or OLD_KAFKA_VERSIONS, whole)


def test_each_row_names_a_test() -> None:
    table = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if "`old_consumers/" in line]
    assert len(rows()) == len(table) > 15


@pytest.mark.parametrize(("module", "test", "cells"), rows(), ids=lambda value: value if isinstance(value, str) else "")
def test_a_row_says_what_its_test_shows_of_which_version(module: str, test: str, cells: list[str]) -> None:
    shown = tiers(getattr(importlib.import_module(f"tests.old_consumers.{module}"), test))
    assert cells == [shown.get(version, NEVER) for version in OLD_KAFKA_VERSIONS]


def test_every_test_of_the_old_consumers_has_a_row() -> None:
    modules = {path.stem for path in Path(__file__).parent.glob("test_*.py")} - ABOUT_OTHERS
    there = {
        name
        for module in modules
        for name in dir(importlib.import_module(f"tests.old_consumers.{module}"))
        if name.startswith("test_")
    }
    assert there == {test for _, test, _ in rows()}


def test_the_second_table_says_for_each_broker_version_that_its_test_is_run_or_what_is_missing() -> None:
    table = PAGE.read_text(encoding="utf-8").partition("## zkcoord's own clients on other brokers")[2]
    lines = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in table.splitlines() if line[:1] == "|"]
    assert lines[0][1:-1] == list(VERSIONS)
    for _, *cells, shown_by in lines[2:]:
        told = [cell for cell in cells if cell != AT_LENGTH]
        assert len(cells) == len(VERSIONS)
        assert [cell for cell in told if not re.fullmatch(r"needs \d+\.\d+", cell)] == []
        module, _, test = shown_by.strip("`").partition("::")
        assert f"def {test}(" in (PAGE.parents[1] / "tests" / module).read_text(encoding="utf-8")
