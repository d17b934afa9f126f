"""Three ZooKeeper servers and a Kafka broker beside them, in containers on a network of their own.

Everybody has a fixed address there, so that a server is found again after its restart and a firewall can name it. The
broker stands in a container too, with the jars that `zkcoord.embedded` fetches, mounted read-only: it must be reached
from network namespaces that cannot see this machine's loopback, where an embedded one would listen. The longest session
is 5 s, whatever a client asks for.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any, Self

import docker

from tests.containers.server import SERVES_DEADLINE_S, SETTINGS, TICK_MS, TURN_S
from zkcoord.embedded.artifacts import kafka_jars
from zkcoord.embedded.java import QUICK
from zkcoord.embedded.kafka import LOG4J, MAIN
from zkcoord.errors import UnavailableError

CLIENT_PORT, PEER_PORT, ELECTION_PORT, KAFKA_PORT = 2181, 2888, 3888, 9092
SESSION_MS = 5_000
SYNC_LIMIT_TICKS = 20  # a follower that is cut off serves its clients for 10 s: longer than a session, as F36 has it
SERVERS = (1, 2, 3)
SMALL_DISK = 3  # this server keeps its transactions on a disk of this size, which a test can fill
DISK_SIZE = "16m"
DISK = "/small"
FILLER = f"{DISK}/filler"
ANSWER_S = 2.0
CONFIGURATION = f"""\
dataDir=/data
clientPort={CLIENT_PORT}
clientPortAddress=0.0.0.0
tickTime={TICK_MS}
initLimit=20
syncLimit={SYNC_LIMIT_TICKS}
minSessionTimeout=1000
maxSessionTimeout={SESSION_MS}
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=srvr,cons,mntr
preAllocSize=256
"""
READ_ONLY_MODE = "-Dreadonlymode.enabled=true"  # a server without a quorum then answers reads to who takes such answers
KAFKA = f"""\
log.dirs=/kafka-data
zookeeper.session.timeout.ms={SESSION_MS}
auto.create.topics.enable=false
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
num.network.threads=2
num.io.threads=4
background.threads=2
log.cleaner.dedupe.buffer.size=4194304
"""


def wait_until(
    holds: Callable[[], Any], what: str, patience_s: float = SERVES_DEADLINE_S, state: Callable[[], Any] = str
) -> None:
    """Return as soon as `holds()`; UnavailableError, with the state it ended in, after the deadline."""
    deadline = time.monotonic() + patience_s
    while not holds():
        if time.monotonic() > deadline:
            raise UnavailableError(f"waited {patience_s:.0f} s in vain: {what}; {state()}")
        time.sleep(TURN_S)


def listens(address: str, port: int) -> bool:
    """Whether somebody takes connections there."""
    with suppress(OSError), socket.create_connection((address, port), timeout=ANSWER_S):
        return True
    return False


class Box:
    """One container with an address; `kwargs` go to the engine."""

    def __init__(self, image: str, network: str, address: str, **kwargs: Any) -> None:
        from docker import version
        from docker.types import EndpointConfig
        from testcontainers.core.container import DockerContainer

        self.address = address
        endpoint = EndpointConfig(version.__version__, ipv4_address=address)
        self.container = DockerContainer(image).with_kwargs(
            network=network, networking_config={network: endpoint}, **kwargs
        )

    @property
    def engine(self) -> Any:
        """The engine's handle of it: pause, unpause, kill, start."""
        return self.container.get_wrapped_container()

    @property
    def pid(self) -> int:
        """Of its first process, through which its namespaces are entered; 0 when it does not run."""
        self.engine.reload()
        return int(self.engine.attrs["State"]["Pid"])

    @property
    def state(self) -> str:
        """running, paused, exited, …"""
        self.engine.reload()
        return str(self.engine.status)

    def cut_from(self, *addresses: str) -> None:
        """A black hole: what comes from there, or goes there, is swallowed. Connections stay open."""
        for address in addresses:
            self._firewall("-A", "INPUT", "-s", address, "-j", "DROP")
            self._firewall("-A", "OUTPUT", "-d", address, "-j", "DROP")

    def mend(self) -> None:
        """No black hole any more."""
        self._firewall("-F")

    def _firewall(self, *rule: str) -> None:
        """In the container's own network namespace only."""
        subprocess.run(
            ["nsenter", "-t", str(self.pid), "-n", "iptables", "-w", *rule], check=True, capture_output=True, timeout=30
        )

    def said(self) -> str:
        """The end of what it has printed."""
        return b"\n".join(self.container.get_logs()).decode(errors="replace")[-3_000:]

    def remove(self) -> None:
        """End and remove it, in whatever state."""
        self.container.stop()


