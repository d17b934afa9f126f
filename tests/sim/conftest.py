"""Garbage collection in the simulated world: it does not run while a test plays its worlds."""

from collections.abc import Iterator

import pytest

from tests.sim.garbage import collect_between, collected_between


@pytest.fixture(scope="module", autouse=True)
def _collected_between() -> Iterator[None]:
    with collected_between():
        yield


@pytest.fixture(autouse=True)
def _collect() -> Iterator[None]:
    yield
    collect_between()
