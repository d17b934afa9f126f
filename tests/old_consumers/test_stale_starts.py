from __future__ import annotations

import pytest

from tests.old_consumers.stale_starts import stale_start

COMMITS = [(1_000, 40), (4_000, 43), (5_200, 47), (6_000, 50)]


@pytest.mark.parametrize(
    ("offset", "begun_ms", "started_ms", "again"),
    [
        pytest.param(43, 5_000, 5_400, range(43, 47), id="the release came while it rebalanced"),
        pytest.param(43, 5_000, 6_500, range(43, 50), id="and another commit"),
        pytest.param(47, 5_000, 6_500, range(47, 50), id="it read between the two"),
        pytest.param(47, 5_000, 5_400, range(0), id="it read behind the release"),
        pytest.param(43, 5_300, 5_400, range(0), id="the release came before it began"),
        pytest.param(40, 5_000, 5_400, range(0), id="an offset that was long over"),
        pytest.param(44, 5_000, 5_400, range(0), id="an offset that nobody committed"),
    ],
)
def test_only_an_offset_that_stood_while_it_rebalanced_explains_what_is_read_again(
    offset: int, begun_ms: int, started_ms: int, again: range
) -> None:
    assert list(stale_start(offset, begun_ms, started_ms, COMMITS)) == list(again)
