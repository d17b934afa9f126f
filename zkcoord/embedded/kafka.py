"""A real Kafka broker in ZooKeeper mode, of this or an old version, from fetched jars, on the loopback only."""

import re
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from zkcoord.embedded.artifacts import KAFKA_VERSION, kafka_jars
from zkcoord.embedded.java import find_java
from zkcoord.embedded.server import LOOPBACK, NO_SETTINGS, Server
from zkcoord.errors import UnavailableError

MAIN = "kafka.Kafka"
ASK_TIMEOUT_S = 2.0
NO_CONTROLLER = -1
METADATA_KEY = 3
METADATA_VERSION = 1  # the first that names the controller; brokers before 0.10 know version 0 only
PARTITION = re.compile(r"[a-zA-Z0-9._-]+-\d+")  # a directory of a log; one that is being deleted has a suffix
STILL_REGISTERED = re.compile(
    r"NodeExistsException|CheckedEphemeral\.getAfterNodeExists|A broker is already registered"
)
# A killed broker's node lives as long as its ZooKeeper session: it is there, or goes while Kafka looks whose it is.
LOG4J = """log4j.rootLogger=WARN, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d{ISO8601} %p %c: %m%n
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """A broker's knowledge: the brokers' ids, the controller's (-1: none yet), and `topic-partition`s with a leader.

    Version 0 names no controller (None).
    """

    brokers: frozenset[int]
    controller: int | None
    led: frozenset[str]


class Answer:
    """The fields of a Kafka response, in order; IndexError behind its end."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    def number(self, size: int) -> int:
        """Return the next signed big-endian integer of `size` bytes."""
        return int.from_bytes(self._take(size), "big", signed=True)

    def text(self) -> str:
        """Return the next string; "" for null."""
        return self._take(max(self.number(2), 0)).decode("utf-8")

    def numbers(self) -> tuple[int, ...]:
        """Return the next array of 32-bit integers."""
        return tuple(self.number(4) for _ in range(self.number(4)))

    def _take(self, size: int) -> bytes:
        part = self._content[self._at : self._at + size]
        if len(part) < size:
            raise IndexError("a Kafka response that is too short")
        self._at += size
        return part


def metadata(port: int, version: int = METADATA_VERSION) -> Metadata:
    """Ask the broker on `port` for its metadata; UnavailableError if it does not answer within two seconds.

    (A Metadata request of that version for all topics. A broker answers with what the controller has sent it.)
    """
    request = struct.pack(">hhihi", METADATA_KEY, version, 1, -1, -1 if version else 0)
    try:
        with socket.create_connection((LOOPBACK, port), timeout=ASK_TIMEOUT_S) as connection:
            connection.settimeout(ASK_TIMEOUT_S)
            connection.sendall(struct.pack(">i", len(request)) + request)
            (size,) = struct.unpack(">i", _read(connection, 4))
            answer = Answer(_read(connection, size))
    except OSError as error:
        raise UnavailableError(f"Kafka on port {port} does not answer: {error}") from error
    answer.number(4)  # the correlation id
    brokers = []
    for _ in range(answer.number(4)):
        brokers.append(answer.number(4))
        answer.text(), answer.number(4)  # host, port
        if version:
            answer.text()  # rack
    controller = answer.number(4) if version else None
    led = []
    for _ in range(answer.number(4)):
        answer.number(2)
        topic, _internal = answer.text(), answer.number(1 if version else 0)
        for _ in range(answer.number(4)):
            answer.number(2)
            partition, leader = answer.number(4), answer.number(4)
            answer.numbers(), answer.numbers()  # replicas, in sync
            if leader >= 0:
                led.append(f"{topic}-{partition}")
    return Metadata(brokers=frozenset(brokers), controller=controller, led=frozenset(led))


def _read(connection: socket.socket, count: int) -> bytes:
    """Read exactly `count` bytes; OSError if the connection ends before."""
    read = b""
    while len(read) < count:
        part = connection.recv(count - len(read))
        if not part:
            raise ConnectionResetError("closed in the middle of an answer")
        read += part
    return read


class EmbeddedKafka(Server):
    """One Kafka broker as a child process, registered in ZooKeeper (`host:port[,…][/chroot]`).

    `settings` are further lines of server.properties and win. Topics are not created by themselves. The jars are
    fetched at the first start (`artifacts`). `version`: any that the manifest knows; before 3 they run on Java 17 too.
    """

    name = "Kafka"

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
        super().__init__(data_dir, port, settings, jvm_options)
        self.broker_id = broker_id
        self.version = version
        self._release = tuple(int(part) for part in version.split("."))
        self._zookeeper_hosts = zookeeper_hosts
        self._heap = heap
        self._zookeeper_session_timeout_ms = zookeeper_session_timeout_ms

    @property
    def bootstrap_servers(self) -> str:
        """The address for Kafka clients, `127.0.0.1:port`."""
        return f"{LOOPBACK}:{self.port}"

    def ready(self) -> bool:
        """True if a controller knows the broker, and each partition in its data has a leader again.

        It answers some time before that, and then its topics seem not to exist.
        """
        old = self._release < (0, 10)
        try:
            known = metadata(self.port, 0 if old else METADATA_VERSION)
        except UnavailableError:
            return False
        data = self.data_dir / "data"
        kept = {path.name for path in data.iterdir() if PARTITION.fullmatch(path.name)} if data.is_dir() else set()
        if old and not kept:
            return True  # its controller tells it of brokers only together with partitions
        return self.broker_id in known.brokers and known.controller != NO_CONTROLLER and kept <= known.led

    def start(self) -> Self:
        """Start it as any server. Tries again while ZooKeeper has, or just had, the node of a broker that was
        killed."""
        end = time.monotonic() + self.start_deadline_ms / 1000
        while True:
            try:
                return super().start()
            except UnavailableError as error:
                if not STILL_REGISTERED.search(str(error)) or time.monotonic() > end:
                    raise

    def _configuration(self) -> dict[str, str]:
        """Return its server.properties."""
        return {
            "broker.id": str(self.broker_id),
            **self._listening(),
            "log.dirs": str(self.data_dir / "data"),
            "zookeeper.connect": self._zookeeper_hosts,
            "zookeeper.session.timeout.ms": str(self._zookeeper_session_timeout_ms),
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
        }

    def _listening(self) -> dict[str, str]:
        if self._release < (0, 9):
            return {"host.name": LOOPBACK, "port": str(self.port)}
        return {"listeners": f"PLAINTEXT://{LOOPBACK}:{self.port}"}

    def _command(self) -> Sequence[str]:
        config, log4j = self.data_dir / "server.properties", self.data_dir / "log4j.properties"
        config.write_text(self.configuration(), encoding="utf-8")
        log4j.write_text(LOG4J, encoding="utf-8")
        options = (f"-Dlog4j.configuration={log4j.as_uri()}", *self._jvm_options)
        return find_java().command(MAIN, kafka_jars(self.version), config, heap=self._heap, options=options)
