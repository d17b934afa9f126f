"""The product's real loops as actors of the simulated world, and groups of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from tests.sim.application import Application, Logs
from tests.sim.process import SimProcess
from tests.sim.world import World
from zkcoord.core.assignors import ASSIGNORS, Assignor
from zkcoord.core.model import TopicPartition
from zkcoord.core.offset_store import STORES
from zkcoord.core.view import OFFSET_STORE
from zkcoord.member.role import MemberSettings, MembershipRole
from zkcoord.migrate import first_revision_reads, first_revision_writes, served
from zkcoord.serving.asker import Asker
from zkcoord.serving.role import CoordinatorRole
from zkcoord.shell.journal.recorder import Pages, make_loop
from zkcoord.shell.loop import Loop
from zkcoord.shell.ports import Callbacks
from zkcoord.tree.decoders import wildcard_of
from zkcoord.tree.paths import BROKERS, TOPICS, Layout
from zkcoord.tree.registration import MARKER, Registration, encode_registration

GROUP = "g"


class ProductActor:
    """A loop with its role. Outside of the simulated world this is a driver thread."""

    def __init__(self, loop: Loop, role: Any) -> None:
        self.loop, self.role = loop, role
        self.step = loop.step


def coordinator(
    process: SimProcess,
    pages: Pages | None = None,
    layout: Layout | None = None,
    assignors: Mapping[str, Assignor] = ASSIGNORS,
    description: bytes | None = None,
    kafka: Callbacks | None = None,
    **settings: Any,
) -> ProductActor:
    """A coordinator's process. With `pages` it keeps a journal there. `description` is the data of its candidate's
    node. `kafka` answers its questions about topics."""
    layout = layout or process.world.layout
    given = {
        "wanted_id": None,
        "description": description or json.dumps({"host": process.client}).encode(),
        "first_reads": first_revision_reads(layout.name),
        "first_writes": partial(first_revision_writes, layout_name=layout.name, tree_id="5e0b", topics=layout.source),
        "revisions": served(),
    }

    def events(name: str, fields: Mapping[str, Any]) -> None:
        process.world.trace(process.client, name, fields)

    loop, told, step, calls = make_loop(pages, process.open_session, process.inbox.put, events, kafka)
    asker = None if calls is None else Asker(calls)
    role = CoordinatorRole(loop, layout, given, told, assignors, asker=asker, **settings)
    loop.run_role(role, told)
    actor = ProductActor(loop, role)
    actor.step = step
    return actor


class ConsumerFactory:
    """Makes consumers of one group; each incarnation of a process has consumer ids of its own."""

    def __init__(
        self,
        logs: Logs,
        topics: Mapping[str, int],
        group: str = GROUP,
        *,
        rebalance_timeout_ms: int = 8_000,
        reset: str = "latest",
        assignors: Sequence[str] = ("sticky", "range"),
        pattern: str = "static",
    ) -> None:
        self._logs, self._topics, self._group = logs, dict(topics), group
        self.reset = reset  # reset policy of consumers that start from now on
        self._rebalance_timeout_ms, self._assignors = rebalance_timeout_ms, tuple(assignors)
        self._pattern = pattern
        self.wall_offset_ms = 0  # offset of the machine's wall clock; nothing may depend on it
        self._fields: dict[str, Any] = {"offers": frozenset({"ping"})}
        self._application: type[Application] = Application
        self._log: Callable[[SimProcess], Callbacks] | None = None
        self._in_kafka: dict[str, int] = {}

    def registers(self, **fields: Any) -> None:
        """Consumers that start from now on register with these fields, too."""
        self._fields |= fields

    def run(self, application: type[Application]) -> None:
        """Consumers that start from now on have such an application."""
        self._application = application

    def announce(self, application: type[Application]) -> None:
        """Consumers that start from now on take announced ranges, and have such an application."""
        self.run(application)
        self.registers(offers=self._fields["offers"] | {"replay"})

    def commit_to(self, log: Callable[[SimProcess], Callbacks], checkpoint_ms: int, patience_ms: int) -> None:
        """Consumers that start from now on can keep offsets in Kafka: `log` makes their connection, the times are those
        of `MemberSettings`."""
        self._log, self._in_kafka = log, {"checkpoint_ms": checkpoint_ms, "log_patience_ms": patience_ms}
        self.registers(offers=self._fields["offers"] | {OFFSET_STORE}, offsets=STORES)

    def are_static(self, hold_ms: int) -> None:
        """Consumers that start from now on are static members; the instance is the process's name unless another one
        was named."""
        self._fields = {"instance": None, **self._fields, "hold_ms": hold_ms}

    def __call__(self, process: SimProcess) -> ProductActor:
        """A consumer's process."""
        world, fields = process.world, dict(self._fields)
        subscription = fields.pop("subscription", self._topics)
        if fields.get("hold_ms"):
            fields["instance"] = fields["instance"] or process.name

        def registration(session_timeout_ms: int) -> bytes:
            return encode_registration(
                Registration(
                    subscription=subscription,
                    pattern=self._pattern,
                    timestamp=str(world.now_ms + self.wall_offset_ms),
                    coordination=MARKER,
                    assignors=self._assignors,
                    rebalance_timeout_ms=self._rebalance_timeout_ms,
                    session_timeout_ms=session_timeout_ms,
                    **fields,
                )
            )

        def new_id() -> str:
            return f"{self._group}_{process.name}-{world.now_ms + self.wall_offset_ms}-{process.random_hex()}"

        loop = Loop(process.open_session, process.inbox.put)
        application = self._application(process, self._logs, self._group, reset=self.reset)
        settings = MemberSettings(
            group=self._group,
            new_id=new_id,
            registration=registration,
            topics=sorted(self._topics) if self._pattern == "static" else (),
            wildcard=wildcard_of(Registration(subscription=subscription, pattern=self._pattern)),
            **self._in_kafka,
        )

        def events(name: str, fields: Mapping[str, Any]) -> None:
            if name != "lease_extended":  # there are so many that they would drive the important lines out of the trace
                world.trace(process.client, name, fields)

        log = self._log(process) if self._log is not None else None
        role = MembershipRole(loop, settings, application, events, log)

        def allowed(partition: TopicPartition) -> bool:
            return role.allowed(partition, process.clock.now_ms())

        application.allowed, application.reading = allowed, role.firsts.append
        loop.run_role(role, events)
        return ProductActor(loop, role)


def topic_json(partitions: int, topic_id: str | None = None) -> bytes:
    """The data that a broker writes into `/brokers/topics/<t>`. Brokers since 2.8 write the topic's id, too."""
    numbered = {"partitions": {str(n): [0] for n in range(partitions)}}
    if topic_id is not None:
        return json.dumps({"version": 3, "topic_id": topic_id, **numbered}).encode()
    return json.dumps({"version": 1, **numbered}).encode()


def make_topics(world: World, topics: Mapping[str, int]) -> None:
    """Create `/brokers/ids`, `/brokers/topics` and these topics, as a broker does."""
    ensemble = world.ensemble
    for path in ("/brokers", BROKERS, TOPICS):
        ensemble.ensure(path, b"")
    for topic, partitions in topics.items():
        ensemble.ensure(f"{TOPICS}/{topic}", topic_json(partitions))
