"""The servers and programs of the migration: a broker of Kafka 1.1.1, old consumers, zkcoord's, and the commands."""

from __future__ import annotations

import subprocess
import sys

from zkcoord.core.model import TopicPartition
from zkcoord.demo.migration.group import StagedGroup
from zkcoord.demo.migration.options import OLD, OLD_VERSION, SPARK
from zkcoord.demo.options import COORDINATORS, GROUP, Options, Places
from zkcoord.demo.programs import COORDINATOR, SOON_MS, Programs
from zkcoord.demo.say import Voice
from zkcoord.embedded.artifacts import KAFKA_VERSION
from zkcoord.embedded.kafka_tools import offsets_shown, run_tool
from zkcoord.errors import UnavailableError
from zkcoord.offsets.kafka_store import KafkaCommits
from zkcoord.tree.paths import LEGACY

FIRST, SECOND = COORDINATORS


class MigrationStage(Programs):
    """The servers and programs. `zkcoord` runs a command as a user does."""

    layout = LEGACY

    def __init__(self, options: Options, places: Places, voice: Voice) -> None:
        super().__init__(options, places, voice, partitions=options.partitions, kafka_version=OLD_VERSION)
        self.group = StagedGroup(self, GROUP)

    def set_up(self) -> None:
        """Start servers, three old consumers, which read, and a PySpark consumer, until it is warm."""
        self.voice.say(f"starting ZooKeeper and Kafka {OLD_VERSION}")
        self.start_servers()
        self.start_producer()
        for name in OLD:
            self.group.start_old(name)
        self.group.settle(len(OLD))
        self.voice.say(f"three old consumers share the topic: {self.group.describe()}; PySpark warms up")
        self.group.start_spark(SPARK)
        self.wait("Spark to be warm", lambda: self.logs[SPARK].first("warm"))

    def status(self) -> str:
        """Return the number of records produced, the number still to be processed, and the group, in one line."""
        processed = self.group.processed()  # read before `produced`, so that the difference is never negative
        produced = self.produced()
        return f"{produced:,} produced, {produced - processed:,} to be processed · {self.group.describe()}"

    # programs

    def kill(self, name: str) -> None:
        """Send SIGKILL to a program, which is expected to end then."""
        self.voice.say(f"{name} is killed (SIGKILL)")
        self.playing.discard(name)
        self.children[name].kill()

    def start_coordinators(self) -> None:
        """Start both, and wait until one serves."""
        for number in COORDINATORS:
            self.start_coordinator(number)
        self.wait("a coordinator to serve", lambda: self.serving() is not None)

    def fail_over(self) -> str:
        """Kill the coordinator that serves, wait until the standby serves, and start the killed one again. Return its
        name.
        """
        number = self.serving() or FIRST
        name = f"{COORDINATOR}-{number}"
        self.kill(name)
        standby = SECOND if number == FIRST else FIRST
        self.wait("the standby to serve", lambda: self.serving() == standby, status=True)
        self.start_coordinator(number)
        return name

    # commands

    def zkcoord(self, *words: str) -> str:
        """Run a command of zkcoord as a user does, show it and its output, and return its standard output.
        UnavailableError if it fails."""
        self.voice.show(f"    $ zkcoord {' '.join(words)}")
        command = [sys.executable, "-m", "zkcoord_command", *self.addresses(), *words]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=SOON_MS / 1000)
        self._show(ran.stdout + ran.stderr)
        if ran.returncode != 0:
            raise UnavailableError(f"zkcoord {' '.join(words)} ended with code {ran.returncode}")
        return ran.stdout

    def offsets_in_kafka(self, group: str) -> dict[TopicPartition, int]:
        """Show a group with Kafka's own `kafka-consumer-groups` (3.9), and return the offsets in its output."""
        words = ("--bootstrap-server", self.kafka.bootstrap_servers, "--describe", "--group", group)
        self.voice.show(f"    $ kafka-consumer-groups {' '.join(words)}")
        ran = run_tool("kafka-consumer-groups", *words, version=KAFKA_VERSION)
        said = ran.stderr + ran.stdout
        self._show("\n".join(line for line in said.splitlines() if not line.startswith("log4j:")))
        return {TopicPartition(topic, n): at for (topic, n), at in offsets_shown(ran.stdout, group).items()}

    def await_commits(self, group: str, ends: dict[TopicPartition, int]) -> None:
        """Wait until the group's offsets in Kafka are `ends`; consumers commit once a second."""
        commits = KafkaCommits(self.kafka_client)

        def committed() -> bool:
            found = commits.read([group]).found.get(group, {})
            return {p: commit.offset for p, commit in found.items()} == ends

        self.wait(f"the last commits of {group}", committed)

    def _show(self, text: str) -> None:
        for line in text.splitlines():
            self.voice.show(f"      {line}")
