"""The product's two kinds of processes: coordinators, and real consumers with the session that makes events happen.

The figures come from the programs' own logs and callbacks. The store is wrapped only to see the reply to a
registration, to count syncs, and to end a session without leaving.
"""

from __future__ import annotations

import gc
import logging
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from common import DEADLINE_S, GROUP, SESSION_TIMEOUT_MS, TOPIC, Client, Log, Pings, Result, now_ns, result

import zkcoord.consumer
from zkcoord import Consumer, Coordinator
from zkcoord.cli.coordinator import COLLECTOR, SWITCH_SECONDS
from zkcoord.core.command import Command, Option
from zkcoord.core.model import TopicPartition
from zkcoord.logs import EVENTS
from zkcoord.shell.ports import CommitDone, StoreInput, TreeStore
from zkcoord.shell.zk.store import KazooSessions, zookeeper_sessions
from zkcoord.tree.command import encode_command
from zkcoord.tree.paths import EPOCH, layout_named
from zkcoord.tree.snapshot import Kind, Read
from zkcoord.tree.writes import CheckNode, CreateNode, Transaction, Write

Positions = Mapping[TopicPartition, int]


class Seen(logging.Handler):
    """Calls a function with every event of the product's log, and the time."""

    def __init__(self, take: Callable[[int, str, Mapping[str, Any]], None], level: int = logging.INFO) -> None:
        super().__init__()
        self._take = take
        EVENTS.setLevel(level)
        EVENTS.propagate = False
        EVENTS.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """One event."""
        self._take(now_ns(), record.__dict__["zkcoord_event"], record.__dict__["zkcoord_fields"])


class Sessions:
    """A store factory that remembers its last store, counts syncs, and sees the reply to the registration."""

    def __init__(self, inner: KazooSessions) -> None:
        self._inner = inner
        self.store: Any = None
        self.syncs = 0
        self.joined_ns = 0

    @property
    def told(self) -> Callable[[bool], None]:
        """Do as `KazooSessions.told` does."""
        return self._inner.told

    @told.setter
    def told(self, told: Callable[[bool], None]) -> None:
        self._inner.told = told

    def __call__(self, sink: Callable[[StoreInput], None]) -> TreeStore:
        """Open a session."""
        join_token: list[int] = []

        def take(item: StoreInput) -> None:
            if join_token and isinstance(item, CommitDone) and item.token == join_token[0]:
                self.joined_ns = now_ns()
                join_token.clear()
            sink(item)

        store: Any = self._inner(take)
        commit, sync = store.commit, store.sync

        def committing(token: int, transaction: Transaction) -> None:
            if transaction.why == "join":
                join_token.append(token)
            commit(token, transaction)

        def syncing(token: int) -> None:
            self.syncs += 1
            sync(token)

        store.commit, store.sync = committing, syncing
        self.store = store
        return store


class Member:
    """One real consumer. Its callbacks only move each offset by one."""

    def __init__(self, address: str, log: Log) -> None:
        self._log = log
        made: list[Sessions] = []

        def recorded(connect: str, **settings: Any) -> Sessions:
            made.append(Sessions(zookeeper_sessions(connect, **settings)))
            return made[0]

        zkcoord.consumer.zookeeper_sessions = recorded
        self._positions: dict[TopicPartition, int] = {}
        self.consumer = Consumer(
            address,
            GROUP,
            [TOPIC],
            on_start=self._positions.update,
            on_stop=self._stop,
            on_lost=lambda partitions: None,
            reset=lambda partitions: dict.fromkeys(partitions, 0),
            session_timeout_ms=SESSION_TIMEOUT_MS,
        )
        self.sessions = made[0]

    def _stop(self, partitions: tuple[TopicPartition, ...]) -> Positions:
        self._log.seen(now_ns())
        finals = {partition: self._positions[partition] + 1 for partition in partitions}
        self._log.stop(str(self.consumer.consumer_id), partitions, now_ns())
        return finals


