"""ZooKeeper servers that ask who comes, by TLS and a certificate or by SASL: all of zkcoord speaks to them. And one
that asks nobody: there an old consumer that does not log in stands beside zkcoord, whose nodes have an ACL."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from tests.certificate import CERTIFICATE, KEY
from tests.obedient import obedient
from tests.waiting import PATIENCE_SECONDS, listens, wait_until
from zkcoord import Coordinator
from zkcoord.cli.main import cli
from zkcoord.cli.options import Limits, Settings
from zkcoord.core.model import TopicPartition
from zkcoord.embedded import EmbeddedZooKeeper
from zkcoord.embedded.server import LOOPBACK, free_ports
from zkcoord.shell.zk.config import ZooKeeperConfig, load_config
from zkcoord.tree.paths import LEGACY

pytestmark = pytest.mark.zookeeper

LOGIN = "org.apache.zookeeper.server.auth.DigestLoginModule required"
AUTH = "org.apache.zookeeper.server.auth"
OLD = b'{"version":1,"subscription":{"t":1},"pattern":"static","timestamp":"1416335000123"}'


class Secured:
    """A server, where it asks who comes, and the file by which it lets a client in."""

    def __init__(self, server: EmbeddedZooKeeper, address: str, config: Path, scheme: str) -> None:
        self.server, self.address, self.config, self.scheme = server, address, config, scheme


def with_tls(folder: Path) -> Secured:
    """It takes only clients with a certificate that it knows. (Its plain port is for its owner: `ready`.)"""
    (port,) = free_ports(1)
    for name, text in (("server.pem", KEY + CERTIFICATE), ("ca.pem", CERTIFICATE), ("key.pem", KEY)):
        (folder / name).write_text(text)
    settings = {
        "secureClientPort": str(port),
        "secureClientPortAddress": LOOPBACK,
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "ssl.keyStore.type": "PEM",
        "ssl.keyStore.location": str(folder / "server.pem"),
        "ssl.trustStore.type": "PEM",
        "ssl.trustStore.location": str(folder / "ca.pem"),
        "ssl.clientAuth": "need",
        "authProvider.x509": f"{AUTH}.X509AuthenticationProvider",
    }
    config = folder / "tls.properties"
    config.write_text(
        f"tls = true\ntls.ca = {folder / 'ca.pem'}\ntls.certificate = {folder / 'ca.pem'}\n"
        f"tls.key = {folder / 'key.pem'}\ntls.check-hostname = true\nacl = creator\n"
    )
    return Secured(EmbeddedZooKeeper(folder / "zk", settings=settings), f"{LOOPBACK}:{port}", config, "x509")


def with_sasl(folder: Path) -> Secured:
    """It takes only clients that log in."""
    (port,) = free_ports(1)
    jaas = folder / "jaas.conf"
    jaas.write_text(f'Server {{ {LOGIN} user_etl="s3cret"; }};')
    settings = {
        "authProvider.sasl": f"{AUTH}.SASLAuthenticationProvider",
        "enforce.auth.enabled": "true",
        "enforce.auth.schemes": "sasl",
    }
    server = EmbeddedZooKeeper(
        folder / "zk",
        port=port,
        settings=settings,
        jvm_options=[f"-Djava.security.auth.login.config={jaas}"],
    )
    config = folder / "sasl.properties"
    config.write_text(
        "sasl.mechanism = DIGEST-MD5\nsasl.username = etl\nsasl.password = s3cret\nsasl.service = zookeeper\n"
        "acl = creator\n"
    )
    return Secured(server, f"{LOOPBACK}:{port}", config, "sasl")


@pytest.fixture(params=[with_tls, with_sasl])
def secured(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Secured]:
    made: Secured = request.param(tmp_path)
    port = int(made.address.rpartition(":")[2])
    with made.server:
        wait_until(lambda: listens(port), "it also takes its clients")  # by TLS later than by its owner's port
        yield made


@contextmanager
def coordinating(address: str, config: ZooKeeperConfig, layout: str = "draft") -> Iterator[None]:
    """With a coordinator that serves."""
    serving = threading.Event()
    coordinator = Coordinator(
        address, layout=layout, zookeeper_config=config, on_serving=lambda *elected: serving.set()
    )
    coordinator.start()
    try:
        wait_until(serving.is_set, "it is elected, so zkcoord's nodes are there")
        yield
    finally:
        coordinator.stop()


@contextmanager
def connected(address: str, **settings: Any) -> Iterator[KazooClient]:
    """A client of somebody's own; there is a topic."""
    client = KazooClient(address, **settings)
    client.start(timeout=PATIENCE_SECONDS)
    client.ensure_path("/brokers/ids")
    client.create("/brokers/topics/t", b'{"version":1,"partitions":{"0":[1],"1":[1]}}', makepath=True)
    yield client
    client.stop()
    client.close()


@pytest.fixture
def operator(secured: Secured) -> Iterator[KazooClient]:
    """Somebody who is let in."""
    with connected(secured.address, **load_config(secured.config).client_settings()) as client:
        yield client


@pytest.fixture
def old(chroot: str) -> Iterator[KazooClient]:
    """An old consumer that does not log in."""
    with connected(chroot) as client:
        yield client


