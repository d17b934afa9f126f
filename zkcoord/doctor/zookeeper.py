"""Judges ZooKeeper: the answers of each server, the latency, the limits, and the rights to write. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from zkcoord.core.severity import Severity
from zkcoord.doctor import ensemble, limits
from zkcoord.doctor.facts import Finding, ServerFacts, TreeFacts
from zkcoord.doctor.limits import number

AREA = "zookeeper"
MULTI_SINCE, MAINTAINED_SINCE = (3, 4), (3, 8)
SLOW_MS, VERY_SLOW_MS = 20, 200
DATA_BYTES_MANY = 512 * 1024 * 1024
FILES_FEW = 100
TICKS = 5  # a session timeout should have this many ticks at least


def judge(servers: Sequence[ServerFacts], tree: TreeFacts, session_timeouts_ms: Sequence[int]) -> Iterator[Finding]:
    """Return all findings about ZooKeeper. `session_timeouts_ms`: the timeouts of members and coordinators."""
    for each in servers:
        yield from _server(each, session_timeouts_ms)
    yield from limits.judge(servers, tree, session_timeouts_ms)
    yield from ensemble.judge(servers)
    yield from _latency(tree.read_ms)
    if tree.writes_anybody:
        severity = Severity.WARN if tree.logs_in else Severity.INFO
        remedy = (
            "protect them: `acl` in the file of --zookeeper-config for new nodes, and ZooKeeper's setAcl for old ones"
        )
        evidence = f"world:anyone:cdrwa on {', '.join(tree.writes_anybody)}"
        yield Finding(severity, AREA, "everybody who reaches ZooKeeper may write these nodes", evidence, remedy)


def version_of(srvr: Mapping[str, str]) -> tuple[int, ...] | None:
    """Return the server's version, from its answer to `srvr`.

    >>> version_of({"Zookeeper version": "3.9.3-c26634f, built on 2024-10-17"})
    (3, 9, 3)
    """
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", srvr.get("Zookeeper version", ""))
    return None if found is None else tuple(int(part) for part in found.groups())


def _server(server: ServerFacts, session_timeouts_ms: Sequence[int]) -> Iterator[Finding]:
    where = server.address
    if server.unreachable is not None or server.serves is False:
        return  # ensemble.py judges it
    if server.refused:
        remedy = "to see versions and limits: 4lw.commands.whitelist=srvr,mntr,conf,dirs,cons in zoo.cfg"
        said = f"not allowed: {', '.join(server.refused)}"
        yield Finding(Severity.INFO, AREA, f"{where} does not allow all four-letter words", said, remedy)
    version = version_of(server.srvr)
    if version is not None:
        said = server.srvr["Zookeeper version"].partition(",")[0]
        if version < MULTI_SINCE:
            yield Finding(Severity.ERR, AREA, f"{where} is too old: it has no transactions", said, "upgrade it")
        elif version < MAINTAINED_SINCE:
            remedy = "upgrade to 3.8 or newer"
            yield Finding(Severity.WARN, AREA, f"{where} is a release that gets no mends any more", said, remedy)
        else:
            yield Finding(Severity.OK, AREA, f"{where}: version", said)
    yield from _limits(where, server)
    yield from _ticks(where, server.conf, session_timeouts_ms)


def _limits(where: str, server: ServerFacts) -> Iterator[Finding]:
    known = {
        name: number(server.mntr.get(f"zk_{name}"))
        for name in (
            "approximate_data_size",
            "open_file_descriptor_count",
            "max_file_descriptor_count",
            "num_alive_connections",
        )
    }
    size = known["approximate_data_size"]
    if size is not None and size > DATA_BYTES_MANY:
        remedy = "snapshots of this size make restarts and elections slow: find who writes so much"
        yield Finding(Severity.WARN, AREA, f"{where} holds much data", f"about {size >> 20} MiB", remedy)
    files, files_max = known["open_file_descriptor_count"], known["max_file_descriptor_count"]
    if files is not None and files_max is not None and files_max - files < FILES_FEW:
        remedy = "raise its limit of open files (ulimit -n)"
        yield Finding(Severity.ERR, AREA, f"{where} has few file descriptors left", f"{files} of {files_max}", remedy)
    most, connections = number(server.conf.get("maxCnxns")), known["num_alive_connections"]
    if most and connections is not None and connections > most * 4 // 5:
        evidence = f"{connections} of maxCnxns={most}"
        yield Finding(Severity.WARN, AREA, f"{where} has few connections left", evidence, "raise maxCnxns")
    each = number(server.conf.get("maxClientCnxns"))
    if each is not None and 0 < each < 60:
        remedy = "raise it: each coordinator and each consumer of a machine holds one connection, tools another"
        evidence = f"maxClientCnxns={each}"
        yield Finding(Severity.WARN, AREA, f"{where} allows few connections from one machine", evidence, remedy)


def _ticks(where: str, conf: Mapping[str, str], session_timeouts_ms: Sequence[int]) -> Iterator[Finding]:
    tick_ms = number(conf.get("tickTime"))
    if tick_ms is None or not session_timeouts_ms:
        return
    shortest = min(session_timeouts_ms)
    evidence = f"tickTime={tick_ms}, session timeouts from {shortest} ms"
    if shortest < TICKS * tick_ms:
        remedy = f"a session timeout of {TICKS} ticks or more ({TICKS * tick_ms} ms), or a shorter tickTime"
        yield Finding(Severity.WARN, AREA, f"{where}: session timeouts are short for its ticks", evidence, remedy)
    else:
        yield Finding(Severity.OK, AREA, f"{where}: ticks and session timeouts", evidence)


def _latency(read_ms: Sequence[int]) -> Iterator[Finding]:
    if not read_ms:
        return
    middle, worst = sorted(read_ms)[len(read_ms) // 2], max(read_ms)
    evidence = f"{len(read_ms)} reads from here: half of them within {middle} ms, the slowest {worst} ms"
    if middle > VERY_SLOW_MS:
        remedy = "run coordinators and consumers near the ensemble; look at its disks and its garbage collections"
        yield Finding(Severity.ERR, AREA, "ZooKeeper answers very slowly", evidence, remedy)
    elif middle > SLOW_MS:
        remedy = "run coordinators near the ensemble: a hand-over takes three round trips and more"
        yield Finding(Severity.WARN, AREA, "ZooKeeper answers slowly", evidence, remedy)
    else:
        yield Finding(Severity.OK, AREA, "latency", evidence)
