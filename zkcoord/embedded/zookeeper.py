"""Real ZooKeeper servers from PySpark's jars, on the loopback only: one, or an ensemble."""

import contextlib
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from zkcoord.embedded.java import find_java, pyspark_jars
from zkcoord.embedded.server import LOOPBACK, Server, free_ports
from zkcoord.errors import UnavailableError

MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
ASK_TIMEOUT_S = 2.0
ANSWER_BYTES_MAX = 1 << 20
NO_SETTINGS: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One server's place in an ensemble: its number from 1 on, and the `server.N=…` lines of all."""

    number: int
    servers: tuple[str, ...]


def four_letters(port: int, word: str) -> str:
    """A server's answer to a four-letter word; UnavailableError if it gives none within two seconds."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=ASK_TIMEOUT_S) as connection:
            connection.settimeout(ASK_TIMEOUT_S)
            connection.sendall(word.encode("ascii"))
            answer = b""
            while len(answer) < ANSWER_BYTES_MAX and (read := connection.recv(65_536)):
                answer += read
    except OSError as error:
        raise UnavailableError(f"ZooKeeper on port {port} does not answer {word!r}: {error}") from error
    return answer.decode("utf-8", errors="replace")


def configuration(
    data_dir: Path,
    port: int,
    *,
    tick_time_ms: int,
    min_session_timeout_ms: int,
    max_session_timeout_ms: int | None,
    member: Member | None = None,
    settings: Mapping[str, str] = NO_SETTINGS,
) -> str:
    """The text of a `zoo.cfg`; `settings` come last and win. A maximum of None is the server's own, 20 ticks."""
    lines = {
        "dataDir": str(data_dir),
        "clientPortAddress": LOOPBACK,
        "clientPort": str(port),
        "tickTime": str(tick_time_ms),
        "minSessionTimeout": str(min_session_timeout_ms),
        "maxClientCnxns": "0",  # no limit: all clients of a test come from one address
        "admin.enableServer": "false",  # it would listen on every address
        "4lw.commands.whitelist": "srvr,mntr,ruok",
        "preAllocSize": "256",  # KiB a log file grows by; the default of 64 MiB fills a test machine's disk
    }
    if max_session_timeout_ms is not None:
        lines["maxSessionTimeout"] = str(max_session_timeout_ms)
    if member is not None:
        lines |= {"initLimit": "20", "syncLimit": "8"}  # ticks; short, for a leader that is killed on purpose
        lines |= dict(line.split("=", 1) for line in member.servers)
    return "".join(f"{key}={value}\n" for key, value in {**lines, **settings}.items())


