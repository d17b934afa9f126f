"""`zkcoord group mend`: shows a group's nodes that nobody can parse, proposes what to write, and asks."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from zkcoord.cli.kafka_options import kafka_side
from zkcoord.cli.options import Command, Settings, pass_settings
from zkcoord.cli.output import print_json
from zkcoord.core.model import TopicPartition
from zkcoord.core.words import count
from zkcoord.errors import CorruptError, UsageError
from zkcoord.group_report import GroupReport, read_group, read_tree
from zkcoord.migrate import BlockingTree
from zkcoord.operating.mending import Broken, broken
from zkcoord.operating.requesting import refuse_moved
from zkcoord.operating.saying import say
from zkcoord.operating.words import printable
from zkcoord.shell.ports import Outcome
from zkcoord.tree.codec import INT64_MAX, partition_of
from zkcoord.tree.paths import Layout
from zkcoord.tree.snapshot import Node, Read
from zkcoord.tree.writes import SetNode, Transaction

SHOWN_MAX = 400
"""The bytes of a node that are shown to people: a whole offset or owner, but only the beginning of a record."""


@click.command(cls=Command, example="zkcoord group mend etl --dry-run")
@click.argument("name", metavar="G")
@click.option(
    "--offset", "offsets", multiple=True, metavar="T-P=N", help="Offset N for partition T-P; may be repeated."
)
@click.option("--yes", is_flag=True, help="Write what is proposed, and do not ask.")
@click.option("--dry-run", is_flag=True, help="Only show what is proposed.")
@pass_settings
def mend(settings: Settings, name: str, offsets: Sequence[str], yes: bool, dry_run: bool) -> None:
    """Mend nodes of group G that nobody can parse: its record, owners, offsets.

    It shows the bytes of each node, what is wrong, and what it would write. Then it asks. It does not write to a node
    that changed meanwhile. The exit code is 6 if it has no proposal for a node, or could not write one.
    """
    chosen = _chosen(offsets)
    with settings.tree() as tree:
        layout = read_tree(tree, settings.zookeeper_address()).layout
        report = read_group(tree, layout, name)
        _refuse_busy(report)
        found = _find(settings, tree, layout, report, chosen)
        wrong = [str(p) for p in chosen if p not in {each.partition for each in found if each.kind == "offset"}]
        if wrong:
            raise UsageError(f"--offset {wrong[0]}: this offset can be read; `zkcoord group reset-offsets` changes it")
        if not settings.json:
            for each in found:
                click.echo(_text(each))
        mendable = [each for each in found if each.proposed is not None]
        write = bool(mendable) and not dry_run and (yes or _agreed(settings, len(mendable)))
        results = {each.node.path: _written(tree, each) if write else "proposed" for each in mendable}
    if settings.json:
        for each in found:
            print_json(_document(name, each, results.get(each.node.path, "no proposal")))
    if not found:
        say("notice", f"group {name}: its record, owners and offsets can all be read")
    elif not write and mendable and not dry_run:
        say("notice", "nothing was written")
    elif write and not settings.json:
        click.echo("\n".join(f"{path}: {result}" for path, result in results.items()))
    if write and any(each.kind == "owner" for each in mendable):
        say("notice", f"now run `zkcoord group rebalance {name}`: what was left alone is given out again")
    left = [each for each in found if results.get(each.node.path) != "mended"]
    if write or len(mendable) < len(found):
        _tell_left(left)


def _tell_left(left: Sequence[Broken]) -> None:
    if left:
        what = ", ".join(each.node.path for each in left)
        raise CorruptError(f"{count(len(left), 'node')} cannot be read still: {what}; see above for each")


def _refuse_busy(report: GroupReport) -> None:
    refuse_moved(report.view.group, report.view.record)
    if "reset" in report.view.record.requests:
        raise UsageError(f"the offsets of group {report.view.group} are being reset: end that first")


def _chosen(offsets: Sequence[str]) -> dict[TopicPartition, int]:
    """Return partition -> offset."""
    found = {}
    for text in offsets:
        name, _, number = text.rpartition("=")
        partition = partition_of(name)
        if partition is None or not (number.isascii() and number.isdigit()) or int(number) > INT64_MAX:
            raise UsageError(f"--offset {text}: write TOPIC-PARTITION=N, with N from 0 to {INT64_MAX}")
        found[partition] = int(number)
    return found


def _find(
    settings: Settings,
    tree: BlockingTree,
    layout: Layout,
    report: GroupReport,
    chosen: Mapping[TopicPartition, int],
) -> list[Broken]:
    """Read again the nodes that may be broken. Return those that nobody can parse, each with a proposal."""
    view, group = report.view, report.view.group
    paths = {layout.record(group), *report.problems}
    paths |= {layout.owner(group, partition) for partition in view.owners}
    nodes: dict[str, Node] = {node.path: node for node in tree.read([Read(path) for path in sorted(paths)])}
    first = list(broken(nodes, view, layout, chosen=chosen, committed={}))
    if not any(each.kind == "offset" and each.partition not in chosen for each in first):
        return first
    with kafka_side(settings) as kafka:
        if kafka.client is None or not view.record.store.tenured:
            return first
        committed = kafka.committed(tree, layout, report)
    return list(broken(nodes, view, layout, chosen=chosen, committed=committed))


def _agreed(settings: Settings, number: int) -> bool:
    if settings.json or not sys.stdin.isatty():
        raise UsageError("nobody can be asked here: --yes writes what is proposed, --dry-run only shows it")
    return click.confirm(f"Write {count(number, 'node')}?", err=True)


def _written(tree: BlockingTree, each: Broken) -> str:
    """Write the proposal if the node still holds what was shown. Return the result in words."""
    if each.proposed is None or each.node.stat is None:
        return "no proposal"
    write = SetNode(each.node.path, each.proposed, each.node.stat.version)
    done = tree.commit(Transaction(writes=(write,), why=f"an operator mends {each.kind}"))
    if done.outcome is Outcome.COMMITTED:
        return "mended"
    if done.outcome is Outcome.REFUSED:
        return f"left alone: it has changed meanwhile ({done.reason})"
    return "not known: ZooKeeper did not answer; run this again"


def _text(each: Broken) -> str:
    return "\n".join([f"{printable(each.node.path)} ({each.kind})", *_lines(each)])


def _lines(each: Broken) -> Iterator[str]:
    data = each.node.data
    more = f" ... ({len(data)} bytes)" if len(data) > SHOWN_MAX else ""
    yield f"  holds     {data[:SHOWN_MAX]!r}{more}"
    yield f"  wrong     {printable(each.problem)}"
    proposed = "nothing" if each.proposed is None else repr(each.proposed[:SHOWN_MAX])
    yield f"  proposed  {proposed}: {printable(each.why)}"


def _document(group: str, each: Broken, result: str) -> dict[str, Any]:
    return {
        "group": group,
        "path": each.node.path,
        "kind": each.kind,
        "holds": each.node.data,
        "problem": each.problem,
        "proposed": each.proposed,
        "why": each.why,
        "result": result,
    }
