"""Asks ZooKeeper's servers, the tree and Kafka for the facts that the doctor judges; writes nothing."""

from __future__ import annotations

import re
import socket
import ssl
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from zkcoord.doctor.facts import GroupFacts, KafkaFacts, ServerFacts, Silence, TreeFacts
from zkcoord.errors import CorruptError, UsageError, ZkcoordError
from zkcoord.group_report import group_names, may_name_a_group, read_group, read_tree
from zkcoord.migrate import BlockingTree, current, served
from zkcoord.tree.brokers_move import READS, BrokersMove, cluster_of, move_of, written
from zkcoord.tree.bulk import data
from zkcoord.tree.candidate import describe
from zkcoord.tree.paths import BROKERS, CANDIDATES, CLUSTER_ID, FROM_KAFKA, MIGRATION, TOPICS, Layout
from zkcoord.tree.registration import decode_registration
from zkcoord.tree.snapshot import Kind, Node, Read

if TYPE_CHECKING:
    from zkcoord.kafka.client import KafkaClient

WORD_SECONDS, ANSWER_BYTES_MAX = 5.0, 1 << 20
READS_TIMED = 20
WRITES_SECONDS, LOOK_SECONDS = 10.0, 0.5
"""A KRaft controller that moves brokers writes to ZooKeeper every second or two. The first value is how long such a
write is waited for, the second is the pause between two looks."""
REFUSED = "is not executed because it is not in the whitelist"
NOT_SERVING = "is not currently serving requests"  # the answer of a server without a quorum

SERVERS_AT_ONCE = 16
WORDS: Mapping[str, str] = {"srvr": ": ", "mntr": "\t", "conf": "=", "dirs": ": ", "cons": ""}
"""Four-letter word -> the text between key and value in its answer (the answer to `cons` has other lines)."""

LENGTH_BYTES = 4
"""Bytes of the length that comes before each name in a list."""

_SESSION = re.compile(r"sid=0x([0-9a-f]+),.*?\bto=(\d+)")


def ask_servers(
    hosts: Sequence[tuple[str, int]], tls: ssl.SSLContext | None = None, seconds: float = WORD_SECONDS
) -> list[ServerFacts]:
    """Ask all servers in parallel, so that several silent servers cost the time of one. The facts are in the order of
    `hosts`."""
    with ThreadPoolExecutor(SERVERS_AT_ONCE) as pool:
        return list(pool.map(lambda each: ask_server(each[0], each[1], tls, seconds), hosts))


def ask_server(host: str, port: int, tls: ssl.SSLContext | None = None, seconds: float = WORD_SECONDS) -> ServerFacts:
    """Ask one server, over TLS if `tls` is given. A server that does not answer within so many seconds raises nothing:
    `unreachable` says it."""
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    answers: dict[str, Mapping[str, str]] = {}
    sessions: dict[int, int] = {}
    refused: list[str] = []
    without_quorum = False
    for word, between in WORDS.items():
        try:
            text = _word(host, port, word, tls, seconds)
        except _SilenceError as silent:
            if silent.silence is Silence.CLOSES and (answers or refused or without_quorum):
                continue  # a server that does not know the word: 3.4 has no `dirs`
            return ServerFacts(address=address, unreachable=f"{word}: {silent}", silence=silent.silence)
        if NOT_SERVING in text:
            without_quorum = True
        elif REFUSED in text:
            refused.append(word)
        elif between:
            answers[word] = _pairs(text, between)
        else:
            sessions = {int(each[1], 16): int(each[2]) for each in _SESSION.finditer(text)}
    srvr, mntr, conf, dirs = (answers.get(word, {}) for word in ("srvr", "mntr", "conf", "dirs"))
    told = ServerFacts(address=address, srvr=srvr, mntr=mntr, conf=conf, dirs=dirs)
    return replace(told, refused=tuple(refused), sessions=sessions, without_quorum=without_quorum)


class _SilenceError(Exception):
    """A server did not answer a four-letter word."""

    def __init__(self, silence: Silence, why: str) -> None:
        super().__init__(why)
        self.silence = silence


def _word(host: str, port: int, word: str, tls: ssl.SSLContext | None, seconds: float) -> str:
    """Return a server's answer to a four-letter word, which is never empty: a server answers each word that it knows,
    if only with a refusal. _SilenceError if there is no answer."""
    with ExitStack() as stack:
        try:
            connection = stack.enter_context(socket.create_connection((host, port), timeout=seconds))
        except socket.gaierror as error:
            raise _SilenceError(Silence.NO_NAME, _why(error)) from error
        except ConnectionRefusedError as error:
            raise _SilenceError(Silence.REFUSED, _why(error)) from error
        except OSError as error:
            raise _SilenceError(Silence.NO_ROUTE, _why(error)) from error
        answer = b""
        try:
            if tls is not None:
                connection = stack.enter_context(tls.wrap_socket(connection, server_hostname=host))
            connection.sendall(word.encode("ascii"))
            with suppress(ssl.SSLEOFError):  # the server closes the connection without TLS' closing message
                while len(answer) < ANSWER_BYTES_MAX and (read := connection.recv(65_536)):
                    answer += read
        except TimeoutError as error:
            raise _SilenceError(Silence.HANGS, f"no answer within {seconds:g} s") from error
        except OSError as error:
            raise _SilenceError(Silence.CLOSES, _why(error)) from error
    if not answer:
        raise _SilenceError(Silence.CLOSES, "the connection was ended without an answer")
    return answer.decode("utf-8", "backslashreplace")


