"""The hand-overs of a journal are those that the coordinator saw when it wrote it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.sim.actors import GROUP
from tests.timeline.journal_scene import Journaled, journal_of_moves
from zkcoord.core.ack_timeouts import AckTimeouts
from zkcoord.core.handovers import MOMENTS
from zkcoord.errors import CorruptError
from zkcoord.timeline.journal import files_within, journaled


@pytest.fixture
def kept(tmp_path: Path) -> Journaled:
    """A journal in several files."""
    return journal_of_moves(tmp_path / "journal")


def refuse(text: str) -> None:
    raise AssertionError(text)


def test_a_journal_in_many_files_of_two_runs_has_each_handover_as_it_was_seen(kept: Journaled) -> None:
    found = journaled(kept.files, GROUP, refuse)

    assert len(kept.files) > 4
    assert sorted(map(str, found.handovers)) == sorted(map(str, kept.seen))
    assert {each["acknowledged_ms"] is None for each in found.handovers} == {True, False}
    assert [each for each in found.handovers if each["from"] is not None and each["acknowledged_ms"]] != []
    assert [each for each in found.handovers if None not in [each[name] for name in MOMENTS]] != []
    assert found.groups == {GROUP}
    assert journaled(kept.files, "other", refuse).handovers == []


def test_only_the_files_of_a_time_are_played(kept: Journaled, tmp_path: Path) -> None:
    files = kept.files
    assert files_within(files, None, None) == files
    began = [json.loads(file.read_text(encoding="utf-8").splitlines()[0])["time_ms"] for file in files]
    assert files_within(files, began[2] + 1, began[3]) == files[2:3]
    assert files_within(files, began[-1] + 1, None) == files[-1:]
    assert files_within(files, None, began[0]) == []
    other = tmp_path / "000001.jsonl"
    other.write_bytes(files[0].read_bytes())
    assert files_within([files[-1], other], began[-1] + 1, None) == [files[-1], other]


def test_a_file_that_cannot_be_read_is_told_and_left_out(kept: Journaled, tmp_path: Path) -> None:
    wrong, told = tmp_path / "000000.jsonl", list[str]()
    wrong.write_text("hello\n", encoding="utf-8")

    assert journaled([wrong, *kept.files], GROUP, told.append) == journaled(kept.files, GROUP, refuse)
    assert [text.startswith(f"{wrong}: line 1 is no JSON") for text in told] == [True]
    with pytest.raises(CorruptError, match="line 1 is no JSON"):
        journaled([wrong], GROUP, told.append)


def test_decisions_that_differ_from_the_journals_are_told_and_left_out(
    kept: Journaled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AckTimeouts, "start_backs_off", lambda *_: True)  # grants nothing
    told: list[str] = []
    found = journaled(kept.files, GROUP, told.append)

    assert {each["granted_ms"] for each in found.handovers} <= {None}
    assert "this version decides otherwise at step" in told[0]
