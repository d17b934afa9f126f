"""A real ZooKeeper server from PySpark's jars, on the loopback only."""

import contextlib
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from zkcoord.embedded.java import find_java, pyspark_jars
from zkcoord.embedded.server import LOOPBACK, NO_SETTINGS, Server
from zkcoord.errors import UnavailableError

MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
ASK_TIMEOUT_S = 2.0
ANSWER_BYTES_MAX = 1 << 20


def four_letters(port: int, word: str) -> str:
    """Return a server's answer to a four-letter word; UnavailableError if it gives none within two seconds."""
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


class EmbeddedZooKeeper(Server):
    """One ZooKeeper server (PySpark's jars hold it) as a child process; a client connects to `hosts`.

    `settings` are further lines of zoo.cfg, `jvm_options` further options of Java (`-Djute.maxbuffer=…`).
    `fsync=False` is faster. The data then survives a crash of the process, but not a crash of the machine.
    """

    name = "ZooKeeper"

    def __init__(
        self,
        data_dir: Path | str | None = None,
        *,
        port: int | None = None,
        max_session_timeout_ms: int | None = None,
        fsync: bool = True,
        settings: Mapping[str, str] = NO_SETTINGS,
        jvm_options: Sequence[str] = (),
    ) -> None:
        super().__init__(data_dir, port, {**({} if fsync else {"forceSync": "no"}), **settings}, jvm_options)
        self._max_session_timeout_ms = max_session_timeout_ms

    @property
    def hosts(self) -> str:
        """The connection string, `127.0.0.1:port`."""
        return f"{LOOPBACK}:{self.port}"

    def ready(self) -> bool:
        """True if it serves clients: it answers a request. An open port is not enough, since early clients may hang."""
        with contextlib.suppress(UnavailableError):
            return four_letters(self.port, "srvr").startswith("Zookeeper version")
        return False

    def mntr(self) -> dict[str, str]:
        """Return the server's own counters (`zk_packets_received`, …); UnavailableError if it does not answer."""
        rows = (line.partition("\t") for line in four_letters(self.port, "mntr").splitlines())
        counters = {key: value for key, tab, value in rows if tab}
        if not counters:
            raise UnavailableError(f"ZooKeeper on port {self.port} does not serve: no answer to 'mntr'")
        return counters

    def _configuration(self) -> dict[str, str]:
        """Return its zoo.cfg. If the maximal session timeout is None, the server's default applies: 20 ticks."""
        lines = {
            "dataDir": str(self.data_dir / "data"),
            "clientPortAddress": LOOPBACK,
            "clientPort": str(self.port),
            "tickTime": "500",
            "minSessionTimeout": "1000",
            "maxClientCnxns": "0",  # no limit: all clients of a test come from one address
            "admin.enableServer": "false",  # it would listen on every address
            "4lw.commands.whitelist": "srvr,mntr,ruok",
            "preAllocSize": "256",  # KiB by which a log file grows; the default of 64 MiB fills a test machine's disk
        }
        if self._max_session_timeout_ms is not None:
            lines["maxSessionTimeout"] = str(self._max_session_timeout_ms)
        return lines

    def program(self) -> tuple[str, Sequence[object]]:
        """Return its main class, and its class path."""
        return MAIN, [f"{pyspark_jars()}/*"]

    def _command(self) -> Sequence[str]:
        (self.data_dir / "data").mkdir(parents=True, exist_ok=True)
        config = self.data_dir / "zoo.cfg"
        config.write_text(self.configuration(), encoding="utf-8")
        quiet = ("-Dlog4j2.level=WARN", "-Dzookeeper.jmx.log4j.disable=true")
        return find_java().command(*self.program(), config, heap="256m", options=(*quiet, *self._jvm_options))
