"""The wheel, and environments that have only the wheel and nothing of the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCES = ("zkcoord", "migrations", "deploy", "docs")
FILES = ("setup.py", "pyproject.toml", "README.md", "LICENSE", "constraints.txt", "zkcoord_command.py")
SECONDS = 600.0  # only a failure takes that long


def build_wheel(folder: Path) -> Path:
    """Build the wheel from a copy in this folder. So no folder `build` is left in the checkout, and an existing one
    does not count."""
    for name in SOURCES:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        shutil.copy(ROOT / name, folder)
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, "--wheel-dir", str(folder / "made"), str(folder)], check=True, timeout=SECONDS)
    (made,) = (folder / "made").iterdir()
    return made


class Installed:
    """A virtual environment with the wheel, outside of the checkout."""

    def __init__(self, folder: Path, wheel: Path, extras: str = "", *others: str) -> None:
        self.folder = folder
        venv.create(folder / "venv", symlinks=True)  # without pip, since its installation takes seconds
        pip = [sys.executable, "-m", "pip", "--python", str(folder / "venv"), "install", "--quiet", "--no-compile"]
        told = ["--disable-pip-version-check", "-c", str(ROOT / "constraints.txt"), f"{wheel}{extras}", *others]
        subprocess.run([*pip, *told], check=True, timeout=SECONDS, env=self.env())

    def env(self) -> dict[str, str]:
        """The environment without variables that would show the checkout or servers."""
        hidden = ("PYTHON", "VIRTUAL_ENV", "ZKCOORD_ZOOKEEPER", "ZKCOORD_BOOTSTRAP", "SPARK_", "PYSPARK_")
        return {name: value for name, value in os.environ.items() if not name.startswith(hidden)}

    def command(self, program: str, *words: str) -> list[str]:
        """The command line of one of its programs."""
        return [str(self.folder / "venv/bin" / program), *words]

    def run(self, program: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Run one of its programs to its end."""
        command = self.command(program, *words)
        return subprocess.run(
            command, cwd=self.folder, env=self.env(), capture_output=True, text=True, timeout=SECONDS, check=False
        )
