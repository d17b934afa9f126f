"""`zkcoord inventory`: all groups of a deployment, for people who want to move them. It only reads, and needs no
coordinator."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import click

from zkcoord.cli.files import check_beside, new_file
from zkcoord.cli.options import Command, Settings, pass_settings
from zkcoord.cli.output import print_json, table
from zkcoord.core.model import TopicPartition
from zkcoord.core.words import count
from zkcoord.errors import UsageError, ZkcoordError
from zkcoord.kafka.client import KafkaClient, librdkafka
from zkcoord.kafka.cluster import describe_cluster, protocol_line
from zkcoord.legacy.findings import Question, problems_of, questions_of
from zkcoord.legacy.inventory import GroupInventory, OldMember, take_inventory
from zkcoord.legacy.walk import GROUPS_AT_ONCE, group_names, read_cluster, read_groups
from zkcoord.offsets.kafka_store import KafkaCommits
from zkcoord.operating.adoption_file import UNTOLD
from zkcoord.operating.saying import warn
from zkcoord.operating.wave_file import WAVE
from zkcoord.operating.words import at, cell

COLUMNS = ("GROUP", "KIND", "#MEMBERS", "OWNED", "OFFSETS", "#NOTES")
NUMBERS = ("#MEMBERS", "#NOTES")
WIDTH = 80  # of a terminal
KAFKA_TIMEOUT_MS = 10_000
WRITE = "--write "

Offsets = Mapping[str, Mapping[TopicPartition, int]]


class Kafka(NamedTuple):
    """`offsets` returns the offsets of some groups. `broker`: the version that the brokers tell; None: they tell
    none."""

    offsets: Callable[[Sequence[str]], Offsets]
    broker: str | None


@click.command(cls=Command, example="zkcoord inventory --write groups.toml")
@click.argument("names", metavar="[G]...", nargs=-1)
@click.option("--write", metavar="FILE", help="Also write a file in which people fill in what the tree does not show.")
@pass_settings
def inventory(settings: Settings, names: tuple[str, ...], write: str | None) -> None:
    """Show all groups of old ZooKeeper consumers, or groups G: members, owners, offsets, and what would go wrong.

    It only reads ZooKeeper, and needs no coordinator. With --bootstrap-servers it also reads the offsets that groups
    keep in Kafka. --output json prints one object for each group. OWNED is the number of subscribed partitions that
    have an owner.
    """
    if write is not None:
        check_beside(write, WRITE)
    address = settings.zookeeper_address()
    shown: list[list[Any]] = []
    texts: list[str] = []
    sections: list[str] = []
    with ExitStack() as stack:
        tree = stack.enter_context(settings.tree())
        kafka = ask_kafka(settings, stack)
        broker = None if kafka is None else kafka.broker
        wanted = _wanted(group_names(tree.read), names)
        if not wanted:
            warn(f"there is no group below /consumers at {address}: the chroot must be that of the old consumers")
        for found in inventories(tree, wanted, kafka):
            problems = problems_of(found)
            if settings.json:
                print_json(_document(found, problems, broker))
            else:
                shown.append(_row(found, len(problems)))
                texts += _text(found, problems, members=bool(names))
            if write is not None:
                sections.append(_section(found, problems, broker))
    if not settings.json:
        click.echo(table(COLUMNS, shown, NUMBERS))
        if texts:
            click.echo("\n" + "\n".join(texts))
    if write is not None:
        _write(write, address, sections)


def _wanted(all_names: Sequence[str], names: Sequence[str]) -> list[str]:
    missing = sorted(set(names) - set(all_names))
    if missing:
        raise UsageError(f"there is no group {missing[0]!r} below /consumers; `zkcoord inventory` shows them")
    return [name for name in all_names if not names or name in names]


def inventories(tree: Any, names: Sequence[str], kafka: Kafka | None) -> Iterator[GroupInventory]:
    """Yield the groups' inventories. Only some groups at a time are in memory."""
    cluster = read_cluster(tree.read)
    for first in range(0, len(names), GROUPS_AT_ONCE):
        batch = names[first : first + GROUPS_AT_ONCE]
        there = {} if kafka is None else kafka.offsets(batch)
        for nodes in read_groups(tree.read, batch):
            if isinstance(nodes, tuple):
                warn(f"group {nodes[0]} cannot be read: {nodes[1]}")
            else:
                yield take_inventory(nodes, cluster, there.get(nodes.group))


