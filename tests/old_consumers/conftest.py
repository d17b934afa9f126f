"""A laboratory for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.old_consumers.lab import Lab


@pytest.fixture
def lab(chroot: str, tmp_path: Path) -> Iterator[Lab]:
    """An empty tree with one broker, to which nobody can connect: for members that fetch nothing."""
    with Lab(chroot, tmp_path) as lab:
        lab.broker()
        yield lab


@pytest.fixture
def bare(chroot: str, tmp_path: Path) -> Iterator[Lab]:
    """An empty tree, without any broker."""
    with Lab(chroot, tmp_path) as lab:
        yield lab
