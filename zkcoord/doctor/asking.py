"""Asks ZooKeeper's servers, the tree and Kafka what the doctor judges; writes nothing."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any

from zkcoord.doctor.facts import GroupFacts, KafkaFacts, ServerFacts, TreeFacts
from zkcoord.errors import CorruptError, UsageError, ZkcoordError
from zkcoord.group_report import group_names, may_name_a_group, read_group, read_tree
from zkcoord.migrate import BlockingTree, current, history
from zkcoord.tree.bulk import data
from zkcoord.tree.candidate import describe
from zkcoord.tree.paths import BROKERS, CANDIDATES, FROM_KAFKA, TOPICS, Layout
from zkcoord.tree.registration import decode_registration
from zkcoord.tree.schema import Schema
from zkcoord.tree.snapshot import Kind, Read

WORD_SECONDS, ANSWER_BYTES_MAX = 5.0, 1 << 20
READS_TIMED = 20
CONTROLLER, MIGRATION, CLUSTER = "/controller", "/migration", "/cluster/id"
REFUSED = "is not executed because it is not in the whitelist"
WORDS: Mapping[str, str] = {"srvr": ": ", "mntr": "\t", "conf": "="}
"""Four-letter words, and what stands between key and value in their answers."""


def ask_server(host: str, port: int) -> ServerFacts:
    """Ask one server; never raises."""
    answers: dict[str, Mapping[str, str]] = {}
    refused = []
    for word, between in WORDS.items():
        try:
            text = _word(host, port, word)
        except OSError as error:
            return ServerFacts(address=f"{host}:{port}", unreachable=f"{word}: {error}")
        if REFUSED in text or not text:
            refused.append(word)
        answers[word] = {} if REFUSED in text else _pairs(text, between)
    srvr, mntr, conf = (answers[word] for word in WORDS)
    return ServerFacts(address=f"{host}:{port}", srvr=srvr, mntr=mntr, conf=conf, refused=tuple(refused))


def _word(host: str, port: int, word: str) -> str:
    with socket.create_connection((host, port), timeout=WORD_SECONDS) as connection:
        connection.settimeout(WORD_SECONDS)
        connection.sendall(word.encode("ascii"))
        answer = b""
        while len(answer) < ANSWER_BYTES_MAX and (read := connection.recv(65_536)):
            answer += read
    return answer.decode("utf-8", "backslashreplace")


def _pairs(text: str, between: str) -> dict[str, str]:
    """Keys and values of an answer.

    >>> _pairs("tickTime=2000\\nno pair", "=")
    {'tickTime': '2000'}
    """
    found = (line.partition(between) for line in text.splitlines())
    return {key.strip(): value.strip() for key, there, value in found if there}


def ask_tree(tree: BlockingTree, *, open_nodes: Collection[str] = (), logs_in: bool = False) -> TreeFacts:
    """Read what stands in ZooKeeper; `open_nodes`: those that everybody may write."""
    read_ms = []
    for _ in range(READS_TIMED):
        begun_ns = time.monotonic_ns()
        tree.read([Read("/")])
        read_ms.append((time.monotonic_ns() - begun_ns) // 1_000_000)
    listed = tree.read([Read(path, Kind.CHILDREN) for path in (BROKERS, TOPICS, CANDIDATES)])
    brokers, topics, standing = listed
    controller, migration, cluster = tree.read([Read(CONTROLLER), Read(MIGRATION), Read(CLUSTER)])
    schema = current(tree)
    candidates = data(tree.read, [f"{CANDIDATES}/{name}" for name in standing.children])
    serving = read_tree(tree, "this address").coordinator if schema is not None else None
    return TreeFacts(
        read_ms=tuple(read_ms),
        writes_anybody=tuple(open_nodes),
        logs_in=logs_in,
        brokers=len(brokers.children) if brokers.exists else None,
        topics=len(topics.children) if topics.exists else None,
        controller=_json(controller.data),
        migrating=migration.exists,
        cluster_id=_cluster_id(schema, cluster.data),
        from_kafka=schema is not None and schema.topics == FROM_KAFKA,
        revision=schema.revision if schema is not None else None,
        head=history()[-1].revision,
        serving=serving,
        candidates=tuple(describe(node.data) for node in candidates if node.exists),
    )


def _cluster_id(schema: Schema | None, node: bytes) -> str | None:
    """The cluster from which topics come: by the tree, where they come from Kafka, else by Kafka's own node."""
    if schema is not None and schema.topics == FROM_KAFKA:
        return schema.cluster_id or None
    found = _json(node).get("id")
    return found if isinstance(found, str) else None


def _json(text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text or b"{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def ask_groups(tree: BlockingTree, users: Mapping[str, Collection[str]]) -> list[GroupFacts]:
    """Read all groups; `users`: who uses their ids in Kafka, as far as that is known."""
    if current(tree) is None:
        return []
    layout = read_tree(tree, "this address").layout
    found = []
    for name in group_names(tree, layout):
        if may_name_a_group(name):
            with suppress(UsageError):  # it was removed meanwhile
                found.append(_group(tree, layout, name, tuple(users.get(name, ()))))
    return found


def _group(tree: BlockingTree, layout: Layout, name: str, users: tuple[str, ...]) -> GroupFacts:
    report = read_group(tree, layout, name)
    view = report.view
    ahead = {}
    for node in data(tree.read, [layout.registration(name, c) for c in sorted(view.members)]):
        with suppress(CorruptError, ValueError):
            if node.stat is not None and node.stat.version == 0:
                consumer = node.path.rpartition("/")[2]
                ahead[consumer] = int(decode_registration(node.data).timestamp) - node.stat.mtime_ms
    return GroupFacts(
        group=name,
        state=report.phase.value,
        store=view.record.store_name,
        mode="not adopted" if view.observed else view.mode.mode.value,
        policy=view.record.policy,
        members=tuple(member for _, member in sorted(view.members.items())),
        clock_ahead_ms=ahead,
        problems=len(report.problems) + (view.unreadable is not None),
        failed=view.state.failed is not None,
        quarantined=len(view.state.quarantined),
        users=users,
    )


def ask_kafka(servers: str, settings: Mapping[str, str]) -> KafkaFacts:
    """Ask the brokers; what they do not answer is in `unreachable`. UsageError without the client library."""
    from zkcoord.kafka.client import KafkaClient
    from zkcoord.kafka.cluster import describe_cluster

    try:
        with KafkaClient(servers, settings) as client:
            found = describe_cluster(client)
    except UsageError:
        raise
    except ZkcoordError as error:
        return KafkaFacts(unreachable=str(error))
    return KafkaFacts(brokers=found.brokers, cluster_id=found.cluster_id, config=found.config)
