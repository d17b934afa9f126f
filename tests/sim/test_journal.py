"""A coordinator's journal that is played again gives the same decisions: at every step, from every checkpoint, in every
storm."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest

from tests.sim.actors import coordinator
from tests.sim.options import seeds
from tests.sim.scenarios import Scene
from tests.sim.world import World
from zkcoord.core.ack_timeouts import AckTimeouts
from zkcoord.errors import CorruptError
from zkcoord.shell.journal.replay import replay

PAGE_LINES = 10


class MemoryPages:
    """Journal pages in memory. A new page begins after PAGE_LINES lines."""

    def __init__(self) -> None:
        self.pages: list[list[str]] = []

    @property
    def turn(self) -> bool:
        return not self.pages or len(self.pages[-1]) > PAGE_LINES

    def checkpoint(self, line: dict[str, Any]) -> None:
        self.pages.append([])
        self.write(line)

    def write(self, line: dict[str, Any]) -> None:
        self.pages[-1].append(json.dumps(line) + "\n")


def journals_of_a_storm(seed: int) -> list[MemoryPages]:
    """A storm in which each incarnation of both coordinators keeps a journal of its own."""
    journals: list[MemoryPages] = []

    def keeps_a_journal(process: Any) -> Any:
        journals.append(MemoryPages())
        return coordinator(process, journals[-1])

    world = World(seed)
    scene = Scene(world, coordinators=0)
    for name in ("coordinator0", "coordinator1"):
        world.spawn(name, keeps_a_journal)
    world.at(5_000, partial(scene.grow, "t", 10))
    world.storm(500)
    scene.calm()
    return journals


def journaled(seed: int) -> None:
    """One seed of a storm. All pages of its journals are played again."""
    journals = journals_of_a_storm(seed)
    pages = [page for journal in journals for page in journal.pages]
    played = [list(replay(page)) for page in pages]
    assert [[p.step for p in page if p.difference] for page in played] == [[] for _ in pages]
    assert [len(page) for page in played] == [len(page) - 1 for page in pages]
    assert max(len(journal.pages) for journal in journals) > 1


@pytest.mark.parametrize("seed", seeds(12))
def test_every_page_of_a_storm_played_again_puts_out_the_same(seed: int) -> None:
    journaled(seed)


def test_a_coordinator_that_decides_otherwise_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = [page for journal in journals_of_a_storm(1) for page in journal.pages]
    monkeypatch.setattr(AckTimeouts, "start_backs_off", lambda *_: True)  # so nothing is granted
    differences = [played.difference for page in pages for played in replay(page) if played.difference]
    written = [output for difference in differences for output in difference.was if output not in difference.now]
    assert any(output.get("event") == "start_sent" for output in written)


def test_a_journal_with_other_fields_is_refused_with_its_versions_name() -> None:
    page = next(page for journal in journals_of_a_storm(1) for page in journal.pages if "GroupState" in page[0])
    first = json.loads(page[0])
    assert list(replay(page)) != []
    first["version"] = "0.9"
    first["fields"]["zkcoord.core.state.GroupState"].remove("problem")
    with pytest.raises(CorruptError, match=r"zkcoord.core.state.GroupState has other fields now.*zkcoord 0.9"):
        list(replay([json.dumps(first) + "\n", *page[1:]]))


def test_a_line_that_was_cut_off_ends_the_replay() -> None:
    page = next(page for journal in journals_of_a_storm(2) for page in journal.pages if len(page) > 3)
    cut = [*page[:3], page[3][: len(page[3]) // 2]]
    assert [played.step for played in replay(cut)] == [played.step for played in replay(page[:3])]
