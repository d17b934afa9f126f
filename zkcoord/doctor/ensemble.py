"""Judges ZooKeeper's servers together: which serve, which are away and why, and whether there is a quorum. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from zkcoord.core.severity import Severity
from zkcoord.doctor.facts import ACTS, CALLER, Finding, ServerFacts, Silence
from zkcoord.doctor.limits import number

AREA = "zookeeper"
LEADS, ALONE = "leader", "standalone"
NETWORK = "whoever runs the network"
MENDS: dict[Silence, tuple[str, str, str]] = {
    Silence.NO_NAME: (
        "has a name that nobody here knows",
        f"{CALLER}, or whoever keeps the DNS",
        "correct the name in --zookeeper, or add it to the DNS",
    ),
    Silence.NO_ROUTE: (
        "cannot be reached: nothing comes back from its address",
        f"{NETWORK} or that machine",
        "start the machine, or mend the network or the firewall before it",
    ),
    Silence.REFUSED: (
        "does not run: its machine answers that nobody listens on this port",
        f"{ACTS[AREA]}, or {CALLER}",
        "start it, or correct the port; its log says why it ended",
    ),
    Silence.HANGS: (
        "hangs: it takes connections and answers nothing",
        ACTS[AREA],
        "look at its process (stopped, swapping, a garbage collection, a disk that hangs), and restart it; its clients"
        " go to another server by themselves",
    ),
    Silence.CLOSES: (
        "ends connections without an answer",
        f"{CALLER}, or {ACTS[AREA]}",
        "correct the address if something else listens there (Kafka does so); give `tls = true` in the file of"
        " --zookeeper-config if the port wants TLS, and leave it out if not; else raise maxClientCnxns",
    ),
}
"""For each kind of silence of a server: what the server does, who must act, and what they must do."""


def judge(servers: Sequence[ServerFacts]) -> Iterator[Finding]:
    """Return all findings about the servers together. `servers`: those that the user named, at least one."""
    leaders = [each for each in servers if each.mode == LEADS]
    in_step = _all_in_step(leaders, len(servers))
    for each in servers:
        if each.unreachable is not None:
            yield _silent(each, in_step)
    yield from _without_quorum(servers)
    if len(leaders) > 1:
        what = "two servers say that they lead: the network between the servers is cut"
        remedy = "mend the network between them; a leader without followers steps back within syncLimit ticks"
        evidence = ", ".join(each.address for each in leaders)
        yield Finding(Severity.ERR, AREA, what, evidence, remedy, NETWORK)
    yield from _whole(servers)
    for each in servers:
        yield from _followers(each)


def serve_nobody(servers: Sequence[ServerFacts]) -> bool:
    """True if, by their answers, no server can serve a client. Then no session can be opened."""
    return all(each.unreachable is not None or each.serves is False for each in servers)


def _all_in_step(leaders: Sequence[ServerFacts], servers: int) -> bool:
    """True if all other servers are in sync with the leader. A server that does not answer this program runs then,
    too."""
    return len(leaders) == 1 and number(leaders[0].mntr.get("zk_synced_followers")) == servers - 1


def _silent(server: ServerFacts, in_step: bool) -> Finding:
    says, who, remedy = MENDS[server.silence]
    evidence = str(server.unreachable)
    if in_step and server.silence is Silence.NO_ROUTE:
        evidence += "; the leader has it in step: it runs, and the other servers reach it"
        who, remedy = NETWORK, "mend the network or the firewall between here and this server"
    return Finding(Severity.ERR, AREA, f"{server.address} {says}", evidence, remedy, who)


def _without_quorum(servers: Sequence[ServerFacts]) -> Iterator[Finding]:
    without = [each for each in servers if each.serves is False]
    if without and serve_nobody(servers):
        what = "no quorum: none of these servers serves"
        remedy = (
            "start the servers that do not run and mend the network between them, until a majority is together; until"
            " then consumers stop at the ends of their leases, and nobody is given a partition"
        )
        yield Finding(Severity.ERR, AREA, what, ", ".join(map(_state, servers)), remedy)
        return
    for each in without:
        evidence = f"it says: {each.mode or 'not serving'}; others serve"
        remedy = (
            "mend the network between it and the other servers (the ports of server.N in zoo.cfg); while it starts,"
            " it says the same for a moment"
        )
        what = f"{each.address} runs without a quorum: it is cut off from the other servers"
        yield Finding(Severity.ERR, AREA, what, evidence, remedy, f"{NETWORK}, or {ACTS[AREA]}")


def _state(server: ServerFacts) -> str:
    said = "does not answer" if server.unreachable is not None else server.mode or "does not serve"
    return f"{server.address} {said}"


def _whole(servers: Sequence[ServerFacts]) -> Iterator[Finding]:
    """Judge the servers that serve: their number, and whether the loss of one more ends the quorum."""
    serving = [each for each in servers if each.serves]
    unknown = [each for each in servers if each.unreachable is None and each.serves is None]
    said = ", ".join(f"{each.address} {each.mode}" for each in serving)
    if any(each.mode == ALONE for each in serving):
        what = "there is no quorum: when this server is away nobody coordinates"
        remedy = "for production take three servers or more, each on a machine of its own"
        yield Finding(Severity.WARN, AREA, what, said, remedy)
    elif serving and len(servers) == 1:
        remedy = "name all of them in --zookeeper: a program that knows one cannot change to another"
        yield Finding(Severity.WARN, AREA, "only one server of an ensemble is named", said, remedy, CALLER)
    elif len(serving) == len(servers) // 2 + 1 < len(servers) and not unknown:
        what = f"{len(serving)} of {len(servers)} servers serve: if one more goes, there is no quorum"
        yield Finding(Severity.WARN, AREA, what, said, "bring the others back before anything is restarted")
    elif serving:
        yield Finding(Severity.OK, AREA, "ensemble", said)


def _followers(leader: ServerFacts) -> Iterator[Finding]:
    followers, synced = number(leader.mntr.get("zk_learners")), number(leader.mntr.get("zk_synced_followers"))
    if followers is not None and synced is not None and synced < followers:
        evidence = f"{synced} of {followers} followers are in step"
        yield Finding(
            Severity.WARN, AREA, f"{leader.address} leads, and followers lag", evidence, "look at their disks"
        )