class EmbeddedZooKeeper(Server):
    """One ZooKeeper server (PySpark's jars hold it) as a child process; `hosts` is what a client connects to.

    `settings` are further lines of zoo.cfg, `jvm_options` further options of Java (`-Djute.maxbuffer=…`).
    `fsync=False` is faster and still survives the death of the process, not that of the machine.
    """

    name = "ZooKeeper"

    def __init__(
        self,
        data_dir: Path | str | None = None,
        *,
        port: int | None = None,
        heap: str = "256m",
        tick_time_ms: int = 500,
        min_session_timeout_ms: int = 1_000,
        max_session_timeout_ms: int | None = None,
        fsync: bool = True,
        settings: Mapping[str, str] = NO_SETTINGS,
        jvm_options: Sequence[str] = (),
        member: Member | None = None,
    ) -> None:
        super().__init__(data_dir, port)
        self._heap = heap
        self._tick_time_ms = tick_time_ms
        self._min_session_timeout_ms = min_session_timeout_ms
        self._max_session_timeout_ms = max_session_timeout_ms
        self._settings = {**({} if fsync else {"forceSync": "no"}), **settings}
        self._jvm_options = tuple(jvm_options)
        self._member = member

    @property
    def hosts(self) -> str:
        """The connection string, `127.0.0.1:port`."""
        return f"{LOOPBACK}:{self.port}"

    def ready(self) -> bool:
        """Whether it serves clients. Its port opens earlier, and who connects then may hang: so the answer counts."""
        with contextlib.suppress(UnavailableError):
            return four_letters(self.port, "srvr").startswith("Zookeeper version")
        return False

    def mntr(self) -> dict[str, str]:
        """The server's own counters (`zk_packets_received`, …); UnavailableError if it does not answer."""
        rows = (line.partition("\t") for line in four_letters(self.port, "mntr").splitlines())
        counters = {key: value for key, tab, value in rows if tab}
        if not counters:
            raise UnavailableError(f"ZooKeeper on port {self.port} does not serve: no answer to 'mntr'")
        return counters

    def _command(self) -> Sequence[str]:
        data = self.data_dir / "data"
        data.mkdir(parents=True, exist_ok=True)
        if self._member is not None:
            (data / "myid").write_text(f"{self._member.number}\n", encoding="ascii")
        config = self.data_dir / "zoo.cfg"
        text = configuration(
            data,
            self.port,
            tick_time_ms=self._tick_time_ms,
            min_session_timeout_ms=self._min_session_timeout_ms,
            max_session_timeout_ms=self._max_session_timeout_ms,
            member=self._member,
            settings=self._settings,
        )
        config.write_text(text, encoding="utf-8")
        return (
            str(find_java().executable),
            f"-Xmx{self._heap}",
            "-XX:+UseSerialGC",
            "-Djava.net.preferIPv4Stack=true",
            "-Dlog4j2.level=WARN",
            "-Dzookeeper.jmx.log4j.disable=true",
            *self._jvm_options,
            "-cp",
            f"{pyspark_jars()}/*",
            MAIN,
            str(config),
        )


class EmbeddedEnsemble:
    """`size` ZooKeeper servers with a leader; `servers` can be killed, paused and started again singly."""

    def __init__(
        self,
        size: int = 3,
        data_dir: Path | str | None = None,
        *,
        heap: str = "128m",
        tick_time_ms: int = 500,
        max_session_timeout_ms: int | None = None,
        settings: Mapping[str, str] = NO_SETTINGS,
        jvm_options: Sequence[str] = (),
    ) -> None:
        ports = free_ports(3 * size)
        clients, peers, elections = ports[:size], ports[size : 2 * size], ports[2 * size :]
        lines = tuple(f"server.{n + 1}={LOOPBACK}:{peers[n]}:{elections[n]}" for n in range(size))
        self.servers = tuple(
            EmbeddedZooKeeper(
                None if data_dir is None else Path(data_dir) / str(n + 1),
                port=clients[n],
                heap=heap,
                member=Member(number=n + 1, servers=lines),
                tick_time_ms=tick_time_ms,
                max_session_timeout_ms=max_session_timeout_ms,
                settings=settings,
                jvm_options=jvm_options,
            )
            for n in range(size)
        )

    @property
    def hosts(self) -> str:
        """The connection string with every server."""
        return ",".join(server.hosts for server in self.servers)

    def start(self) -> Self:
        """Start all (what runs already is left alone); returns when each serves."""
        try:
            for server in self.servers:
                if not server.running:
                    server.launch()
            for server in self.servers:
                server.await_ready()
        except BaseException:
            self.kill()
            raise
        return self

    def leader(self) -> EmbeddedZooKeeper | None:
        """The server that leads now, None while there is none."""
        for server in self.servers:
            with contextlib.suppress(UnavailableError):
                if server.mntr().get("zk_server_state") == "leader":
                    return server
        return None

    def stop(self) -> None:
        """Stop all."""
        for server in self.servers:
            server.stop()

    def kill(self) -> None:
        """SIGKILL to all."""
        for server in self.servers:
            server.kill()

    def close(self) -> None:
        """Stop all and remove the data directories that were made here."""
        for server in self.servers:
            server.close()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
