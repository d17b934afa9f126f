"""CONTRIBUTING.md is right: its table of layers is the one that `test_layers` checks, and files, classes and functions
that it names for a change exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.test_docs import section, spans
from tests.test_layers import ALLOWED, FORBIDDEN, PURE, STDLIB, rule_for, within

ROOT = Path(__file__).parent.parent
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
CHANGES, TOUCHED, ADDED = "Where do I change ...?", "What something new touches", "How to add ..."


def rows(title: str) -> list[str]:
    """The rows of the tables below a heading."""
    lines = section(CONTRIBUTING, title).splitlines()
    below = [*lines[1:], ""]
    return [row for row, next_ in zip(lines, below, strict=True) if row[:2] == "| " and "| --- |" not in row + next_]


def listed(names: set[str]) -> list[str]:
    """Modules as the table of layers spells them: foreign ones first, then those of zkcoord without its name."""
    ordered = sorted(names, key=lambda name: (name.startswith("zkcoord"), name))
    return [f"`{name.removeprefix('zkcoord.')}`" for name in ordered]


def spelled(layer: str) -> str:
    """What a layer may import, as the table of layers spells it."""
    allowed, forbidden = rule_for(layer, ALLOWED), rule_for(layer, FORBIDDEN)
    refused = {name for name in forbidden if within(name, allowed)}
    if len(allowed & STDLIB) > len(STDLIB) / 2:
        refused |= STDLIB - allowed
        names = ["the standard library", *listed(allowed - STDLIB)]
    else:
        pure = allowed >= PURE
        names = [*(["pure modules"] if pure else []), *listed(allowed - PURE if pure else allowed)]
    return ", ".join(names) + (f"; not {', '.join(listed(refused))}" if refused else "")


def test_the_table_of_layers_is_the_one_that_is_checked() -> None:
    cells = [row.strip("| ").split(" | ") for row in rows("The order of things")]
    table = {path.strip("`"): may for path, _, may in cells}
    layers = [name for name in ALLOWED if "." in name and (ROOT / name.replace(".", "/")).is_dir()]
    assert table == {layer.replace(".", "/"): spelled(layer) for layer in layers}


def test_the_table_of_changes_names_a_file_and_a_test_for_each_intent() -> None:
    named = {row: spans(row) for row in rows(CHANGES)}
    assert len(named) > 30
    assert [row for row, files in named.items() if len(files) < 2] == []
    assert [name for files in named.values() for name in files[-2:] if not (ROOT / name).is_file()] == []


def code_in(text: str) -> str:
    """The Python files that a text names, each whole; of a folder all."""
    named = [ROOT / span for span in spans(text) if (ROOT / span).exists()]
    files = [file for path in named for file in ([path] if path.is_file() else path.glob("*.py"))]
    return "\n".join(file.read_text(encoding="utf-8") for file in files if file.suffix == ".py")


def names_in(text: str) -> Iterator[str]:
    """The names of classes, functions, constants and fields in a text."""
    for span in spans(text):
        if re.fullmatch(r"\w+(\.\w+)*(\(\))?", span) and re.search("[A-Z_.]", span) and not (ROOT / span).exists():
            yield from span.removesuffix("()").split(".")


def defines(code: str, name: str) -> bool:
    """True when a line of the code defines or assigns the name."""
    return bool(re.search(rf"(?m)\b(?:class|def) {name}\b|^ *(?:[\w, ]+[,=] )?{name}\b[^\n=]*[:=]", code))


@pytest.mark.parametrize("title", [ADDED, TOUCHED, CHANGES])
def test_names_are_defined_in_the_files_that_their_row_or_paragraph_names(title: str) -> None:
    texts = section(CONTRIBUTING, title).split("\n\n") if title == ADDED else rows(title)
    codes = {text: code_in(text) for text in texts}
    wrong = {text: [name for name in names_in(text) if not defines(code, name)] for text, code in codes.items()}
    assert {text: names for text, names in wrong.items() if names} == {}
