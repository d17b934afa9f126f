"""The wheel, in environments that have nothing else: what it holds, what runs without extras, and the demo."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = ("zkcoord", "migrations", "deploy", "docs")
FILES = ("setup.py", "pyproject.toml", "README.md", "LICENSE", "constraints.txt")
SECONDS = 600.0  # only what fails takes so long
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


class Installed:
    """A virtual environment with the wheel, outside of the checkout."""

    def __init__(self, folder: Path, wheel: Path, extras: str = "", *others: str) -> None:
        self.folder = folder
        venv.create(folder / "venv", symlinks=True)  # without pip, whose installation takes seconds
        pip = [sys.executable, "-m", "pip", "--python", str(folder / "venv"), "install", "--quiet"]
        told = ["--disable-pip-version-check", "-c", str(ROOT / "constraints.txt"), f"{wheel}{extras}", *others]
        subprocess.run([*pip, *told], check=True, timeout=SECONDS, env=self.env())

    def env(self) -> dict[str, str]:
        """The environment without what would show the checkout, or servers."""
        hidden = ("PYTHON", "VIRTUAL_ENV", "ZKCOORD_ZOOKEEPER", "ZKCOORD_BOOTSTRAP", "SPARK_", "PYSPARK_")
        return {name: value for name, value in os.environ.items() if not name.startswith(hidden)}

    def run(self, program: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Run one of its programs."""
        command = [str(self.folder / "venv/bin" / program), *words]
        return subprocess.run(
            command, cwd=self.folder, env=self.env(), capture_output=True, text=True, timeout=SECONDS, check=False
        )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, so that no folder `build` is left here, nor one that is here counts."""
    copy = tmp_path_factory.mktemp("source")
    for name in SOURCES:
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        shutil.copy(ROOT / name, copy)
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, "--wheel-dir", str(copy / "made"), str(copy)], check=True, timeout=SECONDS)
    (made,) = (copy / "made").iterdir()
    return made


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
    assert held == files("zkcoord") | {f"zkcoord_{name}" for name in files("migrations")}


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
def test_what_can_be_shown_without_an_extra_is_shown_and_the_rest_names_it(bare: Installed, chroot: str) -> None:
    told = ["--zookeeper", chroot, "--bootstrap-servers", NOWHERE]
    assert bare.run("zkcoord", "migrate", "upgrade", *told).returncode == 0
    for call, code in (("group list --state", 0), ("inventory", 0), ("doctor", 2), ("offsets verify --all-groups", 2)):
        done = bare.run("zkcoord", *call.split(), *told)
        assert done.returncode == code, done.stderr
        assert "Kafka needs an extra package: pip install 'zkcoord[kafka]'" in done.stderr


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.kafka
def test_the_demo_runs_from_the_wheel(wheel: Path, tmp_path: Path) -> None:
    installed = Installed(tmp_path, wheel, "[demo]")
    done = installed.run("zkcoord", "demo", "--seconds", "5")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert installed.run("zkcoord", "doctor", "--help").returncode == 0
