"""A deployment of old brokers and consumers that tests of the command line make on a real ZooKeeper."""

from __future__ import annotations

import re
from typing import Any

from tests.old_members.groups import A, B, static, wildcard
from zkcoord.shell.zk.blocking import Tree
from zkcoord.tree.snapshot import Kind, Read, parents
from zkcoord.tree.writes import CreateNode, Transaction

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
        missing = [parent for parent in parents(path) if parent not in self._there]
        ephemeral = re.fullmatch(r"/consumers/[^/]+/(ids/[^/]+|owners/[^/]+/[^/]+)", path) is not None
        for each, data in (*((parent, b"") for parent in missing), (path, text.encode())):
            if each not in self._there:
                create = CreateNode(each, data, ephemeral=ephemeral and each == path)
                done = self.tree.commit(Transaction(writes=(create,)))
                assert not done.reason, (each, done)
                self._there.add(each)

    def group(self, name: str, parts: dict[str, dict[str, str]]) -> None:
        """A group's folder."""
        for part, nodes in parts.items():
            self.put(f"/consumers/{name}/{part}", "")
            for below, text in nodes.items():
                self.put(f"/consumers/{name}/{part}/{below}", text)

    def everything(self) -> list[tuple[str, Any]]:
        """All nodes with their versions."""
        found, rest = [], ["/consumers", "/brokers", "/zkcoord"]
        while rest:
            below = self.tree.read([Read(path, kind) for path in rest for kind in (Kind.DATA, Kind.CHILDREN)])
            found += [(node.path, node) for node in below]
            rest = [f"{node.path}/{name}" for node in below for name in node.children]
        return found
