"""What holds for every command: options before and after it, errors as one line with their exit code."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.cli.program import Run
from zkcoord.cli.main import cli
from zkcoord.cli.options import Command, Limits, Settings, pass_settings
from zkcoord.errors import (
    ConsumerRebalanceFailed,
    CorruptError,
    FencedError,
    InvariantError,
    SchemaError,
    UnavailableError,
    UsageError,
    ZkcoordError,
)

ERROR: list[BaseException] = []
CONSUME = ["consume", "--group", "g", "--topic", "t", "--zookeeper", "h:1", "--bootstrap-servers", "h:1"]
ALONE = "error: --timeout-ms is how long {0} waits: give {0}, too, or leave --timeout-ms out\n"


@pytest.fixture
def probe() -> Iterator[list[Settings]]:
    """A command `probe` that keeps the settings it was called with, then raises what stands in ERROR."""
    seen: list[Settings] = []

    @cli.command(cls=Command)
    @pass_settings
    def probe(settings: Settings) -> None:
        seen.append(settings)
        if ERROR:
            raise ERROR[0]

    yield seen
    ERROR.clear()
    del cli.commands["probe"]


def test_version_names_program_and_version(run: Run) -> None:
    result = run("--version")

    assert result.exit_code == 0
    assert result.stdout.startswith("zkcoord 0.")


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["coordinator"],
        ["consume"],
        ["group"],
        ["group", "list"],
        ["group", "describe"],
        ["migrate"],
        ["migrate", "current"],
        ["migrate", "history"],
        ["migrate", "upgrade"],
        ["demo"],
    ],
)
def test_every_command_takes_the_common_options(run: Run, words: list[str]) -> None:
    result = run(*words, "--help")

    assert result.exit_code == 0
    for option in (
        "--zookeeper ",
        "--bootstrap-servers ",
        "--command-config ",
        "--zookeeper-config ",
        "--output ",
        "--log-format ",
        "--verbose",
    ):
        assert option in result.stdout


@pytest.mark.parametrize("words", [[], ["group"], ["coordinators"], ["migrate"]])
def test_a_list_of_commands_has_whole_sentences(run: Run, words: list[str]) -> None:
    listed = run(*words, "--help").stdout.partition("Commands:\n")[2].partition("\n\n")[0]

    assert listed.strip()
    assert [line for line in listed.splitlines() if line.endswith("...")] == []


def test_options_stand_before_or_after_the_command_and_the_last_one_counts(run: Run, probe: list[Settings]) -> None:
    run("--zookeeper", "a:1", "--output", "json", "-v", "probe")
    run("probe", "--zookeeper", "b:1", "-vv")
    run("--zookeeper", "a:1", "-v", "probe", "--zookeeper", "b:1", "-v")

    assert [(s.zookeeper_address(), s.output, s.verbose) for s in probe] == [
        ("a:1", "json", 1),
        ("b:1", "table", 2),
        ("b:1", "table", 2),
    ]


def test_the_environment_names_servers_unless_the_command_line_does(
    run: Run, probe: list[Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZKCOORD_ZOOKEEPER", "env:1")
    monkeypatch.setenv("ZKCOORD_BOOTSTRAP_SERVERS", "env:2")

    run("probe")
    run("--zookeeper", "a:1", "--bootstrap-servers", "a:2", "probe")

    addresses = [(s.zookeeper_address(), s.kafka_address()) for s in probe]
    assert addresses[1] == ("a:1", "a:2")
    assert addresses[0] == ("env:1", "env:2")


@pytest.mark.parametrize("option", ["--zookeeper", "--bootstrap-servers", "--command-config", "--zookeeper-config"])
@pytest.mark.parametrize("value", ["", " "])
def test_an_empty_option_is_refused_and_not_replaced_by_the_environment(
    run: Run, probe: list[Settings], monkeypatch: pytest.MonkeyPatch, option: str, value: str
) -> None:
    monkeypatch.setenv("ZKCOORD_ZOOKEEPER", "env:1")
    monkeypatch.setenv("ZKCOORD_BOOTSTRAP_SERVERS", "env:2")

    result = run("probe", option, value)

    assert (result.exit_code, probe) == (2, [])
    assert result.stderr == f"error: {option} is empty: give a value, or leave the option out\n"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ZkcoordError("this happened"), 1),
        (UsageError("this happened"), 2),
        (ConsumerRebalanceFailed("this happened"), 3),
        (FencedError("this happened"), 4),
        (UnavailableError("this happened"), 5),
        (CorruptError("this happened"), 6),
        (SchemaError("this happened"), 7),
        (OSError("this happened"), 1),
    ],
)
def test_an_error_is_one_line_and_its_exit_code(
    run: Run, probe: list[Settings], error: BaseException, code: int
) -> None:
    ERROR.append(error)

    result = run("probe")

    assert (result.exit_code, result.stdout, result.stderr) == (code, "", "error: this happened\n")


def test_an_error_of_several_lines_keeps_them_below_the_first(run: Run, probe: list[Settings]) -> None:
    ERROR.append(ZkcoordError("it ended:\n  first\x1b[2J\n\n\tlast\n"))

    assert run("probe").stderr == "error: it ended:\n    first\\x1b[2J\n  \n          last\n"


@pytest.mark.parametrize("error", [InvariantError("two owners"), ZeroDivisionError("two owners")])
def test_a_bug_shows_its_traceback(run: Run, probe: list[Settings], error: Exception) -> None:
    ERROR.append(error)

    result = run("probe")

    *above, last = result.stderr.splitlines()
    assert result.exit_code == 70
    assert above[0] == "Traceback (most recent call last):"
    assert last.startswith("error: a bug in zkcoord: ") and "two owners" in last


def test_an_interrupt_exits_as_a_shell_reports_it(run: Run, probe: list[Settings]) -> None:
    ERROR.append(KeyboardInterrupt())

    result = run("probe")

    assert result.exit_code == 130
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("error", [UnavailableError("this happened"), InvariantError("this happened")])
def test_with_a_json_log_every_line_on_standard_error_is_an_object(
    run: Run, probe: list[Settings], error: Exception
) -> None:
    ERROR.append(error)

    result = run("--log-format", "json", "probe")

    lines = [json.loads(line) for line in result.stderr.splitlines()]
    code = getattr(error, "exit_code", None)
    assert (lines[-1]["event"], lines[-1]["exit_code"], result.exit_code) == ("error", code, code)
    assert "this happened" in lines[-1]["message"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["nothing"], "No such command 'nothing'. (see `zkcoord --help`)"),
        (["migrate", "current", "--nothing"], "No such option '--nothing'. (see `zkcoord migrate current --help`)"),
        (["completion"], "Choose from: bash, zsh, fish (see `zkcoord completion --help`)"),
        (["group", "plan", "g", "--dump", "f"], "group g and --dump f were both given: the file names its groups"),
        (["group", "describe"], "name one group, or give --all-groups"),
        (["group", "describe", "g", "--all-groups"], "name one group, or give --all-groups"),
        (["group", "describe", "g", "--members", "--state"], "choose one of --members and --state"),
        (["group", "list", "--sort", "lag"], "--sort lag sorts the table of --state: give that, too"),
        (["group", "describe", "g", "--members", "--sort", "lag"], "--sort lag sorts partitions: leave out --members"),
        (["group", "describe", "g", "--timeout-ms", "5"], ALONE.format("--wait stable")),
        (["group", "release", "g", "--timeout-ms", "5"], ALONE.format("--wait")),
        (["group", "reset-offsets", "g", "--to-earliest", "--timeout-ms", "5"], ALONE.format("--stop-first")),
        (["group", "delete", "gr\udcfc"], r"'gr\udcfc' has bytes that are not of this terminal's encoding"),
        (["group", "list", "--zookeeper", "h:1/\udcfc"], r"'h:1/\udcfc' has bytes that are not of this terminal's"),
        (["backup", "\udcfc"], "where is ZooKeeper? give --zookeeper"),
        (["topic", "create", "t", "--partitions", "99999999999"], "'--partitions': 99999999999 is not in the range"),
        (["migrate", "move", "--to", "h:1", "--give-up", "--dry-run"], "--give-up has no dry run (`zkcoord group"),
        (["group", "list"], "where is ZooKeeper? give --zookeeper"),
        (["coordinator"], "where is ZooKeeper? give --zookeeper"),
        (["consume", "--group", "g", "--topic", "t", "--zookeeper", "h:1"], "where is Kafka? give --bootstrap-servers"),
        (["consume", "--topic", "t"], "Missing option '--group'. (see `zkcoord consume --help`)"),
        (["group", "list", "--zookeeper", "h:port"], "'port' is no port"),
        (
            ["consume", "--group", "g", "--topic", "t", "--threads", "x"],
            "'--threads': 'x' is not a valid whole number.",
        ),
        ([*CONSUME, "--bootstrap-servers", "http://h:1"], "'http://h:1' is no broker; write HOST:PORT[,HOST:PORT…]"),
        ([*CONSUME, "--bootstrap-servers", "::1:9092"], "an IPv6 address stands in brackets, as in [::1]:9092"),
        (["group", "list", "--zookeeper", "::1:2181"], "an IPv6 address stands in brackets, as in [::1]:2181"),
        (
            ["page", "--http", "::1:8080"],
            "Invalid value for '--http': '::1:8080' is no address: give HOST:PORT, with a port up to 65535",
        ),
        (["page", "--http", "::1:8080"], "an IPv6 address stands in brackets, as in [::1]:9464"),
        ([*CONSUME, "--hold-ms", "x"], "'--hold-ms': 'x' is not a valid whole number."),
        ([*CONSUME, "--hold-ms", "5"], "--hold-ms is for a consumer that comes back: give it a stable name with"),
        ([*CONSUME, "--group", "a b"], "group 'a b': letters, digits"),
        ([*CONSUME, "--group", ""], "--group is empty: give a value, or leave the option out"),
        ([*CONSUME, "--topic", " "], "--topic is empty: give a value, or leave the option out"),
        (["coordinator", "--zookeeper", "h:1", "--journal", ""], "--journal is empty: give a value, or leave"),
        ([*CONSUME, "--consumer-id", "a/b"], "instance 'a/b': letters, digits, '.', '_' and '-' only, at most 249"),
        ([*CONSUME, "--consumer-id", "a b"], "instance 'a b': letters, digits, '.', '_' and '-' only, at most 249"),
        (["group", "list", "--zookeeper", "http://h:1"], "it is no URL; write HOST:PORT[,HOST:PORT…][/chroot]"),
        (
            ["coordinator", "--zookeeper", "h:1", "--session-timeout-ms", "2147483648"],
            "a session timeout of 2147483648 ms: choose from 1 to 2147483647",
        ),
        (["coordinator", "--zookeeper", "h:1", "--session-timeout-ms", "0"], "'--session-timeout-ms': 0 is not in"),
        (["group", "list", "--zookeeper", "h:1/a/"], "the chroot must not end with /"),
        (["coordinator", "--zookeeper", "h:1,"], "a host is missing"),
        (["coordinator", "--zookeeper", "h:1", "--id", "-1"], "'--id': -1 is not in the range 0<=x<=2147483647."),
        (
            ["migrate", "current", "--zookeeper", "h:1", "--zookeeper-config", "/none"],
            "/none cannot be read (No such file or directory); name a file",
        ),
    ],
)
def test_a_wrong_call_is_refused_with_what_to_change(run: Run, words: list[str], why: str) -> None:
    result = run(*words)

    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("error: ") and result.stderr.count("\n") == 1
    assert why in result.stderr


def test_a_wrong_value_from_the_environment_is_told_with_its_variable(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZKCOORD_OUTPUT", "xml")
    assert run("config", "show").stderr.startswith("error: ZKCOORD_OUTPUT: 'xml' is not one of 'table', 'json'.")
    monkeypatch.delenv("ZKCOORD_OUTPUT")
    monkeypatch.setenv("ZKCOORD_COORDINATOR_ID", "x")
    assert run("coordinator").stderr.startswith("error: ZKCOORD_COORDINATOR_ID: 'x' is not a valid whole number.")
    assert run("coordinator", "--id", "y").stderr.startswith("error: Invalid value for '--id': 'y' is not")


def test_a_noun_alone_shows_its_help(run: Run) -> None:
    assert "describe" in run("group").output


def test_a_server_that_is_away_is_unavailable(run: Run) -> None:
    result = run("migrate", "current", "--zookeeper", "127.0.0.1:1", limits=Limits(tree_wait_ms=300))

    assert result.exit_code == 5
    assert "127.0.0.1:1" in result.stderr


def test_a_reader_that_has_gone_is_no_error() -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        command = [sys.executable, "-m", "zkcoord_command", "migrate", "history"]
        done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, timeout=120, check=False)
    finally:
        os.close(write)

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_a_closed_output_is_one_that_nobody_reads(closed: str) -> None:
    command = f'"{sys.executable}" -m zkcoord_command migrate history {closed}'

    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=120)

    assert (done.returncode, done.stderr) == (0, "")
    assert ("0001" in done.stdout) is (closed == "2>&-")


def test_these_nouns_and_verbs_exist() -> None:
    nouns = [
        "audit",
        "backup",
        "completion",
        "config",
        "consume",
        "coordinator",
        "coordinators",
        "demo",
        "doctor",
        "group",
    ]
    assert sorted(cli.commands) == [
        *nouns,
        "inventory",
        "migrate",
        "offsets",
        "page",
        "restore",
        "top",
        "topic",
        "uninstall",
        "watch",
    ]


@pytest.mark.parametrize("words", ["migrate history", "--help", "group --help"])
@pytest.mark.parametrize("format_", ["text", "json"])
def test_a_full_device_is_told_in_one_line_with_an_exit_code(words: str, format_: str) -> None:
    """What it printed before was `[Errno 28] No space left on device`: nobody knew which device."""
    command = f'"{sys.executable}" -m zkcoord_command --log-format {format_} {words} >/dev/full'

    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=120)

    text = "standard output cannot be written (No space left on device): make room there, or send it elsewhere"
    (line,) = done.stderr.splitlines()
    assert (done.returncode, text in line) == (1, True)


def test_an_error_that_cannot_be_printed_keeps_its_exit_code() -> None:
    command = f'"{sys.executable}" -m zkcoord_command group describe 2>/dev/full'

    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=120)

    assert (done.returncode, done.stdout) == (2, "")


def test_closed_standard_input_is_empty() -> None:
    """Before, it ended as a bug: `'NoneType' object has no attribute 'buffer'`."""
    command = f'"{sys.executable}" -m zkcoord_command group plan --dump - <&-'

    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=120)

    assert (done.returncode, done.stderr.startswith("error: --dump -: it holds no JSON")) == (2, True), done.stderr
