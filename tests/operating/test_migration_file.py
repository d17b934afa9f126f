"""The files that `offsets migrate --from` and `migrate move --from` take."""

from __future__ import annotations

from pathlib import Path

import pytest

from zkcoord.errors import UsageError
from zkcoord.operating.migration_file import read_goals, read_moves


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "groups.toml"


def test_groups_are_moved_wave_by_wave_each_to_its_store(path: Path) -> None:
    path.write_text(
        '[groups.b]\nto = "dual"\nwave = 2\n[groups.a]\nto = "kafka"\n[groups."c.d"]\nwave = 2\n', encoding="utf-8"
    )
    first, second = {"a": "kafka"}, {"b": "dual", "c.d": "kafka"}
    assert read_goals(str(path), (), "kafka") == [first, second]
    assert read_goals(str(path), (2,), "kafka") == [second]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "there is no table [groups.NAME]"),
        ("groups = 3", "there is no table [groups.NAME]"),
        ("[groups]", "there is no table [groups.NAME]"),
        ("[groups.a]\nto = 'dual'\nwhen = 3", "group 'a': 'when' is no key: choose from to, wave"),
        ("[groups.a]\nto = 'dual'\nwave = 0", "group 'a': wave is 0, allowed is an integer from 1"),
        ("[groups.a]\nto = 'dual'\nwave = true", "group 'a': wave is True, allowed is an integer from 1"),
        ("[groups.a]\nto = 'tape'", "group 'a': to is 'tape', allowed is zookeeper or dual or kafka"),
        ("[groups.a]\nto = ['dual']", "group 'a': to is ['dual'], allowed is zookeeper or dual or kafka"),
        ("[groups.a]", "group 'a': to is missing, or give --to"),
        ("[groups", "--from"),
    ],
)
def test_a_file_that_is_wrong_is_refused_with_the_group_and_what_is_allowed(path: Path, text: str, why: str) -> None:
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError) as error:
        read_goals(str(path), (), None)
    assert why in str(error.value)


def test_groups_go_to_another_tree_wave_by_wave_and_a_store_is_no_key_there(path: Path) -> None:
    path.write_text("[groups.b]\nwave = 2\n[groups.d]\n[groups.a]\nwave = 2\n", encoding="utf-8")
    assert read_moves(str(path), ()) == ["d", "b", "a"]
    assert read_moves(str(path), (2,)) == ["b", "a"]
    path.write_text("[groups.a]\nto = 'dual'\n[groups.b]\nwave = -1\n", encoding="utf-8")
    with pytest.raises(UsageError) as error:
        read_moves(str(path), ())
    assert "group 'a': 'to' is no key: choose from wave\ngroup 'b': wave is -1, allowed" in str(error.value)


def test_a_wave_that_no_group_is_in_and_a_file_that_is_not_there_are_refused(path: Path) -> None:
    with pytest.raises(UsageError, match=r"it cannot be read \(No such file or directory\); name a file"):
        read_goals(str(path), (), None)
    with pytest.raises(UsageError, match=r"it cannot be read \(Is a directory\); name a file"):
        read_goals(str(path.parent), (), None)
    path.write_text("[groups.a]\nto = 'dual'", encoding="utf-8")
    with pytest.raises(UsageError, match="it has no group of wave 2 or 3"):
        read_goals(str(path), (3, 2), None)
