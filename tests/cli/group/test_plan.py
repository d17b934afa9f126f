"""`zkcoord group plan --dump FILE`: the answers of the real old classes, through the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.program import Run

DATA = Path(__file__).parents[2] / "data"
GROUP = {
    "version": "0.11.0.2",
    "strategy": "roundrobin",
    "registrations": {
        "g_b": '{"version":1,"subscription":{"t":1},"pattern":"static"}',
        "g_a": '{"version":1,"subscription":{"t":1},"pattern":"static"}',
    },
    "topics": {"t": [2, 7, 10]},
}
OWNERS = {"t": {"10": "g_a-0", "2": "g_b-0", "7": "g_a-0"}}


def written(folder: Path, value: object) -> str:
    """A file that holds this value."""
    path = folder / "group.json"
    path.write_text(json.dumps(value))
    return str(path)


def agreed(vector: dict[str, Any]) -> dict[str, Any] | None:
    """What the old members settled on; None: they failed, or two of them wanted the same partition."""
    return None if "error" in vector or "conflict" in vector else vector["owners"]


@pytest.mark.parametrize("file", ["legacy_vectors.json", "legacy_ties.json"])
def test_the_whole_file_of_vectors_is_answered_as_the_old_members_answered(run: Run, file: str) -> None:
    """The second one holds drawn groups, most with partitions of equal hashes; the real assignors answered them on a
    real ZooKeeper."""
    vectors: list[dict[str, Any]] = json.loads((DATA / file).read_text())
    result = run("group", "plan", "--dump", str(DATA / file), "--output", "json")
    assert (result.exit_code, result.stderr) == (0, "")
    answers = json.loads(result.stdout)
    assert [answer["name"] for answer in answers] == [vector["name"] for vector in vectors]
    wrong = [
        (vector["version"], vector["name"], answer)
        for vector, answer in zip(vectors, answers, strict=True)
        if answer.get("owners") != agreed(vector) or ("error" in answer) is (agreed(vector) is not None)
    ]
    assert wrong == []


def test_one_case_is_answered_by_one_object_and_a_list_by_a_list(run: Run, tmp_path: Path) -> None:
    for value, answer in ((GROUP, {"owners": OWNERS}), ([GROUP], [{"owners": OWNERS}]), ({"cases": []}, [])):
        result = run("group", "plan", "--dump", written(tmp_path, value), "--output", "json")
        assert (result.exit_code, json.loads(result.stdout)) == (0, answer)


def test_a_table_shows_partitions_and_threads_or_why_there_is_no_plan(run: Run, tmp_path: Path) -> None:
    broken = {**GROUP, "name": "pykafka", "registrations": {**GROUP["registrations"], "h:1": "t"}}  # type: ignore[dict-item]
    result = run("group", "plan", "--dump", written(tmp_path, [{**GROUP, "group": "g"}, broken]))
    assert result.exit_code == 0
    assert result.stdout == (
        "g (round robin, read by Kafka 0.11.0.2):\n"
        "TOPIC  PARTITION  THREAD\n"
        "t      2          g_b-0\n"
        "t      7          g_a-0\n"
        "t      10         g_a-0\n"
        "\n"
        "pykafka (round robin, read by Kafka 0.11.0.2): NO PLAN: consumer 'h:1': bad registration 't': "
        "no JSON to Kafka 0.11.0.2 (character 0 begins nothing that Scala's JSON knows); "
        "while it is there, no old member can rebalance\n"
    )


@pytest.mark.parametrize(
    ("assignor", "first"), [("range", "g_a-0"), ("roundrobin-0.8", "g_a-0"), ("roundrobin-1.0", "g_a-0")]
)
def test_an_assignor_stands_for_version_and_strategy(run: Run, tmp_path: Path, assignor: str, first: str) -> None:
    case = {key: value for key, value in GROUP.items() if key not in ("version", "strategy")}
    result = run("group", "plan", "--dump", written(tmp_path, {**case, "assignor": assignor}), "--output", "json")
    assert json.loads(result.stdout)["owners"]["t"]["10" if assignor == "roundrobin-0.8" else "2"] == first


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        ([1], "case 1 is 1, not an object"),
        (7, "the case is 7, not an object"),
        ({}, "it holds an object without registrations, and no list of cases"),
        ({**GROUP, "name": "x", "topics": {"t": -1}}, "the case ('x'): topic 't' is given -1: write its number of"),
        ({**GROUP, "topics": {"t": 10**9}}, "topic 't' is given 1000000000"),
        ({**GROUP, "topics": {"t": [0, "1"]}}, "topic 't' is given [0, '1']"),
        ({**GROUP, "topics": None}, "the case: topics must be an object"),
        ({**GROUP, "registrations": {"g_a": {}}}, "registrations must be an object: consumer id to the text"),
        ({**GROUP, "version": "2.0"}, "the case: Kafka 2.0 has no ZooKeeper consumer that is known here"),
        ({**GROUP, "version": "0.7.2"}, "the case: Kafka 0.7.2 has no ZooKeeper consumer that is known here"),
        ({**GROUP, "version": "new"}, "'new' is no version of Kafka"),
        ({**GROUP, "version": None}, "the case: say version and strategy, or assignor"),
        ({**GROUP, "strategy": "sticky"}, "strategy is 'sticky', allowed is range or roundrobin"),
        ({**GROUP, "assignor": "own"}, "assignor is 'own', allowed is one of range, roundrobin-0.8"),
        ({**GROUP, "exclude_internal": "no"}, "exclude_internal is 'no', allowed is true or false"),
        ({**GROUP, "group": 7}, "the case: group is 7, not a text"),
    ],
)
def test_a_case_that_says_too_little_is_bad_input_and_the_message_says_which(
    run: Run, tmp_path: Path, value: object, seen: str
) -> None:
    result = run("group", "plan", "--dump", written(tmp_path, value))
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"error: --dump {tmp_path}/group.json: ")
    assert seen in result.stderr
    assert result.stderr.endswith("; whoever wrote the file must mend it\n")


def test_a_file_that_is_absent_or_no_json_is_bad_input(run: Run, tmp_path: Path) -> None:
    for name, why in (("x", "No such file or directory"), ("", "Is a directory")):
        absent = run("group", "plan", "--dump", str(tmp_path / name))
        told = f"error: --dump {tmp_path / name}: it cannot be read ({why}); name a file that can be read\n"
        assert (absent.exit_code, absent.stderr) == (2, told)
    for data, seen in ((b"", "no JSON"), (b"\xff", "byte 0 is no UTF-8"), (b"[" * 9999, "nested too deeply")):
        (tmp_path / "y").write_bytes(data)
        bad = run("group", "plan", "--dump", str(tmp_path / "y"))
        assert (bad.exit_code, seen in bad.stderr) == (2, True)


def test_a_group_and_a_file_together_are_refused_and_so_is_neither(run: Run) -> None:
    both = "group g and --dump x were both given: the file names its groups; leave one out"
    for arguments, why in (((), "name a group, or give --dump FILE"), (("g", "--dump", "x"), both)):
        result = run("group", "plan", *arguments)
        assert (result.exit_code, result.stderr) == (2, f"error: {why}\n")


def test_an_assumption_is_about_a_group_and_not_about_a_file(run: Run, tmp_path: Path) -> None:
    done = run("group", "plan", "--dump", written(tmp_path, GROUP), "--add-member", "1")
    assert (done.exit_code, "--assignor are about a group: name it" in done.stderr) == (2, True)
