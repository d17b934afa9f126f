"""A server of Azure's blobs on the loopback: Azurite, which npm fetches into a folder of its own below `ZKCOORD_CACHE`.

Azurite passes over `startFrom`, with which delta-rs lists the newest commits of a table. Azure does not, so a proxy
before it (`python -m tests.spark.sinks.azure_server PORT`) leaves out the names that come earlier.
"""

from __future__ import annotations

import http.client
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.spark.sinks.faulty_store import Answer, FaultyStore, StoreApart, main, store_behind
from tests.spark.sinks.installed_once import folder_for, install_once, is_installed, run
from zkcoord.embedded.server import free_ports
from zkcoord.errors import UnavailableError

AZURITE = "azurite@3.35.0"
REQUEST_S = 60
CONTAINER = "lake"
ACCOUNT = "devstoreaccount1"  # Azurite's own, and its well-known key
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
BLOB = re.compile(rb"<Blob>.*?<Name>(.*?)</Name>.*?</Blob>", re.DOTALL)


def azurite() -> Path:
    """Return the program, which is fetched if need be. UnavailableError says why it cannot be."""
    folder = folder_for("azurite", AZURITE.encode())
    if not is_installed(folder):
        npm = shutil.which("npm")
        if npm is None:
            raise UnavailableError("there is no npm, which fetches Azurite")
        command: list[str | Path] = [npm, "install", "--no-audit", "--no-fund", "--prefix", folder, AZURITE]
        install_once(folder, lambda _: run(AZURITE, command))
    return folder / "node_modules" / ".bin" / "azurite-blob"


class Blobs(FaultyStore):
    """The proxy. A list begins where it is asked to."""

    def _ask(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Answer:
        status, told, found = super()._ask(method, path, headers, body)
        first = parse_qs(urlsplit(path).query).get("startFrom")
        if first and method == "GET":
            found = BLOB.sub(lambda each: each[0] if unescape(each[1].decode()) >= first[0] else b"", found)
        return status, told, found


def delta_options(endpoint: str) -> Mapping[str, str]:
    """How delta-rs reaches the server."""
    where = {"azure_storage_endpoint": f"{endpoint}/{ACCOUNT}", "allow_http": "true"}
    return {"account_name": ACCOUNT, "account_key": KEY, **where}


def arrow_options(endpoint: str) -> Mapping[str, Any]:
    """How Arrow does."""
    place = endpoint.removeprefix("http://")
    where = {"blob_storage_authority": place, "blob_storage_scheme": "http"}
    where |= {"dfs_storage_authority": place, "dfs_storage_scheme": "http"}
    return {"account_name": ACCOUNT, "account_key": KEY, **where}


@contextmanager
def azure_server() -> Iterator[StoreApart]:
    """A proxy before a server with an empty container."""
    from pyarrow import fs

    program = azurite()
    (port,) = free_ports(1)
    options = ["--inMemoryPersistence", "--silent", "--skipApiVersionCheck", "--disableTelemetry", "--blobPort"]
    with store_behind([str(program), *options, str(port)], port, lambda: _answers(port), __name__) as store:
        fs.AzureFileSystem(**arrow_options(store.endpoint)).create_dir(CONTAINER)
        yield store


def _answers(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=REQUEST_S)
    try:
        connection.request("GET", "/")
        return connection.getresponse().status > 0
    except OSError:
        return False
    finally:
        connection.close()


if __name__ == "__main__":
    main(Blobs, int(sys.argv[1]))
