"""A Spark consumer beside real old consumers: which consumer processes which record, and how long a batch may delay an
old one."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.old_consumers.lab import RETRIES, V11, Lab
from tests.old_consumers.test_traffic import broker, create, send
from tests.spark.fakes import InThread
from tests.spark.together import ON_REAL_SERVERS, endless
from tests.waiting import wait_until
from zkcoord.core.adoption import Adoption
from zkcoord.core.record import DEFAULT_RECORD
from zkcoord.migrate import upgrade
from zkcoord.shell.zk.blocking import Tree
from zkcoord.spark import Batch, SparkConsumer, register_source
from zkcoord.tree.paths import LEGACY
from zkcoord.tree.record import encode_record

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from zkcoord.embedded import EmbeddedKafka

pytestmark = [*ON_REAL_SERVERS, pytest.mark.legacy, pytest.mark.long]
BACKOFF_MS, PATIENCE_S, SIZE, EACH = 1_000, 60.0, 4, 10
STORES = pytest.mark.parametrize("store", ["zookeeper", "kafka"])


class Beside:
    """An old consumer and one with Spark, each with half of the partitions. `processed`: the records of both, without
    batches that were not finished."""

    def __init__(self, lab: Lab, kafka: EmbeddedKafka, store: str) -> None:
        """`store`: zookeeper or kafka. With kafka the old consumers commit to Kafka alone."""
        self.lab, self.kafka, self.sent = lab, kafka, 0
        self._words: dict[str, object] = {"rebalance_backoff_ms": BACKOFF_MS}
        if store == "kafka":
            self._words |= {"offsets_storage": "kafka", "dual_commit_enabled": "false"}
        self._done: Counter[tuple[str, int]] = Counter()

    @property
    def processed(self) -> Counter[tuple[str, int]]:
        return self._done + Counter((key, offset) for key, rows in self.lab.read_offsets().items() for offset in rows)

    @property
    def repeated(self) -> Counter[tuple[str, int]]:
        return self.processed - Counter(dict.fromkeys(self.processed, 1))

    def take(self, df: DataFrame) -> None:
        """Note the records of a batch as processed."""
        rows = df.select("topic", "partition", "offset").collect()
        self._done.update((f"{row.topic}-{row.partition}", row.offset) for row in rows)

    def send(self) -> None:
        send(self.kafka, "t", SIZE, EACH)
        self.sent += EACH

    def all_processed(self) -> bool:
        return set(self.processed) == {(f"t-{n}", offset) for n in range(SIZE) for offset in range(self.sent)}

    def read_by_both(self) -> None:
        """Wait until each consumer reads its half, after the consumer with Spark was started."""
        half = {"t-2", "t-3"}
        wait_until(lambda: {p for p, owner in self.lab.owners().items() if "-z" in owner} == half, "halves", PATIENCE_S)
        self.send()
        wait_until(self.all_processed, "both have read", PATIENCE_S)

    def begin(self) -> None:
        """Wait until the first old consumer has read all records."""
        self.lab.join("a", V11, fetch=True, **self._words)
        self.send()
        wait_until(self.all_processed, "the old one has read all", PATIENCE_S)

    def one_more_joins(self) -> None:
        """Start another old consumer, and wait until it has its share, before it gives up."""
        b = self.lab.start("b", V11, fetch=True, **self._words)
        wait_until(lambda: b.events("started") or b.events("gave_up"), "it starts", PATIENCE_S)
        assert b.events("gave_up") == []
        wait_until(lambda: b.owned() == {"t-2"}, f"its share: {self.lab.owners()}", PATIENCE_S)


@contextmanager
def beside(hosts: str, folder: Path, store: str) -> Iterator[Beside]:
    """An adopted group whose only member is an old one, which has read all."""
    with Lab(hosts, folder) as lab, broker(hosts, V11) as kafka:
        scene = Beside(lab, kafka, store)
        create(lab, kafka, "t", SIZE)
        with Tree(hosts) as tree:
            upgrade(tree, run_id="test", layout="legacy")
        told = Adoption(offsets=store, strategy="range", kafka="1.1", retries=RETRIES, backoff_ms=BACKOFF_MS)
        record = replace(DEFAULT_RECORD, adoption=told, store_name=store)
        lab.zk.create(LEGACY.record("g"), encode_record(record), makepath=True)
        scene.begin()
        yield scene


@STORES
def test_f108_each_record_is_processed_once_though_a_batch_outlasts_an_old_consumer(
    spark: SparkSession, chroot: str, tmp_path: Path, store: str
) -> None:
    with beside(chroot, tmp_path, store) as scene:
        slow, hangs, cancelled = threading.Event(), threading.Event(), threading.Event()

        def process(df: DataFrame, batch: Batch) -> None:
            if slow.is_set() and not hangs.is_set():
                hangs.set()
                try:
                    endless(df)
                finally:
                    cancelled.set()
            scene.take(df)

        words: dict[str, Any] = {"reader": "python", "instance": "spark"}
        consumer = SparkConsumer(spark, chroot, scene.kafka.bootstrap_servers, "g", ["t"], **words)
        running = InThread(lambda: consumer.run(process))
        try:
            scene.read_by_both()
            slow.set()
            scene.send()
            wait_until(hangs.is_set, "a batch hangs", PATIENCE_S)
            scene.one_more_joins()
            wait_until(scene.all_processed, "what was left is read", PATIENCE_S)
        finally:
            consumer.stop(cancel=True)
        running.result()
        assert cancelled.is_set()
        assert scene.repeated == Counter()


@STORES
def test_f108_a_query_loses_only_a_long_batchs_partitions_to_an_old_consumer(
    spark: SparkSession, chroot: str, tmp_path: Path, store: str
) -> None:
    """Spark cannot cancel a stream's batch. The batch runs to its end, and is not committed."""
    register_source(spark)
    with beside(chroot, tmp_path, store) as scene:
        slow, hangs, goes_on = threading.Event(), threading.Event(), threading.Event()

        def process(df: DataFrame, number: int) -> None:
            if slow.is_set() and not hangs.is_set():
                hangs.set()
                assert goes_on.wait(PATIENCE_S)
            scene.take(df)

        rows = spark.readStream.format("zkcoord").option("zookeeper", chroot).option("group", "g")
        rows = rows.option("kafka.bootstrap.servers", scene.kafka.bootstrap_servers).option("subscribe", "t")
        writer = rows.option("instance", "spark").load().writeStream.foreachBatch(process)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        try:
            scene.read_by_both()
            slow.set()
            scene.send()
            wait_until(hangs.is_set, "a batch hangs", PATIENCE_S)
            scene.one_more_joins()
            goes_on.set()
            wait_until(scene.all_processed, "what was left is read", PATIENCE_S)
        finally:
            goes_on.set()
            query.stop()
        held = {(f"t-{n}", offset) for n in (2, 3) for offset in range(scene.sent - EACH, scene.sent)}
        assert set(scene.repeated) <= held
        assert set(scene.repeated.values()) <= {1}
