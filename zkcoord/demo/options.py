"""What can be chosen about the demo, and the names that its programs share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from zkcoord.embedded.artifacts import KAFKA_4_VERSION, KAFKA_VERSION
from zkcoord.errors import UsageError
from zkcoord.settings import DEMO_PARTITIONS, DEMO_RATE, DEMO_SECONDS

TOPIC = "clicks"
GROUP = "demo"
CONSUMERS = ("a", "b", "c")  # `c` joins later; `b` is killed, `a` leaves
COORDINATORS = (1, 2)

KAFKA_VERSIONS = {3: KAFKA_VERSION, 4: KAFKA_4_VERSION}
SECONDS_MIN = 5  # a second of calm around each event
SECONDS_MAX = 3_600
PARTITIONS_MIN = len(CONSUMERS)  # so that each consumer has a partition to read
PARTITIONS_MAX = 1_000  # in every batch one process writes a file for each partition
RATE_MAX = 100_000  # what one Python producer can make on a small machine

SESSION_TIMEOUT_MS = 6_000
"""How long ZooKeeper waits for a process that was killed. It is shorter than the default, so that nobody has to watch
for long. It is longer than a process may wait for the processor of a small machine on which three Sparks work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """`seconds`: how long records flow in the calm before, between and after the events; `rate`: records a second."""

    seconds: int = DEMO_SECONDS
    rate: int = DEMO_RATE
    partitions: int = DEMO_PARTITIONS
    keep: bool = False
    output: str = "table"  # or json
    kafka: int = 3  # the brokers' major version; 4: without ZooKeeper, topics come from Kafka's metadata
    migration: bool = False  # of a group of old consumers, instead of the main job

    def check(self) -> None:
        """UsageError for what cannot be shown."""
        limits = {
            "seconds": (self.seconds, SECONDS_MIN, SECONDS_MAX),
            "rate": (self.rate, 1, RATE_MAX),
            "partitions": (self.partitions, PARTITIONS_MIN, PARTITIONS_MAX),
        }
        for name, (value, least, most) in limits.items():
            if not least <= value <= most:
                raise UsageError(f"--{name} {value}: choose from {least:,} to {most:,}")
        if self.kafka not in KAFKA_VERSIONS:
            raise UsageError(f"--kafka {self.kafka}: choose {' or '.join(map(str, KAFKA_VERSIONS))}")
        if self.output not in ("table", "json"):
            raise UsageError(f"--output {self.output}: choose table or json")


@dataclass(frozen=True, slots=True)
class Places:
    """The paths of all files of one run, below one folder."""

    folder: Path

    @property
    def output(self) -> Path:
        """The Parquet files, one for each range of a batch."""
        return self.folder / "output"

    @property
    def scratch(self) -> Path:
        """Temporary files of the children."""
        return self.folder / "tmp"

    def log(self, name: str) -> Path:
        """The file with the output of a child. Its events are JSON lines among other lines."""
        return self.folder / f"{name}.log"

    def go(self, name: str) -> Path:
        """The file that a child waits for once it is ready."""
        return self.folder / f"{name}.go"
