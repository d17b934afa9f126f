"""Measures the loops of coordinators and consumers, and judges their health, for their endpoint."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

from zkcoord.clock import mono_ms
from zkcoord.member.role import MembershipRole
from zkcoord.metrics import names
from zkcoord.metrics.endpoint import Endpoint, Part
from zkcoord.metrics.groups import GroupMetrics
from zkcoord.metrics.measurement import Measurement
from zkcoord.metrics.names import Sample
from zkcoord.metrics.store import MeasuredSessions
from zkcoord.serving.handovers import document
from zkcoord.serving.role import CoordinatorRole
from zkcoord.shell.driver import Driver
from zkcoord.shell.journal.recorder import Pages, Step
from zkcoord.shell.ports import Callbacks, Input, StoreFactory
from zkcoord.shell.role import Events

COORDINATOR, CONSUMER = "coordinator", "consumer"

STUCK_MS = 30_000
"""A step that takes longer than this hangs. With groups of 100,000 partitions the longest steps take some seconds."""


Followed = TypeVar("Followed", CoordinatorRole, MembershipRole)


class _Measured(Measurement, Generic[Followed]):
    """Measures the events, sessions and steps of one loop, of a coordinator or a consumer."""

    def __init__(self, endpoint: Endpoint, kind: str, name: str) -> None:
        self._endpoint, self._kind, self._name = endpoint, kind, name
        self._instruments = endpoint.instruments
        self._sessions: MeasuredSessions | None = None
        self._began_ms: int | None = None  # when the present step began; None between two steps
        self._driver: Driver | None = None
        self._part: Part | None = None
        self._role: Followed | None = None

    def _counted(self, events: Events) -> Events:
        def counted(name: str, fields: Mapping[str, Any]) -> None:
            self._instruments.count(names.EVENTS, self._kind, name)
            self._take_event(name, fields)
            events(name, fields)

        return counted

    def _take_event(self, name: str, fields: Mapping[str, Any]) -> None:
        """Take in one event."""

    def _measured(self, step: Step) -> Step:
        def measured(inputs: Sequence[Input], now_ms: int) -> int | None:
            self._began_ms, began_ns = mono_ms(), time.perf_counter_ns()
            try:
                return step(inputs, now_ms)
            finally:
                self._began_ms = None
                self._instruments.observe(names.STEP, (time.perf_counter_ns() - began_ns) / 1e9, self._kind)
                self._take_step()

        return measured

    def _take_step(self) -> None:
        """Take in the state after a step."""

    def driver(
        self,
        sessions: StoreFactory,
        name: str,
        events: Events,
        journal: Pages | None = None,
        calls: Callbacks | None = None,
        *,
        tells: bool = False,
    ) -> Driver:
        """Make the loop's driver with these arguments. Its `events` are counted; its requests and steps are
        measured."""
        self._sessions = MeasuredSessions(sessions, self._instruments, self._kind)
        self._driver = super().driver(self._sessions, name, self._counted(events), journal, calls, tells=tells)
        self._driver.measured_by(self._measured)
        return self._driver

    def follow(self, role: Followed) -> None:
        """Read the metrics of this role at each request. The loop runs the role."""
        self._role = role

    def begin(self) -> None:
        """Show the program at the endpoint, since it begins. UsageError if its address cannot be listened on."""
        self._part = Part(self._name, self._sick, self._busy, self._handovers, self._samples)
        self._endpoint.add(self._part)

    @property
    def port(self) -> int | None:
        """The endpoint's port; None before `begin`."""
        return self._endpoint.port

    def end(self) -> None:
        """Remove the program from the endpoint, since it has ended. Idempotent."""
        part, self._part = self._part, None
        if part is not None:
            self._endpoint.remove(part)

    def _samples(self) -> Iterator[Sample]:
        yield names.CONNECTED, (self._kind,), float(self._connected)

    @property
    def _connected(self) -> bool:
        return self._sessions is not None and self._sessions.connected

    def _sick(self) -> str | None:
        began_ms = self._began_ms
        if self._driver is not None and self._driver.ended.is_set():
            return "its loop has ended"
        if began_ms is not None and mono_ms() - began_ms > STUCK_MS:
            return f"its loop hangs in one step for {mono_ms() - began_ms} ms"
        return None

    def _busy(self) -> str | None:
        return None if self._connected else "it is not connected to ZooKeeper"

    def _handovers(self, group: str, last: int | None) -> Iterable[Mapping[str, Any]] | None:
        return None


class MeasuredCoordinator(_Measured[CoordinatorRole]):
    """Measures a coordinator: its term, and its decisions about groups."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint, COORDINATOR, COORDINATOR)
        self._groups = GroupMetrics(self._instruments)
        self._known = False  # True once it knows that it serves or that another one does

    def _take_event(self, name: str, fields: Mapping[str, Any]) -> None:
        if name == "elected":
            self._instruments.count(names.ELECTIONS)
        if name in ("elected", "standing_by"):
            self._known = True
        if name in ("deposed", "standing_by"):
            self._groups.reset()

    def _take_step(self) -> None:
        for each in self._role.decided if self._role is not None else ():
            self._groups.decided(each)

    def _samples(self) -> Iterator[Sample]:
        yield from super()._samples()
        term = self._role.term if self._role is not None else None
        yield names.SERVING, (), float(term is not None)
        yield names.EPOCH, (), term.epoch if term is not None else 0
        kafka = self._role.kafka if self._role is not None else None
        yield names.LEAVING, (), float(kafka is not None and kafka.leaving)
        yield names.SILENT, (), float(kafka is not None and kafka.silent)
        if self._role is not None and term is not None:
            self._groups.keep(self._role.groups)
        yield from self._groups.samples(mono_ms())

    def _busy(self) -> str | None:
        return super()._busy() or (None if self._known else "it neither serves nor knows who does")

    def _handovers(self, group: str, last: int | None) -> Iterable[Mapping[str, Any]] | None:
        found = self._groups.handovers(group, last)
        shift_ms = time.time_ns() // 1_000_000 - mono_ms()
        return None if found is None else [document(group, each, shift_ms) for each in found]


class MeasuredConsumer(_Measured[MembershipRole]):
    """Measures a consumer: its membership."""

    def __init__(self, endpoint: Endpoint, group: str) -> None:
        super().__init__(endpoint, CONSUMER, f"consumer of group {group}")
        self._group = group

    def _samples(self) -> Iterator[Sample]:
        yield from super()._samples()
        role, group = self._role, (self._group,)
        if role is None:
            return
        lease = role.lease
        yield names.REGISTERED, group, float(role.consumer_id is not None)
        yield names.LEASED, group, max(0, lease.until_ms - mono_ms()) / 1000 if lease is not None else 0
        yield names.READABLE, group, len(role.readable)
        yield names.OBEYED, group, role.generation
        if role.said is not None:
            yield names.PROGRESS, group, role.said[0]
            yield names.LAG, group, role.said[1]

    def _busy(self) -> str | None:
        registered = self._role is not None and self._role.consumer_id is not None
        return super()._busy() or (None if registered else f"it is no member of group {self._group} at present")
