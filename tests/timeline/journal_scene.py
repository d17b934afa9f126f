"""A coordinator of the simulated world that keeps a journal, with what was seen of its hand-overs meanwhile."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.sim.actors import ProductActor, coordinator
from tests.sim.process import SimProcess
from tests.sim.script import Script
from zkcoord.serving.handovers import ServedHandOvers, document
from zkcoord.shell.ports import Input

WALL_MS = 1_790_000_000_000
FILE_LINES = 8


class Pages:
    """Small numbered files in a folder, whose lines have the process's time as a wall clock."""

    def __init__(self, folder: Path, process: SimProcess) -> None:
        self._folder, self._lines, self._clock = folder, FILE_LINES, process.clock

    @property
    def turn(self) -> bool:
        return self._lines >= FILE_LINES

    def checkpoint(self, line: dict[str, Any]) -> None:
        self._file = self._folder / f"{len(list(self._folder.iterdir())) + 1:06}.jsonl"
        self._lines = 0
        self.write(line)

    def write(self, line: dict[str, Any]) -> None:
        self._lines += 1
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"time_ms": WALL_MS + self._clock.now_ms(), **line}) + "\n")


class Journaled:
    """A coordinator that keeps a journal, with what is seen of its hand-overs while it runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seen: list[dict[str, Any]] = []
        self._live: ServedHandOvers | None = None
        folder.mkdir()

    def __call__(self, process: SimProcess) -> ProductActor:
        self.cut()
        live = self._live = ServedHandOvers()
        actor = coordinator(process, Pages(self.folder, process))
        step = actor.step

        def watched(inputs: Sequence[Input], now_ms: int) -> int | None:
            wake_at_ms = step(inputs, now_ms)
            self._see(live.after_step(actor.role))
            self._amend(live.amended)
            return wake_at_ms

        actor.step = watched
        return actor

    def cut(self) -> None:
        """Take in what is under way: the coordinator writes nothing more."""
        if self._live is not None:
            self._see(self._live.under_way)

    def _see(self, found: Any) -> None:
        self.seen += [document(group, each, WALL_MS) for group, each in found]

    def _amend(self, found: Any) -> None:
        for group, each in found:
            told = document(group, each, WALL_MS)
            self.seen[self.seen.index({**told, "first_record_ms": None})] = told

    @property
    def files(self) -> list[Path]:
        return sorted(self.folder.iterdir())


def journal_of_moves(folder: Path) -> Journaled:
    """The journal of a coordinator that is killed while partitions move to a new member, and goes on."""
    kept = Journaled(folder)
    script = Script(1, coordinators=1, consumers=2, topics={"t": 8}, coordinates=kept)
    script.settle()
    script.join("consumer2")
    script.settle("the third has its share")
    script.join("consumer3")
    moving = len(script.world.events("stop_sent"))
    script.world.run_until(lambda: len(script.world.events("stop_sent")) > moving, 20_000, "partitions move")
    script.world.crash("coordinator0", restart_after_ms=1_000)
    script.settle("each has its share")
    script.world.run_for(12_000)  # 10 s after a start the coordinator reads whether there was a first record
    script.world.crash("consumer0", restart_after_ms=None)
    granted = len(script.world.events("start_sent"))
    script.world.run_until(lambda: len(script.world.events("start_sent")) > granted, 60_000, "others get its share")
    kept.cut()
    return kept
