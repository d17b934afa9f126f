"""`zkcoord demo` hands its options on and ends with the demo's exit code; the demo has tests of its own."""

from typing import Any

import pytest

from tests.cli.program import Run
from zkcoord.demo import Options


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ([], {"keep": False, "output": "table"}),
        (
            ["--keep", "--output", "json", "--rate", "100", "--seconds", "7", "--partitions", "9"],
            {"keep": True, "output": "json", "rate": 100, "seconds": 7, "partitions": 9},
        ),
        (["--kafka", "4"], {"kafka": 4}),
        (["--migration", "--rate", "9"], {"migration": True, "rate": 9, "partitions": 12}),
    ],
)
@pytest.mark.parametrize("code", [0, 1])
def test_options_and_exit_code_are_the_demos(
    run: Run, monkeypatch: pytest.MonkeyPatch, words: list[str], options: dict[str, Any], code: int
) -> None:
    calls: list[Options] = []

    def play(given: Options) -> int:
        calls.append(given)
        return code

    monkeypatch.setattr("zkcoord.demo.run", play)

    assert run("demo", *words).exit_code == code
    assert calls == [Options(**options)]


@pytest.mark.parametrize("option", ["--zookeeper", "--bootstrap-servers"])
def test_a_demo_on_servers_of_others_is_a_wrong_call(run: Run, option: str) -> None:
    result = run("demo", option, "localhost:1")

    assert (result.exit_code, result.stderr) == (
        2,
        f"error: the demo starts servers of its own: leave {option} out\n",
    )


def test_a_demo_that_cannot_be_shown_is_a_wrong_call(run: Run) -> None:
    result = run("demo", "--rate", "0")

    assert (result.exit_code, result.stderr) == (2, "error: --rate 0: choose from 1 to 100,000\n")
    result = run("demo", "--kafka", "2")
    assert (result.exit_code, result.stderr) == (2, "error: --kafka 2: choose 3 or 4\n")


@pytest.mark.parametrize("option", ["--seconds", "--partitions", "--kafka"])
def test_a_migration_has_a_course_of_its_own(run: Run, option: str) -> None:
    result = run("demo", "--migration", option, "7")
    assert (result.exit_code, result.stderr) == (
        2,
        f"error: {option} is for the main job: leave it out with --migration\n",
    )
