"""What a store of objects may do: a proxy in front of it, whose answers are late, refused or lost."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from zkcoord.embedded.child import Child

HOP_BY_HOP = ("connection", "keep-alive", "transfer-encoding", "expect")
BUSY = b'<?xml version="1.0"?><Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>'
REQUEST_S = 60
READY_MS = 120_000
ROOT = Path(__file__).parents[3]
Answer = tuple[int, list[tuple[str, str]], bytes]  # status, headers, body


@dataclass
class Fault:
    """Meets the next `times` requests that `when(method, path)` holds for."""

    kind: str  # "busy": 503, nothing was done; "lost": it was done, and the connection ends; "slow": after a wait
    when: Callable[[str, str], bool]
    times: int
    wait_s: float = 0.0
    then: Callable[[], object] = lambda: None
    met: list[str] = field(default_factory=list)


class FaultyStore:
    """The proxy. `seen` has all requests, in the order in which they were answered."""

    def __init__(self, port: int) -> None:
        self._behind = port
        self._lock = threading.Lock()
        self.faults: list[Fault] = []
        self.seen: list[tuple[str, str]] = []
        store = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                store.handle(self)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_any  # noqa: N815

            def log_message(self, format: str, *args: Any) -> None:
                """Nothing."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                """A client that went away is none of ours."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"

    def add(self, kind: str, method: str, path: str, times: int = 1, **more: Any) -> Fault:
        """A fault for requests of this method whose path has this part."""
        fault = Fault(kind, lambda by, where: by == method and path in where, times, **more)
        self.faults.append(fault)
        return fault

    @contextmanager
    def running(self) -> Iterator[FaultyStore]:
        thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()

    def handle(self, asked: BaseHTTPRequestHandler) -> None:
        """Pass a request on, with what befalls it."""
        body = _body(asked)
        fault = self._next(asked.command, asked.path)
        if fault is not None and fault.kind == "busy":
            fault.then()
            self._answer(asked, 503, [("Content-Type", "application/xml")], BUSY)
            return
        if fault is not None and fault.kind == "slow":
            threading.Event().wait(fault.wait_s)
        headers = {k: v for k, v in asked.headers.items() if k.lower() not in HOP_BY_HOP}
        answer = self._ask(asked.command, asked.path, headers, body)
        if fault is not None:
            fault.then()
        if fault is not None and fault.kind == "lost":
            asked.close_connection = True
            return
        self._answer(asked, *answer)

    def _ask(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Answer:
        """Return what the store answers."""
        behind = http.client.HTTPConnection("127.0.0.1", self._behind, timeout=REQUEST_S)
        try:
            behind.request(method, path, body, headers)
            answer = behind.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            behind.close()

    def _next(self, method: str, path: str) -> Fault | None:
        with self._lock:
            self.seen.append((method, path))
            for fault in self.faults:
                if len(fault.met) < fault.times and fault.when(method, path):
                    fault.met.append(path)
                    return fault
        return None

    def _answer(self, asked: BaseHTTPRequestHandler, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        asked.send_response_only(status)
        length = str(len(body))
        for name, value in headers:
            if name.lower() == "content-length" and asked.command == "HEAD":
                length = value
            elif name.lower() not in (*HOP_BY_HOP, "content-length"):
                asked.send_header(name, value)
        asked.send_header("Content-Length", length)
        asked.end_headers()
        if asked.command != "HEAD":
            asked.wfile.write(body)


def _body(asked: BaseHTTPRequestHandler) -> bytes:
    if asked.headers.get("Transfer-Encoding") != "chunked":
        return asked.rfile.read(int(asked.headers.get("Content-Length") or 0))
    parts = []
    while size := int(asked.rfile.readline().split(b";")[0], 16):
        parts.append(asked.rfile.read(size))
        asked.rfile.readline()
    while asked.rfile.readline().strip():  # trailers
        pass
    return b"".join(parts)


class StoreApart:
    """The same in a process of its own: while delta-rs waits for some answers, no thread of Python runs."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.endpoint = self._ask({})

    def add(self, kind: str, method: str, path: str, times: int = 1, wait_s: float = 0.0) -> Callable[[], int]:
        """A fault; returns what tells how many requests it has met."""
        number = self._ask({"add": [kind, method, path, times], "wait_s": wait_s})
        return lambda: int(self._ask({"met": number}))

    def _ask(self, question: dict[str, Any]) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


@contextmanager
def store_apart(port: int, program: str = "tests.spark.sinks.faulty_store") -> Iterator[StoreApart]:
    """A proxy before the server at this port, until the end of the block."""
    command = [sys.executable, "-m", program, str(port)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=ROOT, **pipes) as process:  # which closes its input: that ends it
        yield StoreApart(process)


@contextmanager
def store_behind(command: list[str], port: int, answers: Callable[[], bool], program: str) -> Iterator[StoreApart]:
    """A proxy before this server, until the end of the block. `answers`: it listens at the port."""
    name = Path(command[0]).name
    with tempfile.TemporaryDirectory(prefix="zkcoord-store-") as folder:
        child = Child(name, command, Path(folder) / "log")
        child.start()
        try:
            child.await_ready(answers, READY_MS)
            with store_apart(port, program) as store:
                yield store
        finally:
            child.kill()


def main(kind: type[FaultyStore], port: int) -> None:
    """Answer one question a line, until the input ends."""
    store = kind(port)
    with store.running():
        for line in sys.stdin:
            question = json.loads(line)
            answer: Any = store.endpoint
            if "add" in question:
                store.add(*question["add"], wait_s=question["wait_s"])
                answer = len(store.faults) - 1
            elif "met" in question:
                answer = len(store.faults[question["met"]].met)
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(FaultyStore, int(sys.argv[1]))