def ask_kafka(settings: Settings, stack: ExitStack) -> Kafka | None:
    """Return how to ask Kafka; None if the command has no brokers' addresses, or Kafka cannot be asked."""
    servers = settings.kafka_address()
    if servers is None:
        return None
    try:
        librdkafka()
    except UsageError as error:  # everything else is known without Kafka
        warn(f"{error}; offsets in Kafka are not shown")
        return None
    client = stack.enter_context(KafkaClient(servers, settings.kafka_settings()))
    silent = client.check_credentials()
    if silent is not None:
        warn(f"{silent}; offsets in Kafka are not shown")
        return None

    store = KafkaCommits(client, timeout_ms=KAFKA_TIMEOUT_MS)

    def ask(groups: Sequence[str]) -> Offsets:
        answer = store.read(groups)
        for error in _unlike(answer.unknown):
            warn(f"{error}; where its offsets stand is not known")
        return {group: {p: commit.offset for p, commit in found.items()} for group, found in answer.found.items()}

    return Kafka(ask, _broker(client))


def _unlike(unknown: Mapping[str, ZkcoordError]) -> list[ZkcoordError]:
    """Return one error of each kind. Errors that differ only in the group's name are of one kind."""
    found: dict[str, ZkcoordError] = {}
    for group, error in sorted(unknown.items()):
        found.setdefault(str(error).replace(group, ""), error)
    return list(found.values())


def _broker(client: KafkaClient) -> str | None:
    """Return the version line of the brokers' protocol; None if they do not tell it."""
    try:
        return protocol_line(describe_cluster(client))
    except ZkcoordError as error:
        warn(f"{error}; the brokers' version is not known")
        return None


# the output for people


def _row(found: GroupInventory, notes: int) -> list[Any]:
    owned = sum(partition in found.owners for partition in found.subscribed)
    store = found.store if found.kafka_offsets is not None or found.store == "none" else f"{found.store}?"
    shares = f"{owned}/{len(found.subscribed)}" if found.subscribed else len(found.owners) or None
    return [found.group, found.kind, len(found.members), shares, store, notes or None]


def _text(found: GroupInventory, problems: Sequence[str], *, members: bool) -> list[str]:
    """Return the notes about a group, and what is known about its members."""
    if not problems and not members:
        return []
    lines = [cell(found.group) + ":"]
    if members:
        lines += _wrapped(_summary(found))
        lines += [line for member in found.members for line in _wrapped(_member_text(found, member))]
        lines += [
            line for q in questions_of(found) if q.suggested is None for line in _wrapped(f"tell {q.key}: {q.why}")
        ]
    return [*lines, *(line for problem in problems for line in _wrapped(f"! {problem}"))]


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(cell(text), WIDTH, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)


def _summary(found: GroupInventory) -> str:
    words = [
        f"{found.kind}, {count(len(found.members), 'member')}",
        f"{count(len(found.topics), 'topic')}",
        f"{len(found.owners)} owned, {len(found.unowned())} without an owner",
        f"strategy: what is owned fits {' or '.join(found.fits) or 'none'}",
        f"offsets: {found.store}" + ("" if found.kafka_offsets is not None else " (Kafka was not asked)"),
    ]
    if found.last_commit_ms is not None:
        words.append(f"last written to ZooKeeper at {at(found.last_commit_ms)}")
    if found.made_ms is not None:
        words.append(f"there since {at(found.made_ms)}")
    return "; ".join(words)


