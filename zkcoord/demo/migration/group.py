"""One group of the migration: its consumers (old ones, zkcoord's, PySpark), their partitions, and their records."""

from __future__ import annotations

from collections.abc import Sequence

from zkcoord.core.model import TopicPartition, consumer_of
from zkcoord.demo.migration.counting import OutputLog, Record, RecordLog
from zkcoord.demo.migration.options import AUTO_COMMIT_MS, BACKOFF_MS, OLD_VERSION, RETRIES
from zkcoord.demo.options import SESSION_TIMEOUT_MS, TOPIC
from zkcoord.demo.programs import ORPHAN_MS, SOON_MS, Programs
from zkcoord.embedded.child import Child
from zkcoord.embedded.old_consumer import old_consumer_command
from zkcoord.tree.paths import LEGACY
from zkcoord.tree.snapshot import Kind, Read

CALM_MS = 1_000
TO_BOTH = {"offsets.storage": "kafka", "dual.commit.enabled": "true"}


class StagedGroup:
    """A group whose consumers are children of `programs`. Names of consumers are unique among all children.

    `to_both`: its old consumers commit to ZooKeeper and to Kafka.
    """

    def __init__(self, programs: Programs, name: str, *, to_both: bool = False) -> None:
        self._programs, self.name, self._to_both = programs, name, to_both
        self.old: list[str] = []  # the names of all old consumers that were started
        self._records: dict[str, RecordLog | OutputLog] = {}
        self._seen: set[Record] = set()

    # programs

    def start_old(self, name: str) -> None:
        """Start an old consumer."""
        programs = self._programs
        words = {
            "topics": f"{TOPIC}:1",
            "consumer.id": name,
            "group.id": self.name,
            "zookeeper.connect": programs.zookeeper.hosts,
            "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
            "rebalance.max.retries": str(RETRIES),
            "rebalance.backoff.ms": str(BACKOFF_MS),
            "auto.commit.interval.ms": str(AUTO_COMMIT_MS),
            "auto.offset.reset": "smallest",
            "fetch": "true",
            **(TO_BOTH if self._to_both else {}),
        }
        command = old_consumer_command(OLD_VERSION, words)
        self.old.append(name)
        self._run(Child(name, command, programs.places.log(name), grace_ms=ORPHAN_MS, listens=True))

    def _run(self, child: Child) -> None:
        self._records[child.name] = RecordLog(child.log)
        self._programs.run(child)

    def start_ours(self, name: str) -> None:
        """Start a consumer of zkcoord: `zkcoord consume`."""
        programs = self._programs
        what = ["--group", self.name, "--topic", TOPIC, "--from-beginning"]
        command = ["zkcoord_command", "consume", *what, "--output", "json", "--log-format", "json"]
        self._records[name] = RecordLog(programs.places.log(name))
        programs.run_module(name, [*command, *programs.addresses()])

    def start_spark(self, name: str) -> None:
        """Start a PySpark consumer of the demo's own group. Once it is warm, it waits for its file (`Places.go`)."""
        self._records[name] = OutputLog(self._programs.places.output)
        self._programs.start_spark(name)

    def leave(self, name: str) -> None:
        """Ask a program to end by itself, and wait until it has ended."""
        programs = self._programs
        programs.playing.discard(name)
        child = programs.children[name]
        if name in self.old:
            child.say("stop")
            programs.wait(f"{name} to stop", lambda: programs.logs[name].first("stopped"))
            child.kill()  # this child has nothing left to do
        else:
            child.stop(SOON_MS)

    # looking

    def members(self) -> set[str]:
        """Return the consumers that are registered."""
        (node,) = self._programs.tree.read([Read(LEGACY.ids(self.name), Kind.CHILDREN)])
        return set(node.children)

    def owners(self) -> dict[TopicPartition, str]:
        """Return the consumer that owns each partition; "" if no consumer owns it."""
        partitions = self._programs.partitions
        nodes = self._programs.tree.read([Read(LEGACY.owner(self.name, p)) for p in partitions])
        threads = [node.data.decode() if node.exists else "" for node in nodes]
        return {p: consumer_of(thread) if thread else "" for p, thread in zip(partitions, threads, strict=True)}

    def read_by(self) -> dict[str, Sequence[Record]]:
        """Return the records that each reader has processed."""
        self.processed()
        return {name: log.records for name, log in self._records.items()}

    def processed(self) -> int:
        """Return how many different records were processed. It is called often, so it reads only what is new in the
        logs.
        """
        for log in self._records.values():
            self._seen.update(log.look())
        return len(self._seen)

    def describe(self) -> str:
        """Return how many partitions each consumer has, for a person."""
        names = {self._id(name): name for name in self._records}
        owners = [names.get(owner, owner) or "nobody" for owner in self.owners().values()]
        return " · ".join(f"{name} {owners.count(name)}" for name in sorted(set(owners)))

    def _id(self, name: str) -> str | None:
        """Return the id of a consumer's registration; None before its first one."""
        if name in self.old:
            return f"{self.name}_{name}"
        registered = self._programs.logs[name].last("registered")
        return registered["consumer"] if registered else None

    # waiting

    def settle(self, members: int) -> None:
        """Wait until `members` consumers are registered and have had equal shares for CALM_MS."""

        def shared() -> bool:
            registered, owners = self.members(), list(self.owners().values())
            shares = {owners.count(name) for name in registered}
            return len(registered) == members and shares == {len(owners) // members}

        self._programs.calm(f"{members} consumers of {self.name} with equal shares", shared, CALM_MS)

    def catch_up(self) -> None:
        """Wait until all records that are produced by now are processed."""
        produced = self._programs.produced()
        what = f"{produced:,} records to be processed by {self.name}"
        self._programs.wait(what, lambda: self.processed() >= produced, status=True)
