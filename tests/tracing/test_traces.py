"""Traces of hand-overs: what they hold, in the simulated world; and what asks for them."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.sim.actors import GROUP, ProductActor, coordinator
from tests.sim.process import SimProcess
from tests.sim.script import Script
from tests.waiting import wait_until
from zkcoord.core.handovers import PARTS
from zkcoord.shell.ports import Input
from zkcoord.tracing.start import handover_traces
from zkcoord.tracing.traces import NS_PER_MS, HandOverTraces


class Traced:
    """Coordinators of the simulated world whose hand-overs are traced, as `HandOverTraces.follow` does."""

    def __init__(self, exporter: SpanExporter, **limits: Any) -> None:
        self._exporter, self._limits = exporter, {"waiting_max": 1_000, **limits}
        self.all: list[HandOverTraces] = []

    def __call__(self, process: SimProcess) -> ProductActor:
        traces = HandOverTraces([self._exporter], **self._limits)
        traces.start()
        self.all.append(traces)
        actor = coordinator(process)
        step = actor.step

        def traced(inputs: Sequence[Input], now_ms: int) -> int | None:
            wake_at_ms = step(inputs, now_ms)
            traces.after_step(actor.role)
            return wake_at_ms

        actor.step = traced
        return actor

    def end(self) -> None:
        """Export the rest."""
        for each in self.all:
            each.end()


def move_one(traced: Traced, name: str) -> tuple[str, str]:
    """Play a group of one member that a second one joins; return both ids."""
    script = Script(1, coordinators=1, consumers=1, topics={"t": 2}, coordinates=traced)
    script.settle()
    script.join(name)
    script.world.run_until(lambda: len(script.field.registrations) == 2, 20_000, "the second is a member")
    script.settle("each has one partition")
    script.world.run_for(1_000)
    return script.member("consumer0"), script.member(name)


def test_each_handover_is_a_trace_with_a_span_for_each_stage() -> None:
    kept = InMemorySpanExporter()
    traced = Traced(kept)
    first, second = move_one(traced, "consumer1")
    traced.end()

    spans = kept.get_finished_spans()
    wholes = [span for span in spans if span.parent is None]
    stopped, started = dict.fromkeys(PARTS["stop"], 1), dict.fromkeys(PARTS["start"], 3)
    assert (
        Counter(span.name for span in spans) == {"hand-over": 3, "stop": 1, "grant": 3, "start": 3} | stopped | started
    )
    moved = next(span for span in wholes if "zkcoord.from" in (span.attributes or {}))
    assert dict(moved.attributes or {}) == {
        "messaging.system": "kafka",
        "messaging.consumer.group.name": GROUP,
        "messaging.destination.name": "t",
        "messaging.destination.partition.id": (moved.attributes or {})["messaging.destination.partition.id"],
        "zkcoord.generation": 2,
        "zkcoord.from": first,
        "zkcoord.to": second,
    }
    stages = {span.name: span for span in spans if span.parent is not None and span.parent.span_id == span_id(moved)}
    assert list(stages) == ["stop", "grant", "start"]
    assert {trace_id(span) for span in stages.values()} == {trace_id(moved)}
    ends = [moved.start_time, *(stages[name].end_time for name in stages)]
    assert [stages[name].start_time for name in stages] == ends[:-1]
    assert ends[-1] == moved.end_time
    assert (ends[1] or 0) - (ends[0] or 0) >= NS_PER_MS
    assert {name: dict(span.attributes or {}) for name, span in stages.items()} == {
        "stop": {"zkcoord.consumer": first},
        "grant": {},
        "start": {"zkcoord.consumer": second},
    }
    for name in ("stop", "start"):
        parts = [s for s in spans if s.parent is not None and s.parent.span_id == span_id(stages[name])]
        assert [part.name for part in parts] == list(PARTS[name])
        ends = [stages[name].start_time, *(part.end_time for part in parts)]
        assert ([part.start_time for part in parts], ends[-1]) == (ends[:-1], stages[name].end_time)
    assert moved.resource.attributes["service.name"] == "zkcoord-coordinator"


def span_id(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.span_id


def trace_id(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.trace_id


class Hangs(SpanExporter):
    """An exporter whose receiver never answers."""

    def __init__(self) -> None:
        self.asked, self.free = threading.Event(), threading.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.asked.set()
        self.free.wait(120)
        return SpanExportResult.FAILURE


def test_an_exporter_that_hangs_holds_up_neither_the_coordinator_nor_its_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hangs = Hangs()
    traced = Traced(hangs, waiting_max=1, flush_every=1, ending_seconds=0.01)
    try:
        move_one(traced, "consumer1")  # comes to rest
        wait_until(hangs.asked.is_set, "the exporter is asked")
        traced.end()
    finally:
        hangs.free.set()
    wait_until(lambda: not any(each.alive for each in traced.all), "the threads end once they can")
    assert [record.message for record in caplog.records if "traces_dropped" in record.message] != []


def test_without_a_variable_nothing_of_opentelemetry_is_imported() -> None:
    program = (
        "import sys, zkcoord.coordinator\n"
        "from zkcoord.tracing.start import handover_traces\n"
        "assert handover_traces({}) is None and handover_traces({'OTEL_TRACES_EXPORTER': 'none'}) is None\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("variables", "why"),
    [
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "no exporter zipkin of traces is installed"),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:1", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "no exporter otlp_proto_grpc of traces is installed",
        ),
    ],
)
def test_a_coordinator_whose_traces_cannot_be_exported_says_so_and_has_none(
    variables: dict[str, str], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert handover_traces(variables) is None
    assert [why in record.message for record in caplog.records] == [True]


def test_without_the_extra_the_pip_line_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "zkcoord.tracing.traces", None)
    assert handover_traces({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:1"}) is None
    assert "pip install 'zkcoord[otel]'" in caplog.text