class ServerBox(Box):
    """One ZooKeeper server of the three."""

    def __init__(self, image: str, network: str, number: int, addresses: dict[int, str]) -> None:
        super().__init__(image, network, addresses[number])
        self.number = number
        peers = "".join(f"server.{n}={a}:{PEER_PORT}:{ELECTION_PORT}\n" for n, a in addresses.items())
        log = f"dataLogDir={DISK}\n" if number == SMALL_DISK else ""
        self.container.with_copy_into_container((CONFIGURATION + log + peers).encode(), "/conf/zoo.cfg")
        self.container.with_copy_into_container(f"{number}\n".encode(), "/data/myid")
        self.container.with_env("JAVA_TOOL_OPTIONS", READ_ONLY_MODE)

    @property
    def hosts(self) -> str:
        """The connection string of this one alone."""
        return f"{self.address}:{CLIENT_PORT}"

    def ask(self, word: str) -> str:
        """The answer to a four-letter word; "" if there is none."""
        answer = b""
        with suppress(OSError), socket.create_connection((self.address, CLIENT_PORT), timeout=ANSWER_S) as connection:
            connection.settimeout(ANSWER_S)
            connection.sendall(word.encode())
            while part := connection.recv(65_536):
                answer += part
        return answer.decode(errors="replace")

    def mode(self) -> str:
        """leader, follower, read-only, or "" when it does not serve."""
        for line in self.ask("srvr").splitlines():
            if line.startswith("Mode: "):
                return line.removeprefix("Mode: ")
        return ""

    def has_client(self, address: str) -> bool:
        """Whether somebody at this address is connected to it."""
        return f"/{address}:" in self.ask("cons")

    def fill_disk(self) -> None:
        """Leave no byte for its transactions."""
        self.engine.exec_run(["dd", "if=/dev/zero", f"of={FILLER}", "bs=64k"])

    def free_disk(self) -> None:
        """As an operator does: make room, and start the server anew."""
        self.engine.exec_run(["rm", "-f", FILLER])
        self.engine.kill()
        self.engine.start()

    def start_again(self) -> None:
        """Let it run, whatever was done to it; returns at once."""
        match self.state:
            case "paused":
                self.engine.unpause()
            case "running":
                pass
            case _:
                self.engine.start()


