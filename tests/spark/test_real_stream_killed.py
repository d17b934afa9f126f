"""A stream of ranges whose driver is killed, and the tables that it writes to: all of them are real."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.on_stream import GROUP, Tables
from tests.spark.streams import committed
from tests.spark.together import ON_REAL_SERVERS, PROGRAM_DEADLINE_S, ROOT, coordinating
from tests.waiting import wait_until

if TYPE_CHECKING:
    from tests.spark.conftest import Topic

pytestmark = [*ON_REAL_SERVERS, pytest.mark.long]


def test_f323_a_killed_driver_resumes_from_its_checkpoint_and_writes_each_record_once(
    make_topic: Callable[[int], Topic], chroot: str, spark_java: None, tmp_path: Path
) -> None:
    """It is killed, with its JVM, when one table has the batch and the next one has not; at last when all have it."""
    topic = make_topic(2)
    topic.show_in(chroot)
    command = [
        sys.executable,
        "-m",
        "tests.spark.on_stream",
        str(tmp_path),
        chroot,
        topic.bootstrap_servers,
        topic.name,
    ]

    runs = ("delta", "iceberg", "sql", "none")
    ends = {0: 70 * len(runs), 1: 30 * len(runs)}

    def run(last: str) -> None:
        with (tmp_path / f"{last}.log").open("wb") as log:
            program = subprocess.Popen([*command, last], stdout=log, stderr=log, cwd=ROOT, start_new_session=True)
        try:
            if last == "none":
                wait_until(lambda: committed(chroot, GROUP) == ends, "all is read", PROGRAM_DEADLINE_S)
            else:
                assert program.wait(PROGRAM_DEADLINE_S) == -signal.SIGKILL, (tmp_path / f"{last}.log").read_text()
        finally:
            if program.poll() is None:
                os.killpg(program.pid, signal.SIGKILL)
                program.wait()

    with coordinating(chroot, **topic.source):
        for last in runs:
            topic.fill(0, 70)
            topic.fill(1, 30)
            run(last)
    begun = [line.split() for line in (tmp_path / "batches").read_text().splitlines()]
    for before, after in pairwise(runs):
        broken = [what for by, *what in begun if by == before][-1]
        assert next(what for by, *what in begun if by == after) == broken, "the batch comes again as it was"
    expected = [*((0, at) for at in range(280)), *((1, at) for at in range(120))]
    assert {name: rows == expected for name, rows in Tables(tmp_path).rows().items()} == {
        "delta": True,
        "iceberg": True,
        "sql": True,
    }
