"""No bytes of others break a decoder: stored inputs, real ones and ones that were found, and new ones made of them."""

from __future__ import annotations

import ast
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

import zkcoord
from tests.fuzz.breaking import ALL, broken_by
from tests.fuzz.corpus import REAL, inputs, stored
from tests.fuzz.mutate import mutated

CODE = Path(zkcoord.__file__).parent
MADE = 300  # inputs in the usual tier
LONG_SECONDS = 300.0
REACHED = {
    "is_refused": "queued command",
    "refused_option": "refused command",
    "refused_ownership": "refused command",
    "refused_replay": "refused command",
    "text_of": "registration",
    "read_document": "topic",
}
"""Functions that are given bytes by another decoder, and that decoder's name here."""


def test_no_stored_input_breaks_a_decoder() -> None:
    assert [(data, broken) for data in inputs() if (broken := broken_by(data))] == []


@pytest.mark.parametrize("name", ALL)
def test_every_decoder_reads_a_real_input(name: str) -> None:
    assert any(reads(name, data) for data in stored(REAL))


@pytest.mark.parametrize("name", [name for name, decoder in ALL.items() if decoder.refuses])
def test_every_decoder_that_may_refuse_an_input_refuses_one(name: str) -> None:
    assert not all(reads(name, data) for data in stored(REAL))


def reads(name: str, data: bytes) -> bool:
    try:
        ALL[name].decode(data)
    except ALL[name].refuses:
        return False
    return True


@pytest.mark.parametrize("seed", range(3))
def test_no_input_that_is_made_of_stored_ones_breaks_a_decoder(seed: int) -> None:
    draw, pool = Random(seed), inputs()
    assert [found for _ in range(MADE // 3) if (found := breaking(draw, pool))] == []


@pytest.mark.long
def test_no_input_that_is_made_in_minutes_breaks_a_decoder() -> None:
    seed = time.time_ns()
    draw, pool, deadline = Random(seed), inputs(), time.monotonic() + LONG_SECONDS
    while time.monotonic() < deadline:
        assert breaking(draw, pool) is None, seed


def breaking(draw: Random, pool: list[bytes]) -> tuple[bytes, list[str]] | None:
    """Make one input; return it with the decoders that it breaks, None if there are none."""
    data = mutated(draw, draw.choice(pool), pool)
    broken = broken_by(data)
    return (data, broken) if broken else None


def test_every_function_that_is_given_a_nodes_bytes_is_among_the_decoders() -> None:
    files = [Path(__file__).with_name(name) for name in ("decoders.py", "spark_decoders.py")]
    parsed = [node for file in files for node in ast.walk(ast.parse(file.read_text()))]
    used = {node.id for node in parsed if isinstance(node, ast.Name)}
    missing = sorted(name for name in set(given_bytes()) - used - REACHED.keys())
    assert (missing, REACHED.keys() - set(given_bytes()), set(REACHED.values()) - ALL.keys()) == ([], set(), set())


def given_bytes() -> Iterator[str]:
    """The public functions of the packages that know formats whose `data`, or whose first argument, is bytes."""
    for package in ("tree", "legacy", "offsets", "spark/history"):
        for path in sorted((CODE / package).glob("*.py")):
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.FunctionDef) and not node.name.startswith(("_", "encode_")):
                    arguments = [*node.args.args, *node.args.kwonlyargs]
                    annotated = {a.arg: ast.unparse(a.annotation) for a in arguments if a.annotation is not None}
                    first = arguments[0].arg if arguments else ""
                    if "bytes" in (annotated.get("data"), annotated.get(first)):
                        yield node.name
