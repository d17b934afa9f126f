"""A child process: started, ended, paused; and what is said when it does not come up. No server."""

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from zkcoord.embedded.child import Child
from zkcoord.errors import UnavailableError, UsageError

OBEDIENT = "print('up', flush=True)\nimport time\ntime.sleep(600)"
STUBBORN = (
    "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('up', flush=True)\ntime.sleep(600)"
)
DEADLINE_MS = 60_000  # only what fails takes so long


def child(tmp_path: Path, code: str) -> Child:
    return Child("thing", [sys.executable, "-c", code], tmp_path / "log", grace_ms=200)


def start(thing: Child) -> None:
    thing.start()
    thing.await_ready(lambda: thing.tail() == "up", DEADLINE_MS)


def state(thing: Child) -> str:
    """The letter of /proc: S sleeps, T is stopped."""
    return Path(f"/proc/{thing.pid}/stat").read_text().rpartition(")")[2].split()[0]


def runs(pid: int) -> bool:
    """Whether there is such a process, and it has not ended; nobody may be there to reap it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def await_true(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE_MS / 1000
    while not condition():
        assert time.monotonic() < end
        threading.Event().wait(0.02)


def test_a_stop_is_a_termination_first(tmp_path: Path) -> None:
    thing = child(tmp_path, OBEDIENT)
    start(thing)
    thing.stop(DEADLINE_MS)
    assert (thing.running, thing.pid, thing.exit_code) == (False, None, 128 + 15)


def test_a_program_that_listens_is_told_lines_while_it_runs(tmp_path: Path) -> None:
    echo = "import sys\nfor line in sys.stdin: print(line.strip()[::-1], flush=True)"
    thing = Child("thing", [sys.executable, "-c", echo], tmp_path / "log", listens=True)
    thing.start()
    for line, said in (("one", "eno"), ("two", "eno\nowt")):
        thing.say(line)
        thing.await_ready(lambda said=said: thing.tail() == said, DEADLINE_MS)  # type: ignore[misc]
    thing.kill()
    with pytest.raises(UsageError, match="does not run, or does not listen"):
        thing.say("three")


def test_a_program_that_does_not_listen_is_told_nothing(tmp_path: Path) -> None:
    thing = child(tmp_path, OBEDIENT)
    start(thing)
    with pytest.raises(UsageError, match="does not run, or does not listen"):
        thing.say("one")
    thing.kill()


def test_a_stop_that_is_ignored_becomes_a_kill(tmp_path: Path) -> None:
    thing = child(tmp_path, STUBBORN)
    start(thing)
    thing.stop()
    assert (thing.running, thing.exit_code) == (False, 128 + 9)


def test_a_kill_takes_a_paused_one_too(tmp_path: Path) -> None:
    thing = child(tmp_path, OBEDIENT)
    start(thing)
    thing.pause()
    thing.pause()
    assert (thing.running, state(thing)) == (True, "T")
    thing.kill()
    assert (thing.running, thing.exit_code) == (False, 128 + 9)


def test_a_paused_one_goes_on_and_obeys_a_stop(tmp_path: Path) -> None:
    thing = child(tmp_path, OBEDIENT)
    start(thing)
    thing.pause()
    thing.resume()
    thing.pause()
    thing.stop(DEADLINE_MS)
    assert thing.exit_code == 128 + 15


def test_it_can_be_started_again_and_its_tail_is_of_the_last_run(tmp_path: Path) -> None:
    thing = child(tmp_path, OBEDIENT)
    for _ in range(2):
        start(thing)
        thing.kill()
    assert (thing.tail(), thing.log.read_text()) == ("up", "up\nup\n")


def test_a_killed_programs_children_end_with_it(tmp_path: Path) -> None:
    parent = (
        "import subprocess, sys, time\n"
        "started = subprocess.Popen([sys.executable, '-c', 'import time; print(0, flush=True); time.sleep(600)'])\n"
        "print(started.pid, flush=True)\ntime.sleep(600)"
    )
    thing = child(tmp_path, parent)
    thing.start()
    thing.await_ready(lambda: len(thing.tail().split()) == 2, DEADLINE_MS)
    started = max(int(pid) for pid in thing.tail().split())
    assert runs(started)
    thing.kill()
    await_true(lambda: not runs(started))
    assert thing.exit_code == 128 + 9


def test_orders_to_what_does_not_run(tmp_path: Path) -> None:
    thing = child(tmp_path, OBEDIENT)
    thing.stop()
    thing.kill()
    with pytest.raises(UsageError, match="thing does not run"):
        thing.pause()
    start(thing)
    with pytest.raises(UsageError, match="thing runs already"):
        thing.start()
    thing.kill()
    with pytest.raises(UsageError, match="thing does not run"):
        thing.resume()


def test_one_that_ends_instead_of_serving_is_quoted(tmp_path: Path) -> None:
    thing = child(tmp_path, "import sys\nprint('no disk', flush=True)\nsys.exit(3)")
    thing.start()
    with pytest.raises(UnavailableError) as caught:
        thing.await_ready(lambda: False, DEADLINE_MS)
    assert str(caught.value) == (
        f"thing ended with code 3 instead of serving; its log ({tmp_path}/log) ends with:\nno disk"
    )
    thing.kill()


def test_one_that_never_serves_is_quoted_at_the_deadline(tmp_path: Path) -> None:
    thing = child(tmp_path, OBEDIENT)
    start(thing)
    with pytest.raises(UnavailableError, match=r"(?s)thing does not answer after 50 ms.*up"):
        thing.await_ready(lambda: False, 50)
    thing.kill()


def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    thing = Child("thing", [str(tmp_path / "absent")], tmp_path / "log")
    with pytest.raises(UnavailableError, match=r"(?s)thing could not be started: .*absent.*No such file or directory"):
        thing.start()
    assert not thing.running
