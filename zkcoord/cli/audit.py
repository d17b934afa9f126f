"""`zkcoord audit`: checks groups from outside, once or all the time; writes nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import click

from zkcoord.audit.audit import Audit, Finding
from zkcoord.audit.auditor import Auditor
from zkcoord.cli.options import Command, Settings, number_option, pass_settings
from zkcoord.cli.output import cell, print_json, say, warn
from zkcoord.clock import mono_ms
from zkcoord.errors import UnavailableError
from zkcoord.signals import stopping

FOUND = 8
"""The exit code when something is wrong."""


@click.command(cls=Command)
@click.option("--group", "groups", multiple=True, metavar="G", help="Only this one; may be repeated.")
@click.option("--once", is_flag=True, help="End as soon as nothing is suspicious, or what is suspicious has lasted.")
@number_option("--interval-ms", default=5_000, text="Between two readings.", least=100)
@number_option("--patience-ms", default=60_000, text="So long a hand-over may take.")
@number_option("--window-ms", default=60_000, text="Lag is judged over this.", least=1)
@click.option("--metrics", metavar="HOST:PORT", help="Serve findings as metrics there.")
@pass_settings
def audit(
    settings: Settings,
    groups: tuple[str, ...],
    once: bool,
    interval_ms: int,
    patience_ms: int,
    window_ms: int,
    metrics: str | None,
) -> None:
    """Check from ZooKeeper and Kafka alone that groups are served as they should be.

    One reader for each partition; a living owner; no old command; members read what they own; offsets lie in their
    logs, and move while there is lag (Burrow's words; needs --bootstrap-servers); no orphaned nodes. Runs until SIGTERM
    or SIGINT, and tells each finding when it begins and when it is over. Writes nothing. Exit code 8 when something is
    wrong at the end.
    """
    with ExitStack() as stack:
        tree = stack.enter_context(settings.tree())
        auditor = Auditor(tree, settings.zookeeper_address(), Audit(patience_ms, window_ms), groups)
        _with_kafka(settings, auditor, stack)
        stack.enter_context(_served(metrics, auditor))
        asked = stack.enter_context(stopping())
        told = _run(auditor, asked, once=once, interval_ms=interval_ms, json=settings.json)
        if once:
            _report(told, auditor, settings)
    if told:
        click.get_current_context().exit(FOUND)


def _run(
    auditor: Auditor, asked: threading.Event, *, once: bool, interval_ms: int, json: bool
) -> Mapping[tuple[str, str, str], Finding]:
    """Read until asked to end, or (once) until nothing is undecided; returns what is wrong then."""
    told: dict[tuple[str, str, str], Finding] = {}
    while True:
        try:
            auditor.read(mono_ms)
        except UnavailableError as error:
            if once:
                raise
            warn(f"{error}; the next reading is in {interval_ms} ms")
        now = {each.of.key: each for each in auditor.audit.findings}
        for key in [] if once else sorted(now.keys() - told.keys()):
            _tell(now[key], json=json, over=False)
        for key in [] if once else sorted(told.keys() - now.keys()):
            _tell(told[key], json=json, over=True)
        told = now
        if asked.is_set() or (once and not auditor.audit.undecided) or asked.wait(interval_ms / 1000):
            return told


def _tell(finding: Finding, *, json: bool, over: bool) -> None:
    if json:
        print_json(_document(finding, over=over))
        return
    of = finding.of
    where = f"{of.group} {of.subject}".strip()
    if over:
        click.echo(cell(f"over {of.check} {where}"))
    else:
        click.echo(cell(f"{of.severity.value} {of.check} {where}: {of.what}; {of.todo}"))


def _document(finding: Finding, *, over: bool) -> dict[str, Any]:
    of = finding.of
    return {
        "severity": of.severity.value,
        "check": of.check,
        "group": of.group,
        "subject": of.subject or None,
        "what": of.what,
        "todo": of.todo,
        "over": over,
    }


def _report(told: Mapping[tuple[str, str, str], Finding], auditor: Auditor, settings: Settings) -> None:
    for _, finding in sorted(told.items()):
        _tell(finding, json=settings.json, over=False)
    if not told and not settings.json:
        judged = len(auditor.audit.verdicts)
        lag = f"the lag of {judged} partitions was judged" if settings.kafka_address() else "Kafka was not asked"
        say("notice", f"nothing is wrong; {lag}")


def _with_kafka(settings: Settings, auditor: Auditor, stack: ExitStack) -> None:
    """Ask Kafka, too, if somebody said where it is."""
    if settings.kafka_address() is None:
        return
    from zkcoord.cli.offset_stores import kafka_client, known_logs
    from zkcoord.offsets.kafka_store import KafkaCommits

    client = stack.enter_context(kafka_client(settings))
    auditor.logs, auditor.commits = known_logs(client), KafkaCommits(client)


@contextmanager
def _served(address: str | None, auditor: Auditor) -> Iterator[None]:
    """Show the findings as metrics within the block."""
    if address is None:
        yield
        return
    from zkcoord.metrics.start import endpoint_at

    endpoint = endpoint_at(address)
    from zkcoord.metrics.endpoint import Part

    busy: Callable[[], str | None] = lambda: None if auditor.failed is None else str(auditor.failed)  # noqa: E731
    part = Part("audit", lambda: None, busy)
    endpoint.looked_up.sources.append(lambda: auditor.samples(mono_ms()))
    endpoint.add(part)
    try:
        yield
    finally:
        endpoint.remove(part)
