"""A producer that goes on while a cluster moves from ZooKeeper to KRaft and to Kafka 4, step by step."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import deque
from contextlib import closing
from pathlib import Path
from typing import IO, Any

from confluent_kafka import Consumer, TopicPartition

from tests.kafka.helpers import PATIENCE_SECONDS, QUIET
from tests.kafka.topics import await_partitions
from tests.waiting import wait_until

PARTITIONS = 4
PROGRAM = Path(__file__).with_name("kraft_producer.py")
LINES = 400  # of its log


class Flow:
    """A producer that goes on over restarts; `written`: how many records each partition has got, as it was told.

    It is a program of its own: if librdkafka ends it, its last lines are told, and the test goes on to its report.

    A record may be in the log twice. It is not idempotent: librdkafka takes a record for written that a broker refused,
    which did not know the new partition yet, when the broker then takes the next one.

    A broker that has just started in KRaft mode may say that the topic does not exist. librdkafka refuses records then:
    they were not written, and are not missed.
    """

    def __init__(self, servers: str, topic: str) -> None:
        self._servers, self._topic = servers, topic
        self.written: dict[int, int] = {}
        self.recent: deque[str] = deque(maxlen=LINES)  # one that is logged again and again is kept once
        self._program = subprocess.Popen(
            [sys.executable, str(PROGRAM), servers, topic],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._threads = [threading.Thread(target=self._count), threading.Thread(target=self._keep)]
        for thread in self._threads:
            thread.start()
        self._write_to(PARTITIONS)

    def _count(self) -> None:
        for line in _pipe(self._program.stdout):
            self.written = {int(number): count for number, count in json.loads(line).items()}

    def _keep(self) -> None:
        for line in _pipe(self._program.stderr):
            text = line.rstrip().split("|", 2)[-1]  # without its time
            if text not in self.recent:
                self.recent.append(text)

    def _write_to(self, partitions: int) -> None:
        stdin = _pipe(self._program.stdin)
        stdin.write(f"{partitions}\n")
        stdin.flush()

    def check(self) -> None:
        """AssertionError when the program has ended by itself."""
        ended = self._program.poll()
        assert ended is None or _pipe(self._program.stdin).closed, f"the producer ended with {ended}"

    def grow(self, admin: Any, partitions: int) -> None:
        """Write to so many partitions from now on."""
        self.check()
        await_partitions(admin, self._topic, partitions)
        self._write_to(partitions)

    def await_more(self) -> None:
        """Wait until each partition that has got records gets some more."""
        goal = {number: count + 1 for number, count in list(self.written.items())}

        def more() -> bool:
            self.check()
            return all(self.written[n] >= count for n, count in goal.items())

        wait_until(more, "records are written again")

    def stop(self) -> None:
        """Tell it to end, and wait until it has. Idempotent."""
        _pipe(self._program.stdin).close()
        try:
            self._program.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self._program.kill()
            self._program.wait(PATIENCE_SECONDS)
        for thread in self._threads:
            thread.join(PATIENCE_SECONDS)
        _pipe(self._program.stdout).close()
        _pipe(self._program.stderr).close()

    def end(self) -> dict[int, int]:
        """End it. Return how many records each partition has: all that it was told of, at least."""
        self.check()
        self.stop()
        assert self._program.returncode == 0, f"the producer ended with {self._program.returncode}"
        ends = {n: self._end_of(n) for n in sorted(self.written)}
        assert all(ends[n] >= count > 0 for n, count in self.written.items()), (ends, self.written)
        return ends

    def _end_of(self, number: int) -> int:
        with closing(Consumer({"bootstrap.servers": self._servers, "group.id": "ends"}, logger=QUIET)) as consumer:
            first, end = consumer.get_watermark_offsets(TopicPartition(self._topic, number), PATIENCE_SECONDS)
        assert first == 0
        return int(end)


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe
