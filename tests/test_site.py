"""The documentation as a site: it can be built without warnings, and has every page, command and public name."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from tests.metrics.test_endpoint import free_address, get
from tests.pages import shell_block
from tests.waiting import wait_until
from zkcoord.cli.main import cli
from zkcoord.cli.options import commands_of

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.spark  # the reference names the options of Spark consumers
SECONDS = 600.0  # only a failure takes that long
MADE = ("index", "contributing", "changes", "reference/commands", "reference/python")
FETCHING = re.compile(r"<(?:script|link|img|source|iframe|object|embed|video|audio)\b[^>]*>")
LINK = re.compile(r'(?:href|src)="([^"]+)"')


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site with warnings as errors: dead links, pages without a menu entry, docstrings that cannot be
    parsed."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def page(site: Path, name: str) -> str:
    """The text of a page, as HTML."""
    return (site / ("index.html" if name == "index" else f"{name}/index.html")).read_text("utf-8")


def test_every_page_is_there_and_its_links_lead_into_the_site(site: Path) -> None:
    names = [*MADE, *(path.stem for path in (ROOT / "docs").glob("*.md"))]
    broken = []
    for name in names:
        folder = site if name == "index" else site / name
        for target in LINK.findall(page(site, name)):
            path = html.unescape(target).partition("#")[0].partition("?")[0]
            if path and not path.startswith(("https:", "http:", "data:")) and not (folder / path).exists():
                broken.append(f"{name}: {target}")
    assert broken == []


def test_the_reference_has_every_command_with_its_example(site: Path) -> None:
    text = html.unescape(re.sub(r"<[^>]+>", "", page(site, "reference/commands")))
    commands = dict(commands_of(cli))
    assert [words for words in commands if f"\nzkcoord {words}" not in text] == []
    assert [command.example for command in commands.values() if command.example not in text] == []
    assert "ZKCOORD_COORDINATOR_SESSION_TIMEOUT_MS" in text


def test_pictures_are_shown(site: Path) -> None:
    for name, picture in (
        ("migrating", "modes.svg"),
        ("monitoring", "hand-over.svg"),
        ("page", "page-groups.png"),
    ):
        assert re.search(rf'<img[^>]*src="[^"]*{re.escape(picture)}"', page(site, name))
        assert (site / "images" / picture).is_file()


def test_no_page_fetches_anything_from_elsewhere(site: Path) -> None:
    """Scripts, styles, fonts and pictures come from the site itself. No page has content for which the theme's script
    would fetch something."""
    found = []
    for path in sorted(site.rglob("*.html")):
        for tag in FETCHING.findall(path.read_text("utf-8")):
            if (target := re.search(r'(?:src|href|srcset)="?((?:https?:)?//[^"\s>]+)', tag)) and "canonical" not in tag:
                found.append(f"{path.relative_to(site)}: {target[1]}")
        if re.search(r'class="[^"]*\bmermaid\b', path.read_text("utf-8")):
            found.append(f"{path.relative_to(site)}: a diagram, whose program the theme fetches")
    for path in sorted(site.rglob("*.css")):
        addresses = re.findall(r"""(?:url\(|@import)\s*["']?((?:https?:)?//[^"')]+)""", path.read_text("utf-8"))
        found += [f"{path.relative_to(site)}: {each}" for each in addresses]
    assert found == []


def test_the_program_that_makes_pages_is_no_page(site: Path) -> None:
    assert not (site / "site.py").exists()


@pytest.mark.parametrize(
    "module",
    ["zkcoord", "zkcoord.kafka", "zkcoord.spark", "zkcoord.embedded", "zkcoord.assignors", "zkcoord.testing"],
)
def test_the_reference_has_every_public_name(module: str, site: Path) -> None:
    text = page(site, "reference/python")
    assert [name for name in import_module(module).__all__ if f'id="{module}.{name}"' not in text] == []


@pytest.mark.long  # the site is built once more
def test_the_line_that_serves_the_site_serves_it() -> None:
    (line,) = shell_block("CONTRIBUTING.md", "Documentation as a site")
    assert line == ".venv/bin/mkdocs serve"
    address = free_address()
    command = [sys.executable, "-m", *line.rpartition("/")[2].split(), "--dev-addr", address]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    with subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as serving:
        try:
            wait_until(lambda: get(address, "/")[0] == 200, "the site is served", SECONDS)
        finally:
            serving.terminate()
