"""Groups from store to store and to an ensemble of coordination's own, by the lines that the pages print: as they
stand, but for addresses. Topics come from Kafka 4 all the time."""

from __future__ import annotations

import json
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cli.group.test_hand_over_killed import Place
from tests.cli.group.test_hand_over_killed import Program as Reader
from tests.cli.servers import Servers
from tests.integration.brokers import servers_of
from tests.pages import shell_block
from tests.waiting import wait_until
from zkcoord.embedded import EmbeddedZooKeeper
from zkcoord.embedded.artifacts import KAFKA_4_VERSION
from zkcoord.shell.zk.blocking import Tree
from zkcoord.tree.writes import CreateNode, Transaction

pytestmark = [pytest.mark.zookeeper, pytest.mark.kafka, pytest.mark.long]

PARTITIONS, RECORDS = 2, 20
GROUPS = ("audit", "billing", "etl", "search")
OF_ALL, NAMED, OF_A_WAVE, OF_THE_REST = shell_block(
    "operations.md", "Moving groups to another chroot, layout or ensemble"
)
WAVES = "[groups.billing]\n\n[groups.search]\nwave = 2\n"


class Groups:
    """One topic, and the consumers of all groups of it, wherever their groups are coordinated."""

    def __init__(self, servers: Servers, stack: ExitStack, environment: pytest.MonkeyPatch) -> None:
        self._servers, self._stack, self._environment = servers, stack, environment
        self._written = 0
        self._readers: dict[str, list[Reader]] = {group: [] for group in GROUPS}
        environment.setenv("ZKCOORD_BOOTSTRAP_SERVERS", servers.kafka)

    def coordinate_in(self, zookeeper: str) -> None:
        """This is where programs find the tree from now on; a consumer of each group starts there."""
        self._environment.setenv("ZKCOORD_ZOOKEEPER", zookeeper)
        for group, readers in self._readers.items():
            words = ["--group", group, "--topic", "clicks", "--from-beginning", "--output", "json"]
            reader = Reader(["-m", "zkcoord_command", "consume", *words], _place)
            self._stack.callback(reader.end, signal.SIGKILL)
            readers.append(reader)

    def leave(self) -> None:
        """All consumers that run are asked to end."""
        for readers in self._readers.values():
            readers[-1].end(signal.SIGTERM)

    def read_more(self, what: str) -> None:
        """Write some more, and wait until each group has read all, each record once."""
        self._servers.produce(PARTITIONS, RECORDS)
        self._written += RECORDS // PARTITIONS
        everything = [(partition, offset) for partition in range(PARTITIONS) for offset in range(self._written)]
        wait_until(lambda: all(len(self._read(group)) >= len(everything) for group in GROUPS), what)
        assert {group: self._read(group) for group in GROUPS} == dict.fromkeys(GROUPS, everything), what

    def _read(self, group: str) -> list[Place]:
        return sorted(place for reader in self._readers[group] for place in list(reader.read))


def _place(line: str) -> Place:
    found = json.loads(line)
    return found["partition"], found["offset"]


def states(lines: list[str]) -> dict[str, str]:
    """Each group of a table that a command printed, and the last words of its line."""
    _, *rows = [line.split() for line in lines]
    return {row[0]: " ".join(row[4:]) for row in rows}


def create(hosts: str, path: str) -> str:
    """Make a chroot; returns the address with it."""
    with Tree(hosts) as tree:
        assert not tree.commit(Transaction(writes=(CreateNode(path),))).reason
    return hosts + path


def test_groups_change_stores_and_ensembles_by_the_lines_that_are_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "groups.toml"
    with (
        servers_of(KAFKA_4_VERSION, {}) as (zookeeper, kafka, _),
        EmbeddedZooKeeper(fsync=False) as another,
        ExitStack() as stack,
    ):
        here, there = create(zookeeper, "/coordination"), create(another.hosts, "/kafka")
        servers = Servers(zookeeper, kafka.bootstrap_servers, stack)
        servers.fill(PARTITIONS, 0)
        (line,) = shell_block("topics.md", "A new tree")
        old = servers.begin(line)
        old.line(having=f"ZooKeeper {here}")
        groups = Groups(servers, stack, monkeypatch)
        groups.coordinate_in(here)
        groups.read_more("a new tree has the topics of Kafka 4")

        planned, moved, in_waves = shell_block("offsets.md", "Moving a group from store to store")
        assert "would be moved" in "".join(servers.play(planned))
        assert "would be moved" in "".join(servers.play(moved + " --dry-run")), "the dry run has moved nothing"
        assert "moved" in "".join(servers.play(moved))
        printed = "\n".join(shell_block("offsets.md", "Moving a group from store to store", 2))
        file.write_text(f'{printed}\n[groups.audit]\nto = "dual"\n', "utf-8")
        (told,) = [row for row in servers.play(in_waves) if row.startswith(("audit", "etl"))]
        assert told.split()[:4] == ["audit", "zookeeper", "dual", "dual"]  # etl is of the second wave
        groups.read_more("groups in all stores read on")

        places = {"zk2:2181/kafka": there}
        assert states(servers.play(OF_ALL, places)) == dict.fromkeys(GROUPS, "would be moved")
        groups.read_more("after a dry run all read on here")
        assert states(servers.play(NAMED, places)) == {"audit": "moved", "etl": "moved"}
        file.write_text(WAVES, "utf-8")
        assert states(servers.play(OF_A_WAVE, places)) == {"billing": "moved"}
        assert states(servers.play(OF_THE_REST, places))["search"] == "moved"

        groups.leave()
        servers.end(old)
        monkeypatch.setenv("ZKCOORD_COORDINATOR_TOPICS", "kafka")
        servers.start("coordinator", "--zookeeper", there).line(having="serves")
        groups.coordinate_in(there)
        groups.read_more("all groups read on there")
