"""`zkcoord coordinator` as a process, on a real server."""

import json
import signal
from typing import Any, NoReturn

import pytest

from tests.cli.program import Run, Spawn
from zkcoord.errors import UnavailableError, UsageError
from zkcoord.settings import SESSION_TIMEOUT_MS

pytestmark = pytest.mark.zookeeper


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_makes_the_tree_serves_says_so_and_leaves_cleanly(
    chroot: str, run: Run, spawn: Spawn, number: signal.Signals
) -> None:
    program = spawn("coordinator", "--zookeeper", chroot)
    assert program.line() == f"coordinator 0 serves: epoch 1, layout draft, ZooKeeper {chroot}"

    program.process.send_signal(number)

    assert program.end() == 0
    assert program.rest() == []
    assert run("migrate", "current", "--zookeeper", chroot).stdout == "0001, layout draft\n"


def test_a_standby_says_that_it_stands_by_and_takes_over_at_once(chroot: str, spawn: Spawn) -> None:
    first = spawn("coordinator", "--zookeeper", chroot, "--id", "7", "--output", "json")
    serving = {"coordinator": 7, "epoch": 1, "layout": "draft", "zookeeper": chroot}
    assert json.loads(first.line()) == serving
    second = spawn("coordinator", "--zookeeper", chroot, "--id", "8", "--output", "json")
    second.line("stderr", having="standing_by")

    first.process.terminate()

    assert json.loads(second.line()) == {**serving, "coordinator": 8, "epoch": 2}


def test_its_log_in_json_tells_the_election(chroot: str, spawn: Spawn) -> None:
    program = spawn("--log-format", "json", "coordinator", "--zookeeper", chroot)

    elected = json.loads(program.line("stderr", having="elected"))

    assert (elected["event"], elected["coordinator"], elected["epoch"]) == ("elected", 0, 1)
    assert {"time_ms", "mono_ms"} <= elected.keys()


def test_it_refuses_a_tree_of_another_layout(chroot: str, run: Run, spawn: Spawn) -> None:
    run("migrate", "upgrade", "--layout", "legacy", "--zookeeper", chroot)

    program = spawn("coordinator", "--zookeeper", chroot)

    assert program.end() == 7
    assert "start it with --layout legacy" in program.line("stderr", having="error:")


def test_it_refuses_a_chroot_that_does_not_exist(chroot: str, spawn: Spawn) -> None:
    program = spawn("coordinator", "--zookeeper", f"{chroot}/deeper")

    assert program.end() == 2
    (line,) = program.rest("stderr")  # told once
    assert line.startswith("error: the chroot ") and "/deeper does not exist" in line


@pytest.mark.parametrize(("words", "asked_ms"), [([], SESSION_TIMEOUT_MS), (["--session-timeout-ms", "2500"], 2_500)])
def test_it_asks_for_the_session_timeout_that_was_chosen(
    run: Run, monkeypatch: pytest.MonkeyPatch, words: list[str], asked_ms: int
) -> None:
    asked: list[int] = []

    def sessions(connect: str, *, session_timeout_ms: int, **settings: object) -> None:
        asked.append(session_timeout_ms)
        raise UnavailableError("no further")

    monkeypatch.setattr("zkcoord.coordinator.zookeeper_sessions", sessions)

    assert run("coordinator", "--zookeeper", "127.0.0.1:1", *words).exit_code == 5
    assert asked == [asked_ms]


def test_the_options_about_topics_are_the_coordinators(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}

    def coordinator(*_: object, **arguments: Any) -> NoReturn:
        given.update(arguments)
        raise UsageError("seen")

    monkeypatch.setattr("zkcoord.coordinator.Coordinator", coordinator)
    options = ["--topics", "kafka", "--bootstrap-servers", "h:9092", "--topics-interval-ms", "250"]
    assert run("coordinator", "--zookeeper", "h:2181", *options).exit_code == 2
    assert [given[name] for name in ("topics", "bootstrap_servers", "topics_interval_ms")] == ["kafka", "h:9092", 250]


def test_a_signal_ends_it_also_while_no_server_answers(spawn: Spawn) -> None:
    program = spawn("coordinator", "--zookeeper", "127.0.0.1:1")
    program.line("stderr", having="127.0.0.1:1")  # it looks for the server

    program.process.terminate()

    assert program.end() == 0
