"""The poll-style consumer beside old consumers, which wait for a partition only for a limited time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.kafka.helpers import PATIENCE_SECONDS, Broker, Coordinator, Open, read
from tests.old_consumers.lab import Lab
from tests.waiting import wait_until
from zkcoord.core.adoption import Adoption
from zkcoord.core.model import TopicPartition
from zkcoord.core.record import DEFAULT_RECORD
from zkcoord.errors import FencedError
from zkcoord.kafka import KafkaConsumer
from zkcoord.migrate import upgrade
from zkcoord.shell.zk.blocking import Tree
from zkcoord.tree.paths import LEGACY
from zkcoord.tree.record import encode_record

OLD = '{"version":1,"subscription":{"t":1},"pattern":"static","timestamp":"1416335000123"}'
TOLD = Adoption(offsets="zookeeper", strategy="range", kafka="1.1", retries=4, backoff_ms=2_000)


def test_f108_a_stop_that_old_consumers_cut_short_ends_at_once_and_a_late_commit_is_refused(
    open_consumer: Open, coordinator: Coordinator, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = (TopicPartition(broker.topic([3, 3]), partition) for partition in (0, 1))
    consumer = open_consumer()
    coordinator.give({a: 0})
    assert read(consumer, 1) == [(0, 0)]
    stop = coordinator.take([a])
    wait_until(lambda: consumer._positions.wanted() == {}, "the stop has begun")
    coordinator.held.discard(a)  # the membership has given it up; `on_lost` comes after the return of `on_stop`
    assert stop.result(PATIENCE_SECONDS) == {a: 0}  # this answer is ignored
    coordinator.give({b: 0})  # the worker is free again
    assert f"messages of {a} are in work, and will come again, elsewhere: the stop waited until" in caplog.text
    with pytest.raises(FencedError, match=str(a)):
        consumer.commit()
    assert coordinator.commits == []
    assert {where for where, _ in read(consumer, 3)} == {1}


@pytest.mark.zookeeper
def test_f108_a_slow_consumer_joins_once_old_consumers_were_told_to_wait_longer(
    chroot: str, tmp_path: Path, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    record = LEGACY.record("g")
    with Lab(chroot, tmp_path) as lab, Tree(chroot) as tree:
        upgrade(tree, run_id="test", layout="legacy")
        lab.zk.create(record, encode_record(replace(DEFAULT_RECORD, adoption=TOLD)), makepath=True)
        lab.topic("t", 2)
        lab.register("a", OLD)
        with KafkaConsumer(chroot, broker.bootstrap_servers, "g", ["t"], stop_needs_ms=5_001):
            wait_until(lambda: "raises rebalance.max.retries or rebalance.backoff.ms" in caplog.text, "it is told")
            assert lab.members() == {"g_a"}
            longer = replace(TOLD, backoff_ms=2_001)
            lab.zk.set(record, encode_record(replace(DEFAULT_RECORD, adoption=longer)))
            wait_until(lambda: len(lab.members()) == 2, "it is registered")
