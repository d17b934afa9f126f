"""Judges the limits of ZooKeeper's servers: session timeouts, the size of snapshots and logs, the size of an answer.
Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from zkcoord.core.severity import Severity
from zkcoord.core.view import SESSION_TIMEOUT_MS
from zkcoord.doctor.facts import Finding, ServerFacts, TreeFacts

AREA = "zookeeper"
FOLDER_BYTES_MANY = 4 << 30
"""Bytes of snapshots or logs above which there is a warning: ZooKeeper keeps all of them unless it is told to purge
them, until the disk is full."""

ANSWER_BYTES_MAX = 1 << 20
"""Bytes of one request or answer with the default of `jute.maxbuffer` (0xfffff)."""


def judge(servers: Sequence[ServerFacts], tree: TreeFacts, session_timeouts_ms: Sequence[int]) -> Iterator[Finding]:
    """Return all findings about limits. `session_timeouts_ms`: the known timeouts of members and coordinators."""
    for each in servers:
        yield from _folders(each)
    yield from _sessions(servers, session_timeouts_ms)
    yield from _answers(tree)


def number(text: str | None) -> int | None:
    """Return the number in a server's answer; None if the text is no number."""
    return int(text) if text is not None and re.fullmatch(r"\d+", text) else None


def _folders(server: ServerFacts) -> Iterator[Finding]:
    """Judge the size of snapshots and logs: from the answer to `dirs`, or to `conf`, which has the same values."""
    said = {
        "snapshots": number(server.dirs.get("datadir_size", server.conf.get("dataDirSize"))),
        "logs": number(server.dirs.get("logdir_size", server.conf.get("dataLogSize"))),
    }
    sizes = {name: size for name, size in said.items() if size is not None}
    if not sizes:
        return
    evidence = ", ".join(f"{name} {size >> 20} MiB" for name, size in sizes.items())
    what = f"{server.address}: snapshots and logs"
    if max(sizes.values()) > FOLDER_BYTES_MANY:
        remedy = "autopurge.purgeInterval=24 and autopurge.snapRetainCount in zoo.cfg: a server whose disk is full ends"
        yield Finding(Severity.WARN, AREA, f"{what} take much room", evidence, remedy)
    else:
        yield Finding(Severity.OK, AREA, what, evidence)


def _sessions(servers: Sequence[ServerFacts], session_timeouts_ms: Sequence[int]) -> Iterator[Finding]:
    limits = {each.address: found for each in servers if (found := _limits(each.conf)) is not None}
    if not limits:
        return
    evidence = ", ".join(f"{where} {least} to {most} ms" for where, (least, most) in limits.items())
    if len({*limits.values()}) > 1:
        remedy = "the same minSessionTimeout, maxSessionTimeout and tickTime on all: it depends on the server otherwise"
        yield Finding(Severity.WARN, AREA, "servers allow different session timeouts", evidence, remedy)
    least, most = max(low for low, _ in limits.values()), min(high for _, high in limits.values())
    outside = sorted({each for each in session_timeouts_ms if not least <= each <= most})
    if outside:
        seen = f"{evidence}; sessions of {', '.join(map(str, outside))} ms"
        remedy = "widen minSessionTimeout and maxSessionTimeout, or start these programs with another session timeout"
        yield Finding(Severity.WARN, AREA, "sessions would not get their timeout again", seen, remedy)
    elif not least <= SESSION_TIMEOUT_MS <= most:
        longer = "longer" if least > SESSION_TIMEOUT_MS else "shorter"
        remedy = (
            "nothing, if it is meant so: deaths are noticed after the session timeout, and leases last two thirds of it"
        )
        what = f"session timeouts are {longer} than what programs ask for by default, {SESSION_TIMEOUT_MS} ms"
        yield Finding(Severity.INFO, AREA, what, evidence, remedy)
    else:
        yield Finding(Severity.OK, AREA, "limits of session timeouts", evidence)


def _limits(conf: Mapping[str, str]) -> tuple[int, int] | None:
    least, most = number(conf.get("minSessionTimeout")), number(conf.get("maxSessionTimeout"))
    return None if least is None or most is None else (least, most)


def _answers(tree: TreeFacts) -> Iterator[Finding]:
    """Judge whether an answer is near the default of `jute.maxbuffer`. The value of the servers is not known: no
    four-letter word shows it."""
    if not tree.listing_bytes:
        return
    path, size = max(tree.listing_bytes.items(), key=lambda each: (each[1], each[0]))
    evidence = f"the list of {path} has {size} bytes; without jute.maxbuffer an answer has {ANSWER_BYTES_MAX} at most"
    if size > ANSWER_BYTES_MAX // 2:
        severity = Severity.ERR if size > ANSWER_BYTES_MAX else Severity.WARN
        remedy = (
            "set the system property jute.maxbuffer higher on all servers and Java clients, or delete what is not used"
        )
        yield Finding(severity, AREA, "a list of nodes is near the largest answer", evidence, remedy)
    else:
        yield Finding(Severity.OK, AREA, "the size of answers", evidence)
