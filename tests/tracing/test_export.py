"""Traces reach a receiver of OTLP over HTTP, as the standard environment variables say, on a real ZooKeeper."""

from __future__ import annotations

import shlex
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans

from tests.cli.program import Program
from tests.metrics.test_endpoint import make_topic
from tests.obedient import obedient
from tests.pages import shell_block
from tests.waiting import wait_until
from zkcoord import Coordinator


class Receiver:
    """What a collector would have got."""

    def __init__(self) -> None:
        self.got: list[ResourceSpans] = []
        of = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.path == "/v1/traces":
                    of.got += ExportTraceServiceRequest.FromString(body).resource_spans
                self.send_response(200 if self.path == "/v1/traces" else 404)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_address[1]}"

    @property
    def spans(self) -> list[Any]:
        return [span for found in self.got for scope in found.scope_spans for span in scope.spans]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    thread = threading.Thread(target=receiver.server.serve_forever)
    thread.start()
    yield receiver
    receiver.server.shutdown()
    thread.join()
    receiver.server.server_close()


def handed_over(receiver: Receiver) -> int:
    """How many hand-overs have arrived."""
    return Counter(span.name for span in receiver.spans)["hand-over"]


@pytest.mark.zookeeper
def test_a_coordinator_exports_its_handovers_where_the_variables_say(
    chroot: str, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.address)
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
    make_topic(chroot, 4)
    coordinator = Coordinator(chroot)
    coordinator.start()
    try:
        with obedient(chroot, "clicks"):
            wait_until(lambda: handed_over(receiver) == 4, "the first has all")
            with obedient(chroot, "clicks"):
                wait_until(lambda: handed_over(receiver) == 6, "the second has two")
    finally:
        coordinator.stop()

    stops = [span for span in receiver.spans if span.name == "stop"]
    assert len(stops) == 2
    told = {each.key: each.value.string_value for each in receiver.got[0].resource.attributes}
    assert told["service.name"] == "zkcoord-coordinator"
    assert told["deployment.environment.name"] == "test"


@pytest.mark.zookeeper
def test_the_pages_lines_bring_the_extra_and_trace(
    chroot: str, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    install, start = shell_block("monitoring.md", "Traces")
    pip, *words = shlex.split(install)
    done = subprocess.run(
        [sys.executable, "-m", pip, *words, "--no-index"], capture_output=True, text=True, check=False
    )  # all of it is here: nothing is fetched
    assert (done.returncode, "does not provide the extra" in done.stderr) == (0, False), done.stderr

    setting, program, command = start.split()
    assert (program, setting.partition("=")[2]) == ("zkcoord", "http://localhost:4318")
    monkeypatch.setenv(setting.partition("=")[0], receiver.address)
    make_topic(chroot, 4)
    coordinator = Program(command, "--zookeeper", chroot)
    try:
        with obedient(chroot, "clicks"):
            wait_until(lambda: handed_over(receiver) == 4, "the hand-overs have arrived")
    finally:
        coordinator.close()
