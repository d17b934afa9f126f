"""Scenes of mixed groups: consumers of ours and old ones in one group, on one tree, with every rule of both checked."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Any

from tests.sim.actors import GROUP, ConsumerFactory, ProductActor, coordinator
from tests.sim.application import Application
from tests.sim.offset_log import Change, LogClient, LogFaults, OffsetLog
from tests.sim.old_scene import OldScene
from tests.sim.script import QUIET, ScriptWorld
from tests.sim.store_scene import PATIENCE_MS
from zkcoord.core.adoption import Adoption
from zkcoord.core.member.memory import Memory
from zkcoord.core.mode import Mode
from zkcoord.core.model import TopicPartition
from zkcoord.core.record import DEFAULT_RECORD
from zkcoord.member.role import MembershipRole
from zkcoord.shell.ports import Request
from zkcoord.tree.paths import LEGACY
from zkcoord.tree.record import decode_record, encode_record
from zkcoord.tree.state import decode_state
from zkcoord.tree.writes import ANY_VERSION, SetNode

TOPICS = {"t": 6}
CHECKPOINT_MS = 600_000  # rare: checkpoints of six partitions, one after the other, would leave no quiet moment
RECORD, STATE = LEGACY.record(GROUP), LEGACY.state(GROUP)
ADOPTION = Adoption(offsets="zookeeper", strategy="range", kafka="1.1", auto_commit_interval_ms=60_000)


class MixedScene(OldScene):
    """One adopted group. Old members are called `old...`, ours `consumer...`."""

    def __init__(
        self,
        seed: int,
        topics: Mapping[str, int] = TOPICS,
        *,
        coordinators: int = 1,
        adoption: Adoption | None = ADOPTION,
        options: Any = QUIET,
        world: ScriptWorld | None = None,
    ) -> None:
        """`adoption` None: the group is not adopted yet. `world`: an existing world to use instead of one made from the
        seed."""
        world = ScriptWorld(seed, options) if world is None else world
        world.layout = LEGACY
        super().__init__(world, topics)
        if adoption is not None:
            record = replace(DEFAULT_RECORD, adoption=adoption, store_name=adoption.store_name)
            world.ensemble.ensure(RECORD, encode_record(record))
        self.ours = ConsumerFactory(self.logs, dict.fromkeys(topics, 1), reset="earliest")
        self.all = {TopicPartition(topic, n) for topic, size in topics.items() for n in range(size)}
        for n in range(coordinators):
            world.spawn(f"coordinator{n}", partial(coordinator, layout=LEGACY))
        if not coordinators:  # make the tree as a coordinator makes it
            self.serve_for_a_moment()

    def serve_for_a_moment(self) -> None:
        """A coordinator creates the first nodes, and ends."""
        self.world.spawn("coordinator0", partial(coordinator, layout=LEGACY), restarts=False)
        self.world.run_until(lambda: self.world.ensemble.stat(LEGACY.coordinator) is not None, what="a coordinator")
        self.end("coordinator0")

    def end(self, name: str) -> None:
        """A process dies for good."""
        process = self.world.processes[name]
        process.restarts = False
        process.kill()

    def end_with_sessions(self, *names: str) -> None:
        """Processes with a registration die for good, and their sessions end at once."""
        sessions = [session for session in self.rules.registered.values() if session.process in names]
        assert len(sessions) == len(names)
        for name in names:
            self.end(name)
        for session in sessions:
            self.world.ensemble.end_session(session, "expire")

    def adopt(self, adoption: Adoption) -> None:
        """A tool writes the present settings of the old members into the record."""
        self.world.ensemble.operate(
            SetNode(RECORD, encode_record(replace(DEFAULT_RECORD, adoption=adoption)), ANY_VERSION)
        )

    def move_to(self, store: str) -> None:
        """A tool takes the next step, to this offset store."""
        record = decode_record(self.world.ensemble.data(RECORD) or b"")
        moved = replace(record, store_name=store, store_step=record.store_step + 1)
        self.world.ensemble.operate(SetNode(RECORD, encode_record(moved), ANY_VERSION))

    def keep_in_kafka(self, *, dual_commit: bool, faults: LogFaults | None = None) -> OffsetLog:
        """Offsets are kept in Kafka: old members keep theirs there, or in both stores, and ours can use Kafka, too."""
        self.old_offsets = {"offsets": "kafka", "dual_commit": dual_commit}
        self.log = log = OffsetLog(self.world, faults=faults)
        self.ours.commit_to(partial(LogClient, log=log), checkpoint_ms=CHECKPOINT_MS, patience_ms=PATIENCE_MS)
        log.on_change.append(self._changed)
        return log

    def _changed(self, change: Change) -> None:
        """Our commits name their tenure, and never an offset beyond what was processed."""
        if change.how == "old" and change.after is not None:
            self.rules.in_kafka.setdefault(change.partition, set()).add(change.after.offset)
        elif change.how == "commit" and change.after is not None:
            offset, covered = change.after.offset, self.rules.covered.get(change.partition)
            if change.after.stamp is None:
                self.world.fail(f"{change.client} commits {change.partition} without its tenure")
            if covered is not None and offset > covered:
                self.world.fail(f"{change.client} commits {change.partition} at {offset}, beyond {covered}")

    def start_coordinator(self, name: str = "coordinator0") -> None:
        """A coordinator starts."""
        self.world.spawn(name, partial(coordinator, layout=LEGACY))

    def start_ours(self, *names: str) -> None:
        """Consumers of ours start."""
        for name in names:
            self.world.spawn(name, self.ours)

    def stop_ours(self, name: str) -> None:
        """One is asked to leave."""
        process = self.world.processes[name]
        process.restarts = False
        process.inbox.put(Request("stop", None, Future()))

    def application(self, name: str) -> Application:
        """The application behind a consumer of ours."""
        found = self.world.processes[name].application
        assert isinstance(found, Application)
        return found

    def role(self, name: str) -> MembershipRole:
        """The membership of a consumer of ours."""
        actor = self.world.processes[name].actor
        assert isinstance(actor, ProductActor)
        assert isinstance(actor.role, MembershipRole)
        return actor.role

    def memory(self, name: str) -> Memory:
        """What a consumer of ours, which is registered, remembers between two steps."""
        registered = self.role(name).registered
        assert registered is not None
        return registered.memory

    def mode(self) -> Mode | None:
        """The mode that the coordinator has noted."""
        data = self.world.ensemble.data(STATE)
        return None if data is None else decode_state(data).mode

    def readers(self) -> dict[TopicPartition, str]:
        """Partition -> the process that reads it, as each process says."""
        found: dict[TopicPartition, str] = {}
        for name, process in self.world.processes.items():
            if not process.running:
                continue
            if name.startswith("old"):
                mine = set(self.member(name).reading)
            elif name.startswith("consumer"):
                application = self.application(name)
                mine = {p for p in self.all if p in application.positions and application.allowed(p)}
            else:
                continue
            for p in mine:
                found[p] = name if p not in found else f"{found[p]} and {name}"
        return found

    def shared(self, *names: str) -> bool:
        """True when these processes together own every partition by their claims, at least one each."""
        owners = {p: claim.session.process for p, claim in self.rules.claims.items()}
        return self.readers() == owners and owners.keys() == self.all and set(owners.values()) == set(names)

    def await_shared(self, *names: str) -> None:
        """Run until these processes share every partition."""
        self.world.run_until(lambda: self.shared(*names), what=f"shared by {', '.join(names)}")

    def commands(self) -> int:
        """How many commands have ever been written."""
        return sum(
            tried.applied and bool(tried.commands("start-fetcher") or tried.commands("stop-fetcher"))
            for tried in self.world.tried
        )

    def standing(self) -> list[str]:
        """The commands that are outstanding."""
        ensemble, channels = self.world.ensemble, LEGACY.channels_of(GROUP)
        return [command for c in ensemble.names(channels) for command in ensemble.names(f"{channels}/{c}")]
