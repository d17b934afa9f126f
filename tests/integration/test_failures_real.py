"""Failure cases on a real ZooKeeper (docs/failures.md): a coordinator that stands still too long, a black hole."""

from __future__ import annotations

import logging
import signal
import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from tests.integration.processes import (
    COORDINATOR,
    GROUP,
    PARTITIONS,
    PATIENCE_SECONDS,
    READER,
    SESSION_MS,
    Event,
    Scene,
    judge,
    now_ms,
    share,
)
from tests.shell.zk_world import Proxy
from tests.waiting import wait_until
from zkcoord import Coordinator
from zkcoord.embedded import EmbeddedZooKeeper
from zkcoord.logs import EVENTS, plain
from zkcoord.operating.requesting import ask
from zkcoord.tree.paths import CANDIDATES, DRAFT, EPOCH
from zkcoord.tree.writes import ANY_VERSION, DeleteNode, SetNode

pytestmark = pytest.mark.zookeeper

MULTI = 14  # ZooKeeper's number of the request


def test_f01_a_coordinator_stopped_past_its_session_changes_nothing_when_it_goes_on(chroot: str) -> None:
    with Scene(chroot) as scene:
        old = scene.child(COORDINATOR, session_timeout_ms=3_000)
        assert old.wait("elected")["epoch"] == 1
        new = scene.child(COORDINATOR, session_timeout_ms=3_000)
        readers = [scene.child(READER), scene.child(READER)]
        wait_until(lambda: scene.names(CANDIDATES) == ["0", "1"], "a standby")
        wait_until(share(readers), "two share")
        old.signal(signal.SIGSTOP)
        stopped_ms = now_ms()
        readers.append(scene.child(READER))  # what the stopped one will find in its socket
        assert new.wait("elected")["epoch"] == 2
        wait_until(share(readers), "three share")
        wait_until(lambda: not scene.names(DRAFT.channel(GROUP, readers[2].of("registered")[0]["consumer"])), "rest")
        before = scene.group_tree()
        assert len(old.of("deposed", "session_lost")) == 0
        old.signal(signal.SIGCONT)
        resumed_ms = now_ms()
        assert resumed_ms - stopped_ms > 3_000
        old.wait("deposed")
        wait_until(lambda: scene.names(CANDIDATES) == ["0", "1"], "it stands by")
        assert scene.group_tree() == before
        assert old.of("elected", "start_sent", "stop_sent", "rebalance_started", since_ms=resumed_ms) == []
        assert (scene.data(EPOCH), scene.data(DRAFT.coordinator)) == (b"2", b"1")
        readers[2].close()
        wait_until(share(readers[:2]), "the new one goes on serving")
        assert scene.owners_are_members()
        assert scene.data(EPOCH) == b"2"
        judge(readers)


class HoldingProxy(Proxy):
    """A link that, once told to, holds back the client's first multi and all that follows it, until it is let go."""

    def __init__(self, target_port: int) -> None:
        self._holding = threading.Event()
        self._go_on = threading.Event()
        self.held = threading.Event()
        super().__init__(target_port)

    def hold_multis(self) -> None:
        """From now on."""
        self._holding.set()

    def let_go(self) -> None:
        """Deliver what was held."""
        self._holding.clear()
        self._go_on.set()

    def close(self) -> None:
        """End it."""
        self.let_go()
        super().close()

    def through(self, frame: bytes, sender: socket.socket, *, up: bool, first: bool) -> bytes | None:
        """Wait with a multi while it is held back."""
        if up and self._holding.is_set() and len(frame) > 8 and struct.unpack_from("!i", frame, 4)[0] == MULTI:
            self.held.set()
            self._go_on.wait(PATIENCE_SECONDS)
        return super().through(frame, sender, up=up, first=first)


class Reports(logging.Handler):
    """The events of this process."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Event] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep an event."""
        if hasattr(record, "zkcoord_event"):
            fields = plain(record.__dict__["zkcoord_fields"])
            self.events.append({"event": record.__dict__["zkcoord_event"], **fields})

    def of(self, name: str) -> list[Event]:
        """The events of this name."""
        return [event for event in list(self.events) if event["event"] == name]


@pytest.fixture
def reports() -> Iterator[Reports]:
    """What this process reports meanwhile."""
    handler, level = Reports(), EVENTS.level
    EVENTS.setLevel(logging.INFO)
    EVENTS.addHandler(handler)
    yield handler
    EVENTS.removeHandler(handler)
    EVENTS.setLevel(level)


