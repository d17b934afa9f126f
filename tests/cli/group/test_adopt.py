"""`zkcoord group adopt` and `release` on a real ZooKeeper with groups of old consumers; no coordinator."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.old_world import AUDIT, ETL, OLDEST, UUID, OldWorld
from tests.cli.program import Run
from tests.legacy.groups import A, static
from zkcoord.core.adoption import Adoption
from zkcoord.core.record import GroupRecord
from zkcoord.migrate import upgrade
from zkcoord.shell.zk.blocking import Tree
from zkcoord.tree.paths import LEGACY
from zkcoord.tree.record import decode_record
from zkcoord.tree.snapshot import Read
from zkcoord.tree.writes import CreateNode, Transaction

pytestmark = pytest.mark.zookeeper

RANGE = ("--offsets", "zookeeper", "--strategy", "range", "--kafka", "0.11")


@pytest.fixture
def world(chroot: str) -> Iterator[OldWorld]:
    """A deployment of old consumers, with a tree of the layout legacy beside it."""
    with Tree(chroot) as tree:
        made = OldWorld(tree, chroot)
        upgrade(tree, run_id="test", layout="legacy")
        made.group("g", ETL)
        yield made


def record_of(world: OldWorld, group: str) -> GroupRecord | None:
    (node,) = world.tree.read([Read(LEGACY.record(group))])
    return decode_record(node.data) if node.exists else None


def adopted(world: OldWorld, group: str) -> Adoption | None:
    record = record_of(world, group)
    return None if record is None else record.adoption


def results(run: Run, world: OldWorld, *arguments: str) -> tuple[dict[str, str], int]:
    """Return the output for programs about each group, and the exit code."""
    done = run("group", "adopt", "--output", "json", "--zookeeper", world.address, *arguments)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {line["group"]: line["result"] for line in lines}, done.exit_code


def test_a_group_is_adopted_with_what_was_told_and_again_without_a_change(world: OldWorld, run: Run) -> None:
    told = ("--offsets", "kafka", "--dual-commit", "--strategy", "roundrobin", "--kafka", "0.10.1.1")
    more = ("--retries", "10", "--backoff-ms", "500", "--auto-commit-interval-ms", "1000", "--exclude-internal", "no")
    before = world.everything()
    assert results(run, world, "g", *told, *more, "--broker", "0.10.2", "--dry-run") == ({"g": "adopted"}, 0)
    assert world.everything() == before
    assert results(run, world, "g", *told, *more, "--broker", "0.10.2") == ({"g": "adopted"}, 0)
    record = record_of(world, "g")
    assert record is not None
    assert record.store_name == "dual"
    assert record.adoption == Adoption(
        offsets="kafka",
        dual_commit=True,
        strategy="roundrobin",
        kafka="0.10.1.1",
        retries=10,
        backoff_ms=500,
        auto_commit_interval_ms=1000,
        exclude_internal=False,
        broker="0.10.2",
    )
    assert results(run, world, "g", *told, *more, "--broker", "0.10.2") == ({"g": "unchanged"}, 0)
    assert results(run, world, "g", *told) == ({"g": "changed"}, 0)
    assert results(run, world, "g", *RANGE) == ({"g": "refused"}, 2)


def test_an_adoption_writes_the_record_and_nothing_of_the_groups(world: OldWorld, run: Run) -> None:
    before = dict(world.everything())
    run("group", "adopt", "g", *RANGE, "--zookeeper", world.address)
    after = dict(world.everything())
    changed = {path for path in after if after[path] != before.get(path)}
    assert changed == {"/zkcoord/groups", LEGACY.record("g")}


def test_for_people(world: OldWorld, run: Run) -> None:
    done = run("group", "adopt", "g", *RANGE, "--zookeeper", world.address)
    assert done.stdout.splitlines() == ["GROUP  RESULT   #NOTES  WHY", "g      adopted  -       -"]
    done = run("group", "release", "g", "--zookeeper", world.address)
    assert (done.exit_code, done.stdout) == (0, "group g: released; 1 node removed, offsets untouched\n")
    done = run("group", "release", "g", "--zookeeper", world.address)
    assert done.stdout == "group g: was not adopted; nothing of zkcoord is left of it\n"
    assert record_of(world, "g") is None


def test_a_group_that_is_not_there_is_not_released(world: OldWorld, run: Run) -> None:
    """Before, a misspelled group was told to be without anything of zkcoord, with exit code 0."""
    for name in ("gg", "a/b", "g/ids", "-"):
        for more in ((), ("--wait",)):
            done = run("group", "release", *more, "--zookeeper", world.address, "--", name)
            told = f"error: there is no group {name!r}; `zkcoord group list` shows them\n"
            assert (done.exit_code, done.stderr, done.stdout) == (2, told, "")


def test_a_group_that_has_only_its_adoption_is_released(world: OldWorld, run: Run) -> None:
    run("group", "adopt", "new", *RANGE, "--zookeeper", world.address)
    done = run("group", "release", "new", "--zookeeper", world.address)
    assert (done.exit_code, done.stdout) == (0, "group new: released; 1 node removed, offsets untouched\n")
    assert record_of(world, "new") is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("g",), "--offsets, --strategy, --kafka must be told"),
        (("g", *RANGE[:4], "--kafka", "2.0"), "--kafka is '2.0', allowed is 0.8, 0.9, 0.10, 0.11, 1.0 or 1.1"),
        (("g", *RANGE, "--dual-commit"), "--dual-commit is True, allowed is false, unless offsets is kafka"),
        ((), "name one group, or give --from FILE"),
        (("g", "--from", "x"), "group g and --from x were both given: the file names its groups"),
        (("g", *RANGE, "--wave", "1"), "--wave chooses among the groups of a file"),
        (("--from", "x", "--kafka", "1.1"), "--kafka: with --from the file says it"),
    ],
)
def test_senseless_options_are_refused_before_anything_is_written(
    world: OldWorld, run: Run, arguments: tuple[str, ...], message: str
) -> None:
    done = run("group", "adopt", *arguments, "--zookeeper", world.address)
    assert done.exit_code == 2
    assert message in done.stderr
    assert adopted(world, "g") is None


def test_answers_that_the_tree_contradicts_need_force(world: OldWorld, run: Run) -> None:
    world.group("oldest", OLDEST)
    world.group("audit", AUDIT)
    swapped = {**ETL, "owners": {"clicks/1": f"{A}-0"}, "ids": {A: static(clicks=1)}}
    world.group("swapped", {**swapped, "offsets": {}})
    for group, message in (
        ("oldest", "its members are of Kafka 0.7, which no later one can join: upgrade them first"),
        ("audit", "is by pykafka (a bare topic name"),
        ("swapped", "no offset of it is in ZooKeeper, and Kafka was not asked: give --bootstrap-servers"),
    ):
        done = run("group", "adopt", group, *RANGE, "--zookeeper", world.address)
        assert done.exit_code == 2
        assert message in done.stderr
        assert adopted(world, group) is None
    assert results(run, world, "swapped", *RANGE, "--force") == ({"swapped": "adopted"}, 0)


def test_a_tree_of_the_layout_draft_has_nothing_to_adopt(chroot: str, run: Run) -> None:
    with Tree(chroot) as tree:
        upgrade(tree, run_id="test")
    for arguments in (("adopt", "g", *RANGE), ("release", "g")):
        done = run("group", *arguments, "--zookeeper", chroot)
        assert done.exit_code == 2
        assert "the tree has the layout draft, whose groups are zkcoord's own" in done.stderr


def test_a_group_that_is_not_there_yet_is_adopted_and_told_of(world: OldWorld, run: Run) -> None:
    done = run("group", "adopt", "new", *RANGE, "--zookeeper", world.address)
    assert done.stdout.splitlines()[1].split(maxsplit=3) == ["new", "adopted", "-", "there is no such group yet"]
    assert adopted(world, "new") is not None


def test_a_group_that_is_not_adopted_is_shown_as_observed_and_nothing_is_asked_of_it(world: OldWorld, run: Run) -> None:
    done = run("group", "describe", "g", "--state", "--zookeeper", world.address)
    header, row = (line.split() for line in done.stdout.splitlines()[:2])
    assert dict(zip(header, row, strict=False))["STATE"] == "Observed"
    assert "NOT ADOPTED: `zkcoord group adopt g`" in done.stdout
    done = run("group", "pause", "g", "--zookeeper", world.address)
    assert done.exit_code == 2
    assert "group g is not adopted: nothing is done with it before `zkcoord group adopt g`" in done.stderr
    assert record_of(world, "g") is None


def test_the_version_of_the_brokers_is_shown_and_what_does_not_work_with_it_is_told(world: OldWorld, run: Run) -> None:
    for broker, store, told in (
        ("0.9", ("--offsets", "zookeeper"), "KafkaConsumer, PySpark and offsets in Kafka are not tried"),
        ("0.11.0.2", ("--offsets", "zookeeper"), None),
    ):
        words = (*store, *RANGE[2:], "--broker", broker, "--zookeeper", world.address)
        why = json.loads(run("group", "adopt", "g", *words, "--output", "json").stdout)["why"]
        assert (told in why) if told else why == ""
        described = run("group", "describe", "g", "--output", "json", "--zookeeper", world.address)
        adoption = json.loads(described.stdout)["adoption"]
        assert (adoption["offsets"], adoption["kafka"], adoption["broker"]) == ("zookeeper", "0.11", broker)
    words = ("--offsets", "kafka", *RANGE[2:], "--broker", "1.0", "--zookeeper", world.address)
    assert "`zkcoord group delete --offsets` needs 1.1" in run("group", "adopt", "new", *words).stdout


def test_f221_a_group_with_a_member_that_nobody_can_read_is_shown_as_observed(world: OldWorld, run: Run) -> None:
    """A coordinator observes the group after a grace period. A tool reads only once, so it cannot know the age of the
    data.
    """
    assert results(run, world, "g", *RANGE) == ({"g": "adopted"}, 0)
    world.put("/consumers/g/ids/g_x", "")
    done = run("group", "describe", "g", "--output", "json", "--zookeeper", world.address)
    assert json.loads(done.stdout)["mode"] == "observe"


def written(run: Run, world: OldWorld, path: Path, *told: tuple[str, str]) -> str:
    """Write the inventory's file with all values filled in."""
    done = run("inventory", "--write", str(path), "--zookeeper", world.address)
    assert done.exit_code == 0, done.stderr
    text = path.read_text()
    for key, value in told:
        text = text.replace(f'{key} = "?"', f"{key} = {value}")
    path.write_text(text)
    return text


