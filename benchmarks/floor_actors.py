"""The floor's two processes: a coordinator, and members with the session that makes events happen.

They follow a plan (`floor_plan`): the bytes that arrive select what is sent. They decide, parse and look up nothing,
except the names of children.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Sequence

from common import DEADLINE_S, GROUP, TOPIC, Client, Log, Result, now_ns, result
from floor_plan import Plan, Prepared, paths

from zkcoord.cli.coordinator import COLLECTOR, SWITCH_SECONDS
from zkcoord.tree.paths import DRAFT, TOPICS
from zkcoord.tree.registration import MARKER, Registration, encode_registration
from zkcoord.tree.snapshot import Kind, Node, Read
from zkcoord.tree.writes import CreateNode, DeleteNode, SetNode, Write

TOPIC_PATH = f"{TOPICS}/{TOPIC}"


class FloorCoordinator:
    """At the event it sends the first multis of the plan. At each release it sends the grants that follow it."""

    def __init__(self, connect: str) -> None:
        gc.set_threshold(*COLLECTOR)  # as the coordinator's command does
        sys.setswitchinterval(SWITCH_SECONDS)
        self._client = Client(connect)
        self._client.connected()
        self._plan = Plan()
        self._sent: set[str] = set()  # channels with a stop that the coordinator has not yet seen obeyed
        self._followed: set[str] = set()

    def follow(self, consumers: Sequence[str]) -> None:
        """Watch the members' list, their channels and the topic."""
        ids = Read(DRAFT.ids(GROUP), Kind.CHILDREN, True)
        self._client.watching[ids.path] = lambda _: self._client.read([ids], self._event)
        topic = Read(TOPIC_PATH, Kind.DATA, True)
        self._client.watching[topic.path] = lambda _: self._client.read([topic], self._event)
        self._client.nodes([ids, topic])
        for consumer in consumers:
            self.follow_channel(consumer)

    def follow_channel(self, consumer: str) -> None:
        """Watch one member's channel."""
        channel = paths(consumer).channel
        if channel in self._followed:
            return
        self._followed.add(channel)
        self._client.watching[channel] = lambda _: self._look(channel)
        self._client.nodes([Read(channel, Kind.CHILDREN, True)])

    def prepare(self, plan: Plan) -> None:
        """Take in the plan of the next event."""
        self._plan = plan
        self._sent = set(plan.releases)

    def command(self, writes: Sequence[Write]) -> int:
        """Send one command; return the time."""
        at_ns = now_ns()
        self._client.commit(writes)
        return at_ns

    def check(self) -> None:
        """Raise RuntimeError if a multi of the plan was refused."""
        self._client.check()

    def close(self) -> None:
        """End the session."""
        self._client.store.close()
        self._client.store.join(2_000)

    def _event(self, _nodes: tuple[Node, ...], _at_ns: int) -> None:
        first, self._plan.first = self._plan.first, []
        for writes in first:
            self._client.commit(writes)

    def _look(self, channel: str) -> None:
        """Handle a change of the channel: the first is the coordinator's own stop, the second the acknowledgement."""
        self._client.read([Read(channel, Kind.CHILDREN, True)], self._listed)

    def _listed(self, nodes: tuple[Node, ...], _at_ns: int) -> None:
        channel = nodes[0].path
        if channel in self._sent and not nodes[0].children and not self._plan.first:
            release = self._plan.releases[channel]
            self._sent.discard(channel)
            self._client.read(release.reads, lambda _nodes, _at: self._grant(release.grants))

    def _grant(self, grants: list[tuple[Write, ...]]) -> None:
        for writes in grants:
            self._client.commit(writes)
        if self._sent == {""}:  # a plan with one start: all sources have released
            self._sent.clear()
            self._grant(self._plan.releases[""].grants)