def test_a_group_is_coordinated_by_programs_that_say_who_they_are_and_its_nodes_are_theirs(
    secured: Secured, operator: KazooClient
) -> None:
    address, config = secured.address, load_config(secured.config)
    started: set[TopicPartition] = set()
    with coordinating(address, config), obedient(address, "t", zookeeper_config=config, on_start=started.update):
        wait_until(lambda: started == {TopicPartition("t", 0), TopicPartition("t", 1)}, "it reads the topic")
        words = ["group", "describe", "g", "--wait", "stable", "--zookeeper", address]
        shown = CliRunner().invoke(cli, [*words, "--zookeeper-config", str(secured.config)])
        assert (shown.exit_code, "Stable" in shown.output) == (0, True), shown.output
        for path in ("/zkcoord", "/zkcoord/schema"):
            ((permissions, (scheme, _)),) = [tuple(acl) for acl in operator.get_acls(path)[0]]
            assert (scheme, permissions) == (secured.scheme, 31), "nobody else may even read it"


def test_the_doctor_looks_at_a_server_that_lets_in_only_whom_it_knows(secured: Secured, operator: KazooClient) -> None:
    with coordinating(secured.address, load_config(secured.config)):
        wait_until(lambda: operator.exists("/zkcoord/coordinators") is not None, "a coordinator stands")
        words = ["doctor", "--all", "--output", "json", "--zookeeper", secured.address]
        shown = CliRunner().invoke(cli, [*words, "--zookeeper-config", str(secured.config)])
    found = {each["what"]: each for each in map(json.loads, shown.stdout.splitlines())}
    told = found["everybody who reaches ZooKeeper may write these nodes"]
    assert (told["severity"], told["evidence"]) == ("WARN", "world:anyone:cdrwa on /brokers/topics")
    assert found[f"{secured.address}: version"]["severity"] == "OK"


def test_an_unidentified_client_is_told(secured: Secured) -> None:
    """A server that asks for TLS breaks a plain connection without a word, as one does that is no ZooKeeper."""
    code, word = (2, "refuses our credentials") if secured.scheme == "sasl" else (5, "connection broken")
    for wait_ms in (3_000, 60_000):  # so long only where the machine stands still for seconds
        limits = Settings(limits=Limits(tree_wait_ms=wait_ms))
        stranger = CliRunner().invoke(cli, ["group", "list", "--zookeeper", secured.address], obj=limits)
        if word in stranger.output:
            break
    assert (stranger.exit_code, word in stranger.output, secured.address in stranger.output) == (code, True, True)


def test_a_wrong_password_is_told(tmp_path: Path) -> None:
    secured = with_sasl(tmp_path)
    wrong = secured.config.read_text().replace("s3cret", "guess")
    secured.config.write_text(wrong)
    with secured.server:
        words = ["group", "list", "--zookeeper", secured.address, "--zookeeper-config", str(secured.config)]
        refused = CliRunner().invoke(cli, words)
    assert (refused.exit_code, "refuses our credentials: correct them" in refused.output) == (2, True), refused.output


def test_an_old_consumer_that_does_not_log_in_works_below_parents_that_zkcoord_made(
    chroot: str, tmp_path: Path, old: KazooClient
) -> None:
    """The parents of `t` are made by the coordinator, those of `u` by a consumer: the group is mixed by then."""
    group, file = "/consumers/g", tmp_path / "digest.properties"
    file.write_text("digest = etl:s3cret\nacl = creator\n")
    config = load_config(file)
    old.create("/brokers/topics/u", b'{"version":1,"partitions":{"0":[1]}}')

    def owned(topic: str) -> set[str]:
        above = f"{group}/owners/{topic}"
        return set(old.get_children(above)) if old.exists(above) else set()

    with coordinating(chroot, config, "legacy"):
        words = ["--offsets", "zookeeper", "--strategy", "range", "--kafka", "1.1", "--zookeeper", chroot]
        adopted = CliRunner().invoke(cli, ["group", "adopt", "g", *words, "--zookeeper-config", str(file)])
        assert adopted.exit_code == 0, adopted.output
        with obedient(chroot, "t", zookeeper_config=config):
            wait_until(lambda: owned("t") == {"0", "1"}, "ours has both")
            (ours,) = old.get_children(f"{group}/ids")
            assert json.loads(old.get(f"{group}/ids/{ours}")[0])["subscription"] == {"t": 1}
            old.create(f"{group}/ids/g_old", OLD, ephemeral=True)
            wait_until(lambda: len(owned("t")) == 1, "ours has given the old one's share back")
            (free,) = {"0", "1"} - owned("t")
            old.create(f"{group}/owners/t/{free}", b"g_old-0", ephemeral=True)
            with obedient(chroot, "u", zookeeper_config=config):
                wait_until(lambda: owned("u") == {"0"}, "ours has the topic that it alone wants")
                of_topics = [f"{group}/{kind}{topic}" for kind in ("owners", "offsets") for topic in ("", "/t", "/u")]
                for parent in ("/consumers", group, f"{group}/ids", *of_topics):
                    both = old.transaction()
                    both.create(f"{parent}/new")
                    both.delete(f"{parent}/new")
                    assert both.commit() == [f"{parent}/new", True], parent
                for mine in (f"{group}/offsets/t/{free}", LEGACY.record("g")):
                    with pytest.raises(NoAuthError):
                        old.set(mine, b"7")
