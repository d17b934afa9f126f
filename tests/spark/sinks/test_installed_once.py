"""A program of others is installed once, however many suites ask for it; a failed installation is made again."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from tests.spark.sinks.installed_once import install_once, is_installed, run
from zkcoord.errors import UnavailableError


def test_of_many_who_ask_at_once_one_installs(tmp_path: Path) -> None:
    begun, folder = Barrier(4), tmp_path / "cache" / "tool"
    calls: list[Path] = []

    def ask(_: int) -> bool:
        begun.wait(60)
        install_once(folder, calls.append)
        return is_installed(folder)

    with ThreadPoolExecutor(4) as pool:
        assert [*pool.map(ask, range(4))] == [True] * 4
    assert calls == [folder]


def test_a_failed_installation_says_why_and_is_made_again_in_an_empty_folder(tmp_path: Path) -> None:
    folder = tmp_path / "tool"

    def broken(at: Path) -> None:
        (at / "half").touch()
        run("tool", [sys.executable, "-c", "import sys; sys.exit('no network')"])

    with pytest.raises(UnavailableError, match="tool could not be installed: no network"):
        install_once(folder, broken)
    assert not is_installed(folder)
    install_once(folder, lambda at: None)
    assert (is_installed(folder), [each.name for each in folder.iterdir()]) == (True, ["complete"])
