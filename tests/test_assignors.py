"""Assignors of installed packages: they are found when the coordinator starts, their errors are caught, and a journal
knows them by name."""

from __future__ import annotations

import importlib
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from zkcoord import Coordinator
from zkcoord.assignors import UserAssignor, all_assignors, check_offers, installed_assignors
from zkcoord.core.assignors import ASSIGNORS, AssignmentError, AssignorInput, ask
from zkcoord.core.model import Subscriber, TopicPartition
from zkcoord.errors import UsageError

MODULE = """
from zkcoord.assignors import AssignorInput, TopicPartition

def last(given):
    name = max(member.consumer_id for member in given.subscribers)
    return {TopicPartition(t, n): f"{name}-0" for t, ids in given.partitions.items() for n in ids}

def greedy(given):
    given.owned.clear()

number = 7
"""
ENTRIES = """
[zkcoord.assignors]
last = own_assignors:last
greedy = own_assignors:greedy
sticky = own_assignors:last
number = own_assignors:number
gone = own_assignors:gone
Loud = own_assignors:last
"""
GROUP = AssignorInput(
    subscribers=(Subscriber(consumer_id="a", threads={"t": 1}), Subscriber(consumer_id="b", threads={"t": 1})),
    partitions={"t": (0, 1)},
    owned={TopicPartition("t", 0): "a-0"},
)


@pytest.fixture(autouse=True)
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installed package with entry points."""
    (tmp_path / "own_assignors.py").write_text(MODULE)
    metadata = tmp_path / "own_assignors-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: own-assignors\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(ENTRIES)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    yield
    sys.modules.pop("own_assignors", None)


def test_packaged_assignors_are_found_and_unusable_ones_are_told() -> None:
    told: list[tuple[str, str]] = []
    found = installed_assignors(lambda name, why: told.append((name, why)))
    assert sorted(found) == ["greedy", "last"]
    assert [name for name, _ in told] == ["Loud", "gone", "number", "sticky"]
    assert all(why.startswith("own_assignors:") for _, why in told)
    assert sorted(all_assignors(found)) == sorted([*ASSIGNORS, "greedy", "last"])


def test_a_users_function_answers_and_cannot_change_what_it_is_given() -> None:
    found = installed_assignors(lambda name, why: None)
    assert ask(found["last"], GROUP) == dict.fromkeys([TopicPartition("t", 0), TopicPartition("t", 1)], "b-0")
    with pytest.raises(AssignmentError, match="it raised AttributeError"):
        ask(found["greedy"], GROUP)
    assert GROUP.owned == {TopicPartition("t", 0): "a-0"}


def test_in_a_journal_it_stands_by_its_name() -> None:
    found = installed_assignors(lambda name, why: None)
    data = pickle.dumps(found["last"])
    assert b"MODULE" not in data
    assert pickle.loads(data) == found["last"]
    (gone,) = [pickle.dumps(UserAssignor("nobody", lambda given: {}))]
    with pytest.raises(ImportError, match="no installed package brings the assignor 'nobody'"):
        pickle.loads(gone)


def test_a_coordinator_is_given_functions_too_but_not_under_a_name_that_is_taken() -> None:
    Coordinator("127.0.0.1:1", assignors={"mine": lambda given: {}})
    with pytest.raises(UsageError, match="'range' is taken"):
        Coordinator("127.0.0.1:1", assignors={"range": lambda given: {}})


@pytest.mark.parametrize("names", [(), "sticky", ("a b",), ("x" * 65,)])
def test_an_unnameable_assignor_is_not_offered(names: tuple[str, ...]) -> None:
    with pytest.raises(UsageError):
        check_offers(names)
