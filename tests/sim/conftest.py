"""How the simulated world is played here: as fast as the soak plays it."""

from collections.abc import Iterator

import pytest

from tests.sim.garbage import seldom_collected


@pytest.fixture(scope="module", autouse=True)
def _seldom_collected() -> Iterator[None]:
    with seldom_collected():
        yield
