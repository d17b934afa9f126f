"""The embedded servers of a move to KRaft have the files that docs/kraft.md has people write, but for addresses."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from tests.pages import shell_block
from tests.waiting import listens, wait_until
from zkcoord.embedded import EmbeddedController, EmbeddedKRaft
from zkcoord.embedded.artifacts import KAFKA_VERSION, kafka_jars
from zkcoord.embedded.java import find_java
from zkcoord.embedded.kafka import MAIN
from zkcoord.embedded.kafka_tools import run_tool
from zkcoord.embedded.kraft import CONTROLLER_ID, voter
from zkcoord.embedded.server import LOOPBACK, free_ports

PORT = 9093
HOST = re.compile(r"controller\d:")
OF_SMALL_MACHINES = {"num.network.threads", "num.io.threads"}


def settings(lines: Iterable[str]) -> dict[str, object]:
    """A file's settings, addresses on the loopback; those with commas as a set."""
    found: dict[str, object] = {}
    for line in lines:
        key, _, value = HOST.sub("127.0.0.1:", line.partition(" #")[0].strip()).partition("=")
        found[key] = frozenset(value.split(",")) if "," in value else value
    return found


def settings_of(configured: Mapping[str, str]) -> dict[str, object]:
    return settings(f"{key}={value}" for key, value in configured.items())


def test_controllers_and_brokers_that_move_have_the_files_of_the_page(tmp_path: Path) -> None:
    voters = ",".join(voter(CONTROLLER_ID + n, PORT) for n in range(3))
    how = {"port": PORT, "version": KAFKA_VERSION}
    controller = EmbeddedController("id", tmp_path, voters=voters, migrate_from="zk1:2181", **how)  # type: ignore[arg-type]
    broker = EmbeddedKRaft(tmp_path, controller=controller, version=KAFKA_VERSION)

    its_own = settings(controller.configuration().splitlines())
    printed = settings(shell_block("kraft.md", "1 Start the controllers", 2))
    assert printed.keys() == its_own.keys() - OF_SMALL_MACHINES | {"log.dirs"}
    assert {**printed, "log.dirs": its_own["log.dirs"]}.items() <= its_own.items()
    beside = settings(shell_block("kraft.md", "2 Restart the brokers for the migration"))
    assert beside == settings_of(controller.migrating())
    alone = settings(shell_block("kraft.md", "3 Restart the brokers without ZooKeeper"))
    assert alone.items() <= settings(broker.configuration().splitlines()).items()


@pytest.mark.zookeeper
@pytest.mark.kafka
def test_a_controller_starts_by_the_lines_and_the_file_of_the_page(chroot: str, tmp_path: Path) -> None:
    """The first of three: it listens, and waits for the other two."""
    ports = free_ports(3)
    places = {f"controller{n + 1}:{PORT}": f"{LOOPBACK}:{port}" for n, port in enumerate(ports)}
    places |= {"zk1:2181": chroot, "/var/lib/kafka/controller": str(tmp_path / "data")}
    text = "\n".join(shell_block("kraft.md", "1 Start the controllers", 2))
    for word, instead in places.items():
        text = text.replace(word, instead)
    file = tmp_path / "controller.properties"
    file.write_text(text, "utf-8")
    format_, start = (line.split() for line in shell_block("kraft.md", "1 Start the controllers"))
    assert (format_[0], start[0]) == ("kafka-storage.sh", "kafka-server-start.sh")

    here = {"CLUSTER-ID": "4L6g3nShT-eMCtK--X86sw", file.name: str(file)}
    told = run_tool("kafka-storage", *(here.get(word, word) for word in format_[1:]), version=KAFKA_VERSION)
    assert told.returncode == 0, told.stdout + told.stderr
    command = find_java().command(MAIN, kafka_jars(KAFKA_VERSION), *(here[word] for word in start[1:]), heap="256m")
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
        try:
            wait_until(lambda: listens(ports[0]) or running.poll() is not None, "it listens")
            assert running.poll() is None
        finally:
            running.kill()
