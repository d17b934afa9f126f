"""The page of many groups: how fast it opens, and whether a hand-over feels it.

    python benchmarks/page.py [--quick] [--json FILE] [--rounds N] [--point G,M,P]

Real ZooKeeper, a real coordinator with metrics, members of `crowd.py`, `zkcoord page` as a process, and a browser's
requests from another one: all on this machine, however few its cores. A point is groups, members and partitions.

    open      from sending the request until the whole answer is there; median of the list of groups, and of one group,
              while the page reads all groups all the time
    first     from the page's start until its first list of all groups
    handover  one member joins a group, then its session ends: from right before it to Stable; rounds with and without
              the page alternate. Without: its process is stopped (SIGSTOP). With: it reads, one browser holds the list
              and the group open (events), and loads both each second

Ends with one line a measure: `measure value goal ok|short`. The ratio is with / without, of medians.
"""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from statistics import median
from typing import Any

from common import DEADLINE_S, SESSION_TIMEOUT_MS, Child, now_ns, whole, wholes
from scale import Scale
from verdict import OUT, Measure, arguments, conclude

from zkcoord.embedded import EmbeddedZooKeeper
from zkcoord.embedded.java import LONG_LIVED

POINT, QUICK_POINT = (100, 1_000, 100_000), (20, 200, 2_000)
ROUNDS, QUICK_ROUNDS = 9, 2
OPENED = 20
OPEN_MS, RATIO = 1_000.0, 1.25
PATHS = ("/", "/groups/g0")


class Browser:
    """A browser's process: it keeps two pages open, and loads both again and again."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._away = threading.Event()
        self._threads: list[threading.Thread] = []

    def get(self, path: str) -> tuple[int, float, str]:
        """Load a page; return its status, the milliseconds, and the page."""
        began_ns = now_ns()
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=DEADLINE_S)
        with closing(connection):
            connection.request("GET", path)
            answer = connection.getresponse()
            text = answer.read().decode()
        return answer.status, (now_ns() - began_ns) / 1e6, text

    def begin(self) -> None:
        """Open the pages; returns when they are shown."""
        self._away.clear()
        self._opened = threading.Semaphore(0)
        self._threads = [threading.Thread(target=self._live, args=(path,), daemon=True) for path in PATHS]
        self._threads.append(threading.Thread(target=self._load, daemon=True))
        for each in self._threads:
            each.start()
        for _ in PATHS:
            if not self._opened.acquire(timeout=DEADLINE_S):
                raise RuntimeError("a page does not open")

    def end(self) -> None:
        """Close them."""
        self._away.set()
        for each in self._threads:
            each.join(DEADLINE_S)

    def close(self) -> None:
        """Do as `end` does."""
        self.end()

    def _live(self, path: str) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=DEADLINE_S)
        with closing(connection):
            connection.request("GET", f"/live{path}")
            answer = connection.getresponse()
            while not self._away.is_set() and (line := answer.readline()):
                if line == b"event: body\n":
                    self._opened.release()
            answer.close()

    def _load(self) -> None:
        while not self._away.wait(1.0):
            for path in PATHS:
                self.get(path)


class Paged(Scale):
    """A deployment whose hand-overs are timed. Even shares are checked only once."""

    def begin(self) -> None:
        """Wait until every member has its share."""
        self._cold()

    def round(self) -> list[float]:
        """Let a member join and die; return the seconds of both."""
        return [self._timed(lambda: self._register("g0", 1, alone=True)), self._timed(lambda: self._crowd.ask("kill"))]

    def _timed(self, event: Callable[[], Any]) -> float:
        coordinator, began_ns = self._serving(), now_ns()
        event()
        stable_ns = coordinator.ask("stable", self._groups, began_ns)
        self._crowd.ask("check")
        return float(stable_ns - began_ns) / 1e9


def free_port() -> int:
    """Return a port that is free now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def page_process(zookeeper: str, metrics: str, port: int) -> Iterator[int]:
    """Run `zkcoord page` with the priority that it has beside a coordinator; return its process id."""
    command = [sys.executable, "-m", "zkcoord_command", "page", "--zookeeper", zookeeper, "--from", metrics]
    command += ["--http", f"127.0.0.1:{port}"]
    process = subprocess.Popen(["nice", "-n", "10", *command], stdout=subprocess.DEVNULL)
    try:
        yield process.pid
    finally:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        process.wait(DEADLINE_S)


