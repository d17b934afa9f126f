"""Asks ZooKeeper's servers, the tree and Kafka what the doctor judges; writes nothing."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from zkcoord.doctor.facts import GroupFacts, KafkaFacts, ServerFacts, TreeFacts
from zkcoord.errors import CorruptError, UsageError, ZkcoordError
from zkcoord.group_report import group_names, may_name_a_group, read_group, read_tree
from zkcoord.migrate import BlockingTree, current, served
from zkcoord.tree.brokers_move import READS, cluster_of, move_of
from zkcoord.tree.bulk import data
from zkcoord.tree.candidate import describe
from zkcoord.tree.paths import BROKERS, CANDIDATES, CLUSTER_ID, FROM_KAFKA, TOPICS, Layout
from zkcoord.tree.registration import decode_registration
from zkcoord.tree.snapshot import Kind, Read

if TYPE_CHECKING:
    from zkcoord.kafka.client import KafkaClient

WORD_SECONDS, ANSWER_BYTES_MAX = 5.0, 1 << 20
READS_TIMED = 20
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
    cluster, *moving = tree.read([Read(CLUSTER_ID), *READS])
    schema = current(tree)
    candidates = data(tree.read, [f"{CANDIDATES}/{name}" for name in standing.children])
    serving = read_tree(tree, "this address").coordinator if schema is not None else None
    return TreeFacts(
        read_ms=tuple(read_ms),
        writes_anybody=tuple(open_nodes),
        logs_in=logs_in,
        brokers=len(brokers.children) if brokers.exists else None,
        topics=len(topics.children) if topics.exists else None,
        move=move_of(moving),
        cluster_id=cluster_of(schema, cluster),
        from_kafka=schema is not None and schema.topics == FROM_KAFKA,
        revision=schema.revision if schema is not None else None,
        served=served(),
        serving=serving,
        candidates=tuple(describe(node.data) for node in candidates if node.exists),
    )


def ask_groups(tree: BlockingTree, users: Callable[[str], Collection[str]]) -> list[GroupFacts]:
    """Read all groups; `users(group)` asks Kafka for the consumers of its own protocol in this group id."""
    if current(tree) is None:
        return []
    layout = read_tree(tree, "this address").layout
    found = []
    for name in group_names(tree, layout):
        if may_name_a_group(name):
            with suppress(UsageError):  # it was removed meanwhile
                found.append(_group(tree, layout, name, tuple(users(name))))
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
        left_to_kafka=view.record.left_to_kafka,
    )


def ask_kafka(client: KafkaClient) -> KafkaFacts:
    """Ask the brokers; `unreachable` says why none answered. UsageError when they refuse the credentials."""
    from zkcoord.kafka.cluster import describe_cluster

    try:
        found = describe_cluster(client)
    except UsageError:
        raise
    except ZkcoordError as error:
        return KafkaFacts(unreachable=str(error))
    return KafkaFacts(brokers=found.brokers, cluster_id=found.cluster_id, config=found.config)
