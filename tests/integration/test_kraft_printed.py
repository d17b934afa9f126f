"""The way to KRaft, to Kafka 4 and out of zkcoord, by the commands that pages and programs print: as they stand,
but for addresses."""

from __future__ import annotations

import json
import re
import shlex
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cli.group import kafkas_reader
from tests.cli.group.test_hand_over import NEW_PROTOCOL
from tests.cli.group.test_hand_over_killed import Place
from tests.cli.group.test_hand_over_killed import Program as Reader
from tests.cli.program import Program
from tests.cli.servers import BROKERS, Servers
from tests.integration.kraft_phases import Reads, end, follow
from tests.integration.kraft_scene import KRaftMove
from tests.pages import shell_block
from zkcoord.embedded.kafka_tools import kafka_tool

pytestmark = [pytest.mark.zookeeper, pytest.mark.kafka, pytest.mark.long]

OF_ANOTHER_SOURCE = 7  # the exit code of a coordinator that was started for it


class Member:
    """A program that prints what it reads, as a member of the group."""

    def __init__(self, program: Reader) -> None:
        self._program = program

    def offsets(self, number: int) -> list[int]:
        """What it has read of a partition."""
        return [offset for partition, offset in list(self._program.read) if partition == number]

    def leave(self) -> None:
        """Ask it to end."""
        self._program.end(signal.SIGTERM)


class Operator:
    """Types what is printed. Only the address of ZooKeeper is in the environment."""

    def __init__(self, scene: KRaftMove, stack: ExitStack, environment: pytest.MonkeyPatch) -> None:
        self.scene, self._stack, self._environment = scene, stack, environment
        self.servers = Servers(scene.zookeeper, scene.servers, stack)
        environment.delenv("ZKCOORD_BOOTSTRAP_SERVERS", raising=False)
        self.coordinate_in(scene.zookeeper)

    def coordinate_in(self, zookeeper: str) -> None:
        """This is where programs find the tree from now on."""
        self.servers.zookeeper = zookeeper
        self._environment.setenv("ZKCOORD_ZOOKEEPER", zookeeper)

    def _words(self, line: str, coordination: str) -> list[str]:
        return self.servers.words(line, {"HOST:PORT": self.scene.servers, "coord1:2181": coordination})

    def types(self, line: str, code: int = 0, coordination: str = "") -> str:
        """Run it to its end, which is one with this exit code; returns all that it printed."""
        program = Program(*self._words(line, coordination))
        try:
            printed = "\n".join([*program.rest(), *program.rest("stderr")])
            assert program.end() == code, printed
        finally:
            program.close()
        return printed

    def coordinator(self, line: str, coordination: str = "") -> Program:
        """Start it; returns when it serves."""
        program = Program(*self._words(line, coordination))
        self._stack.callback(program.close)
        program.line(having="serves")
        return program

    def ended(self, coordinator: Program) -> str:
        """What a coordinator said that ended because the source is another one."""
        assert coordinator.end() == OF_ANOTHER_SOURCE
        return "\n".join(coordinator.rest("stderr"))

    def consumer(self) -> Reads:
        """A consumer of zkcoord."""
        where = ["--bootstrap-servers", self.scene.servers, "--output", "json"]
        what = ["--group", self.scene.group, "--topic", self.scene.topic, "--from-beginning"]

        def place(line: str) -> Place:
            found = json.loads(line)
            return found["partition"], found["offset"]

        return self._member(Reader(["-m", "zkcoord_command", "consume", *what, *where], place))

    def kafkas(self) -> Reads:
        """A consumer of Kafka's new protocol."""
        words = [str(kafkas_reader.__file__), self.scene.servers, self.scene.group, self.scene.topic, NEW_PROTOCOL]
        return self._member(Reader(words, lambda line: (int(line.split()[0]), int(line.split()[1]))))

    def _member(self, program: Reader) -> Reads:
        self._stack.callback(program.end, signal.SIGKILL)
        return Member(program)

    def kafka(self, line: str) -> str:
        """Run a line of Kafka's own tools; returns what it printed."""
        program, *words = shlex.split(BROKERS.sub(self.scene.servers, line), comments=True)
        return kafka_tool(program.removesuffix(".sh"), *words)

    def told_to_switch(self) -> str:
        """The command that `group describe` names while brokers leave ZooKeeper."""
        (line,) = printed_in(self.types(f"zkcoord group describe {self.scene.group}"), "migrate topics")
        return line


