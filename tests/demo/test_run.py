"""How a run of the demo begins and ends: what is checked first, and what becomes of its folder. The play is played."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from zkcoord.demo.accounting import Records
from zkcoord.demo.options import Options, Places
from zkcoord.demo.report import Result
from zkcoord.demo.run import run
from zkcoord.errors import UnavailableError, UsageError

MODULE = sys.modules[run.__module__]  # its name in the package is the function's
Script = Callable[[Places], None]
FINE = Result(
    records=Records(produced=1, processed=1, lost=0, duplicated=0, interrupted=0, foreign=0),
    flow_ms=1,
    happenings=(),
    unowned=(),
)


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Script], None]:
    """Says what happens on the stage, of which nothing is real; the demo's folder goes below `tmp_path`."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(MODULE, "_prepare", lambda version: None)

    class Stage:
        def __init__(self, options: Options, places: Places, voice: object) -> None:
            self.options, self.places = options, places

        def __enter__(self) -> Stage:
            return self

        def __exit__(self, *_: object) -> None:
            pass

    def set_up(script: Script) -> None:
        def played(stage: Stage) -> Result:
            script(stage.places)
            return FINE

        monkeypatch.setattr(MODULE, "Stage", Stage)
        monkeypatch.setattr(MODULE, "play", played)

    return set_up


def log(places: Places) -> None:
    places.log("a").write_text("a line")


def fail(places: Places) -> None:
    raise UnavailableError("no server")


def test_nothing_is_left_of_a_run_that_is_fine(play: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    play(log)
    assert run(Options()) == 0
    assert (list(tmp_path.iterdir()), capsys.readouterr().err) == ([], "")


def test_a_run_that_fails_before_anything_is_written_leaves_nothing(
    play: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    play(fail)
    with pytest.raises(UnavailableError):
        run(Options(keep=True))
    assert (list(tmp_path.iterdir()), capsys.readouterr().err) == ([], "")


def test_a_run_that_fails_later_leaves_its_logs_and_says_where(
    play: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    play(lambda places: (log(places), fail(places)))
    with pytest.raises(UnavailableError):
        run(Options())
    (folder,) = tmp_path.iterdir()
    assert capsys.readouterr().err.endswith(f"logs and output are in {folder}\n")
    assert [path.name for path in folder.rglob("*") if path.is_file()] == ["a.log"]


@pytest.mark.usefixtures("foreground")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_ends_it_and_leaves_nothing(play: Any, tmp_path: Path, number: signal.Signals) -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGHUP)
    play(lambda places: (log(places), os.kill(os.getpid(), number)))
    with pytest.raises(KeyboardInterrupt):
        run(Options())
    assert list(tmp_path.iterdir()) == []
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGHUP)) == before


def test_a_hangup_that_is_ignored_stays_ignored(play: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        play(lambda places: os.kill(os.getpid(), signal.SIGHUP))
        assert run(Options()) == 0
    finally:
        signal.signal(signal.SIGHUP, before)


def test_without_its_packages_the_line_that_installs_them_is_told_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: None if name in ("pyspark", "pyarrow") else found(name)
    )
    with pytest.raises(UsageError) as told:
        run(Options())
    assert str(told.value) == (
        "the demo needs extra packages (pyspark, pyarrow): pip install 'zkcoord[demo]'; in a checkout scripts/demo "
        "installs them in an environment of its own"
    )
    assert list(tmp_path.iterdir()) == []
