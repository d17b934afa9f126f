"""migrating.md, "Rehearse it", as it is printed but for addresses: real servers, real old consumers."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.cli.servers import Servers
from tests.old_consumers.lab import V11, Lab
from tests.old_consumers.test_traffic import broker, create, send
from tests.pages import shell_block
from tests.waiting import wait_until
from zkcoord.embedded import EmbeddedKafka, EmbeddedZooKeeper

pytestmark = [pytest.mark.zookeeper, pytest.mark.kafka, pytest.mark.legacy, pytest.mark.long]

PATIENT = {"rebalance_backoff_ms": 2_000, "rebalance_max_retries": 4}  # the old defaults, as the file has them
ANSWERS = {"offsets": "zookeeper", "strategy": "range", "kafka": "1.1"}
OFFSETS = {"0": b"500", "1": b"700"}  # of production: the test broker's logs are shorter


@pytest.fixture
def production(chroot: str, tmp_path: Path) -> Iterator[Lab]:
    """A group of an old consumer that is registered, and has offsets."""
    (tmp_path / "production").mkdir()
    with Lab(chroot, tmp_path / "production", "etl") as lab:
        lab.broker()
        lab.topic("clicks", 2)
        for number, offset in OFFSETS.items():
            lab.zk.create(lab.path("offsets", "clicks", number), offset, makepath=True)
        lab.join("here", V11, "topics=clicks:1")
        wait_until(lambda: len(lab.owners()) == 2, "it owns both partitions")
        yield lab


def told(file: Path) -> None:
    """Fill in what the inventory could not see."""
    text = file.read_text("utf-8")
    for key, value in ANSWERS.items():
        text = re.sub(rf'(?m)^{key} = "\?"', f'{key} = "{value}"', text)
    assert '= "?"' not in text
    file.write_text(text, "utf-8")


def nodes(client: KazooClient, path: str) -> dict[str, tuple[bytes, int]]:
    """Everything below a path: data and version."""
    data, stat = client.get(path)
    found = {path: (data, stat.version)}
    for name in client.get_children(path):
        found |= nodes(client, f"{path}/{name}")
    return found


def offsets(lab: Lab) -> list[bytes]:
    """Those of both partitions."""
    return [lab.zk.get(lab.path("offsets", "clicks", number))[0] for number in OFFSETS]


def copy_offsets(lab: Lab, play: Callable[[str], object], backup: str, dry_run: str, restore: str) -> None:
    """The first block: production's offsets come, and nothing else."""
    play(backup)
    play(dry_run)
    assert not lab.zk.exists(lab.path())
    play(restore)
    assert offsets(lab) == list(OFFSETS.values())
    assert (lab.members(), lab.owners()) == (set(), {})


def test_the_rehearsal_goes_over_and_back_as_it_is_printed(
    production: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup, dry_run, restore = shell_block("migrating.md", "Rehearse it", 1)
    export, reset, inventory = shell_block("migrating.md", "Rehearse it", 2)
    coordinator, *adopt, consume, describe = shell_block("migrating.md", "Rehearse it", 3)
    release, uninstall = shell_block("migrating.md", "Rehearse it", 4)
    monkeypatch.chdir(tmp_path)
    with ExitStack() as stack:
        lab, kafka, servers = deployment(stack, tmp_path)
        places = {"zk1:2181/kafka": production.hosts, "test-zk:2181/kafka": servers.zookeeper}
        places |= {"test-broker:9092": kafka.bootstrap_servers}

        def play(line: str) -> list[str]:
            return servers.play(line, places)

        before = nodes(production.zk, "/consumers")
        copy_offsets(lab, play, backup, dry_run, restore)
        for name, value in re.findall(r"(ZKCOORD_\w+)=(\S+)", export):
            monkeypatch.setenv(name, places[value])
        create(lab, kafka, "clicks", 2)
        send(kafka, "clicks", 2, 10)
        play(reset)
        assert offsets(lab) == [b"0", b"0"]
        play(inventory)
        told(tmp_path / "groups.toml")

        old: list[Any] = [lab.join(name, V11, "topics=clicks:1", fetch=True, **PATIENT) for name in ("a", "b")]
        lab.await_owners({"clicks-0": "etl_a-0", "clicks-1": "etl_b-0"})
        serving = servers.begin(coordinator)
        wait_until(lambda: lab.zk.exists("/zkcoord/schema") is not None, "the tree is set up")
        for line in adopt:
            play(line)
        ours = servers.begin(consume)
        wait_until(lambda: len(lab.members()) == 3, "the consumer of zkcoord has joined")
        old[1].leave()
        wait_until(lambda: set(lab.owners().values()) > {"etl_a-0"} and len(lab.owners()) == 2, "it has b's share")
        assert sum("etl_" in line for line in play(describe)) >= 2
        send(kafka, "clicks", 2, 5)
        ours.line(having="clicks")
        wait_until(lambda: set(lab.owners().values()) != {"etl_a-0"}, "both kinds read")

        lab.join("c", V11, "topics=clicks:1", fetch=True, **PATIENT)
        ours.process.send_signal(signal.SIGTERM)
        assert ours.end() == 0
        lab.await_owners({"clicks-0": "etl_a-0", "clicks-1": "etl_c-0"})
        play(release)
        servers.end(serving)
        play(uninstall)
        assert not lab.zk.exists("/zkcoord")
        assert nodes(production.zk, "/consumers") == before
        lab.await_owners({"clicks-0": "etl_a-0", "clicks-1": "etl_c-0"})


def deployment(stack: ExitStack, folder: Path) -> tuple[Lab, EmbeddedKafka, Servers]:
    """Start ZooKeeper and an old broker in its chroot `/kafka`, without topics. They end with the stack."""
    hosts = stack.enter_context(EmbeddedZooKeeper(fsync=False)).hosts + "/kafka"
    _make_chroot(hosts)
    lab = stack.enter_context(Lab(hosts, folder, "etl"))
    kafka = stack.enter_context(broker(hosts, V11))
    return lab, kafka, Servers(hosts, kafka.bootstrap_servers, stack)


def _make_chroot(address: str) -> None:
    """Make the chroot itself, as the first broker does."""
    hosts, _, path = address.partition("/")
    client = KazooClient(hosts)
    client.start(60)
    client.ensure_path(f"/{path}")
    client.stop()
    client.close()
