"""`zkcoord doctor`: examines a deployment, and reports faults with evidence and remedy. It writes nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

import click

from zkcoord.cli.audit import FOUND
from zkcoord.cli.options import Command, Settings, pass_settings
from zkcoord.cli.output import print_json, wrapped
from zkcoord.core.severity import Severity
from zkcoord.doctor import ensemble, fleet, kafka, zookeeper
from zkcoord.doctor.asking import ask_groups, ask_kafka, ask_servers, ask_tree
from zkcoord.doctor.facts import Finding, GroupFacts, KafkaFacts, ServerFacts, TreeFacts
from zkcoord.errors import UnavailableError, ZkcoordError
from zkcoord.offsets.ports import GroupStore
from zkcoord.operating.saying import Tone
from zkcoord.settings import version
from zkcoord.shell.zk.acls import open_to_everybody
from zkcoord.shell.zk.config import parse_connect

Users = Callable[[str], Collection[str]]
"""Returns the consumers of Kafka's own protocol in a group id."""

HANG = len("WARN ")
LOOKED_AT = ("/zkcoord", "/consumers", "/zkcoord/coordinators", "/brokers/topics")


@click.command(cls=Command, example="zkcoord doctor --zookeeper zk1:2181,zk2:2181 --bootstrap-servers kafka1:9092")
@click.option("--all", "all_", is_flag=True, help="Also show what is in order.")
@pass_settings
def doctor(settings: Settings, all_: bool) -> None:
    """Look at ZooKeeper, Kafka, coordinators and groups, and report what does not fit.

    Each finding has a severity (ERR, WARN, INFO), its evidence, who must act, and what to do. The command writes
    nothing. It also works before zkcoord is installed. The exit code is 8 if there is an ERR.
    """
    found = _examine(settings)
    shown = [each for each in found if all_ or each.severity > Severity.OK]
    for each in sorted(shown, key=lambda one: -one.severity):
        _tell(settings, each)
    if not settings.json:
        worst = [f"{sum(one.severity is each for one in found)} {each.name}" for each in reversed(Severity)]
        click.echo(", ".join(worst))
    if any(each.severity is Severity.ERR for each in found):
        click.get_current_context().exit(FOUND)


def _examine(settings: Settings) -> Sequence[Finding]:
    address = settings.zookeeper_address()
    tls = settings.zookeeper_settings().tls_context()
    servers = ask_servers(parse_connect(address).hosts, tls)
    with ExitStack() as stack:
        brokers, users = _kafka(settings, stack)
        if ensemble.serve_nobody(servers):
            return _without_tree(servers, brokers)
        try:
            tree = stack.enter_context(settings.tree())
            facts = ask_tree(tree, logs_in=_logs_in(settings))  # first, because it finds a chroot that does not exist
            facts = replace(facts, writes_anybody=_open(settings))
            groups = ask_groups(tree, users)
        except UnavailableError as error:
            return _without_tree(servers, brokers, str(error))
    return _judged(servers, facts, brokers, groups)


def _without_tree(servers: Sequence[ServerFacts], brokers: KafkaFacts | None, why: str = "") -> Sequence[Finding]:
    """Return the findings while ZooKeeper gives no session. `why`: why there is none although the servers seem to
    serve."""
    found = [*zookeeper.judge(servers, TreeFacts(), ()), *kafka.judge(None, brokers, ())]
    if why:
        what = "no session can be had, so coordinators and groups were not looked at"
        remedy = "look at the servers that are named here, and at their logs; then run this again"
        found.append(Finding(Severity.ERR, ensemble.AREA, what, why, remedy))
    return found


def _judged(
    servers: Sequence[ServerFacts], facts: TreeFacts, brokers: KafkaFacts | None, groups: Sequence[GroupFacts]
) -> Sequence[Finding]:
    known = {session: ms for each in servers for session, ms in each.sessions.items()}
    own = {known[session] for session in facts.candidate_sessions if session in known}
    timeouts = sorted(own | {m.session_timeout_ms for g in groups for m in g.members if m.speaks_protocol})
    return [
        *zookeeper.judge(servers, facts, timeouts),
        *kafka.judge(facts, brokers, groups),
        *fleet.judge(facts, groups, version()),
    ]


def _open(settings: Settings) -> tuple[str, ...]:
    config, limit_ms = settings.zookeeper_settings(), settings.limits.tree_wait_ms
    return open_to_everybody(settings.zookeeper_address(), LOOKED_AT, config, timeout_ms=limit_ms)


def _logs_in(settings: Settings) -> bool:
    config = settings.zookeeper_settings()
    return bool(config.digest or config.sasl or config.tls_certificate)


def _kafka(settings: Settings, stack: ExitStack) -> tuple[KafkaFacts | None, Users]:
    """Ask the brokers, if the command has their addresses. Return their answers, and a function that returns a group's
    users.

    `stack` closes the client, which both use.
    """
    servers = settings.kafka_address()
    if servers is None:
        return None, _nobody
    from zkcoord.kafka.client import KafkaClient
    from zkcoord.offsets.kafka_store import KafkaCommits

    client = stack.enter_context(KafkaClient(servers, settings.kafka_settings()))
    facts = ask_kafka(client)
    return facts, _nobody if facts.unreachable is not None else partial(_users, KafkaCommits(client))


def _nobody(group: str) -> Collection[str]:
    return ()


def _users(commits: GroupStore, group: str) -> Collection[str]:
    """Return the consumers of Kafka's own protocol in this group id; none if Kafka does not tell."""
    try:
        return commits.users(group)
    except ZkcoordError:
        return ()


def _tell(settings: Settings, finding: Finding) -> None:
    if settings.json:
        document: dict[str, Any] = {
            "severity": finding.severity.name,
            "area": finding.area,
            "what": finding.what,
            "evidence": finding.evidence,
            "who": finding.acts or None,
            "remedy": finding.remedy or None,
        }
        print_json(document)
        return
    tone = {"ERR": Tone.BAD, "WARN": Tone.MOVING}.get(finding.severity.name)
    click.echo(wrapped(f"{finding.severity.name:4} {finding.area}: {finding.what}", HANG, tone))
    click.echo(wrapped(f"     seen: {finding.evidence}", 2 * HANG + 1))
    if finding.remedy:
        click.echo(wrapped(f"     do:   {finding.acts}: {finding.remedy}", 2 * HANG + 1))
