"""A driver and its JVM are suspended for longer than their session lasts: SIGSTOP in the middle of a batch, later
SIGCONT.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.integration.world import World as Tree
from tests.spark.fakes import InThread
from tests.spark.on_pause import GROUP
from tests.spark.together import ON_REAL_SERVERS, PROGRAM_DEADLINE_S, ROOT, Seen
from tests.waiting import wait_until
from zkcoord.core.model import TopicPartition, consumer_of
from zkcoord.spark import SparkConsumer
from zkcoord.tree.paths import DRAFT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.spark.conftest import Topic

pytestmark = ON_REAL_SERVERS


class Driver:
    """The program, in a process group of its own with its JVM."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "tests.spark.on_pause", *arguments]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen(command, text=True, cwd=ROOT, start_new_session=True, **pipes)
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self.signal_all(signal.SIGKILL)
        self._process.wait(PROGRAM_DEADLINE_S)
        self._reader.join(PROGRAM_DEADLINE_S)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _read(self) -> None:
        for line in self._process.stdout or ():
            self._lines.put(line)
        self._lines.put("")

    def next(self, what: str) -> dict[str, Any]:
        """Wait for the next line, which must be about this event."""
        line = self._lines.get(timeout=PROGRAM_DEADLINE_S)
        assert line, f"it ended before {what}"
        told: dict[str, Any] = json.loads(line)
        assert told.pop("what") == what, told
        return told

    def signal_all(self, number: signal.Signals) -> None:
        """Send a signal to the whole process group."""
        os.killpg(self._process.pid, number)

    def go_on(self) -> None:
        """Write the line that the first batch waits for."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def end(self) -> None:
        """End it as an operator does."""
        self._process.send_signal(signal.SIGTERM)


def test_a_driver_that_sleeps_past_its_session_commits_nothing_and_rejoins(
    spark: SparkSession, make_topic: Callable[[int], Topic], chroot: str
) -> None:
    topic = make_topic(2)
    topic.show_in(chroot)
    topic.fill(0, 20)
    topic.fill(1, 10)
    partitions = [TopicPartition(topic.name, number) for number in range(2)]
    seen = Seen()

    def offsets() -> list[bytes]:
        return [world.data(DRAFT.offset(GROUP, each)) for each in partitions]

    def owners() -> list[str]:
        return [consumer_of(world.data(DRAFT.owner(GROUP, each)).decode()) for each in partitions]

    with Tree(chroot) as world, Driver(chroot, topic.bootstrap_servers, topic.name) as driver:
        world.coordinate(**topic.source)
        assert len(driver.next("begun")["rows"]) in (20, 10, 30)
        (slept,) = world.children(DRAFT.ids(GROUP))
        driver.signal_all(signal.SIGSTOP)
        heir = SparkConsumer(
            *(spark, chroot, topic.bootstrap_servers, GROUP, [topic.name]),
            starting_offsets="earliest",
        )
        running = InThread(lambda: heir.run(seen.process_as("heir")))
        seen.wait_for(lambda: len(seen.records) == 30)
        topic.fill(0, 5)
        wait_until(lambda: offsets() == [b"25", b"10"], "the heir has read all")
        (other,) = world.children(DRAFT.ids(GROUP))
        driver.signal_all(signal.SIGCONT)
        driver.go_on()
        wait_until(lambda: len(world.children(DRAFT.ids(GROUP))) == 2, "it registers anew")
        (mine,) = set(world.children(DRAFT.ids(GROUP))) - {other}
        assert mine != slept
        wait_until(lambda: mine in owners(), "it is given a partition again")
        number = owners().index(mine)
        before = [25, 10][number]
        topic.fill(number, 4)
        rows = [[number, offset] for offset in range(before, before + 4)]
        assert driver.next("begun") == {"rows": rows}
        assert driver.next("committed") == {"ranges": [[number, before, before + 4]]}
        assert offsets()[number] == b"%d" % (before + 4)
        driver.end()
        assert driver.next("ended") == {"batches": 1, "lost": 1}
        heir.stop()
        running.result()
    assert set(seen.records.values()) == {1}