class Ensemble:
    """A context manager: entering starts everything and waits until it serves, leaving removes it."""

    def __init__(self, image: str) -> None:
        for name, value in SETTINGS.items():
            os.environ.setdefault(name, value)
        self._image = image
        self._stack = ExitStack()
        self._addresses_used = 30

    @property
    def hosts(self) -> str:
        """The connection string with all servers."""
        return ",".join(server.hosts for server in self.servers)

    @property
    def bootstrap_servers(self) -> str:
        """Where Kafka is."""
        return f"{self.kafka.address}:{KAFKA_PORT}"

    def leader(self) -> ServerBox:
        """The server that leads; waits for one."""
        found: list[ServerBox] = []

        def look() -> bool:
            found[:] = [server for server in self.servers if server.mode() == "leader"]
            return bool(found)

        wait_until(look, "a leader")
        return found[0]

    def followers(self) -> list[ServerBox]:
        """The other two; waits for both."""
        leader = self.leader()
        wait_until(lambda: all(s.mode() == "follower" for s in self.servers if s is not leader), "two followers")
        return [server for server in self.servers if server is not leader]

    def heal(self) -> None:
        """All three servers run and agree on a leader."""
        for server in self.servers:
            server.start_again()
        self.followers()

    def box(self, disk: Any = None) -> Box:
        """One more container on the network, that only waits; removed at the end. Perhaps it mounts the disk."""
        self._addresses_used += 1
        box = Box(self._image, self._network.name, self._address(self._addresses_used), entrypoint=["sleep"], init=True)
        box.container.with_command(["infinity"])
        if disk is not None:
            box.container.with_volume_mapping(disk.name, DISK, "rw")
        self._run(box)
        return box

    def broker(self, number: int) -> Box:
        """One more Kafka broker; returns when it listens. Removed at the end."""
        jars = kafka_jars()[0].parent
        java = ["java", "-Xmx384m", *QUICK, "-Dlog4j.configuration=file:/kafka/log4j.properties"]
        box = Box(self._image, self._network.name, self._address(20 + number), entrypoint=java)
        box.container.with_command(["-cp", "/kafka-jars/*", MAIN, "/kafka/server.properties"])
        box.container.with_volume_mapping(str(jars), "/kafka-jars", "ro")
        box.container.with_tmpfs_mount("/kafka-data")
        own = f"broker.id={number}\nlisteners=PLAINTEXT://{box.address}:{KAFKA_PORT}\nzookeeper.connect={self.hosts}\n"
        box.container.with_copy_into_container((KAFKA + own).encode(), "/kafka/server.properties")
        box.container.with_copy_into_container(LOG4J.encode(), "/kafka/log4j.properties")
        self._run(box)
        try:
            wait_until(lambda: listens(box.address, KAFKA_PORT), f"broker {number}")
        except UnavailableError as error:
            raise UnavailableError(f"{error}\n{box.said()}") from error
        return box

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(self) -> None:
        self._network = self._made_network()
        addresses = {number: self._address(10 + number) for number in SERVERS}
        self.servers = [ServerBox(self._image, self._network.name, number, addresses) for number in SERVERS]
        self._keep_disk(self.servers[SMALL_DISK - 1])
        for server in self.servers:
            self._run(server)
        try:
            self.followers()
        except UnavailableError as error:
            raise UnavailableError("\n".join([str(error), *(server.said() for server in self.servers)])) from error
        self.kafka = self.broker(0)

    def _made_network(self) -> Any:
        """The engine picks the range, since it knows which are free; fixed addresses need one that is named."""
        from docker.types import IPAMConfig, IPAMPool
        from testcontainers.core.network import Network

        with Network() as tried:
            tried._unwrap_network.reload()
            self._range = ipaddress.ip_network(tried._unwrap_network.attrs["IPAM"]["Config"][0]["Subnet"])
        pool = IPAMPool(subnet=str(self._range))
        network = Network(docker_network_kw={"ipam": IPAMConfig(pool_configs=[pool])})
        return self._stack.enter_context(network)

    def _keep_disk(self, server: ServerBox) -> None:
        """A disk in memory is gone when nobody has it mounted: a container that only waits has it, too."""
        client = docker.from_env()
        self._stack.callback(client.close)
        options = {"type": "tmpfs", "device": "tmpfs", "o": f"size={DISK_SIZE},mode=1777"}
        volume = client.volumes.create(driver="local", driver_opts=options)
        self._stack.callback(volume.remove, force=True)
        server.container.with_volume_mapping(volume.name, DISK, "rw")
        self.box(volume)

    def _address(self, number: int) -> str:
        return str(self._range.network_address + number)

    def _run(self, box: Box) -> None:
        self._stack.callback(box.remove)
        box.container.start()