def _member_text(found: GroupInventory, member: OldMember) -> str:
    client = member.client
    asks = ",".join(f"{topic}:{threads}" for topic, threads in sorted(member.threads.items())) or "no topic"
    by = "" if member.wildcard is None else f" (all {'but' if member.black_list else 'of'} {member.wildcard})"
    known = f"{client.library.value}{f' {client.versions}' if client.versions else ''}"
    owns = count(found.owned()[member.consumer], "partition")
    return f"{member.consumer}: {known} ({client.why}), {asks}{by}, owns {owns}, since {at(member.since_ms)}"


# the output for programs


def _document(found: GroupInventory, problems: Sequence[str], broker: str | None) -> dict[str, Any]:
    """Return everything that is known about the group."""
    return {
        "group": found.group,
        "kind": found.kind,
        "made_ms": found.made_ms,
        "members": [_member(found, member) for member in found.members],
        "topics": list(found.topics),
        "owners": {str(p): {"thread": c.thread, "since_ms": c.since_ms} for p, c in sorted(found.owners.items())},
        "fits": list(found.fits),
        "store": found.store,
        "offsets": {str(p): {"offset": c.offset, "written_ms": c.written_ms} for p, c in sorted(found.offsets.items())},
        "kafka_offsets": None
        if found.kafka_offsets is None
        else {str(partition): offset for partition, offset in sorted(found.kafka_offsets.items())},
        "last_commit_ms": found.last_commit_ms,
        "orphans": {
            "without_member": [str(partition) for partition in found.orphaned_owners()],
            "without_owner": [str(partition) for partition in found.unowned()],
            "gone_topics": found.gone_topics(),
            "gone_partitions": [str(partition) for partition in found.gone_partitions()],
        },
        "questions": [{"key": q.key, "suggested": q.suggested, "why": q.why} for q in questions_of(found, broker)],
        "problems": list(problems),
    }


def _member(found: GroupInventory, member: OldMember) -> dict[str, Any]:
    return {
        "consumer": member.consumer,
        "library": member.client.library.value,
        "versions": member.client.versions,
        "known_by": member.client.why,
        "since_ms": member.since_ms,
        "ephemeral": member.ephemeral,
        "wildcard": member.wildcard,
        "black_list": member.black_list,
        "threads": dict(sorted(member.threads.items())),
        "owned": found.owned()[member.consumer],
        "problem": member.problem,
    }


# the file to fill in


def _section(found: GroupInventory, problems: Sequence[str], broker: str | None) -> str:
    """Return the group as TOML. A group about which nothing can be filled in becomes a comment."""
    heading = _toml(found.group)
    notes = [f"# {line}" for line in textwrap.wrap(cell(_summary(found)), 110, break_on_hyphens=False)]
    for problem in problems:
        notes += [f"# {line}" for line in textwrap.wrap(f"! {cell(problem)}", 110, break_on_hyphens=False)]
    if found.kind not in ("old", "mixed", "empty"):
        why = "it was moved" if found.kind == "moved" else f"its members are {found.kind}"
        return "\n".join([f"# {heading} is left out: {why}", *notes, ""])
    wave = Question(WAVE, 1, "`zkcoord group adopt --from FILE --wave N` adopts the groups of one wave")
    return "\n".join([f"[groups.{heading}]", *notes, *map(_setting, (*questions_of(found, broker), wave)), ""])


def _setting(question: Question) -> str:
    value = UNTOLD if question.suggested is None else question.suggested
    return f"{question.key} = {_toml(value)}".ljust(34) + f"# {cell(question.why)}"


def _toml(value: str | int | bool) -> str:
    """Return a text, number or truth value as TOML, which accepts JSON of ASCII characters."""
    return json.dumps(value)


def _write(name: str, address: str, sections: Sequence[str]) -> None:
    head = (
        f"# The groups of old ZooKeeper consumers at {cell(address)}, by `zkcoord inventory`.\n"
        f'# Replace each "{UNTOLD}" by what the group\'s configuration says, and check the other values: they are the\n'
        "# defaults of the old consumer, or what the tree suggests. Remove the groups that shall stay as they are.\n"
    )
    with new_file(name, WRITE) as file:
        file.write("\n".join([head, *sections]))
