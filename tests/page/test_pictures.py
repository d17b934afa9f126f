"""Pictures in the pages: those that the program draws, and whether those of the page show the page as it is.

`ZKCOORD_PICTURES=docs/images` writes them.
"""

from __future__ import annotations

import ast
import hashlib
import os
from pathlib import Path

from zkcoord.operating.timeline_picture import spans, svg

IMAGES = Path(__file__).parents[2] / "docs/images"
PAGE = Path(__file__).parents[2] / "zkcoord/page"
MAKE_ANEW = "ZKCOORD_PICTURES=docs/images .venv/bin/python -m pytest -n 0 tests/page/test_browser.py"
A, B = "etl_host1-1790000000000-z1a2b3c4", "etl_host2-1790000060000-z5d6e7f8"
JOINED = (0, 180, 185, 240)
"""The second consumer joins: the stop is sent, released 180 ms later, granted and acknowledged."""
DIED = (None, 1_500, 1_510, 1_580)
"""The first one has died: what it owned is released when its session has ended."""


def moved(partition: int, giver: str, taker: str, times_ms: tuple[int | None, ...]) -> dict[str, object]:
    names = ("decided_ms", "released_ms", "granted_ms", "acknowledged_ms")
    times = dict(zip(names, times_ms, strict=True))
    return {"topic": "clicks", "partition": partition, "from": giver, "to": taker, **times}


def test_the_pages_picture_of_hand_overs_is_what_the_program_draws() -> None:
    handovers = [moved(n, A, B, JOINED) for n in (2, 3)] + [moved(n, A, B, DIED) for n in (0, 1)]
    drawn = svg("etl", spans(handovers, tail_percent=20))
    if folder := os.environ.get("ZKCOORD_PICTURES"):
        (Path(folder) / "hand-over.svg").write_text(drawn, encoding="utf-8")
    assert (IMAGES / "hand-over.svg").read_text("utf-8") == drawn


def fingerprint() -> str:
    """A sum over what the page looks like: its templates, style, script, and the words that are put into them."""
    files = [path for name in ("templates", "static") for path in sorted((PAGE / name).iterdir())]
    looks = [path.read_text("utf-8") for path in files]
    nodes = list(ast.walk(ast.parse((PAGE / "show.py").read_text("utf-8"))))
    docstrings = {node.value for node in nodes if isinstance(node, ast.Expr)}  # the page does not show them
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in docstrings:
            looks.append(node.value)
    return hashlib.sha256("\0".join(looks).encode()).hexdigest()


def test_the_pictures_of_the_page_show_the_page_as_it_is() -> None:
    made_of = (IMAGES / "page.sha256").read_text("utf-8").strip()
    assert made_of == fingerprint(), (
        f"the page looks otherwise than docs/images/page-*.png; make them anew: {MAKE_ANEW}"
    )