def until_read(browser: Child, groups: int) -> float:
    """Wait until the page lists all groups; return the seconds."""
    began_ns, pause = now_ns(), threading.Event()
    while (now_ns() - began_ns) / 1e9 < DEADLINE_S:
        try:
            status, _, text = browser.ask("get", "/")
            if status == 200 and f"{groups} group" in text:
                return (now_ns() - began_ns) / 1e9
        except RuntimeError:  # the page does not listen yet
            pass
        pause.wait(0.1)
    raise RuntimeError("the page does not list all groups")


def measured(server: EmbeddedZooKeeper, point: tuple[int, int, int], rounds: int) -> dict[str, Any]:
    """All figures of a point."""
    metrics, port = f"127.0.0.1:{free_port()}", free_port()
    with closing(Paged(server, *point, metrics)) as scale:
        scale.begin()
        with page_process(server.hosts, metrics, port) as page, closing(Child(Browser, port)) as browser:
            found: dict[str, Any] = {"first_s": until_read(browser, point[0])}
            found["open_ms"] = {path: [browser.ask("get", path)[1] for _ in range(OPENED)] for path in PATHS}
            with_page, without = list[list[float]](), list[list[float]]()
            for _ in range(rounds):
                browser.ask("begin")
                with_page.append(scale.round())
                browser.ask("end")
                os.kill(page, signal.SIGSTOP)
                without.append(scale.round())
                os.kill(page, signal.SIGCONT)
    return {**found, "with_s": with_page, "without_s": without}


def report(point: tuple[int, int, int], found: dict[str, Any]) -> list[Measure]:
    """A point's measures."""
    where = "x".join(map(str, point))
    goals = point == POINT
    measures = [Measure(f"first_{where}_s", found["first_s"])]
    for path, name in zip(PATHS, ("groups", "group"), strict=True):
        measures.append(
            Measure(f"open_{name}_{where}_ms", median(found["open_ms"][path]), OPEN_MS if goals else None, at_most=True)
        )
    for n, event in enumerate(("join", "death")):
        with_page, without = (median(round_[n] for round_ in found[key]) for key in ("with_s", "without_s"))
        print(f"{event:<6} {where:<18} with the page {with_page * 1000:.0f} ms, without {without * 1000:.0f} ms")
        measures.append(
            Measure(f"{event}_{where}_with_page_ratio", with_page / without, RATIO if goals else None, at_most=True)
        )
    return measures


def main() -> int:
    """One point on a server of its own."""
    parser = arguments("The page of many groups.")
    parser.add_argument("--point", type=wholes(3), metavar="G,M,P", help="groups, members, partitions")
    parser.add_argument("--rounds", type=whole, metavar="N", help=f"of hand-overs (default {ROUNDS})")
    chosen = parser.parse_args()
    groups, members, partitions = chosen.point or (QUICK_POINT if chosen.quick else POINT)
    rounds = chosen.rounds or (QUICK_ROUNDS if chosen.quick else ROUNDS)
    with EmbeddedZooKeeper(max_session_timeout_ms=2 * SESSION_TIMEOUT_MS, jvm_options=LONG_LIVED) as server:
        found = measured(server, (groups, members, partitions), rounds)
    print(f"load {os.getloadavg()[0]:.1f}", file=sys.stderr)
    return conclude(report((groups, members, partitions), found), {"raw": found}, chosen.json or OUT / "page.json")


if __name__ == "__main__":
    sys.exit(main())