def _why(error: OSError) -> str:
    """Return the system's text for the error, without the error number."""
    return error.strerror or str(error)


def _pairs(text: str, between: str) -> dict[str, str]:
    """Return the keys and values of an answer.

    >>> _pairs("tickTime=2000\\nno pair", "=")
    {'tickTime': '2000'}
    """
    found = (line.partition(between) for line in text.splitlines())
    return {key.strip(): value.strip() for key, there, value in found if there}


def ask_tree(
    tree: BlockingTree, *, logs_in: bool = False, wait_s: float = WRITES_SECONDS, look_s: float = LOOK_SECONDS
) -> TreeFacts:
    """Read the facts in ZooKeeper, except who may write there. `wait_s`: how long to wait for a write of the
    controllers that move Kafka's brokers; `look_s`: between two looks for it."""
    read_ms = []
    for _ in range(READS_TIMED):
        begun_ns = time.monotonic_ns()
        tree.read([Read("/")])
        read_ms.append((time.monotonic_ns() - begun_ns) // 1_000_000)
    listed = tree.read([Read(path, Kind.CHILDREN) for path in (BROKERS, TOPICS, CANDIDATES)])
    brokers, topics, standing = listed
    cluster, *moving = tree.read([Read(CLUSTER_ID), *READS])
    schema = current(tree)
    nodes = data(tree.read, [f"{CANDIDATES}/{name}" for name in standing.children])
    candidates = [(node.path.rpartition("/")[2], describe(node.data), node.stat) for node in nodes if node.stat]
    ahead = {name: _ahead_ms(said, stat.mtime_ms) for name, said, stat in candidates}
    serving = read_tree(tree, "this address").coordinator if schema is not None else None
    move = move_of(moving)
    return TreeFacts(
        read_ms=tuple(read_ms),
        logs_in=logs_in,
        brokers=len(brokers.children) if brokers.exists else None,
        topics=len(topics.children) if topics.exists else None,
        move=move,
        controllers_write=_written_again(tree, moving[0], wait_s, look_s) if move is BrokersMove.MOVING else None,
        cluster_id=cluster_of(schema, cluster),
        from_kafka=schema is not None and schema.topics == FROM_KAFKA,
        revision=schema.revision if schema is not None else None,
        served=served(),
        serving=serving,
        candidates=tuple(said for _, said, _ in candidates),
        candidate_sessions=tuple(stat.ephemeral_owner for _, _, stat in candidates),
        candidates_ahead_ms={name: ms for name, ms in ahead.items() if ms is not None},
        listing_bytes={n.path: sum(LENGTH_BYTES + len(c.encode()) for c in n.children) for n in listed if n.exists},
    )


def _written_again(tree: BlockingTree, migration: Node, wait_s: float, look_s: float) -> bool:
    """Wait until the controllers that move brokers have written to ZooKeeper again; False: they did not in `wait_s`."""
    deadline, seen = time.monotonic() + wait_s, written(None, migration, 0)
    while written(seen, tree.read([Read(MIGRATION)])[0], 0) is seen:
        if time.monotonic() >= deadline:
            return False
        time.sleep(look_s)
    return True


def _ahead_ms(said: Mapping[str, object], written_ms: int) -> int | None:
    """Return how far a coordinator's clock is ahead of ZooKeeper's, at least: the time at which its process began, by
    its own clock, minus the time at which its node was written. None if that is not positive.

    A process begins before it writes its node, maybe long before. So a clock that is behind cannot be recognised.
    """
    with suppress(ValueError):
        since_ms = int(datetime.fromisoformat(str(said.get("since"))).timestamp() * 1000)
        return since_ms - written_ms if since_ms > written_ms else None
    return None


def ask_groups(tree: BlockingTree, users: Callable[[str], Collection[str]]) -> list[GroupFacts]:
    """Read all groups. `users(group)` asks Kafka for consumers of Kafka's own protocol with this group id."""
    if current(tree) is None:
        return []
    layout = read_tree(tree, "this address").layout
    found = []
    for name in group_names(tree, layout):
        if may_name_a_group(name):
            with suppress(UsageError):  # the group was removed meanwhile
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
    return KafkaFacts(
        brokers=found.brokers,
        cluster_id=found.cluster_id,
        config=found.config,
        gone=found.gone,
        leaderless=found.leaderless,
    )
