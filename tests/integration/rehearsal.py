"""A deployment of old consumers that becomes zkcoord's, goes back, and becomes zkcoord's again, while records flow.

Two groups read the topic: the demo's own, whose old consumers commit to ZooKeeper, and `both`, whose old consumers
commit to both stores. In each phase a consumer is killed, and from the second one on the coordinator that serves, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from zkcoord.demo.migration.group import StagedGroup
from zkcoord.demo.migration.options import AUTO_COMMIT_MS, BACKOFF_MS, PARTITIONS, RETRIES, SPARK
from zkcoord.demo.migration.stage import MigrationStage
from zkcoord.demo.options import GROUP, Options, Places
from zkcoord.demo.programs import PRODUCER
from zkcoord.demo.say import Voice

RATE = 200  # records a second, each of which a line of each group's log tells
FLOW_MS = 1_000
STORES = {GROUP: ("zookeeper",), "both": ("kafka", "--dual-commit")}


class Rehearsal(MigrationStage):
    """The servers and both groups. `killed`: who was killed in each phase."""

    def __init__(self, places: Places) -> None:
        super().__init__(Options(migration=True, partitions=PARTITIONS, rate=RATE), places, Voice())
        self.both = StagedGroup(self, "both", to_both=True)
        self.groups = (self.group, self.both)
        self.killed: dict[str, list[str]] = {}

    def set_up(self) -> None:
        """Two old consumers in each group, and a Spark that is warm."""
        self.start_servers()
        self.start_producer()
        for group, names in ((self.group, "ab"), (self.both, "cd")):
            for name in names:
                group.start_old(name)
        self.settle(2)
        self.group.start_spark(SPARK)
        self.wait("Spark to be warm", lambda: self.logs[SPARK].first("warm"))
        self.places.go(PRODUCER).touch()

    def status(self) -> str:
        """Return how both groups stand."""
        return f"{super().status()} | {self.both.processed():,} by both: {self.both.describe()}"

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """One phase: it ends when each group has processed what there is."""
        self.voice.say(f"PHASE {name}")
        self.killed[name] = []
        yield
        self.flow(FLOW_MS)
        for group in self.groups:
            group.catch_up()
        self.voice.say(self.status())

    def settle(self, *members: int) -> None:
        """Wait until the groups have so many members each, and these have equal shares."""
        for group, size in zip(self.groups, members * len(self.groups) if len(members) == 1 else members, strict=True):
            group.settle(size)

    def kill(self, name: str) -> None:
        """SIGKILL, which is noted."""
        super().kill(name)
        self.killed[list(self.killed)[-1]].append(name)

    def replace(self, group: StagedGroup, name: str, start: Callable[[str], None], successor: str) -> None:
        """Kill one of two consumers; when its partitions are taken over, start another one."""
        self.kill(name)
        group.settle(1)
        start(successor)
        group.settle(2)

    def adopt(self) -> None:
        """The operator adopts both groups, and says what the tree does not show."""
        told = ["--strategy", "range", "--kafka", "1.1", "--retries", str(RETRIES), "--backoff-ms", str(BACKOFF_MS)]
        for group in self.groups:
            where = ["--offsets", *STORES[group.name], "--auto-commit-interval-ms", str(AUTO_COMMIT_MS)]
            self.zkcoord("group", "adopt", group.name, *told, *where)

    @contextmanager
    def moving(self, stores: Mapping[StagedGroup, str]) -> Iterator[None]:
        """While the offsets of groups move to other stores, all at the same time."""
        with ThreadPoolExecutor(len(stores)) as pool:
            moves = [
                pool.submit(self.zkcoord, "offsets", "migrate", group.name, "--to", store)
                for group, store in stores.items()
            ]
            yield
            for move in moves:
                move.result()


def play(stage: Rehearsal) -> None:
    """Everything, up to the last phase."""
    old_consumers(stage)
    replaced(stage)
    moved_and_back(stage)
    back_and_again(stage)


def old_consumers(stage: Rehearsal) -> None:
    """Old consumers alone; then coordinators come, and the groups are adopted."""
    first, both = stage.groups
    with stage.phase("old consumers alone"):
        stage.replace(first, "b", first.start_old, "b2")
    with stage.phase("adopted"):
        stage.zkcoord("inventory")
        stage.start_coordinators()
        stage.adopt()
        stage.kill("d")
        stage.fail_over()
        both.settle(1)
        both.start_old("d2")
        stage.settle(2)


def replaced(stage: Rehearsal) -> None:
    """Consumers are replaced one by one, by PySpark, too."""
    first, both = stage.groups
    with stage.phase("consumers are replaced"):
        first.start_ours("x")
        both.start_ours("v")
        stage.settle(3)
        first.leave("a")
        both.leave("c")
        stage.settle(2)
        stage.kill("b2")
        stage.fail_over()
        first.settle(1)
        stage.places.go(SPARK).touch()
        first.settle(2)
        both.leave("d2")
        both.settle(1)
        both.start_ours("w")
        both.settle(2)


def moved_and_back(stage: Rehearsal) -> None:
    """Offsets go to Kafka, and back to where the old consumers have them."""
    first, both = stage.groups
    with stage.phase("offsets go to both stores"):
        with stage.moving({first: "dual"}):
            stage.kill("x")
            stage.fail_over()
        first.settle(1)
        first.start_ours("x2")
        stage.settle(2)
    with stage.phase("offsets go to Kafka"):
        with stage.moving({first: "kafka", both: "kafka"}):
            stage.kill("v")
            stage.fail_over()
        both.settle(1)
        both.start_ours("v2")
        stage.settle(2)
    with stage.phase("offsets go back"):
        with stage.moving({first: "zookeeper", both: "dual"}):
            stage.kill(SPARK)
            stage.fail_over()
        first.settle(1)
        first.start_ours("y")
        stage.settle(2)


def back_and_again(stage: Rehearsal) -> None:
    """The groups are given back to old consumers; then all of it once more, up to Kafka."""
    first, both = stage.groups
    with stage.phase("old consumers again"):
        first.start_old("e")
        both.start_old("f")
        stage.settle(3)
        stage.kill("x2")
        stage.fail_over()
        both.leave("v2")
        stage.settle(2)
        first.leave("y")
        both.leave("w")
        stage.settle(1)
        first.start_old("g")
        both.start_old("h")
        stage.settle(2)
        for group in stage.groups:
            stage.zkcoord("group", "release", group.name)
    with stage.phase("adopted and replaced again"):
        stage.adopt()
        first.start_ours("k")
        both.start_ours("m")
        stage.settle(3)
        stage.kill("h")
        stage.fail_over()
        first.leave("e")
        stage.settle(2)
        first.leave("g")
        both.leave("f")
        stage.settle(1)
        first.start_ours("l")
        both.start_ours("n")
        stage.settle(2)
    with stage.phase("offsets go to Kafka again"):
        with stage.moving({first: "kafka", both: "kafka"}):
            stage.kill("k")
            stage.fail_over()
        first.settle(1)
        first.start_ours("k2")
        stage.settle(2)