class Members:
    """The members' process."""

    def __init__(self, address: str, layout: str) -> None:
        self._address, self._layout = address, layout_named(layout)
        self._pings = Pings()
        self.log = Log()
        self._members: list[Member] = []
        self._syncs = 0  # syncs of members that are gone
        self._events = Client(address)
        self._events.connected()
        self._t0_ns = 0
        self.lost: list[str] = []
        Seen(self._take)

    def _take(self, at_ns: int, event: str, fields: Mapping[str, Any]) -> None:
        match event:
            case "registered":
                self.log.joined(fields["consumer"])
            case "fetch_started":
                self.log.start(fields["consumer"], fields["offsets"], at_ns)
            case "session_lost" | "fetch_lost" | "start_refused" | "stop_failed" | "foreign_offset":
                self.lost.append(f"{event} {dict(fields)}")

    def join(self, count: int) -> None:
        """Start this number of further consumers; the event is the reply to the last registration."""
        self.log.begin()
        target = len(self.log.loads) + count
        fresh = [Member(self._address, self.log) for _ in range(count)]
        self._members += fresh
        for member in fresh:
            member.consumer.start()
        self.log.wait_members(target)
        self._t0_ns = max(member.sessions.joined_ns for member in fresh)

    def create(self, *writes: Write) -> None:
        """Create the topic; the reply to this multi is the event."""
        self.log.begin()
        self._t0_ns = self._events.write(*writes)

    def kill(self) -> None:
        """End the oldest member's session without leaving; the event is that its registration is gone."""
        self.log.begin()
        victim = self._members.pop(0)
        self._syncs += victim.sessions.syncs
        gone = self._closing(victim)
        gone()

    def kill_after_coordinator(self) -> None:
        """Watch the coordinator's node. When it is gone (the event), end the oldest member's session at once."""
        self.log.begin()
        victim = self._members.pop(0)
        self._syncs += victim.sessions.syncs
        gone = self._closing(victim, event=False)
        self._coordinator_gone = threading.Event()

        def fired(at_ns: int) -> None:
            if not self._coordinator_gone.is_set():
                self._t0_ns = at_ns
                victim.sessions.store.close()
                self._coordinator_gone.set()

        self._victim_gone = gone
        self._events.watching[self._layout.coordinator] = fired
        self._events.nodes([Read(self._layout.coordinator, Kind.DATA, True)])

    def coordinator_is_gone(self) -> None:
        """Wait until the node that `kill_after_coordinator` watches is gone."""
        if not self._coordinator_gone.wait(DEADLINE_S):
            raise RuntimeError("the coordinator's node did not go away")
        self._victim_gone()

    def _closing(self, victim: Member, *, event: bool = True) -> Callable[[], None]:
        consumer = str(victim.consumer.consumer_id)
        path = self._layout.registration(GROUP, consumer)
        gone = threading.Event()

        def fired(at_ns: int) -> None:
            if event:
                self._t0_ns = at_ns
            self.log.died(consumer, at_ns)
            gone.set()

        def wait() -> None:
            if event:
                victim.sessions.store.close()
            if not gone.wait(DEADLINE_S):
                raise RuntimeError(f"{path} did not go away")

        self._events.watching[path] = fired
        self._events.nodes([Read(path, Kind.DATA, True)])
        return wait

    def measured(self, members: int, partitions: int) -> tuple[Result, int]:
        """Wait until all partitions are handed over; return the event's figures, and when the last start was
        acknowledged.
        """
        self.log.settled(members, partitions)
        if self.lost:
            raise RuntimeError(f"unexpected: {self.lost[0]}")
        return result(self.log, self._t0_ns), self._t0_ns

    def apart(self) -> int:
        """Pings and lease syncs so far."""
        return self._pings.count + self._syncs + sum(member.sessions.syncs for member in self._members)

    def someone(self) -> tuple[str, TopicPartition]:
        """Return a member and a partition that it holds. From now on a command for it is noted (`seen`)."""
        self.log.begin()
        partition, consumer = min(self.log.held.items())
        return consumer, partition

    def seen(self) -> int:
        """Wait for the command; return when the application was told to stop."""
        return self.log.wait_seen()

    def close(self) -> None:
        """End all sessions, without leaving."""
        stores = [self._events.store, *(member.sessions.store for member in self._members)]
        for store in stores:
            store.close()
        for store in stores:
            store.join(2_000)


class OneCoordinator:
    """A coordinator's process."""

    def __init__(self, address: str, layout: str) -> None:
        self._layout = layout_named(layout)
        gc.set_threshold(*COLLECTOR)  # as the coordinator's command does
        sys.setswitchinterval(SWITCH_SECONDS)
        self._pings = Pings()
        self._changed = threading.Condition()
        self._stable_ns = 0
        self._phase = ""
        self._serving = threading.Event()
        self._client = Client(address)
        self._client.connected()
        Seen(self._take, logging.DEBUG)  # DEBUG also shows the phases in which groups are found
        self._coordinator = Coordinator(
            address,
            layout=layout,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            on_serving=lambda _id, _epoch: self._serving.set(),
        )
        self._coordinator.start()

    def _take(self, at_ns: int, event: str, fields: Mapping[str, Any]) -> None:
        if event in ("rebalance_stable", "group_phase"):
            with self._changed:
                self._phase = fields["state"]
                self._stable_ns = at_ns
                self._changed.notify_all()

    def serving(self) -> None:
        """Wait until it was elected."""
        if not self._serving.wait(DEADLINE_S):
            raise RuntimeError(f"the coordinator was not elected: {self._coordinator.error}")

    def standing(self, candidates: int) -> None:
        """Wait until this number of coordinators stands for election."""

        def waiting() -> bool:
            path = "/zkcoord/coordinators"
            return len(self._client.nodes([Read(path, Kind.CHILDREN)])[0].children) >= candidates

        with self._changed:
            end_ns = now_ns() + int(DEADLINE_S * 1e9)
            while not waiting():
                if now_ns() > end_ns:
                    raise RuntimeError("the standby does not stand")
                self._changed.wait(0.02)

    def stable(self, since_ns: int) -> int:
        """Wait until the group is Stable after this moment; return when it became so."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._phase == "Stable" and self._stable_ns > since_ns, DEADLINE_S):
                raise RuntimeError(f"the group is {self._phase or 'unknown'}")
            return self._stable_ns

    def command(self, consumer: str, partition: TopicPartition) -> int:
        """Send a stop of one partition that no rebalance needs, as a coordinator would; return when it was sent."""
        reads = [Read(path) for path in (EPOCH, self._layout.record(GROUP), self._layout.state(GROUP))]
        checks = [CheckNode(n.path, n.stat.version) for n in self._client.nodes(reads) if n.stat is not None]
        data = encode_command(Command(option=Option.STOP_FETCHER, ownership={partition: ""}, generation=1, epoch=1))
        role: Any = self._coordinator._driver.loop._role  # otherwise it does not expect a release
        role._groups[GROUP].channels.sent(consumer, [partition])
        writes: Sequence[Write] = [*checks, CreateNode(self._layout.channel(GROUP, consumer), data, sequential=True)]
        at_ns = now_ns()
        self._client.commit(writes)
        return at_ns

    def pings(self) -> int:
        """Pings so far."""
        return self._pings.count

    def stop(self) -> None:
        """Stop the coordinator; its node goes at once."""
        self._coordinator.stop()

    def close(self) -> None:
        """End the sessions."""
        self._coordinator.stop()
        self._client.store.close()
        self._client.store.join(2_000)
