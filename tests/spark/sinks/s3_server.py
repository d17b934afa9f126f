"""A server of S3 on the loopback: moto's, in a virtual environment of its own, since its versions do not fit ours.

`ZKCOORD_CACHE` has that environment beside the fetched jars; `requirements-s3.txt` says what is in it.
"""

from __future__ import annotations

import http.client
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from html import unescape
from pathlib import Path
from urllib.parse import quote

from tests.spark.sinks.installed_once import folder_for, install_once, is_installed, run
from zkcoord.embedded.child import Child
from zkcoord.embedded.server import free_ports

REQUIREMENTS = Path(__file__).with_name("requirements-s3.txt")
READY_MS = 120_000
REQUEST_S = 60
BUCKET = "lake"
SIGNED = "AWS4-HMAC-SHA256 Credential=tests/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"


def moto_python() -> Path:
    """The Python of the environment, which is made if need be. UnavailableError says why it cannot be."""
    folder = folder_for("moto", REQUIREMENTS.read_bytes() + sys.version.encode())
    python = folder / "bin" / "python"
    if not is_installed(folder):
        install_once(folder, _install)
    return python


def _install(folder: Path) -> None:
    run("moto", [sys.executable, "-m", "venv", folder])
    pip = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check"]
    run("moto", [*pip, "-r", REQUIREMENTS])


class S3:
    """A running server, asked over plain HTTP: another client than the ones that are tested."""

    def __init__(self, port: int) -> None:
        self.port = port

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def request(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        """The status and the body of an answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=REQUEST_S)
        try:
            connection.request(method, path, body, {"Authorization": SIGNED})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def make_bucket(self, name: str = BUCKET) -> None:
        """Make it; one that is there stays as it is."""
        status, body = self.request("PUT", f"/{name}")
        assert status in (200, 409), body

    def keys(self, folder: str) -> list[str]:
        """The keys below a folder of the bucket, without the folder's name."""
        found: list[str] = []
        more = ""
        while True:
            where = f"/{BUCKET}?list-type=2&prefix={quote(folder + '/')}{more}"
            status, body = self.request("GET", where)
            assert status == 200, body
            text = body.decode()
            found += [unescape(each).removeprefix(f"{folder}/") for each in re.findall(r"<Key>(.*?)</Key>", text)]
            token = re.search(r"<NextContinuationToken>(.*?)</NextContinuationToken>", text)
            if token is None:
                return sorted(each for each in found if each)  # without the mark of the folder itself
            more = f"&continuation-token={quote(token[1])}"

    def uploads(self, folder: str) -> list[str]:
        """The files of a folder whose uploads in parts have begun and not ended."""
        status, body = self.request("GET", f"/{BUCKET}?uploads")
        assert status == 200, body
        found = [unescape(each) for each in re.findall(r"<Key>(.*?)</Key>", body.decode())]
        return sorted(each.removeprefix(f"{folder}/") for each in found if each.startswith(f"{folder}/"))

    def download(self, folder: str, to: Path) -> Path:
        """Copy a folder of the bucket."""
        for key in self.keys(folder):
            status, body = self.request("GET", f"/{BUCKET}/{quote(f'{folder}/{key}')}")
            assert status == 200, body
            file = to / key
            file.parent.mkdir(parents=True, exist_ok=True)
            if not key.endswith("/"):
                file.write_bytes(body)
        return to


def arrow_options(endpoint: str) -> Mapping[str, str]:
    """How Arrow reaches the server."""
    return {"endpoint_override": endpoint, "access_key": "tests", "secret_key": "tests", "region": "us-east-1"}


def delta_options(endpoint: str) -> Mapping[str, str]:
    """How delta-rs does."""
    names = {"AWS_ACCESS_KEY_ID": "tests", "AWS_SECRET_ACCESS_KEY": "tests", "AWS_REGION": "us-east-1"}
    return {**names, "AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": "true"}


def iceberg_options(endpoint: str) -> Mapping[str, str]:
    """How pyiceberg does."""
    names = {"s3.access-key-id": "tests", "s3.secret-access-key": "tests", "s3.region": "us-east-1"}
    return {**names, "s3.endpoint": endpoint}


@contextmanager
def s3_server() -> Iterator[S3]:
    """A server with an empty bucket."""
    python = moto_python()
    (port,) = free_ports(1)
    command = [str(python), "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with tempfile.TemporaryDirectory(prefix="zkcoord-s3-") as folder:
        child = Child("moto", command, Path(folder) / "log", env={**os.environ, "TMPDIR": folder})
        child.start()
        try:
            server = S3(port)
            child.await_ready(lambda: _answers(server), READY_MS)
            server.make_bucket()
            yield server
        finally:
            child.kill()


def _answers(server: S3) -> bool:
    try:
        return server.request("GET", "/")[0] == 200
    except OSError:
        return False