class FloorMember:
    """Drains its channel: the bytes of a command select the prepared answer."""

    def __init__(self, connect: str, consumer: str, log: Log) -> None:
        self.consumer, self.log = consumer, log
        self.client = Client(connect)
        self._paths = paths(consumer)
        self._seen: set[str] = set()
        self.answers: dict[bytes, Prepared] = {}

    def prepare(self) -> None:
        """Connect, create the channel and watch it."""
        self.client.connected()
        channel = self._paths.channel
        self.client.write(CreateNode(channel))
        self.client.watching[channel] = lambda _: self.client.read([Read(channel, Kind.CHILDREN, True)], self._listed)
        self.client.nodes([Read(channel, Kind.CHILDREN, True)])

    def join(self) -> int:
        """Register; returns the time of the reply."""
        registration = Registration(subscription={TOPIC: 1}, coordination=MARKER, assignors=("sticky",))
        self.log.joined(self.consumer)
        return self.client.write(
            SetNode(self._paths.channel, b"{}", 0),
            CreateNode(self._paths.registration, encode_registration(registration), ephemeral=True),
        )

    def _listed(self, nodes: tuple[Node, ...], _at_ns: int) -> None:
        new = [name for name in nodes[0].children if name not in self._seen]
        self._seen.update(new)
        if new:
            self.client.read([Read(f"{nodes[0].path}/{name}") for name in new], self._commands)

    def _commands(self, nodes: tuple[Node, ...], at_ns: int) -> None:
        for node in nodes:
            answer = self.answers[node.data]
            if not answer.partitions:
                self.log.seen(at_ns)
            if answer.stops:
                self.log.stop(self.consumer, answer.partitions, at_ns)
                self.client.commit((*answer.writes, DeleteNode(node.path, 0)))
            else:
                self.client.read(answer.reads, lambda _nodes, _at, path=node.path, a=answer: self._start(path, a))

    def _start(self, path: str, answer: Prepared) -> None:
        self.client.commit(
            (*answer.writes, DeleteNode(path, 0)),
            lambda at_ns: self.log.start(self.consumer, answer.partitions, at_ns),
        )


class FloorMembers:
    """The members' process."""

    def __init__(self, connect: str) -> None:
        self._connect = connect
        self.log = Log()
        self._members: dict[str, FloorMember] = {}
        self._events = Client(connect)
        self._events.connected()
        self._t0_ns = 0

    def make(self, consumers: Sequence[str]) -> None:
        """Connect these members; they do not register yet."""
        fresh = [FloorMember(self._connect, consumer, self.log) for consumer in consumers]
        for member in fresh:
            member.prepare()
            self._members[member.consumer] = member

    def register(self, consumers: Sequence[str]) -> None:
        """Register the members; the reply to the last one is the event."""
        for consumer in consumers:
            self._t0_ns = self._members[consumer].join()

    def prepare(self, plan: Plan) -> None:
        """Take in the answers to the commands of the next event."""
        self.log.begin()
        for consumer, answers in plan.answers.items():
            self._members[consumer].answers = answers

    def create(self, *writes: Write) -> None:
        """Create the topic; the reply to this multi is the event."""
        self._t0_ns = self._events.write(*writes)

    def kill(self, consumer: str) -> None:
        """End a member's session without leaving; the event is that its registration is gone."""
        gone = threading.Event()

        def fired(at_ns: int) -> None:
            self._t0_ns = at_ns
            self.log.died(consumer, at_ns)
            gone.set()

        path = paths(consumer).registration
        self._events.watching[path] = fired
        self._events.nodes([Read(path, Kind.DATA, True)])
        self._members.pop(consumer).client.store.close()
        if not gone.wait(DEADLINE_S):
            raise RuntimeError(f"{path} did not go away")

    def measured(self, members: int, partitions: int) -> Result:
        """Wait until all partitions are handed over; return the event's figures."""
        self.log.settled(members, partitions)
        for member in self._members.values():
            member.client.check()
        return result(self.log, self._t0_ns)

    def seen(self) -> int:
        """Wait for the command; return when it came."""
        return self.log.wait_seen()

    def close(self) -> None:
        """End all sessions."""
        stores = [self._events.store, *(member.client.store for member in self._members.values())]
        for store in stores:
            store.close()
        for store in stores:
            store.join(2_000)
