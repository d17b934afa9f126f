"""scripts/replay's command on a real coordinator's journal: the same, something else, and what is no journal."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.cli.program import Spawn
from zkcoord.cli.replay import main
from zkcoord.settings import version

BEFORE = Path(__file__).resolve().parents[1] / "data" / "journal_before"
"""Pages of a coordinator of `tests/data/release_before.zip`: its election, a member that joins, one that dies."""


def replayed(*arguments: object) -> Result:
    """The command, run here."""
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture
def journal(tmp_path: Path, spawn: Spawn, chroot: str) -> Path:
    """The journal of a coordinator that was elected on an empty tree, and stopped."""
    program = spawn("coordinator", "--zookeeper", chroot, "--journal", str(tmp_path / "j"))
    program.line(having="serves")
    program.process.send_signal(signal.SIGTERM)
    assert program.end() == 0
    return tmp_path / "j"


@pytest.mark.zookeeper
def test_a_journal_played_again_is_the_same(journal: Path) -> None:
    result = replayed(journal)
    assert (result.exit_code, result.output.strip().rpartition(": ")[2]) == (0, "the same")
    shown = replayed("--show", journal / "000001.jsonl").output
    assert '"event":"elected"' in shown


@pytest.mark.zookeeper
def test_replay_shows_differing_outputs(journal: Path) -> None:
    file = journal / "000001.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    changed = next(line for line in lines if any(o.get("event") == "elected" for o in line.get("outputs", [])))
    changed["outputs"] = [o for o in changed["outputs"] if o.get("event") != "elected"]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    result = replayed(file)
    assert result.exit_code == 1
    assert f"step {changed['step']}, at {changed['mono_ms']} ms, puts out something else now:" in result.output
    assert '  + {"event":"elected"' in result.output


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"hello\n", "line 1 is no JSON"),
        (b"[]\n", "line 1 is none of a journal's"),
        (b'{"checkpoint":"bm8="}\n', "cannot read"),
        (b'{"step":1,"mono_ms":1,"inputs":[],"outputs":[]}\n', "a journal's file begins with a checkpoint"),
        (b"\xff\xfe\n", "this is no journal"),
    ],
)
def test_replay_refuses_a_wrong_journal(content: bytes, says: str, tmp_path: Path) -> None:
    (tmp_path / "000001.jsonl").write_bytes(content)
    result = replayed(tmp_path)
    assert result.exit_code == 6
    assert says in result.output


def before_with(name: str, version: str, folder: Path) -> Path:
    """A page of the earlier release, which says that this version wrote it."""
    first, *rest = (BEFORE / name).read_text().splitlines(keepends=True)
    line = json.loads(first)
    assert line["version"] == "0.1.0"
    page = folder / name
    page.write_text("".join([json.dumps({**line, "version": version}) + "\n", *rest]))
    return page


@pytest.mark.parametrize("page", sorted(path.name for path in BEFORE.iterdir()))
def test_f209_an_earlier_releases_journal_replays_the_same_or_is_refused_by_version(page: str, tmp_path: Path) -> None:
    result = replayed(before_with(page, "0.0.9", tmp_path))

    if result.exit_code == 0:
        assert result.output.strip().endswith(": the same")
        return
    assert result.exit_code == 6
    assert result.output.startswith(f"error: {tmp_path / page}: a checkpoint that this program, zkcoord {version()}, ")
    assert result.output.strip().endswith(": replay with what wrote the journal, zkcoord 0.0.9")


def test_a_folder_without_a_journal_is_a_wrong_call(tmp_path: Path) -> None:
    result = replayed(tmp_path)
    assert result.exit_code == 2
    assert "no journal there" in result.output
