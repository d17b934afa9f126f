"""Plays a journal again from its checkpoint, and compares the outputs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from zkcoord.errors import CorruptError
from zkcoord.shell.journal.lines import to_input
from zkcoord.shell.journal.recorder import Recorder
from zkcoord.shell.loop import Loop
from zkcoord.shell.role import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The output of a step in the journal (`was`) and now (`now`). If an error ended the step, it comes last."""

    was: list[dict[str, Any]]
    now: list[dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """One step: its output, and the difference if the journal has another output. The role is in its state after the
    step."""

    step: int
    mono_ms: int
    time_ms: int  # of the wall clock, when the line was written; 0 if the line has no time
    role: Role | None
    outputs: list[dict[str, Any]]
    difference: Difference | None


def replay(journal: Iterable[str]) -> Iterator[Played]:
    """Play each step of a file's lines. An incomplete last line is ignored.

    It ends at the first difference, since later steps would differ for that reason. Raises CorruptError for a line that
    is not a journal's, or for a checkpoint of another version.
    """
    recorder = Recorder(None)
    loop: Loop | None = None
    for number, text in enumerate(journal, 1):
        if not text.endswith("\n"):
            return  # its writer was killed while writing it
        line = _parsed(number, text)
        if "checkpoint" in line:
            loop = recorder.restore(line)
            continue
        if loop is None:
            raise CorruptError(f"line {number}: a journal's file begins with a checkpoint, this one does not")
        played = _play(recorder, loop, line)
        yield played
        if played.difference is not None:
            return


def _parsed(number: int, text: str) -> dict[str, Any]:
    try:
        line = json.loads(text)
    except ValueError as error:
        raise CorruptError(f"line {number} is no JSON ({error}): the journal was cut off, or is none") from error
    if not isinstance(line, dict) or not (
        "checkpoint" in line or {"step", "mono_ms", "inputs", "outputs"} <= line.keys()
    ):
        raise CorruptError(f"line {number} is none of a journal's: {text[:80]!r}")
    return line


def _play(recorder: Recorder, loop: Loop, line: dict[str, Any]) -> Played:
    was = line["outputs"] + ([{"raised": line["raised"]}] if "raised" in line else [])
    inputs = [to_input(item) for item in line["inputs"]]
    raised = []
    try:
        recorder.step(loop, inputs, line["mono_ms"])
    except Exception as error:  # the user wants to see whatever a broken role raises
        raised = [{"raised": repr(error)}]
    now = json.loads(json.dumps(recorder.outputs + raised))
    difference = Difference(was=was, now=now) if now != was else None
    return Played(
        step=line["step"],
        mono_ms=line["mono_ms"],
        time_ms=line.get("time_ms", 0),
        role=loop.role,
        outputs=now,
        difference=difference,
    )
