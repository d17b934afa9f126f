"""The wheel in environments that have nothing else: its files, and the programs that run without extras.

tests/integration/test_demo.py runs the demo from the wheel.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.installed import FILES, ROOT, SOURCES, Installed, build_wheel
from tests.pages import shell_block

NOWHERE = "127.0.0.1:1"
EACH_HELP = """
from zkcoord.cli.main import cli
from zkcoord.cli.options import commands_of
for words, _ in commands_of(cli):
    try:
        cli.main([*words.split(), "--help"], prog_name="zkcoord")
    except SystemExit as end:
        assert end.code == 0, words
"""

pytestmark = pytest.mark.wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("source"))


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """zkcoord without any extra."""
    return Installed(tmp_path_factory.mktemp("bare"), wheel)


def files(folder: str) -> set[str]:
    """The files below a folder of the checkout."""
    found = (path for path in (ROOT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {str(path.relative_to(ROOT)) for path in found}


def test_the_wheel_holds_every_file_of_the_packages_and_no_other(wheel: Path) -> None:
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name and ".data/" not in name}
    assert held == files("zkcoord") | {f"zkcoord_{name}" for name in files("migrations")} | {"zkcoord_command.py"}


def test_an_image_is_built_from_what_the_wheel_is_built_from() -> None:
    lines = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    assert {line[1:] for line in lines if line.startswith("!")} == {*SOURCES, *FILES}
    assert "*" in lines


def test_the_wheel_brings_dashboard_rules_unit_and_schemas(bare: Installed) -> None:
    brought = bare.folder / "venv/share/zkcoord"
    expected = {f"schemas/{path.name}" for path in (ROOT / "docs/schemas").iterdir()}
    for name in ("grafana/zkcoord.json", "prometheus/alerts.yml", "prometheus/prometheus.yml"):
        expected.add(name)
    expected.add("systemd/zkcoord-coordinator.service")
    assert {str(path.relative_to(brought)) for path in brought.rglob("*") if path.is_file()} == expected


def test_pytest_finds_the_fixtures_of_an_installed_wheel(wheel: Path, tmp_path: Path) -> None:
    installed = Installed(tmp_path, wheel, "", "pytest")
    done = installed.run("pytest", "--fixtures", "-q")
    listed = set(re.findall(r"^(zkcoord_\w+)", done.stdout, re.MULTILINE))
    page = (ROOT / "docs/testing.md").read_text("utf-8")
    assert listed == set(re.findall(r"`(zkcoord_\w+)`", page)) != set(), done.stdout + done.stderr


def test_the_readmes_line_for_a_checkout_finds_the_extras_and_their_versions() -> None:
    (line,) = shell_block("README.md", "Installation")
    pip, *words = shlex.split(line, comments=True)
    others = [words[-1].replace("[spark]", extra) for extra in ("[kafka]", "")]
    assert [words[-1], *others] == [".[spark]", ".[kafka]", "."]
    command = [sys.executable, "-m", pip, *words, *others, "--dry-run"]  # pip resolves everything, and changes nothing
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, "does not provide the extra" in done.stderr) == (0, False), done.stderr


def test_every_command_shows_its_help_without_extras(bare: Installed) -> None:
    assert bare.run("zkcoord", "--help").returncode == 0
    done = bare.run("python", "-c", EACH_HELP)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("call", "extra"),
    [
        ("consume --group g --topic t --bootstrap-servers KAFKA", "kafka"),
        ("coordinator --topics kafka --bootstrap-servers KAFKA", "kafka"),
        ("coordinator --metrics 127.0.0.1:0", "metrics"),
        ("coordinator --http 127.0.0.1:0", "web"),
        ("page --http 127.0.0.1:0", "web"),
        ("audit --once --metrics 127.0.0.1:0", "metrics"),
        ("audit --once --bootstrap-servers KAFKA", "kafka"),
        ("migrate topics --to kafka --bootstrap-servers KAFKA", "kafka"),
        ("offsets history g --bootstrap-servers KAFKA", "spark"),
        ("demo", "demo"),
    ],
)
def test_a_command_that_needs_an_extra_names_it_at_once(call: str, extra: str, bare: Installed) -> None:
    words = call.replace("KAFKA", NOWHERE).split()
    told = [] if words[0] == "demo" else ["--zookeeper", NOWHERE]
    done = bare.run("zkcoord", *words, *told)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert f"pip install 'zkcoord[{extra}]'" in line


@pytest.mark.zookeeper
def test_commands_show_what_they_can_without_an_extra_and_name_it(bare: Installed, chroot: str) -> None:
    told = ["--zookeeper", chroot, "--bootstrap-servers", NOWHERE]
    assert bare.run("zkcoord", "migrate", "upgrade", *told).returncode == 0
    for call, code in (("group list --state", 0), ("inventory", 0), ("doctor", 2), ("offsets verify --all-groups", 2)):
        done = bare.run("zkcoord", *call.split(), *told)
        assert done.returncode == code, done.stderr
        assert "Kafka needs an extra package: pip install 'zkcoord[kafka]'" in done.stderr
