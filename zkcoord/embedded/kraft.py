"""Kafka 4.1 or 3.9 without ZooKeeper, from fetched jars, on the loopback only. A broker is its own controller, or a
controller and brokers run in processes of their own, as the move from ZooKeeper to KRaft needs them.

A broker that moves to KRaft takes these forms, one after the other, on the same folder and port:

    EmbeddedKafka(hosts, folder, port=p)                                       ZooKeeper mode
    EmbeddedKafka(hosts, folder, port=p, settings=controller.migrating())      ZooKeeper mode, its controller is KRaft's
    EmbeddedKRaft(folder, port=p, controller=controller, version="3.9.1")      KRaft
    EmbeddedKRaft(folder, port=p, controller=controller)                       KRaft, Kafka 4
"""

import base64
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from zkcoord.embedded.artifacts import KAFKA_4_VERSION
from zkcoord.embedded.kafka import KafkaBroker, KafkaNode
from zkcoord.embedded.kafka_requests import answers
from zkcoord.embedded.kafka_tools import run_tool
from zkcoord.embedded.server import LOOPBACK, NO_SETTINGS, free_ports
from zkcoord.errors import UnavailableError

CONTROLLER_ID = 3000  # no broker has this id
MIGRATE = "zookeeper.metadata.migration.enable"


def new_cluster_id() -> str:
    """Return an id for a new cluster, as Kafka writes it: 16 bytes in 22 letters, which do not begin with a dash."""
    return base64.urlsafe_b64encode(b"\0" + uuid.uuid4().bytes[1:]).decode("ascii").rstrip("=")


def voter(node_id: int, port: int) -> str:
    """Return the entry of one controller in `controller.quorum.voters`; commas separate the entries."""
    return f"{node_id}@{LOOPBACK}:{port}"


class KRaftNode(KafkaNode):
    """A node with roles. Its folder is formatted before its first start."""

    def __init__(
        self,
        data_dir: Path | str | None,
        port: int | None,
        version: str,
        heap: str,
        settings: Mapping[str, str],
        jvm_options: Sequence[str],
        *,
        cluster_id: str,
        voters: str,
    ) -> None:
        super().__init__(data_dir, port, version, heap, settings, jvm_options)
        self.cluster_id = cluster_id
        self.voters = voters

    def launch(self) -> None:
        """Start the process without waiting for it to serve. The first start formats its folder."""
        if not (self.data_dir / "data" / "meta.properties").exists():
            self.data_dir.mkdir(parents=True, exist_ok=True)
            self._format()
        super().launch()

    def _format(self) -> None:
        config = self.data_dir / "format.properties"
        config.write_text(self.configuration(), encoding="utf-8")
        words = (f"--cluster-id={self.cluster_id}", "--config", str(config))
        ran = run_tool("kafka-storage", "format", *words, version=self.version)
        if ran.returncode != 0:
            raise UnavailableError(
                f"{self.name}'s folder {self.data_dir} cannot be formatted:\n{ran.stdout}{ran.stderr}"
            )

    def _quorum(self) -> dict[str, str]:
        """Return the settings about controllers that every node of the cluster has."""
        return {
            "controller.quorum.voters": self.voters,
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        }


class EmbeddedController(KRaftNode):
    """One KRaft controller in a process of its own. `migrate_from`: the controller takes over this ZooKeeper's cluster.

    A cluster that moves keeps its id: the one in `/cluster/id` of its ZooKeeper. `voters`: the entries (`voter`) of all
    controllers of the cluster with commas between them, this controller's too; by default it is the only one.
    """

    name = "Kafka-controller"

    def __init__(
        self,
        cluster_id: str,
        data_dir: Path | str | None = None,
        *,
        port: int | None = None,
        version: str = KAFKA_4_VERSION,
        heap: str = "256m",
        node_id: int = CONTROLLER_ID,
        voters: str = "",
        migrate_from: str | None = None,
        settings: Mapping[str, str] = NO_SETTINGS,
        jvm_options: Sequence[str] = (),
    ) -> None:
        port = free_ports(1)[0] if port is None else port
        super().__init__(
            *(data_dir, port, version, heap, settings, jvm_options),
            cluster_id=cluster_id,
            voters=voters or voter(node_id, port),
        )
        self.node_id = node_id
        self._zookeeper = {} if migrate_from is None else {"zookeeper.connect": migrate_from, MIGRATE: "true"}

    def ready(self) -> bool:
        """True if it answers requests. It does so once it has read its log."""
        return answers(self.port)

    def migrating(self) -> dict[str, str]:
        """Return the settings that a broker in ZooKeeper mode needs to be led by this controller."""
        return {**self._quorum(), MIGRATE: "true", "inter.broker.protocol.version": "3.9"}

    def _configuration(self) -> dict[str, str]:
        return {
            "process.roles": "controller",
            "node.id": str(self.node_id),
            **self._quorum(),
            **self._zookeeper,
            "listeners": f"CONTROLLER://{LOOPBACK}:{self.port}",
            "log.dirs": str(self.data_dir / "data"),
            "num.network.threads": "1",
            "num.io.threads": "2",
        }


class EmbeddedKRaft(KRaftNode, KafkaBroker):
    """One Kafka broker as a child process, without ZooKeeper. If no `controller` is given, it is its own controller.

    `settings` are further lines of server.properties, and override others. The first start fetches the jars
    (`artifacts`).
    """

    def __init__(
        self,
        data_dir: Path | str | None = None,
        *,
        port: int | None = None,
        version: str = KAFKA_4_VERSION,
        heap: str = "512m",
        broker_id: int = 0,
        controller: EmbeddedController | None = None,
        settings: Mapping[str, str] = NO_SETTINGS,
        jvm_options: Sequence[str] = (),
    ) -> None:
        self._controller_port = 0  # this broker is no controller
        if controller is None:
            port, self._controller_port = _two_ports(port)
        super().__init__(
            *(data_dir, port, version, heap, settings, jvm_options),
            cluster_id=controller.cluster_id if controller else new_cluster_id(),
            voters=controller.voters if controller else voter(broker_id, self._controller_port),
        )
        self.broker_id = broker_id

    def _place(self) -> dict[str, str]:
        alone = self._controller_port > 0
        listeners = f"PLAINTEXT://{LOOPBACK}:{self.port}"
        return {
            "process.roles": "broker,controller" if alone else "broker",
            "node.id": str(self.broker_id),
            **self._quorum(),
            "listeners": f"{listeners},CONTROLLER://{LOOPBACK}:{self._controller_port}" if alone else listeners,
            "advertised.listeners": listeners,
            "share.coordinator.state.topic.num.partitions": "3",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
        }


def _two_ports(port: int | None) -> tuple[int, int]:
    """Return this port (None: a free one) and another that is free."""
    first, second, third = free_ports(3)
    wanted = first if port is None else port
    return wanted, third if second == wanted else second
