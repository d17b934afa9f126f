"""Settings: options, environment and a file are one model; `config show` says what counts, and where it came from."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import pytest

from tests.cli.program import Run
from zkcoord.cli.main import cli
from zkcoord.cli.options import Command, Settings, pass_settings

FILE = """
zookeeper = "file:1"
bootstrap-servers = "file:2"

[probe]
count = 5
name = ["a", "b"]
"""


@pytest.fixture
def probe() -> Iterator[list[tuple[Any, ...]]]:
    """A command `probe` that keeps what it was told: ZooKeeper, Kafka, the log's level, its own two options."""
    seen: list[tuple[Any, ...]] = []

    @cli.command(cls=Command)
    @click.option("--count", type=click.IntRange(1, 9), default=1)
    @click.option("--name", "names", multiple=True)
    @pass_settings
    def probe(settings: Settings, count: int, names: tuple[str, ...]) -> None:
        seen.append((settings.zookeeper_address(), settings.kafka_address(), settings.verbose, count, names))

    yield seen
    del cli.commands["probe"]


@pytest.fixture
def config(tmp_path: Path) -> Callable[[str], str]:
    """Writes a file of settings."""

    def write(text: str) -> str:
        path = tmp_path / "zkcoord.toml"
        path.write_text(text, encoding="utf-8")
        return str(path)

    return write


@pytest.mark.parametrize("before", [True, False])
def test_the_command_line_counts_before_the_environment_and_that_before_the_file(
    run: Run,
    probe: list[tuple[Any, ...]],
    config: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
    before: bool,
) -> None:
    named = ["--config", config(FILE)]
    words = [*named, "probe"] if before else ["probe", *named]

    for more in ([], ["--zookeeper", "line:1", "--count", "7", "--name", "z", "-v"]):
        assert run(*words, *more).exit_code == 0
    monkeypatch.setenv("ZKCOORD_ZOOKEEPER", "env:1")
    monkeypatch.setenv("ZKCOORD_PROBE_COUNT", "6")
    monkeypatch.setenv("ZKCOORD_PROBE_NAME", "x y")
    monkeypatch.setenv("ZKCOORD_VERBOSE", "1")
    for more in ([], ["--zookeeper", "line:1", "--count", "7", "-vv"]):
        assert run(*words, *more).exit_code == 0

    assert probe == [
        ("file:1", "file:2", 0, 5, ("a", "b")),
        ("line:1", "file:2", 1, 7, ("z",)),
        ("env:1", "file:2", 1, 6, ("x", "y")),
        ("line:1", "file:2", 2, 7, ("x", "y")),
    ]


def test_the_environment_names_the_file_and_a_file_on_the_command_line_takes_its_place(
    run: Run,
    probe: list[tuple[Any, ...]],
    config: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("ZKCOORD_CONFIG", config(FILE))
    other = tmp_path / "other.toml"
    other.write_text('zookeeper = "other:1"\n[probe]\ncount = 2\n')

    run("probe")
    run("probe", "--config", str(other))

    assert probe == [("file:1", "file:2", 0, 5, ("a", "b")), ("other:1", None, 0, 2, ())]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('zokeeper = "h:1"', "there is no setting zokeeper: did you mean zookeeper?"),
        ("[coordinater]\nid = 1", "there is no setting coordinater: did you mean coordinator?"),
        (
            "[coordinator]\nsession_timeout = 1",
            "no setting coordinator.session_timeout: did you mean coordinator.session",
        ),
        ("[group.describe]\nsrt = 'lag'", "there is no setting group.describe.srt: did you mean group.describe.sort?"),
        ("[coordinator]\nmetrics = '9464'", "coordinator.metrics: '9464' is no address: give HOST:PORT, with a port"),
        ("[probe]\nqqq = 1", "there is no setting probe.qqq: choose from count, name"),
        ("[probe]\ncount = 10", "probe.count: 10 is not in the range 1<=x<=9."),
        ("[probe]\ncount = true", "probe.count is True, allowed is a whole number from 1 to 9"),
        ('[probe]\ncount = "5"', "probe.count is '5', allowed is a whole number from 1 to 9"),
        ("[probe]\nname = 3", "probe.name is 3, allowed is a text in quotes, or a list of them"),
        ('zookeeper = " "', "zookeeper is empty: give a value, or leave it out"),
        ('output = "yaml"', "output: 'yaml' is not one of 'table', 'json'."),
        ("[group.list]\nstate = 1", "group.list.state is 1, allowed is true or false"),
        ('config = "other.toml"', "config cannot stand in a file: give --config on the command line"),
        ("[probe]\nzookeeper = 'h:1'", "there is no setting probe.zookeeper"),
        ("coordinator = 3", "coordinator is 3, but it is a command: write its settings below [coordinator]"),
        ("[group]\ndescribe = 'lag'", "group.describe is 'lag', but it is a command: write its settings below [group."),
        ("zookeeper = ", "it is no TOML: Invalid value"),
        pytest.param(f"a = {'[' * 3_000}{']' * 3_000}", "it is no TOML: maximum recursion depth exceeded", id="deep"),
        pytest.param(f"a = {'1' * 5_000}", "it is no TOML: Exceeds the limit", id="long"),
    ],
)
def test_a_wrong_file_is_refused_with_what_is_allowed(
    run: Run, probe: list[tuple[Any, ...]], config: Callable[[str], str], text: str, why: str
) -> None:
    path = config(text)

    result = run("probe", "--config", path)

    assert (result.exit_code, probe, result.stderr.count("\n")) == (2, [], 1)
    assert result.stderr.startswith(f"error: --config {path}: ") and why in result.stderr


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("ZKCOORD_GROUP_DESCRIBE_TIMEOUT_MS", "120000", ["group", "describe", "g"]),
        ("ZKCOORD_GROUP_DESCRIBE_SORT", "lag", ["group", "describe", "g", "--members"]),
        ("ZKCOORD_GROUP_LIST_SORT", "lag", ["group", "list"]),
        ("ZKCOORD_GROUP_RELEASE_TIMEOUT_MS", "120000", ["group", "release", "g"]),
    ],
)
def test_a_variable_for_an_option_that_does_not_apply_to_a_call_does_not_refuse_it(
    run: Run, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, words: Sequence[str]
) -> None:
    monkeypatch.setenv(variable, value)
    assert "error: where is ZooKeeper?" in run(*words).stderr


