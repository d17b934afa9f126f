"""A deployment of old brokers and consumers that tests of the command line make on a real ZooKeeper."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from tests.legacy.groups import A, B, static, wildcard
from zkcoord.shell.zk.blocking import Tree
from zkcoord.tree.snapshot import Kind, Read, parents
from zkcoord.tree.writes import WRITE_BYTES, CreateNode, Transaction, parts

UUID = "6c84fb90-12c4-11e1-840d-7b25c5ee775a"
BROKERS = {
    "0": '{"jmx_port":-1,"timestamp":"1416335000123","host":"h0","version":1,"port":9092}',
    "1": '{"listener_security_protocol_map":{"IN":"SSL"},"endpoints":["IN://h1:9093"],"jmx_port":-1,"features":{},'
    '"host":null,"timestamp":"1416335000123","port":-1,"version":5}',
}
TOPICS = {
    "clicks": '{"version":1,"partitions":{"1":[0],"0":[0]}}',
    "views": '{"removing_replicas":{},"partitions":{"0":[0,1]},"topic_id":"abcdefghijklmnopqrstuv",'
    '"adding_replicas":{},"version":3}',
    "__consumer_offsets": '{"version":1,"partitions":{"0":[0]}}',
    "broken": "?",
}
STATE = {"/brokers/topics/clicks/partitions/0/state": '{"controller_epoch":1,"leader":0,"version":1,"isr":[0]}'}
ETL = {
    "ids": {A: static(clicks=1), B: static(clicks=1)},
    "owners": {"clicks/0": f"{A}-0", "clicks/1": f"{B}-0"},
    "offsets": {"clicks/0": "100", "clicks/1": "7"},
}
LONG = "audit-of-all-that-was-ever-clicked-or-viewed"
AUDIT = {
    "ids": {f"{LONG}_x": wildcard(r"view.*|__.*"), f"h:{UUID}": "clicks"},
    "owners": {"clicks/0-1": f"h:{UUID}", "views/0": f"{LONG}_gone-0"},
    "offsets": {"gone/0": "7", "views/0": "many"},
}
OLDEST = {"ids": {"oldest_h-1416335000123-1a2b3c4d": '{ "clicks": 4 }'}, "owners": {"clicks/0-1": "x-0"}, "offsets": {}}


Parts = Mapping[str, Mapping[str, str]]
"""A group's folder: `ids`, `owners` or `offsets` -> the nodes below it, with their texts."""


class OldWorld:
    """A deployment that a test makes."""

    def __init__(self, tree: Tree, address: str) -> None:
        self.tree, self.address = tree, address
        self._there: set[str] = set()
        for name, text in BROKERS.items():
            self.put(f"/brokers/ids/{name}", text)
        for name, text in TOPICS.items():
            self.put(f"/brokers/topics/{name}", text)
        for path, text in STATE.items():
            self.put(path, text)
        self.put("/consumers", "")

    def put(self, path: str, text: str) -> None:
        """Create a node, parents included."""
        self._create([(path, text)])

    def group(self, name: str, parts: Parts) -> None:
        """A group's folder."""
        self.groups({name: parts})

    def groups(self, made: Mapping[str, Parts]) -> None:
        """The folders of many groups, in few multis."""
        nodes = list[tuple[str, str]]()
        for name, parts_of in made.items():
            for part, below in parts_of.items():
                folder = f"/consumers/{name}/{part}"
                nodes += [(folder, ""), *((f"{folder}/{path}", text) for path, text in below.items())]
        self._create(nodes)

    def _create(self, nodes: Iterable[tuple[str, str]]) -> None:
        """Create these nodes, parents included, except for those that were created before."""
        missing: dict[str, CreateNode] = {}
        for path, text in nodes:
            ephemeral = re.fullmatch(r"/consumers/[^/]+/(ids/[^/]+|owners/[^/]+/[^/]+)", path) is not None
            for parent in parents(path):
                missing.setdefault(parent, CreateNode(parent, b""))
            missing.setdefault(path, CreateNode(path, text.encode(), ephemeral=ephemeral))
        creates = [create for path, create in missing.items() if path not in self._there]
        for part in parts(creates, lambda create: len(create.path) + len(create.data) + WRITE_BYTES):
            done = self.tree.commit(Transaction(writes=tuple(part)))
            assert not done.reason, (part, done)
        self._there |= missing.keys()

    def everything(self) -> list[tuple[str, Any]]:
        """All nodes with their versions."""
        found, rest = [], ["/consumers", "/brokers", "/zkcoord"]
        while rest:
            below = self.tree.read([Read(path, kind) for path in rest for kind in (Kind.DATA, Kind.CHILDREN)])
            found += [(node.path, node) for node in below]
            rest = [f"{node.path}/{name}" for node in below for name in node.children]
        return found
