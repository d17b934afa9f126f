"""When another one's claim ends what a member says it held."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.old_consumers.lab import Lab

A, B = "g_a-0", "g_b-0"


@pytest.mark.parametrize(
    ("claims", "until"),
    [
        pytest.param([(1_000, A)], 5_000, id="nobody else claimed it"),
        pytest.param([(1_000, A), (3_000, B)], 3_000, id="another one claimed it, and the member told late"),
        pytest.param([(1_000, A), (5_500, B)], 5_000, id="another one claimed it behind its end"),
        pytest.param([(500, B), (1_000, A)], 5_000, id="another one had it before"),
        pytest.param([(500, B), (1_000, A), (1_500, B)], 2_000, id="it was over when the member told of it"),
        pytest.param([(1_000, A), (3_000, A)], 5_000, id="its own claim is no other one's"),
    ],
)
def test_a_hold_that_was_told_from_2000_to_5000_ends_with_the_next_ones_claim(
    claims: list[tuple[int, str]], until: int, tmp_path: Path
) -> None:
    lab = Lab("127.0.0.1:1", tmp_path)
    lab._claims["t-0"] = dict(enumerate(claims))
    assert lab.held_until("t-0", {"g_a"}, 2_000, 5_000) == until
