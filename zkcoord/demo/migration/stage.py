"""The servers and programs of the migration: a broker of Kafka 1.1.1, old consumers, zkcoord's, and the commands."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

from zkcoord.core.model import TopicPartition, consumer_of
from zkcoord.demo.migration.counting import OutputLog, Record, RecordLog
from zkcoord.demo.migration.options import AUTO_COMMIT_MS, BACKOFF_MS, OLD, OLD_VERSION, OURS, RETRIES, SPARK
from zkcoord.demo.options import GROUP, SESSION_TIMEOUT_MS, TOPIC, Options, Places
from zkcoord.demo.programs import ORPHAN_MS, SOON_MS, Programs
from zkcoord.demo.say import Voice
from zkcoord.embedded.child import Child
from zkcoord.embedded.old_consumer import old_consumer_command
from zkcoord.errors import UnavailableError
from zkcoord.tree.paths import LEGACY
from zkcoord.tree.snapshot import Kind, Read

CALM_MS = 1_000


class MigrationStage(Programs):
    """What runs. `zkcoord` runs a command as its user does."""

    layout = LEGACY

    def __init__(self, options: Options, places: Places, voice: Voice) -> None:
        super().__init__(options, places, voice, partitions=options.partitions, kafka_version=OLD_VERSION)
        self._records: dict[str, RecordLog | OutputLog] = {SPARK: OutputLog(places.output)}
        self._seen: set[Record] = set()

    def set_up(self) -> None:
        """Servers, three old consumers that read, and a Spark that is warm."""
        self.voice.say(f"starting ZooKeeper and Kafka {OLD_VERSION}")
        self.start_servers()
        self.start_producer()
        for name in OLD:
            self.start_old(name)
        self.settle(len(OLD))
        self.voice.say(f"three old consumers share the topic: {self.describe()}; PySpark warms up")
        self.start_spark(SPARK)
        self.wait("Spark to be warm", lambda: self.logs[SPARK].first("warm"))

    # programs

    def start_old(self, name: str) -> None:
        """An old consumer that commits to ZooKeeper."""
        words = {
            "topics": f"{TOPIC}:1",
            "consumer.id": name,
            "group.id": GROUP,
            "zookeeper.connect": self.zookeeper.hosts,
            "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
            "rebalance.max.retries": str(RETRIES),
            "rebalance.backoff.ms": str(BACKOFF_MS),
            "auto.commit.interval.ms": str(AUTO_COMMIT_MS),
            "auto.offset.reset": "smallest",
            "fetch": "true",
        }
        command = old_consumer_command(OLD_VERSION, words)
        self.run(Child(name, command, self.places.log(name), grace_ms=ORPHAN_MS, listens=True))

    def start_ours(self, name: str) -> None:
        """A consumer of zkcoord: `zkcoord consume`."""
        what = ["--group", GROUP, "--topic", TOPIC, "--from-beginning"]
        command = ["zkcoord.cli.main", "consume", *what, "--output", "json", "--log-format", "json"]
        self.run_module(name, [*command, *self.addresses()])

    def leave(self, name: str) -> None:
        """The program's own end."""
        self.playing.discard(name)
        child = self.children[name]
        if name in OLD:
            child.say("stop")
            self.wait(f"{name} to stop", lambda: self.logs[name].first("stopped"))
            child.kill()  # it has nothing left to do
        else:
            child.stop(SOON_MS)

    def kill(self, name: str) -> None:
        """SIGKILL."""
        self.playing.discard(name)
        self.children[name].kill()

    # commands

    def zkcoord(self, *words: str) -> None:
        """Run a command of zkcoord as its user does, and show it with what it prints; UnavailableError if it fails."""
        self.voice.show(f"    $ zkcoord {' '.join(words)}")
        command = [sys.executable, "-m", "zkcoord.cli.main", *self.addresses(), *words]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=SOON_MS / 1000)
        for line in (ran.stdout + ran.stderr).splitlines():
            self.voice.show(f"      {line}")
        if ran.returncode != 0:
            raise UnavailableError(f"zkcoord {' '.join(words)} ended with code {ran.returncode}")

    # looking

    def members(self) -> set[str]:
        """The consumers that are registered."""
        (node,) = self.tree.read([Read(LEGACY.ids(GROUP), Kind.CHILDREN)])
        return set(node.children)

    def owners(self) -> dict[TopicPartition, str]:
        """The consumer that owns each partition; "" nobody."""
        nodes = self.tree.read([Read(LEGACY.owner(GROUP, p)) for p in self.partitions])
        threads = [node.data.decode() if node.exists else "" for node in nodes]
        return {p: consumer_of(thread) if thread else "" for p, thread in zip(self.partitions, threads, strict=True)}

    def read_by(self) -> dict[str, Sequence[Record]]:
        """What each reader has processed."""
        self.processed()
        return {name: log.records for name, log in self._records.items()}

    def processed(self) -> int:
        """How many different records were processed. Looks at what is new alone: it is asked again and again."""
        for name, child in self.children.items():
            if name in OLD or name.startswith(OURS):
                self._records.setdefault(name, RecordLog(child.log))
        for log in self._records.values():
            self._seen.update(log.look())
        return len(self._seen)

    def status(self) -> str:
        """What was produced and is still to be processed, and the group."""
        produced = self.produced()
        return f"{produced:,} produced, {produced - self.processed():,} to be processed · {self.describe()}"

    def describe(self) -> str:
        """How many partitions each consumer has."""
        names = {self._id(name): name for name in self.children}
        owners = [names.get(owner, owner) or "nobody" for owner in self.owners().values()]
        return " · ".join(f"{name} {owners.count(name)}" for name in sorted(set(owners)))

    def _id(self, name: str) -> str | None:
        """The id that a consumer is registered with; None before it was."""
        if name in OLD:
            return f"{GROUP}_{name}"
        registered = self.logs[name].last("registered")
        return registered["consumer"] if registered else None

    # waiting

    def settle(self, members: int) -> None:
        """Wait until so many consumers are registered, and have equal shares, for a moment."""

        def shared() -> bool:
            registered, owners = self.members(), list(self.owners().values())
            shares = {owners.count(name) for name in registered}
            return len(registered) == members and shares == {len(self.partitions) // members}

        self.calm(f"{members} consumers with equal shares", shared, CALM_MS)

    def catch_up(self) -> None:
        """Wait until what was produced until now is processed."""
        produced = self.produced()
        self.wait(f"{produced:,} records to be processed", lambda: self.processed() >= produced, status=True)
