"""An audit reads again and again; what keeps a reading from being whole is told once."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from tests.cli.group_tree import World
from tests.cli.program import Run
from tests.migrate.memory_tree import MemoryTree
from zkcoord.audit.audit import Audit
from zkcoord.audit.auditor import Auditor
from zkcoord.cli.audit import _run
from zkcoord.embedded import EmbeddedKafka
from zkcoord.errors import UnavailableError
from zkcoord.operating.saying import Anew
from zkcoord.shell.zk.blocking import Tree

AWAY = UnavailableError("ZooKeeper at zk1:2181 did not answer")


class Now(Auditor):
    """An auditor of a ZooKeeper that is away at some readings, and asks the audit to end at the last."""

    def plan(self, asked: threading.Event, away: str) -> Now:
        self.asked, self.away = asked, list(away)
        return self

    def read(self, now_ms: Callable[[], int]) -> None:
        self.failed = AWAY if self.away.pop(0) == "x" else None
        if not self.away:
            self.asked.set()
        if self.failed is not None:
            raise self.failed


def test_a_zookeeper_that_is_away_is_told_once_and_that_it_is_back(capsys: pytest.CaptureFixture[str]) -> None:
    asked = threading.Event()
    auditor = Now(MemoryTree(), "zk1:2181", Audit(1, 1)).plan(asked, "xxx..xx")
    assert _run(auditor, asked, Anew(), once=False, interval_ms=1, json=False) == {}
    away, back = f"warning: {AWAY}; it is read again every 1 ms", "notice: groups can be read again"
    assert capsys.readouterr().err.splitlines() == [away, back, away]


@pytest.mark.zookeeper
@pytest.mark.kafka
def test_a_topic_that_kafka_does_not_know_is_told_once_however_often_it_is_read(
    chroot: str, run: Run, kafka: EmbeddedKafka
) -> None:
    with Tree(chroot) as tree:
        World(tree, chroot).settle()
        result = run(
            *("audit", "--once", "--interval-ms", "100", "--patience-ms", "2000", "--zookeeper", chroot),
            *("--bootstrap-servers", kafka.bootstrap_servers),
        )
    assert result.exit_code == 8, result.stderr
    assert "ERR no-coordinator" in result.stdout  # it had to last
    assert result.stderr.count("Kafka does not know clicks-0") == 1, result.stderr
