"""A real Kafka broker in ZooKeeper mode, of version 3.9 or an older one, from fetched jars, on the loopback only."""

import re
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from zkcoord.embedded.artifacts import KAFKA_VERSION, kafka_jars
from zkcoord.embedded.java import find_java
from zkcoord.embedded.kafka_requests import METADATA_VERSION, NO_CONTROLLER, metadata
from zkcoord.embedded.server import LOOPBACK, NO_SETTINGS, Server
from zkcoord.errors import UnavailableError, UsageError

MAIN = "kafka.Kafka"
PARTITION = re.compile(r"(?!__cluster_metadata-)[a-zA-Z0-9._-]+-\d+")  # a log; one that is being deleted has a suffix
STILL_REGISTERED = re.compile(
    r"NodeExistsException|CheckedEphemeral\.getAfterNodeExists|A broker is already registered"
)
# A killed broker's node exists until its ZooKeeper session ends. So a new broker finds the node, or the node vanishes
# while the broker reads its owner.
TICK_MS = 2_000  # ZooKeeper ends a session up to one tick late; this is the longest tick that is usual
NO_LOG4J_2 = "-Dlog4j2.StatusLogger.level=OFF"  # Kafka 4 has Log4j 2, which warns of a missing configuration
LOG4J = """log4j.rootLogger=WARN, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d{ISO8601} %p %c: %m%n
"""


class KafkaNode(Server):
    """Base of Kafka's processes. A process runs the jars of `version`; `settings` are further lines, and override
    others.
    """

    name = "Kafka"

    def __init__(
        self,
        data_dir: Path | str | None,
        port: int | None,
        version: str,
        heap: str,
        settings: Mapping[str, str],
        jvm_options: Sequence[str],
    ) -> None:
        super().__init__(data_dir, port, settings, jvm_options)
        self.version = version
        self._release = tuple(int(part) for part in version.split("."))
        self._heap = heap

    def program(self) -> tuple[str, Sequence[object]]:
        """Return its main class, and its class path."""
        return MAIN, kafka_jars(self.version)

    def _command(self) -> Sequence[str]:
        config, log4j = self.data_dir / "server.properties", self.data_dir / "log4j.properties"
        config.write_text(self.configuration(), encoding="utf-8")
        log4j.write_text(LOG4J, encoding="utf-8")
        options = (f"-Dlog4j.configuration={log4j.as_uri()}", NO_LOG4J_2, *self._jvm_options)
        return find_java().command(*self.program(), config, heap=self._heap, options=options)


class KafkaBroker(KafkaNode):
    """A broker with its metadata in ZooKeeper or KRaft. It does not create topics automatically."""

    broker_id: int

    @property
    def bootstrap_servers(self) -> str:
        """The address for Kafka clients, `127.0.0.1:port`."""
        return f"{LOOPBACK}:{self.port}"

    def ready(self) -> bool:
        """True if a controller knows the broker, and each partition in its data has a leader again.

        A broker answers some time before that; until then its topics seem not to exist.
        """
        old = self._release < (0, 10)
        try:
            known = metadata(self.port, 0 if old else METADATA_VERSION)
        except UnavailableError:
            return False
        data = self.data_dir / "data"
        kept = {path.name for path in data.iterdir() if PARTITION.fullmatch(path.name)} if data.is_dir() else set()
        if old and not kept:
            return True  # the controller names the brokers to it only together with partitions
        return self.broker_id in known.brokers and known.controller != NO_CONTROLLER and kept <= known.led

    def _configuration(self) -> dict[str, str]:
        """Return its server.properties."""
        return {
            **self._place(),
            "log.dirs": str(self.data_dir / "data"),
            "auto.create.topics.enable": "false",
            "group.initial.rebalance.delay.ms": "0",
            "offsets.topic.num.partitions": "3",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.num.partitions": "3",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            # a small machine: the defaults are for a server with dozens of cores
            "num.network.threads": "2",
            "num.io.threads": "4",
            "background.threads": "2",
            "log.cleaner.dedupe.buffer.size": "4194304",
            # else records that a test gives an old time go at some moment: every five minutes a broker looks
            **({} if self._release < (0, 10) else {"log.retention.ms": "-1"}),
        }

    @abstractmethod
    def _place(self) -> dict[str, str]:
        """Return the settings of its id, its listener and its metadata."""


class EmbeddedKafka(KafkaBroker):
    """One Kafka broker as a child process, registered in ZooKeeper (`host:port[,…][/chroot]`).

    `settings` are further lines of server.properties, and override others. The first start fetches the jars
    (`artifacts`). `version`: any before 4 that the manifest has; versions before 3 run on Java 17, too.
    """

    def __init__(
        self,
        zookeeper_hosts: str,
        data_dir: Path | str | None = None,
        *,
        port: int | None = None,
        version: str = KAFKA_VERSION,
        heap: str = "512m",
        broker_id: int = 0,
        zookeeper_session_timeout_ms: int = 6_000,
        settings: Mapping[str, str] = NO_SETTINGS,
        jvm_options: Sequence[str] = (),
    ) -> None:
        super().__init__(data_dir, port, version, heap, settings, jvm_options)
        if self._release >= (4,):
            raise UsageError(f"Kafka {version} knows no ZooKeeper: use EmbeddedKRaft")
        self.broker_id = broker_id
        self._zookeeper_hosts = zookeeper_hosts
        self._zookeeper_session_timeout_ms = zookeeper_session_timeout_ms
        self._forgotten_s = 0.0

    def kill(self) -> None:
        """Send SIGKILL (see `Server.kill`). The broker's node in ZooKeeper goes when its session ends."""
        if self.running:
            self._forgotten_s = time.monotonic() + (self._zookeeper_session_timeout_ms + TICK_MS) / 1000
        super().kill()

    def start(self) -> Self:
        """Start it as `Server.start` does. Repeat a start that failed because the node of the killed broker was still
        in ZooKeeper, or had just gone."""
        if self._release < (1, 1):  # a broker of these versions may end at that node, or never work properly
            time.sleep(max(0.0, self._forgotten_s - time.monotonic()))
        end = time.monotonic() + self.start_deadline_ms / 1000
        while True:
            try:
                return super().start()
            except UnavailableError as error:
                if not STILL_REGISTERED.search(str(error)) or time.monotonic() > end:
                    raise

    def _place(self) -> dict[str, str]:
        return {
            "broker.id": str(self.broker_id),
            **self._listening(),
            "zookeeper.connect": self._zookeeper_hosts,
            "zookeeper.session.timeout.ms": str(self._zookeeper_session_timeout_ms),
        }

    def _listening(self) -> dict[str, str]:
        if self._release < (0, 9):
            return {"host.name": LOOPBACK, "port": str(self.port)}
        return {"listeners": f"PLAINTEXT://{LOOPBACK}:{self.port}"}
