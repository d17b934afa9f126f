"""Many members over a few sessions. Each drains its own channel, and acknowledges with the multis of docs/protocol.md.

The members have no application, no offsets and no lease, so mainly the coordinator is measured. At a stop a member
reads all owners of the command in one request, and releases them with the versions that it has read.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from common import DEADLINE_S, Client, now_ns
from floor import topic

from zkcoord.core.command import Option
from zkcoord.core.model import TopicPartition
from zkcoord.tree.command import decode_command
from zkcoord.tree.paths import DRAFT, TOPICS
from zkcoord.tree.registration import MARKER, Registration, encode_registration
from zkcoord.tree.snapshot import Kind, Node, Read, parents
from zkcoord.tree.status import Status, encode_status
from zkcoord.tree.writes import CheckNode, CreateNode, DeleteNode, SetNode, Write

REGISTERED_AT_ONCE = 200
STATUS = encode_status(Status())


@dataclass(slots=True)
class _Member:
    """One registration, and the last content of its channel."""

    client: Client
    group: str
    consumer: str
    status_version: int = 1
    taken: frozenset[str] = frozenset()  # commands that were requested already

    @property
    def channel(self) -> str:
        """The path of its queue of commands."""
        return DRAFT.channel(self.group, self.consumer)


class Crowd:
    """The members' process."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._clients: list[Client] = []
        self._members: dict[str, _Member] = {}
        self._alone: list[_Member] = []  # members with a session of their own, which can be killed
        self._events = self._client()
        self._made = 0

    def _client(self) -> Client:
        client = Client(self._address)
        client.connected()
        self._clients.append(client)
        return client

    def register(self, group: str, count: int, subscription: dict[str, int], alone: bool = False) -> int:
        """Register this number of members of a group over one session; return when the last one was registered."""
        client = self._client()
        fresh = [_Member(client, group, f"{group}_h-1-{self._made + n:08x}") for n in range(count)]
        self._made += count
        data = encode_registration(
            Registration(subscription=subscription, coordination=MARKER, assignors=("sticky", "range"))
        )
        self._make_missing([*parents(DRAFT.ids(group)), DRAFT.ids(group), DRAFT.channels_of(group)])
        at_ns = 0
        for first in range(0, count, REGISTERED_AT_ONCE):
            part = fresh[first : first + REGISTERED_AT_ONCE]
            client.write(*(CreateNode(member.channel) for member in part))
            for member in part:
                self._members[member.channel] = member
                client.watching[member.channel] = lambda _, m=member: self._look(m)
            client.nodes([Read(member.channel, Kind.CHILDREN, True) for member in part])
            writes: list[Write] = []
            for member in part:
                path = DRAFT.registration(group, member.consumer)
                writes += [SetNode(member.channel, STATUS, 0), CreateNode(path, data, ephemeral=True)]
            at_ns = client.write(*writes)
        if alone:
            self._alone += fresh
        return at_ns

    def _make_missing(self, paths: Sequence[str]) -> None:
        nodes = self._events.nodes([Read(path) for path in paths])
        missing = [CreateNode(node.path) for node in nodes if not node.exists]
        if missing:
            self._events.write(*missing)

    def _look(self, member: _Member) -> None:
        member.client.read([Read(member.channel, Kind.CHILDREN, True)], lambda nodes, _: self._listed(member, nodes[0]))

    def _listed(self, member: _Member, node: Node) -> None:
        names = frozenset(name for name in node.children if name.isdigit())
        new, member.taken = sorted(names - member.taken), names
        if new:
            reads = [Read(f"{member.channel}/{name}") for name in new]
            member.client.read(reads, lambda nodes, _: self._obey(member, nodes))

    def _obey(self, member: _Member, nodes: Sequence[Node]) -> None:
        for node in nodes:
            if not node.exists:
                continue
            command = decode_command(node.data)
            partitions = sorted(command.ownership or {})
            if command.option is Option.STOP_FETCHER:
                reads = [Read(DRAFT.owner(member.group, partition)) for partition in partitions]
                member.client.read(reads, lambda owners, _, path=node.path: self._release(member, path, owners))
            else:
                self._acknowledge(member, node.path, [])

    def _release(self, member: _Member, path: str, owners: Sequence[Node]) -> None:
        mine = [o for o in owners if o.stat is not None and o.data.decode().startswith(f"{member.consumer}-")]
        self._acknowledge(member, path, [SetNode(o.path, b"", o.stat.version) for o in mine if o.stat is not None])

    def _acknowledge(self, member: _Member, path: str, released: Sequence[Write]) -> None:
        check = CheckNode(DRAFT.registration(member.group, member.consumer), 0)
        status = SetNode(member.channel, STATUS, member.status_version)
        member.status_version += 1
        member.client.commit([check, *released, DeleteNode(path, 0), status])

    def make_topics(self, topics: dict[str, int]) -> None:
        """Create these topics, each with this number of partitions."""
        self._make_missing([*parents(TOPICS), TOPICS])
        for name, count in topics.items():
            self._events.write(CreateNode(f"{TOPICS}/{name}", topic(count)))

    def kill(self) -> int:
        """End the session of a member that has one of its own; return when its registration was seen to be gone."""
        member = self._alone.pop()
        gone, at = threading.Event(), [0]

        def fired(at_ns: int) -> None:
            at[0] = at_ns
            gone.set()

        path = DRAFT.registration(member.group, member.consumer)
        self._events.watching[path] = fired
        self._events.nodes([Read(path, Kind.DATA, True)])
        del self._members[member.channel]
        member.client.store.close()
        if not gone.wait(DEADLINE_S):
            raise RuntimeError(f"{path} did not go away")
        return at[0]

    def owned(self, group: str, topics: dict[str, int]) -> tuple[int, int, int]:
        """Return the number of partitions with an owner, and the smallest and the largest number of a living member."""
        partitions = [TopicPartition(name, n) for name, count in topics.items() for n in range(count)]
        shares = {m.consumer: 0 for m in self._members.values() if m.group == group}
        total = 0
        for first in range(0, len(partitions), 5_000):
            reads = [Read(DRAFT.owner(group, partition)) for partition in partitions[first : first + 5_000]]
            for node in self._events.nodes(reads):
                consumer = node.data.decode().rpartition("-")[0]
                if consumer in shares:
                    total += 1
                    shares[consumer] += 1
        return total, min(shares.values()), max(shares.values())

    def gone(self, path: str) -> None:
        """Watch this node, and note when it goes."""
        self._gone_ns = 0
        self._gone = threading.Event()

        def fired(at_ns: int) -> None:
            self._gone_ns = at_ns
            self._gone.set()

        self._events.watching[path] = fired
        self._events.nodes([Read(path, Kind.DATA, True)])

    def gone_ns(self) -> int:
        """Return when the node that `gone` watches went."""
        if not self._gone.wait(DEADLINE_S):
            raise RuntimeError("it did not go away")
        return self._gone_ns

    def check(self) -> int:
        """Raise RuntimeError if a multi of a member was refused; return the present time."""
        for client in self._clients:
            client.check()
        return now_ns()

    def close(self) -> None:
        """End all sessions."""
        for client in self._clients:
            client.store.close()
        for client in self._clients:
            client.store.join(2_000)
