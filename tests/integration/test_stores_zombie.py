"""On real servers: a consumer sleeps through its session with a commit to make, in each store (docs/offsets.md)."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, Self

import pytest

from tests.integration.stores_world import REBALANCE_MS, SESSION_MS, Cluster, Reader, soon
from tests.waiting import PATIENCE_SECONDS
from zkcoord.core.tenure import KafkaCommit
from zkcoord.offsets.verdict import Verdict

pytestmark = [pytest.mark.zookeeper, pytest.mark.kafka]

WAYS = {"zookeeper": (), "dual": ("dual",), "kafka": ("dual", "kafka")}
PROGRAM = f"""
import json, sys, threading
from zkcoord.kafka import KafkaConsumer
from zkcoord.errors import ZkcoordError

wanted = threading.Event()

def listen():
    for _ in sys.stdin:
        wanted.set()

threading.Thread(target=listen, daemon=True).start()
consumer = KafkaConsumer(
    *sys.argv[1:4], [sys.argv[4]], from_beginning=True, session_timeout_ms={SESSION_MS},
    rebalance_timeout_ms={REBALANCE_MS},
)
with consumer:
    while True:
        messages = [] if wanted.is_set() else consumer.poll_many(50, 0.1)
        said = {{"read": max(message.offset() for message in messages) + 1}} if messages else {{}}
        if wanted.is_set():
            wanted.clear()
            try:
                consumer.commit()
                said = {{"committed": True}}
            except ZkcoordError as error:
                said = {{"refused": type(error).__name__}}
        if said:
            print(json.dumps(said), flush=True)
"""


class Zombie:
    """A program of its own, which commits when it is told to."""

    def __init__(self, cluster: Cluster) -> None:
        arguments = (cluster.zookeeper, cluster.servers, cluster.group, cluster.topic)
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen([sys.executable, "-c", PROGRAM, *arguments], text=True, **pipes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait(PATIENCE_SECONDS)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def asked_to_commit(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("commit\n")
        self._process.stdin.flush()

    def says(self, *keys: str) -> dict[str, Any]:
        """The next that it says of this kind."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said: dict[str, Any] = json.loads(line)
            if said.keys() & set(keys):
                return said
        raise AssertionError("it has ended")

    def has_read(self, end: int) -> None:
        while self.says("read")["read"] < end:
            pass


@pytest.fixture(scope="module")
def servers() -> Iterator[Cluster]:
    with Cluster({}) as cluster:
        yield cluster


@pytest.fixture
def cluster(servers: Cluster) -> Cluster:
    servers.begin(1)
    return servers


def counts(cluster: Cluster) -> int | None:
    return cluster.verdicts()[0][1]


def sleeps_at_20(cluster: Cluster, zombie: Zombie, store: str) -> KafkaCommit | None:
    """It has committed 10, read 20, and sleeps through its session. Returns what it would commit to Kafka."""
    cluster.produce(10, 0)
    zombie.has_read(10)
    cluster.move(*WAYS[store])
    zombie.asked_to_commit()
    assert zombie.says("committed", "refused") == {"committed": True}
    if store != "zookeeper":
        soon(cluster, "Kafka has it, too", lambda: cluster.offsets_in_kafka() == {0: 10})
    before = cluster.in_kafka().get(0)
    cluster.produce(10, 0)
    zombie.has_read(20)
    zombie.signal(signal.SIGSTOP)
    return None if before is None else KafkaCommit(offset=20, stamp=before.stamp)


def taken_over(cluster: Cluster, heir: Reader) -> None:
    """The heir has read from the committed offset on, and has committed 25."""
    cluster.produce(5, 0)
    soon(cluster, "the heir commits", lambda: heir.has(0, 25) and counts(cluster) == 25)
    assert heir.offsets(0) == list(range(10, 25))


@pytest.mark.parametrize("store", ["zookeeper", "dual", "kafka"])
def test_f120_a_consumer_that_slept_too_long_sets_no_offset_back(cluster: Cluster, store: str) -> None:
    with Zombie(cluster) as zombie:
        sleeps_at_20(cluster, zombie, store)
        heir = Reader(cluster)
        taken_over(cluster, heir)
        zombie.asked_to_commit()
        zombie.signal(signal.SIGCONT)
        said = zombie.says("committed", "refused")
        if store != "kafka":  # Kafka takes it, and then it may be told that it has committed
            assert said == {"refused": "FencedError"}
            assert cluster.nodes() == {0: 25}
        zombie.signal(signal.SIGKILL)
        cluster.produce(3, 0)
        soon(cluster, "the heir's next commit counts", lambda: counts(cluster) == 28)
        heir.leave()
        assert cluster.nodes() == {0: 28}


@pytest.mark.parametrize("dies", [False, True], ids=["goes on", "dies"])
@pytest.mark.parametrize("store", ["dual", "kafka"])
def test_f120_a_former_owners_commit_that_arrives_last_counts_for_nobody(
    cluster: Cluster, store: str, dies: bool
) -> None:
    with Zombie(cluster) as zombie:
        late = sleeps_at_20(cluster, zombie, store)
        assert late is not None
        with Zombie(cluster) as heir:
            heir.has_read(20)
            cluster.produce(5, 0)
            heir.has_read(25)
            heir.asked_to_commit()
            assert heir.says("committed", "refused") == {"committed": True}
            soon(cluster, "Kafka has it, too", lambda: cluster.offsets_in_kafka() == {0: 25})

            assert cluster.commits.commit(cluster.group, {cluster.partition(0): late}).error() is None

            written = {"dual": 25, "kafka": 10}[store]  # the heir's last commit there, or its start
            verdict = Verdict.BEHIND if store == "dual" else Verdict.REWOUND
            assert cluster.offsets_in_kafka() == {0: 20}
            assert cluster.verdicts() == {0: (verdict, written)}
            if not dies:
                cluster.produce(1, 0)
                heir.has_read(26)
                heir.asked_to_commit()
                assert heir.says("committed", "refused") == {"committed": True}
                soon(
                    cluster,
                    "its next commit counts",
                    lambda: (cluster.offsets_in_kafka(), counts(cluster)) == ({0: 26}, 26),
                )
                return
        next_one = Reader(cluster)
        cluster.produce(1, 0)
        soon(cluster, "the next one reads from there", lambda: next_one.has(0, 26))
        assert next_one.offsets(0) == list(range(written, 26))
        next_one.leave()
