"""Makes a trace of each hand-over that a coordinator completed. The only importer of OpenTelemetry.

The loop's thread only puts a value into a bounded queue. Spans are made and exported by threads of their own, so a
slow or broken exporter costs traces, never time of the coordinator.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from queue import Empty, Full, Queue

from opentelemetry.context import Context
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import set_span_in_context

from zkcoord.clock import mono_ms
from zkcoord.core.handovers import HandOver, Stage
from zkcoord.logs import emit
from zkcoord.serving.handovers import ServedHandOvers
from zkcoord.serving.role import CoordinatorRole
from zkcoord.settings import version
from zkcoord.shell.driver import Driver
from zkcoord.shell.journal.recorder import Step
from zkcoord.shell.ports import Input

SERVICE = "zkcoord-coordinator"
"""The service's name, unless OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES set another."""

WAITING_MAX = 10_000
"""The number of hand-overs that may wait for the export: some megabytes. Further hand-overs get no trace."""

FLUSH_EVERY = 100
"""The number of hand-overs after which their spans are exported, before the exporter's queue (2,048 spans) can be
full."""

ENDING_SECONDS = 2.0
"""How long the coordinator's end waits for the last traces."""

NS_PER_MS = 1_000_000
Item = tuple[str, HandOver, int]
"""A group, a completed hand-over, and the ms to add to its monotonic times for times of the wall clock."""


class HandOverTraces:
    """Makes the traces of one coordinator's hand-overs."""

    def __init__(
        self,
        exporters: Sequence[SpanExporter],
        waiting_max: int = WAITING_MAX,
        flush_every: int = FLUSH_EVERY,
        ending_seconds: float = ENDING_SECONDS,
    ) -> None:
        self._flush_every, self._ending_seconds = flush_every, ending_seconds
        resource = Resource.create()
        if str(resource.attributes.get(SERVICE_NAME, "")).startswith("unknown_service"):
            resource = resource.merge(Resource({SERVICE_NAME: SERVICE}))
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        for exporter in exporters:
            self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("zkcoord", version())
        self._handovers = ServedHandOvers()
        self._waiting: Queue[Item | None] = Queue(waiting_max)
        self._dropped, self._told = 0, 0  # hand-overs without a trace; how many of them were reported
        self._thread = threading.Thread(target=self._run, name="zkcoord-traces", daemon=True)

    def follow(self, driver: Driver, role: CoordinatorRole) -> None:
        """Trace the hand-overs of this role from its loop's first step to the loop's end. Call it once, before the loop
        runs."""

        def around(step: Step) -> Step:
            def traced(inputs: Sequence[Input], now_ms: int) -> int | None:
                wake_at_ms = step(inputs, now_ms)
                self.after_step(role)
                return wake_at_ms

            return traced

        driver.measured_by(around)
        driver.at_end(self.end)
        self.start()

    def start(self) -> None:
        """Start the thread that makes traces of the hand-overs that `after_step` takes in."""
        self._thread.start()

    def after_step(self, role: CoordinatorRole) -> None:
        """Take in the hand-overs that a step completed. It never waits."""
        completed = self._handovers.after_step(role)
        shift_ms = time.time_ns() // NS_PER_MS - mono_ms() if completed else 0
        for group, done in completed:
            try:
                self._waiting.put_nowait((group, done, shift_ms))
            except Full:
                self._dropped += 1

    @property
    def alive(self) -> bool:
        """True while its thread makes traces or exports the last ones."""
        return self._thread.is_alive()

    def end(self) -> None:
        """Export the traces that are left, and wait `ending_seconds` at most for that."""
        try:
            self._waiting.put_nowait(None)
        except Full:
            with suppress(Empty):
                self._waiting.get_nowait()
            self._waiting.put_nowait(None)
        self._thread.join(self._ending_seconds)

    def _run(self) -> None:
        made = 0
        while (item := self._waiting.get()) is not None:
            self._make(*item)
            made += 1
            if made % self._flush_every == 0:
                self._provider.force_flush()
                self._tell_dropped()
        self._provider.shutdown()
        self._tell_dropped()

    def _tell_dropped(self) -> None:
        dropped = self._dropped - self._told
        self._told += dropped
        if dropped:
            why = "the exporter is too slow, or does not answer"
            emit("traces_dropped", handovers=dropped, why=why, level="warning")

    def _make(self, group: str, of: HandOver, shift_ms: int) -> None:
        """Make the trace: a span for the whole hand-over, below it a span for each stage, and below that one for each
        part.
        """
        if of.acknowledged_ms is None:
            return
        about: dict[str, str | int] = {
            "messaging.system": "kafka",
            "messaging.consumer.group.name": group,
            "messaging.destination.name": of.partition.topic,
            "messaging.destination.partition.id": str(of.partition.partition),
            "zkcoord.generation": of.generation,
            "zkcoord.from": of.giver,
            "zkcoord.to": of.taker,
        }
        about = {name: value for name, value in about.items() if value != ""}
        whole = self._tracer.start_span("hand-over", attributes=about, start_time=_ns(of.begun_ms, shift_ms))
        inside = set_span_in_context(whole)
        for stage in of.stages():
            self._span(stage, inside, shift_ms)
        whole.end(_ns(of.acknowledged_ms, shift_ms))

    def _span(self, stage: Stage, inside: Context, shift_ms: int) -> None:
        said = {"zkcoord.consumer": stage.consumer} if stage.consumer else None
        begun_ns, ended_ns = _ns(stage.begun_ms, shift_ms), _ns(stage.ended_ms, shift_ms)
        span = self._tracer.start_span(stage.name, inside, attributes=said, start_time=begun_ns)
        for part in stage.parts:
            self._span(part, set_span_in_context(span, inside), shift_ms)
        span.end(ended_ns)


def _ns(at_ms: int, shift_ms: int) -> int:
    return (at_ms + shift_ms) * NS_PER_MS
