"""What becomes of one group that people adopt, on a tree in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.legacy.groups import A, group, static
from tests.migrate.memory_tree import MemoryTree
from zkcoord.core.adoption import Adoption
from zkcoord.core.record import GroupRecord
from zkcoord.errors import UnavailableError, UsageError
from zkcoord.operating.adopting import ADOPTED, CHANGED, REFUSED, UNCHANGED, Result, adopt_group
from zkcoord.operating.adoption_file import read_adoptions
from zkcoord.shell.ports import UnreadableError
from zkcoord.tree.paths import LEGACY
from zkcoord.tree.record import decode_record, encode_record
from zkcoord.tree.snapshot import Read

TOLD = Adoption(offsets="zookeeper", strategy="range", kafka="1.1")
FOUND = group({A: static(t=1)}, {"t/0": f"{A}-0"}, {"t/0": "1"}, {"t": 1}, {})


def tree() -> MemoryTree:
    return MemoryTree("/zkcoord", "/zkcoord/groups", "/consumers")


def test_a_group_whose_folder_may_not_be_read_is_refused_and_one_that_is_not_there_is_adopted() -> None:
    there = tree()
    assert adopt_group(there, LEGACY, "g", TOLD, None, force=False).result == ADOPTED
    there.set(LEGACY.group("h"), b"")
    assert adopt_group(there, LEGACY, "h", TOLD, None, force=True) == Result(
        "h", REFUSED, 0, "it cannot be read: give this user the right to it (ACL)"
    )


def test_another_versions_facts_stay_when_a_group_is_adopted_again() -> None:
    there, later = tree(), replace(TOLD, unknown={"of_later": 1})
    there.set(LEGACY.record("g"), encode_record(GroupRecord(adoption=later)))
    assert adopt_group(there, LEGACY, "g", TOLD, FOUND, force=False).result == UNCHANGED
    assert adopt_group(there, LEGACY, "g", replace(TOLD, retries=9), FOUND, force=False).result == CHANGED
    assert decode_record(there.data()[LEGACY.record("g")]).adoption == replace(later, retries=9)


def test_a_tree_that_does_not_answer_ends_the_whole_command() -> None:
    there = tree()
    there.fault = lambda _: "before"
    with pytest.raises(UnavailableError):
        adopt_group(there, LEGACY, "g", TOLD, FOUND, force=False)


def test_f361_a_group_whose_offsets_people_moved_keeps_their_store_when_it_is_adopted() -> None:
    """It came from a tree of the layout draft, or its record was mended and lost the adoption. Its members went on at
    the old nodes in ZooKeeper."""
    there = tree()
    there.set(LEGACY.record("g"), encode_record(GroupRecord(store_name="kafka", store_step=2)))
    done = adopt_group(there, LEGACY, "g", TOLD, FOUND, force=False)
    assert (done.result, "`zkcoord offsets migrate g --to zookeeper`" in done.why) == (ADOPTED, True)
    record = decode_record(there.data()[LEGACY.record("g")])
    assert record == GroupRecord(store_name="kafka", store_step=2, adoption=TOLD)
    assert adopt_group(there, LEGACY, "g", TOLD, FOUND, force=False) == Result("g", UNCHANGED, 0)


def test_f367_a_group_whose_folder_may_not_be_read_ends_no_wave() -> None:
    """The command broke off there, and did not say which groups it had adopted."""
    there = tree()

    def refuses(reads: Sequence[Read]) -> None:
        if Read(LEGACY.group("h")) in reads:
            raise UnreadableError("/consumers/h: may not be read", ())

    there.before_read = refuses
    assert adopt_group(there, LEGACY, "h", TOLD, None, force=False).result == REFUSED


@pytest.mark.parametrize("name", ["", ".", "..", "a/b"])
def test_a_name_that_no_group_can_have_is_refused_before_anything_is_read(name: str) -> None:
    there, read = tree(), list[Read]()
    there.before_read = read.extend
    assert (adopt_group(there, LEGACY, name, TOLD, None, force=True).result, read) == (REFUSED, [])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[group.h]\n", "'group' is no part of such a file: a group's table is [groups.NAME]"),
        ("wave = 2\n", "'wave' is no part of such a file"),
    ],
)
def test_f369_a_table_with_a_misspelled_heading_is_not_passed_over(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "groups.toml"
    path.write_text(f'{text}[groups.g]\noffsets = "zookeeper"\nstrategy = "range"\nkafka = "1.1"\n')
    with pytest.raises(UsageError) as caught:
        read_adoptions(str(path), ())
    assert message in str(caught.value)


@pytest.mark.parametrize(("key", "number"), [("kafka", "1.1"), ("kafka", "0.10"), ("broker", "2")])
def test_a_version_without_quotes_is_refused_with_what_to_write(tmp_path: Path, key: str, number: str) -> None:
    """`kafka is 1.1, allowed is ... 1.1` helped nobody."""
    path = tmp_path / "groups.toml"
    told = {"offsets": '"zookeeper"', "strategy": '"range"', "kafka": '"1.1"', key: number}
    path.write_text("\n".join(["[groups.g]", *(f"{name} = {value}" for name, value in told.items())]))
    with pytest.raises(UsageError, match=rf"group 'g': {key} is [0-9.]+, a number: write the version in quotes"):
        read_adoptions(str(path), ())


def wrong(path: Path, text: str) -> str:
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        read_adoptions(str(path), ())
    return str(caught.value)


def test_one_group_that_is_wrong_has_the_whole_file_refused(tmp_path: Path) -> None:
    right = '[groups.g]\noffsets = "zookeeper"\nstrategy = "range"\nkafka = "1.1"\n'
    told = wrong(tmp_path / "groups.toml", f'{right}[groups.h]\noffsets = "tape"\n')
    assert "nothing was adopted:\nline 6: group 'h': " in told


def test_keys_behind_a_list_over_several_lines_have_their_own_lines(tmp_path: Path) -> None:
    told = wrong(tmp_path / "groups.toml", '[groups.g]\noffsets = [\n["zookeeper"],\n]\nkafka = "?"\n')
    assert "line 5: group 'g': kafka is still '?'" in told


@pytest.mark.parametrize("version", ["0.8.2.2.1", "1.1.1.1.1", "0.7.2", "1.2", "0.8.2.2-rc1"])
def test_a_version_that_no_old_consumer_has_is_refused(tmp_path: Path, version: str) -> None:
    told = wrong(tmp_path / "groups.toml", f'[groups.g]\noffsets = "kafka"\nstrategy = "range"\nkafka = "{version}"\n')
    assert f"line 4: group 'g': kafka is '{version}', allowed is 0.8, 0.9, 0.10" in told


def test_a_store_that_only_a_former_adoption_named_is_that_of_the_new_one() -> None:
    """A release broke off behind its first write."""
    there = tree()
    there.set(LEGACY.record("g"), encode_record(GroupRecord(store_name="kafka")))
    assert adopt_group(there, LEGACY, "g", TOLD, FOUND, force=False) == Result("g", ADOPTED, 0)
    assert decode_record(there.data()[LEGACY.record("g")]).store_name == "zookeeper"