def printed_in(text: str, verb: str) -> set[str]:
    """The command lines of a text that begin so."""
    return {line for line in re.findall(r"`(zkcoord [^`]+)`", text) if line.startswith(f"zkcoord {verb}")}


def switch_there_and_back_by_what_programs_print(operator: Operator, coordinator: Program) -> Program:
    """While both write to ZooKeeper. Returns the coordinator that serves at the end."""
    mend = operator.told_to_switch()
    (upgrade,) = printed_in(operator.types(mend, code=2), "migrate upgrade")
    operator.types(upgrade)
    after = operator.types(mend)
    said = operator.ended(coordinator)
    (options,) = re.findall(r"start it with (--topics kafka .+?), or run", said)
    assert f"start the coordinators with {options}" in after
    (back,) = printed_in(said, "migrate topics --to zookeeper")
    operator.types(back)
    return operator.coordinator("zkcoord coordinator")


def take_topics_from_kafka(operator: Operator, coordinator: Program) -> Program:
    """As the page of the move says it. Returns the coordinator that serves at the end."""
    lines = shell_block("kraft.md", "4 Take topics from Kafka")
    assert [line.partition("#")[0].rstrip() for line in lines] == shell_block(
        "topics.md", "An existing tree, before its brokers move"
    )
    for line in lines:
        operator.types(line)
    operator.ended(coordinator)
    (started,) = shell_block("topics.md", "An existing tree, before its brokers move", 2)
    return operator.coordinator(started)


def go_back_to_zookeeper(operator: Operator, coordinator: Program) -> Program:
    """Returns the coordinator that serves at the end."""
    (back,) = shell_block("kraft.md", "Back to ZooKeeper")
    operator.types(back)
    (options,) = re.findall(r"start it with (--topics zookeeper), or run", operator.ended(coordinator))
    return operator.coordinator(f"zkcoord coordinator {options}")


def test_the_way_to_kraft_to_kafka_4_and_out_again_works_as_it_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with KRaftMove(tmp_path) as scene, ExitStack() as stack:
        operator = Operator(scene, stack, monkeypatch)
        coordinator = operator.coordinator("zkcoord coordinator")
        readers = [operator.consumer(), operator.consumer()]
        scene.await_settled(len(readers))
        flow = scene.flow()

        scene.migrate()
        coordinator = switch_there_and_back_by_what_programs_print(operator, coordinator)
        scene.kraft_mode()
        operator.told_to_switch()
        coordinator = take_topics_from_kafka(operator, coordinator)
        follow(flow, readers, "topics come from Kafka")
        scene.give_up()
        coordinator = go_back_to_zookeeper(operator, coordinator)
        follow(flow, readers, "all is as before")

        scene.migrate()
        scene.kraft_mode()
        coordinator = take_topics_from_kafka(operator, coordinator)
        scene.finish()
        scene.remove("/brokers", "/controller", "/migration")
        describe, upgrade = shell_block("kraft.md", "6 Go to Kafka 4")
        assert "metadata.version" in operator.kafka(describe)
        scene.to_kafka_4()
        operator.kafka(upgrade)
        assert "FinalizedVersionLevel: 4.1" in operator.kafka(describe)
        follow(flow, readers, "Kafka 4 is read")

        new = scene.another_ensemble()
        there, move = shell_block("kraft.md", "7 Give coordination an ensemble of its own")
        operator.coordinator(there, new)
        operator.types(move, coordination=new)
        for reader in readers:
            reader.leave()
        operator.servers.end(coordinator)
        scene.old.stop()
        operator.coordinate_in(new)
        readers += [ours := operator.consumer()]
        follow(flow, readers, "coordination is in the new ensemble")

        monkeypatch.setenv("ZKCOORD_BOOTSTRAP_SERVERS", scene.servers)
        for line in shell_block("migrating.md", "Leave for Kafka's own group protocol"):
            operator.types(line)
        readers += [kafkas := operator.kafkas()]
        follow(flow, readers, "Kafka's consumer reads")
        kafkas.leave()
        for line in shell_block("migrating.md", "Leave for Kafka's own group protocol", 2):
            operator.types(line)
        follow(flow, readers, "zkcoord's consumer reads again")
        end(flow, readers)
        ours.leave()