def test_a_file_that_is_not_there_and_a_wrong_variable_are_refused(
    run: Run, probe: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    missing = run("probe", "--config", "/nowhere.toml")
    monkeypatch.setenv("ZKCOORD_PROBE_COUNT", "10")
    wrong = run("probe", "--zookeeper", "h:1")

    (tmp_path / "latin.toml").write_bytes(b'zookeeper = "h\xe4st:1"')
    latin = run("probe", "--config", str(tmp_path / "latin.toml"))
    assert latin.stderr == f"error: --config {tmp_path}/latin.toml: it is no TOML: byte 14 is no UTF-8\n"
    why = "it cannot be read (No such file or directory); name a file that can be read"
    assert missing.stderr == f"error: --config /nowhere.toml: {why}\n"
    assert "10 is not in the range 1<=x<=9." in wrong.stderr
    assert (missing.exit_code, wrong.exit_code, probe) == (2, 2, [])


def shown(run: Run, *words: str) -> dict[str, tuple[Any, str]]:
    """Setting -> value and source, as programs see it."""
    result = run("config", "show", "--output", "json", *words)
    assert result.exit_code == 0, result.stderr
    found = [json.loads(line) for line in result.stdout.splitlines()]
    return {f"{each['command'] or ''} {each['setting']}".strip(): (each["value"], each["source"]) for each in found}


def test_each_value_is_shown_with_where_it_came_from(
    run: Run, config: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = config('zookeeper = "file:1"\n[coordinator]\njournal = "/j"\n[group.describe]\nsort = "lag"\n')
    monkeypatch.setenv("ZKCOORD_BOOTSTRAP_SERVERS", "env:1")
    monkeypatch.setenv("ZKCOORD_COORDINATOR_SESSION_TIMEOUT_MS", "9000")

    every = shown(run, "--config", path)
    one = shown(run, "coordinator", "--config", path)

    assert every["zookeeper"] == ("file:1", "file")
    assert every["bootstrap-servers"] == ("env:1", "environment")
    assert every["output"] == ("json", "command line")
    assert every["log-format"] == ("text", "default")
    own = {name: each for name, each in every.items() if " " in name}
    assert own == {
        "coordinator journal": ("/j", "file"),
        "coordinator session-timeout-ms": (9000, "environment"),
        "group describe sort": ("lag", "file"),
    }
    assert one["coordinator layout"] == ("draft", "default")
    assert {name.partition(" ")[0] for name in one if " " in name} == {"coordinator"}
    table = run("config", "show", "coordinator", "--config", path).stdout.splitlines()
    assert [line.split()[-1] for line in table if "session-timeout" in line or "journal" in line] == [
        "ZKCOORD_COORDINATOR_SESSION_TIMEOUT_MS",
        path,
    ]


def test_a_variable_that_nothing_reads_and_an_unknown_command_are_named_with_the_nearest(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZKCOORD_ZOKEEPER", "h:1")

    assert run("config", "show").stderr == "warning: ZKCOORD_ZOKEEPER is no setting: did you mean ZKCOORD_ZOOKEEPER?\n"
    wrong = run("config", "show", "group", "descrbe")
    assert wrong.stderr.endswith("error: there is no command 'group descrbe': did you mean describe?\n")


def test_every_command_warns_of_a_mistyped_variable_and_of_no_other(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container beside a service named zkcoord gets variables that nobody typed."""
    for name in ("ZKCOORD_SERVICE_HOST", "ZKCOORD_PORT_2181_TCP", "ZKCOORD_OUTPT", "ZKCOORD_GROUP_DESCRIBE_SROT"):
        monkeypatch.setenv(name, "json")
    warned = (
        "warning: ZKCOORD_GROUP_DESCRIBE_SROT is no setting: did you mean ZKCOORD_GROUP_DESCRIBE_SORT?\n"
        "warning: ZKCOORD_OUTPT is no setting: did you mean ZKCOORD_OUTPUT?\n"
    )

    assert run("completion", "zsh").stderr == warned
    assert run("group", "list").stderr.startswith(f"{warned}error: where is ZooKeeper?")
    shown = run("config", "show").stderr
    assert shown.startswith(warned) and "ZKCOORD_SERVICE_HOST is no setting: nothing reads it" in shown
    events = [json.loads(line) for line in run("group", "list", "--log-format", "json").stderr.splitlines()]
    assert [each["event"] for each in events] == ["warning", "warning", "error"]


def test_a_wrong_value_in_the_environment_is_refused_when_it_is_shown(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZKCOORD_CONSUME_THREADS", "0")

    result = run("config", "show")

    why = "error: ZKCOORD_CONSUME_THREADS: 0 is not in the range"
    assert (result.exit_code, result.stderr.startswith(why)) == (2, True)


def test_all_settings_of_all_commands_can_be_shown(run: Run) -> None:
    names = shown(run, "--all")

    assert {"audit patience-ms", "offsets migrate to", "migrate topics to", "group plan assignor"} <= names.keys()
