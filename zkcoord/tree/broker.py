"""The only place that reads brokers (`/brokers/ids/<n>`, version 1 to 5): a client's address, and the rack."""

from __future__ import annotations

import re
from typing import NamedTuple

from zkcoord.tree.codec import Document, corrupt, read_document
from zkcoord.tree.paths import partition_number

_WHAT = "broker"
_ENDPOINT = re.compile(r"([^:/]*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]{1,5})")
_OLD_BROKER = re.compile(rb"[^:{}]+-[0-9]+:[^:{}]+:[0-9]{1,5}\s*")  # <creator>:<host>:<port>
_PORT_MAX = 65_535


class Broker(NamedTuple):
    """`servers` holds its `host:port`: of the PLAINTEXT listeners if it has any, else of its first one. Empty: a client
    cannot reach it."""

    servers: list[str]
    rack: str | None = None  # since version 3, where one is set


def broker_id(name: str) -> int | None:
    """The id that a child of `/brokers/ids` names. None: the child is no broker.

    >>> broker_id("1001"), broker_id("x")
    (1001, None)
    """
    return partition_number(name)  # both have the same form


def decode_broker(data: bytes) -> Broker:
    """The broker in `data`.

    >>> decode_broker(b'{"version":1,"host":"h","port":9092}')
    Broker(servers=['h:9092'], rack=None)
    >>> decode_broker(b'{"version":4,"endpoints":["SSL://h:9093","IN://h:9092"],"rack":"dc1",'
    ...               b'"listener_security_protocol_map":{"SSL":"SSL","IN":"PLAINTEXT"},"host":null,"port":-1}')
    Broker(servers=['h:9092'], rack='dc1')
    """
    if _OLD_BROKER.fullmatch(data):
        raise corrupt(_WHAT, data, "a Kafka 0.7 broker, which no later client reads")
    document = read_document(_WHAT, data)
    return Broker(_servers(document), document.optional_text("rack"))


def _servers(document: Document) -> list[str]:
    endpoints = document.texts("endpoints")
    if not endpoints:
        return _server(document.text("host", default=""), document.integer("port", low=-1, high=_PORT_MAX))
    protocols = document.section("listener_security_protocol_map").all_texts()
    first: list[str] = []
    plain: list[str] = []
    for endpoint in endpoints:
        listener, servers = _endpoint(document, endpoint)
        first = first or servers
        if protocols.get(listener, listener) == "PLAINTEXT":
            plain += servers
    return plain or first


def _endpoint(document: Document, endpoint: str) -> tuple[str, list[str]]:
    match = _ENDPOINT.fullmatch(endpoint)
    if match is None or int(match[3]) > _PORT_MAX:
        raise document.wrong("endpoints", endpoint, "<listener>://<host>:<port>")
    return match[1], _server(match[2], int(match[3]))


def _server(host: str, port: int) -> list[str]:
    if not host or port < 1:
        return []
    return [f"[{host}]:{port}" if ":" in host else f"{host}:{port}"]
