"""How an inventory is printed, and written to the file that people fill in. No server."""

from __future__ import annotations

import tomllib

import pytest

from tests.legacy.groups import A, group, static, wildcard
from tests.legacy.test_walk import groups_of
from zkcoord.cli import inventory
from zkcoord.errors import UnavailableError
from zkcoord.legacy.findings import problems_of
from zkcoord.legacy.inventory import GroupInventory

PYKAFKA = "h:6c84fb90-12c4-11e1-840d-7b25c5ee775a"
OURS = static(t=1)[:-1] + ',"coordination":"zkcoord/1"}'


@pytest.mark.parametrize(
    ("found", "shares", "store"),
    [
        (group({A: static(t=1)}, {"t/0": "x", "gone/0": "x"}, {"t/0": "1"}, {"t": 2}), "1/2", "zookeeper?"),
        (group({A: static(t=1)}, {}, {}, {"t": 2}), "0/2", "none"),
        (group({}, {"gone/0": "x"}, {}, {}), 1, "none"),
        (group({}, {}, {"t/0": "1"}, {"t": 2}, {}), None, "zookeeper"),
    ],
)
def test_owned_is_of_what_is_subscribed_and_a_store_that_nobody_asked_kafka_about_has_a_mark(
    found: GroupInventory, shares: object, store: str
) -> None:
    assert inventory._row(found, 0)[3:5] == [shares, store]


def test_a_white_list_takes_all_of_its_regex_and_a_black_list_all_but_it() -> None:
    found = group({A: wildcard("t"), "g_x": wildcard("t", "black_list")}, topics={"t": 1, "u": 1})
    said = [inventory._member_text(found, member) for member in found.members]
    assert ["t:1 (all of t)" in said[0], "u:1 (all but t)" in said[1]] == [True, True], said


def test_errors_that_differ_in_the_groups_name_alone_are_told_once() -> None:
    errors = {name: UnavailableError(f"the coordinator of {name} is away") for name in ("etl1", "etl2")}
    errors["etl3"] = UnavailableError("no answer")
    assert inventory._unlike(errors) == [errors["etl1"], errors["etl3"]]


def test_inventory_escapes_unprintable_characters() -> None:
    found = group({"g_\x1b[2J": static(t=1)}, {}, {"a\nb/0": "x\x1b[2J"}, {"t": 1})
    assert not [line for line in inventory._text(found, problems_of(found), members=True) if not line.isprintable()]


@pytest.mark.parametrize(
    ("ids", "left_out"),
    [
        ({A: static(t=1)}, ""),
        ({}, ""),
        ({A: static(t=1), "g_y": OURS}, ""),
        ({"g_y": OURS}, "its members are zkcoord"),
        ({PYKAFKA: "t"}, "its members are foreign"),
    ],
)
def test_groups_of_old_members_have_a_table_with_all_notes_and_the_others_say_why_not(
    ids: dict[str, str], left_out: str
) -> None:
    found = group(ids, {"t/0": "nobody"}, {"t/0": "1"}, {"t": 1})
    problems = problems_of(found)
    text = inventory._section(found, problems, None)
    assert ('# "g" is left out: ' + left_out in text) is bool(left_out)
    assert list(tomllib.loads(text).get("groups", {})) == ([] if left_out else ["g"])
    for problem in problems:
        assert problem[:60] in text.replace("\n# ", " ")


@pytest.mark.parametrize("name", ["a\x7fb", 'a"b', "a\nb", "\u00e4"])
def test_any_name_is_toml(name: str) -> None:
    assert tomllib.loads(f"x = {inventory._toml(name)}") == {"x": name}


def test_a_group_that_may_not_be_read_is_named_and_the_others_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    deployment = groups_of(3)
    deployment.forbidden = {"/consumers/g001/offsets/t/0"}
    found = list(inventory.inventories(deployment, ["g000", "g001", "g002"], None))
    assert [each.group for each in found] == ["g000", "g002"]
    assert "group g001 cannot be read: /consumers/g001/offsets/t/0: may not be read" in capsys.readouterr().err
