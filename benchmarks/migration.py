"""A migration of offsets from ZooKeeper to Kafka while all groups commit: how long it takes, and what the groups feel.

    python benchmarks/migration.py [--quick] [--json FILE]

Groups of one topic, each with one real consumer that does nothing, a coordinator, an embedded ZooKeeper and broker: all
in one process, and the command in another. Threads go round the groups, and commit every partition of each, before the
migration and during it.

migration   from the command's start to its end: zookeeper > dual > kafka
commits     partitions committed in a second during the migration, against those before it; the longest commit of each
disturbed   how many partitions were stopped or lost meanwhile
"""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from typing import NamedTuple

from stores import Member, await_that, world
from verdict import Measure, arguments, conclude

from zkcoord.kafka.client import KafkaClient
from zkcoord.offsets.kafka_store import KafkaCommits
from zkcoord.operating.requesting import edit_record
from zkcoord.shell.zk.blocking import Tree
from zkcoord.tree.paths import DRAFT

COMMITTERS = 4


class Commit(NamedTuple):
    """One commit of every partition of a group."""

    began: float
    seconds: float


class Load:
    """Threads that commit, group by group, until they are told to stop. A context manager."""

    def __init__(self, members: list[Member]) -> None:
        self._turns = itertools.cycle(members)
        self._busy: set[Member] = set()
        self._lock, self._over = threading.Lock(), threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(COMMITTERS)]
        self.commits: list[Commit] = []

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_failure: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        while not self._over.is_set():
            with self._lock:
                member = next(each for each in self._turns if each not in self._busy)
                self._busy.add(member)
            began = time.monotonic()
            member.commit_all()
            self.commits.append(Commit(began, time.monotonic() - began))
            with self._lock:
                self._busy.discard(member)

    def between(self, began: float, end: float) -> tuple[float, float]:
        """Return the commits in a second, and the seconds of the longest commit."""
        found = [each for each in self.commits if began <= each.began < end]
        return len(found) / (end - began), max(each.seconds for each in found)


class World(NamedTuple):
    """What a run needs."""

    tree: Tree
    client: KafkaClient
    zookeeper: str
    servers: str

    def migrate(self) -> None:
        """Run the command in a process of its own. Beside the busy threads of this process it would read both stores
        many times more slowly, and each offset would have moved on."""
        words = ["offsets", "migrate", "--all-groups", "--to", "kafka"]
        words += ["--zookeeper", self.zookeeper, "--bootstrap-servers", self.servers]
        subprocess.run([sys.executable, "-m", "zkcoord_command", *words], check=True, stdout=subprocess.DEVNULL)


def committed(there: World, members: dict[str, Member]) -> None:
    """Check that Kafka has every group's last commit."""
    store = KafkaCommits(there.client, timeout_ms=60_000)
    for group, member in members.items():
        found = store.read([group]).found[group]
        assert {p: found[p].offset for p in member.positions} == member.positions, group


def measured(there: World, groups: int, partitions: int, before_s: float) -> list[Measure]:
    """All figures."""
    names = [f"g{number:03}" for number in range(groups)]
    with ExitStack() as stack:
        for name in names:
            edit_record(there.tree, DRAFT, name, lambda record: record, new=True)
        members = {name: Member(there.zookeeper, there.servers, name) for name in names}
        for member in members.values():
            stack.callback(member.consumer.stop)
        await_that(list(members.values()), partitions)
        with Load(list(members.values())) as load:
            began = time.monotonic()
            threading.Event().wait(before_s)
            step = time.monotonic()
            there.migrate()
            end = time.monotonic()
        committed(there, members)
        disturbed = sum(member.starts - partitions for member in members.values())
    rate_before, longest_before = load.between(began, step)
    rate, longest = load.between(step, end)
    return [
        Measure("migration_s", end - step),
        Measure("migrated_offsets_per_s", groups * partitions / (end - step)),
        Measure("commits_before_per_s", rate_before * partitions),
        Measure("commits_meanwhile_per_s", rate * partitions),
        Measure("longest_commit_before_ms", 1000 * longest_before),
        Measure("longest_commit_meanwhile_ms", 1000 * longest),
        Measure("disturbed_partitions", disturbed, 0, at_most=True),
    ]


def main() -> int:
    """Run it; the exit code."""
    options = arguments(__doc__).parse_args()
    groups, partitions, before_s = (5, 100, 2.0) if options.quick else (100, 1_000, 20.0)
    with world(partitions) as (zookeeper, servers, tree), KafkaClient(servers, timeout_ms=60_000) as client:
        measures = measured(World(tree, client, zookeeper, servers), groups, partitions, before_s)
    return conclude(measures, {"groups": groups, "partitions": partitions, "before_s": before_s}, options.json)


if __name__ == "__main__":
    sys.exit(main())
