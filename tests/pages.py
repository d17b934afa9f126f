"""The blocks of code in the pages. A test that runs a block asks for it by its page and heading. So the tests show
which blocks are run (`asked_for`). A block that is not run needs a reason (tests/test_pages_code.py)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md")))
SYNOPSIS = "commands.md", "Every command takes"
"""Where the syntax of all commands stands, up to this sentence; tests/test_docs.py checks its options."""
HEADING = re.compile(r"(?m)^#+ (.+)$")
BLOCK = re.compile(r"(?ms)^```(\w*)\n(.*?)^```|(?<=\n\n)((?:    [^\n]*\n)+)")


@dataclass(frozen=True, slots=True)
class Block:
    """One block. `number` is 1 for the first block of its kind (Python, or other) below its heading."""

    page: str
    heading: str
    number: int
    python: bool
    text: str

    @property
    def name(self) -> str:
        """The name that tests use: "README.md, Start it, 1"."""
        return f"{self.page}, {self.heading}, {self.number}"

    @property
    def lines(self) -> list[str]:
        """The block's lines, without their indentation."""
        return [line.strip() for line in self.text.splitlines()]


def blocks(page: Path) -> Iterator[Block]:
    """All blocks of a page, in order."""
    text = page.read_text("utf-8")
    start = text.index(SYNOPSIS[1]) if page.name == SYNOPSIS[0] else 0
    headings = [(found.start(), found[1]) for found in HEADING.finditer(BLOCK.sub(_blank, text))]
    counted: dict[tuple[str, bool], int] = {}
    for found in BLOCK.finditer(text):
        language, fenced, indented = found.groups()
        if found.start() < start:
            continue
        heading = [title for at, title in headings if at < found.start()][-1]
        place = heading, language == "python"
        counted[place] = counted.get(place, 0) + 1
        yield Block(page.name, heading, counted[place], place[1], fenced or indented)


def _blank(block: re.Match[str]) -> str:
    """Replace a block's text by spaces of the same length: a comment in it is not a heading."""
    return re.sub(r"[^\n]", " ", block[0])


def python_block(page: str, heading: str, number: int = 1) -> str:
    """The text of the Python block with this number below the heading."""
    return _block(page, heading, number, python=True).text


def shell_block(page: str, heading: str, number: int = 1) -> list[str]:
    """The lines of a block that is not Python: commands, or a file."""
    return _block(page, heading, number, python=False).lines


def _block(page: str, heading: str, number: int, *, python: bool) -> Block:
    (path,) = [each for each in PAGES if each.name == page]
    for each in blocks(path):
        if (each.heading, each.number, each.python) == (heading, number, python):
            return each
    raise AssertionError(f"{page} has no block {number} below {heading!r}")


def asked_for(kind: str) -> set[str]:
    """The names of the blocks that tests ask for with `python_block` or `shell_block` (`kind`)."""
    names = set()
    for path in sorted((ROOT / "tests").rglob("*.py")):
        text = path.read_text("utf-8")
        if kind in text:
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Call) and ast.unparse(node.func) == kind:
                    given = [ast.literal_eval(each) for each in node.args if isinstance(each, ast.Constant)]
                    if len(given) >= 2:
                        names.add(", ".join(map(str, [*given, 1][:3])))
    return names