def test_f01_the_server_refuses_a_deposed_coordinators_late_writes(
    zookeeper: EmbeddedZooKeeper, chroot: str, reports: Reports
) -> None:
    """Its session is alive all the time; the epoch has moved on, and so has the state that the next one wrote."""
    port = int(zookeeper.hosts.rpartition(":")[2])
    with Scene(chroot) as scene, HoldingProxy(port) as link:
        old = Coordinator(link.hosts + chroot.removeprefix(zookeeper.hosts), 0, session_timeout_ms=30_000)
        old.start()
        scene.stack.callback(old.stop)
        wait_until(lambda: reports.of("elected"), "the first is elected")
        new = Coordinator(chroot, 1)
        new.start()
        scene.stack.callback(new.stop)
        readers = [scene.child(READER)]
        wait_until(share(readers), "one reads everything")
        wait_until(lambda: scene.names(CANDIDATES) == ["0", "1"], "a standby")
        link.hold_multis()
        readers.append(scene.child(READER))
        assert link.held.wait(PATIENCE_SECONDS)
        scene.write(DeleteNode(DRAFT.coordinator, 0))
        wait_until(lambda: len(reports.of("elected")) == 2, "the other is elected")
        wait_until(share(readers), "it serves")
        wait_until(lambda: not scene.names(DRAFT.channel(GROUP, readers[1].of("registered")[0]["consumer"])), "rest")
        before = scene.group_tree()
        link.let_go()
        wait_until(lambda: reports.of("deposed"), "the first learns it")
        wait_until(lambda: scene.names(CANDIDATES) == ["0", "1"], "it stands by")
        assert scene.group_tree() == before
        (deposed,) = reports.of("deposed")
        assert (deposed["coordinator"], deposed["epoch"]) == (0, 1)
        assert [event["coordinator"] for event in reports.of("elected")] == [0, 1]
        assert scene.data(EPOCH) == b"2"
        judge(readers)


def test_f01_a_term_ends_with_the_first_write_after_another_one_raised_the_epoch(chroot: str, reports: Reports) -> None:
    """Its session and its node stand, record and state are as it read them: the check of the epoch alone refuses it."""
    with Scene(chroot) as scene:
        coordinator = Coordinator(chroot)
        coordinator.start()
        scene.stack.callback(coordinator.stop)
        readers = [scene.child(READER)]
        wait_until(share(readers), "one reads everything")
        scene.write(SetNode(EPOCH, b"7", 1))
        readers.append(scene.child(READER))
        wait_until(lambda: reports.of("deposed"), "its first write is refused")
        assert "the epoch is not this coordinator's any more" in reports.of("deposed")[0]["why"]
        wait_until(share(readers), "elected again it serves")
        assert [event["epoch"] for event in reports.of("elected")] == [1, 8]
        judge(readers)


def test_f15_a_consumer_in_a_black_hole_stops_reading_before_another_begins(
    zookeeper: EmbeddedZooKeeper, chroot: str
) -> None:
    """Its connection to ZooKeeper stays open and swallows everything, both ways; it is told nothing."""
    port = int(zookeeper.hosts.rpartition(":")[2])
    with Scene(chroot) as scene, Proxy(port) as link:
        coordinator = Coordinator(chroot)
        coordinator.start()
        scene.stack.callback(coordinator.stop)
        cut = scene.child(READER, link.hosts + chroot.removeprefix(zookeeper.hosts))
        other = scene.child(READER)
        wait_until(share([cut, other]), "two share")
        consumer, mine = cut.of("registered")[0]["consumer"], cut.reads()
        assert link.connections == 1
        begun_ms = now_ms()
        link.stall()
        black_ms = now_ms()
        lost = cut.wait("fetch_lost")
        lease_ms = max(event["lease_until_mono_ms"] for event in cut.of("lease_extended"))
        # its session stands, a third of its timeout longer than its lease: nobody else can have begun
        assert consumer in scene.names(DRAFT.ids(GROUP)) or now_ms() > lease_ms + SESSION_MS // 3
        assert set(lost["partitions"]) == mine
        wait_until(lambda: consumer not in scene.names(DRAFT.ids(GROUP)), "its session ends")
        wait_until(lambda: len(other.reads()) == PARTITIONS, "the other one reads everything")
        last_ms = max(event["mono_ms"] for event in cut.of("fetched"))
        taken_ms = min(e["mono_ms"] for e in other.of("fetched", since_ms=black_ms) if e["partition"] in mine)
        # it did read on; where the link stood still before, it had less of its lease left
        assert last_ms > min(begun_ms, lease_ms - SESSION_MS // 3) + SESSION_MS // 6
        assert last_ms <= black_ms + SESSION_MS * 2 // 3 + 100
        assert last_ms < taken_ms
        judge([cut, other])
        link.flow()
        link.cut()
        wait_until(share([cut, other]), "it comes back under a new name")
        assert len({event["consumer"] for event in cut.of("registered")}) == 2
        judge([cut, other])


@pytest.mark.parametrize("sees", [True, False], ids=["served_on", "another_serves"])
def test_f98_an_owner_that_is_set_empty_under_its_reader_has_one_reader_all_the_time(chroot: str, sees: bool) -> None:
    """Its readers commit nothing, so that no refused commit tells them. Another coordinator never saw the owners."""
    with Scene(chroot) as scene:
        coordinator = scene.child(COORDINATOR, session_timeout_ms=12_000)
        readers = [scene.child(READER), scene.child(READER)]
        wait_until(share(readers), "two share")
        if sees:
            coordinator.signal(signal.SIGSTOP)
        else:
            coordinator.close()
            wait_until(lambda: not scene.names(CANDIDATES), "nobody serves")
        scene.write(*(SetNode(f"{DRAFT.owners(GROUP)}/t/{n}", b"", ANY_VERSION) for n in range(PARTITIONS)))
        readers.append(scene.child(READER))
        readers[2].wait("registered")
        if sees:
            ask(scene.tree, DRAFT, GROUP, "rebalance")
            coordinator.signal(signal.SIGCONT)
        else:
            scene.child(COORDINATOR)
        wait_until(scene.owners_are_members, "everything is given anew")
        wait_until(share(readers), "three share")
        judge(readers)
