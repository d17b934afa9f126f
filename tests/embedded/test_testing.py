"""The fixtures for users' own tests: the page's examples run as they are printed there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pages import python_block

PAGE = Path(__file__).parent.parent.parent / "docs" / "testing.md"
BLOCKS = {
    "records": python_block("testing.md", "Testing your own consumers"),
    "servers": python_block("testing.md", "Testing your own consumers", 2),
}
SECONDS = 300.0  # only what fails takes so long


def played(folder: Path, *words: str) -> str:
    """Run the page's tests in a pytest of their own, as a user's; returns what it printed."""
    for name, block in BLOCKS.items():
        (folder / f"test_{name}.py").write_text(block, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "zkcoord.testing", "--rootdir", str(folder), *words]
    done = subprocess.run([*command, str(folder)], cwd=folder, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.kafka
def test_the_pages_examples_pass_on_real_servers(tmp_path: Path) -> None:
    assert "2 passed" in played(tmp_path)


def test_the_page_names_each_fixture_and_no_other(tmp_path: Path) -> None:
    listed = set(re.findall(r"^(zkcoord_\w+)", played(tmp_path, "--fixtures"), re.MULTILINE))
    assert listed == set(re.findall(r"`(zkcoord_\w+)`", PAGE.read_text("utf-8")))


def test_pytest_finds_the_fixtures_where_the_package_is_installed() -> None:
    text = (PAGE.parent.parent / "setup.py").read_text(encoding="utf-8")
    assert '"pytest11": ["zkcoord.testing = zkcoord.testing"]' in text
