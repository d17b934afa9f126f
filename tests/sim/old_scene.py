"""Scenes with old members: a world with brokers, topics, and processes of any old version in one group."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from tests.sim.actors import GROUP, make_topics, topic_json
from tests.sim.application import Logs
from tests.sim.offset_log import OffsetLog
from tests.sim.old_member import OldMember, old_member
from tests.sim.old_rules import OldRules
from tests.sim.old_settings import OldSettings
from tests.sim.script import ScriptWorld
from zkcoord.core.model import TopicPartition
from zkcoord.shell.ports import Request
from zkcoord.tree.paths import BROKERS, TOPICS
from zkcoord.tree.writes import ANY_VERSION, CreateNode, DeleteNode, SetNode

BROKER = b'{"jmx_port":-1,"timestamp":"1416335000123","host":"127.0.0.1","version":1,"port":1}'
POKE = b'{"version":1,"subscription":{},"pattern":"static","timestamp":"1416335000123"}'


class OldScene:
    """One group of old members (`old...` by name). Every rule is checked from the start."""

    def __init__(self, world: ScriptWorld, topics: Mapping[str, int], *, brokers: int = 1) -> None:
        self.world = world
        world.reads_disturb = False
        make_topics(world, topics)
        for path in ("/consumers", *(f"/consumers/{GROUP}/{name}" for name in ("ids", "owners", "offsets"))):
            world.ensemble.ensure(path)
        for number in range(brokers):
            self.start_broker(number)
        self.logs = Logs(world)
        self.log: OffsetLog | None = None  # commits in Kafka, if there are any
        self.old_offsets: dict[str, Any] = {}  # the stores of old members' offsets
        self.rules = OldRules(world, GROUP)

    # -- members

    def start(self, name: str, *, restarts: bool = False, **settings: Any) -> OldMember:
        """Start a member and return at once."""
        told = OldSettings(**{**self.old_offsets, **settings})
        self.world.spawn(name, old_member(self.logs, told, self.log), restarts=restarts)
        return self.member(name)

    def join(self, *names: str, **settings: Any) -> None:
        """Start members and run until the group has settled."""
        for name in names:
            self.start(name, **settings)
        self.settle()

    def member(self, name: str) -> OldMember:
        """The member that runs in a process now."""
        actor = self.world.processes[name].actor
        assert isinstance(actor, OldMember)
        return actor

    def leave(self, name: str) -> None:
        """A member is shut down: it is asked, and runs until its session has ended."""
        self.ask_to_leave(name)
        self.world.run_until(lambda: self.member(name).left and self.registered(), what=f"{name} has left")

    def ask_to_leave(self, name: str) -> None:
        """Somebody sends SIGTERM to a member."""
        process = self.world.processes[name]
        if process.running:
            process.restarts = False
            process.inbox.put(Request("stop", None, Future()))

    # -- the tree

    def start_broker(self, number: int = 0) -> None:
        """A broker registers."""
        self.world.ensemble.operate(CreateNode(f"{BROKERS}/{number}", BROKER))

    def stop_broker(self, number: int = 0) -> None:
        """A broker is gone."""
        self.world.ensemble.operate(DeleteNode(f"{BROKERS}/{number}", ANY_VERSION))

    def write_topic(self, topic: str, partitions: int) -> None:
        """A broker writes a topic's node: unchanged, with more partitions, or new."""
        path, data = f"{TOPICS}/{topic}", topic_json(partitions)
        there = self.world.ensemble.stat(path) is not None
        self.world.ensemble.operate(SetNode(path, data, ANY_VERSION) if there else CreateNode(path, data))

    def poke(self) -> None:
        """An empty registration appears, stays for as long as one attempt lasts, and goes."""
        path = f"/consumers/{GROUP}/ids/{GROUP}_zpoke-1"
        self.world.ensemble.operate(CreateNode(path, POKE))
        self.world.at(self.world.now_ms + 20_000, lambda: self.world.ensemble.operate(DeleteNode(path, ANY_VERSION)))

    def forget(self, name: str, partition: TopicPartition) -> None:
        """An owner node appears that its member does not know of, as after claims that crossed an expiry."""
        session = self.world.processes[name].stores[0].session
        assert session is not None
        path = f"/consumers/{GROUP}/owners/{partition.topic}/{partition.partition}"
        claim = CreateNode(path, f"{self.member(name).consumer_id}-0".encode(), ephemeral=True)
        self.world.ensemble.submit(session, (DeleteNode(path, ANY_VERSION), claim))

    def owners(self) -> dict[str, str]:
        """`topic-partition` -> the process that owns it, by the owner node."""
        return {
            str(p): claim.thread.partition("_")[2].partition("-")[0] for p, claim in sorted(self.rules.claims.items())
        }

    def offset(self, partition: TopicPartition) -> int | None:
        """The group's offset in ZooKeeper; None when there is none."""
        data = self.world.ensemble.data(f"/consumers/{GROUP}/offsets/{partition.topic}/{partition.partition}")
        return None if data is None else int(data)

    # -- running

    def settled(self) -> bool:
        """True when every partition is owned and read by the member that the plan names."""
        planned, claims, members = self.rules.plan(), self.rules.claims, self.rules.members()
        if not all(member.settled for member in members.values()) or planned.keys() != claims.keys():
            return False
        return all(
            claims[p].thread == thread and p in members[thread.rpartition("-")[0]].reading
            for p, thread in planned.items()
        )

    def settle(self, what: str = "a settled group") -> None:
        """Run until the group has settled."""
        self.world.run_until(lambda: self.registered() and self.settled(), what=what)

    def registered(self) -> bool:
        """True when every running member that has not left is registered."""
        running = [p.actor for p in self.world.processes.values() if p.running and isinstance(p.actor, OldMember)]
        return len(self.rules.members()) == len([actor for actor in running if not actor.left])

    def calm(self, budget_steps: int = 60_000) -> None:
        """No more faults: everything must come to rest."""
        self.world.calm(budget_steps, quiet_ms=self.world.options.session_timeout_ms + 20_000)