TOLD = (("offsets", '"zookeeper"'), ("dual_commit", "false"), ("strategy", '"range"'), ("kafka", '"0.11"'))


def test_a_file_is_adopted_wave_by_wave_and_again_without_a_change(world: OldWorld, run: Run, tmp_path: Path) -> None:
    more = [f"more{n:03}" for n in range(299)]
    world.groups(
        {n: {"ids": {f"{n}_x-1416335000123-1a2b3c4d": static(views=1)}, "offsets": {"views/0": "1"}} for n in more}
    )
    path = tmp_path / "groups.toml"
    text = written(run, world, path, *TOLD)
    head, *sections = text.split("[groups.")
    assert len(sections) == 300
    later = [s.replace("wave = 1", "wave = 2") if s.startswith('"more001"') else s for s in sections]
    path.write_text("[groups.".join([head, *later]))

    first = ["g", *(name for name in more if name != "more001")]
    assert results(run, world, "--from", str(path), "--wave", "1") == (dict.fromkeys(first, "adopted"), 0)
    assert adopted(world, "more001") is None
    assert results(run, world, "--from", str(path)) == ({**dict.fromkeys(first, "unchanged"), "more001": "adopted"}, 0)


def test_a_file_with_something_untold_adopts_nothing_and_names_line_and_key(
    world: OldWorld, run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "groups.toml"
    text = written(run, world, path, *TOLD[:3])
    line = next(n for n, each in enumerate(text.splitlines(), 1) if each.startswith("kafka"))
    done = run("group", "adopt", "--from", str(path), "--zookeeper", world.address)
    assert done.exit_code == 2
    assert (
        f"line {line}: group 'g': kafka is still '?': somebody who knows the group's configuration must" in done.stderr
    )
    path.write_text(text.replace('kafka = "?"', 'kafka = "3.9"'))
    done = run("group", "adopt", "--from", str(path), "--zookeeper", world.address)
    assert f"line {line}: group 'g': kafka is '3.9', allowed is 0.8" in done.stderr
    path.write_text(text.replace('kafka = "?"', 'kafka = "1.1"\ncolour = "red"'))
    done = run("group", "adopt", "--from", str(path), "--zookeeper", world.address)
    assert f"line {line + 1}: group 'g': 'colour' is no key: choose from offsets, " in done.stderr
    assert adopted(world, "g") is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "there is no table [groups.NAME]"),
        ("groups = 1", "there is no table [groups.NAME]"),
        ("[groups.g", "Expected"),
        pytest.param(f"a = {'[' * 3_000}{']' * 3_000}", "no TOML: maximum recursion", id="deep"),
        pytest.param(f"a = {'1' * 5_000}", "no TOML: Exceeds the limit", id="long"),
        ("[groups.g]\nwave = 0", "line 2: group 'g': wave is 0, allowed is an integer from 1"),
        ("[groups.g]\n", "line 1: group 'g': offsets is missing"),
        ('[groups.g]\noffsets="kafka"\nstrategy="range"\nkafka="1.1"\nwave=3', "it has no group of wave 1"),
    ],
)
def test_a_file_that_is_none_is_refused(world: OldWorld, run: Run, tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "groups.toml"
    path.write_text(text)
    wave = ("--wave", "1") if "wave=3" in text else ()
    done = run("group", "adopt", "--from", str(path), *wave, "--zookeeper", world.address)
    assert (done.exit_code, message in done.stderr) == (2, True), done.stderr


def test_of_a_file_what_the_tree_contradicts_is_refused_and_the_rest_adopted(
    world: OldWorld, run: Run, tmp_path: Path
) -> None:
    world.group("audit", AUDIT)
    path = tmp_path / "groups.toml"
    table = "\n".join(f"{key} = {value}" for key, value in TOLD)
    path.write_text(f'[groups.audit]\n{table}\n[groups.g]\n{table}\n[groups."a b"]\n{table}\n')
    found, code = results(run, world, "--from", str(path))
    assert (found, code) == ({"audit": "refused", "g": "adopted", "a b": "refused"}, 2)


def test_a_release_is_refused_while_a_consumer_of_ours_is_registered(world: OldWorld, run: Run) -> None:
    run("group", "adopt", "g", *RANGE, "--zookeeper", world.address)
    name = "g_h-1416335000123-z1a2b3c4"
    document: dict[str, Any] = {**json.loads(static(clicks=1)), "coordination": "zkcoord/1"}
    world.put(f"/consumers/g/ids/{name}", json.dumps(document))
    done = run("group", "release", "g", "--zookeeper", world.address)
    assert done.exit_code == 2
    assert f"group g is not released: {name} of zkcoord is registered there" in done.stderr
    done = run("group", "release", "g", "--wait", "--timeout-ms", "300", "--zookeeper", world.address)
    assert done.exit_code == 5
    assert adopted(world, "g") is not None


def test_an_adoption_with_offsets_in_kafka_says_that_consumers_need_brokers(world: OldWorld, run: Run) -> None:
    done = run("group", "adopt", "g", "--offsets", "kafka", *RANGE[2:], "--zookeeper", world.address)
    why = done.stdout.splitlines()[1].split(maxsplit=3)[3]
    assert why == "its consumers of zkcoord use the store 'kafka', too: give them brokers' addresses"


def test_f355_zero_is_a_value_that_people_told(world: OldWorld, run: Run, tmp_path: Path) -> None:
    """It was left out like an option that nobody gave, and the default counted."""
    told = ("--backoff-ms", "0", "--auto-commit-interval-ms", "0")
    assert results(run, world, "g", *RANGE, *told) == ({"g": "adopted"}, 0)
    adoption = adopted(world, "g")
    assert adoption is not None
    assert (adoption.backoff_ms, adoption.auto_commit_interval_ms) == (0, 0)
    done = run("group", "adopt", "--from", str(tmp_path / "x"), "--backoff-ms", "0", "--zookeeper", world.address)
    assert (done.exit_code, "--backoff-ms: with --from the file says it" in done.stderr) == (2, True)


def test_f373_no_moves_are_told_that_nobody_would_make_beside_old_members(world: OldWorld, run: Run) -> None:
    """Each partition of an observed group was to go to nobody, and one more member of a mixed group to get none."""
    for step in ("as it is", "adopted", "observed"):
        if step == "adopted":
            assert results(run, world, "g", *RANGE) == ({"g": "adopted"}, 0)
        if step == "observed":
            world.tree.commit(Transaction(writes=(CreateNode(LEGACY.state("g"), b"{}"),)))
            world.put(f"/consumers/g/ids/h:{UUID}", "clicks")
        done = run("group", "plan", "g", "--zookeeper", world.address)
        assert (done.exit_code, done.stdout) == (0, "group g: nothing would move\n")
        done = run("group", "plan", "g", "--add-member", "1", "--zookeeper", world.address)
        told = "its old members compute the assignment, and `zkcoord group plan --dump FILE` tells what they would"
        assert (done.exit_code, told in done.stderr) == (2, True), done.stderr
