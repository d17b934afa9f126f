"""`zkcoord audit`: checks groups from outside, once or continuously. It writes nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager

import click

from zkcoord.audit.audit import Audit, Key
from zkcoord.audit.auditor import Auditor
from zkcoord.audit.checks import Suspicion
from zkcoord.cli.options import Address, Command, Settings, number_option, pass_settings
from zkcoord.cli.output import print_json, wrapped
from zkcoord.clock import mono_ms
from zkcoord.core.severity import Severity
from zkcoord.errors import UnavailableError
from zkcoord.operating.saying import Anew, Tone, say
from zkcoord.operating.words import cell
from zkcoord.shell.zk.blocking import LastingTree
from zkcoord.signals import stopping

HANG = 2
FOUND = 8
"""The exit code if there is a finding at the end."""


@click.command(cls=Command, example="zkcoord audit --once --group etl --patience-ms 10000")
@click.option("--group", "groups", multiple=True, metavar="G", help="Check only this group; may be repeated.")
@click.option("--once", is_flag=True, help="End as soon as each suspicion is gone, or is a finding.")
@number_option("--interval-ms", default=5_000, text="Time between two readings.", least=100)
@number_option(
    "--patience-ms", default=60_000, text="Longest time of a hand-over. A suspicion that lasts longer is a finding."
)
@number_option("--window-ms", default=60_000, text="Time over which lag is judged.", least=1)
@click.option("--metrics", type=Address(), metavar="HOST:PORT", help="Serve the findings as metrics at this address.")
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

    It checks that each partition has one reader, that each owner is alive, that members obey commands and read the
    partitions that they own, and that no node is orphaned. With --bootstrap-servers it also checks that offsets lie in
    their logs, and that they move while there is lag (as Burrow judges it).

    Without --once it runs until SIGTERM or SIGINT, and prints each finding when it begins and when it is over. It
    writes nothing. The exit code is 8 if there is a finding at the end.
    """
    with ExitStack() as stack:
        tree = stack.enter_context(LastingTree(settings.tree))
        auditor, anew = Auditor(tree, settings.zookeeper_address(), Audit(patience_ms, window_ms), groups), Anew()
        _with_kafka(settings, auditor, stack, anew)
        stack.enter_context(_served(metrics, auditor))
        asked = stack.enter_context(stopping())
        told = _run(auditor, asked, anew, once=once, interval_ms=interval_ms, json=settings.json)
        if once:
            _report(told, auditor, settings)
    if told:
        click.get_current_context().exit(FOUND)


def _run(
    auditor: Auditor, asked: threading.Event, anew: Anew, *, once: bool, interval_ms: int, json: bool
) -> Mapping[Key, Suspicion]:
    """Read until the user ends it, or with `once` until nothing is undecided. Return the findings of the last reading.

    `anew` is told why a reading is not complete.
    """
    told: dict[Key, Suspicion] = {}
    wait_said = False
    while True:
        anew.look()
        failed = auditor.failed
        try:
            auditor.read(mono_ms)
            if failed is not None:
                say("notice", "groups can be read again")
        except UnavailableError as error:
            if once:
                raise
            anew(f"{error}; it is read again every {interval_ms} ms")
        now = {each.key: each for each in auditor.audit.findings}
        if not once:
            _tell_changes(told, now, json=json)
        told = now
        if once and auditor.audit.undecided and not wait_said:
            wait_said = True
            say("notice", _waits(auditor.audit))
        if asked.is_set() or (once and not auditor.audit.undecided) or asked.wait(interval_ms / 1000):
            return told


def _waits(audit: Audit) -> str:
    longest_ms = max(audit.patience_ms, audit.window_ms)
    return f"{audit.undecided} not decided yet: reads on for some {longest_ms} ms (--patience-ms, --window-ms)"


def _tell_changes(before: Mapping[Key, Suspicion], now: Mapping[Key, Suspicion], *, json: bool) -> None:
    for key in sorted(now.keys() - before.keys()):
        _tell(now[key], json=json, over=False)
    for key in sorted(before.keys() - now.keys()):
        _tell(before[key], json=json, over=True)


def _tell(of: Suspicion, *, json: bool, over: bool) -> None:
    if json:
        print_json({**of.document(), "over": over})
        return
    where = f"{of.group} {of.subject}".strip()
    if over:
        click.echo(cell(f"over {of.check} {where}"))
    else:
        tone = Tone.BAD if of.severity is Severity.ERR else Tone.MOVING
        click.echo(wrapped(f"{of.severity.name} {of.check} {where}: {of.what}; {of.todo}", HANG, tone))


def _report(told: Mapping[Key, Suspicion], auditor: Auditor, settings: Settings) -> None:
    for _, finding in sorted(told.items()):
        _tell(finding, json=settings.json, over=False)
    if not told and not settings.json:
        judged = len(auditor.audit.verdicts)
        lag = f"the lag of {judged} partitions was judged" if settings.kafka_address() else "Kafka was not asked"
        say("notice", f"nothing is wrong; {lag}")


def _with_kafka(settings: Settings, auditor: Auditor, stack: ExitStack, tell: Callable[[str], None]) -> None:
    """Let the auditor ask Kafka, too, if the command has brokers' addresses. `tell` is called with what Kafka does not
    tell."""
    if settings.kafka_address() is None:
        return
    from zkcoord.cli.kafka_options import kafka_client
    from zkcoord.offsets.kafka_logs import known_logs
    from zkcoord.offsets.kafka_store import KafkaCommits

    client = stack.enter_context(kafka_client(settings))
    auditor.logs, auditor.commits = known_logs(client, tell), KafkaCommits(client)


@contextmanager
def _served(address: str | None, auditor: Auditor) -> Iterator[None]:
    """Serve the findings as metrics during the block."""
    if address is None:
        yield
        return
    from zkcoord.metrics.start import endpoint_at

    endpoint = endpoint_at(address)
    from zkcoord.metrics.endpoint import Part

    def busy() -> str | None:
        return None if auditor.failed is None else str(auditor.failed)

    part = Part("audit", sick=lambda: None, busy=busy, samples=lambda: auditor.samples(mono_ms()))
    endpoint.add(part)
    try:
        yield
    finally:
        endpoint.remove(part)
