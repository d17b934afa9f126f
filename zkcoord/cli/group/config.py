"""`zkcoord group config`: people's decisions about a group. Each key is checked before the group's record is
written."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import click

from zkcoord.cli.options import Command, Settings, pass_settings
from zkcoord.cli.output import show
from zkcoord.cli.settings_file import nearest
from zkcoord.core.assignors import ASSIGNORS
from zkcoord.core.record import DEFAULT_RECORD, GroupRecord
from zkcoord.errors import CorruptError, UsageError
from zkcoord.group_report import group_names, no_such_group, read_tree
from zkcoord.migrate import BlockingTree
from zkcoord.operating.requesting import edit_record, read_record
from zkcoord.operating.saying import warn
from zkcoord.settings import SESSION_TIMEOUT_MS
from zkcoord.subscription import check_name
from zkcoord.tree.candidate import assignors_of, in_charge
from zkcoord.tree.codec import compact, corrupt, partition_of
from zkcoord.tree.paths import CANDIDATES, Layout
from zkcoord.tree.record import POLICY_KEYS, WHAT, decode_record, encode_record
from zkcoord.tree.registration import decode_registration
from zkcoord.tree.snapshot import Kind, Read
from zkcoord.tree.topic import topic_of

BY_PARTITION = ("weights", "racks")
PLAIN_KEYS = ("rebalance", "assignor", *(f"policy.{key}" for key in POLICY_KEYS))
COLUMNS = ("KEY", "VALUE", "SOURCE")
SET, DEFAULT = "set", "default"
UNSET = {
    "assignor": "the first that all members offer",
    "policy.evict_grace_ms": "the member's session timeout",
    "policy.probe_interval_ms": "no probes",
    "policy.max_moves": "no limit",
    "weights.": "1",
    "racks.": "those of the replicas",
}
"""What applies while nobody has set a key. The last two apply to each partition."""


@click.command(cls=Command, example="zkcoord group config etl rebalance=eager policy.max_moves=10")
@click.argument("name", metavar="G")
@click.argument("pairs", nargs=-1, metavar="[KEY=VALUE]...")
@pass_settings
def config(settings: Settings, name: str, pairs: tuple[str, ...]) -> None:
    """Show the settings of group G, or change them: `rebalance=eager`, `policy.max_moves=10`.

    SOURCE shows whether somebody has set a key. After a change only the changed keys are shown. KEY= sets a key back to
    its default. All keys of a call are changed at once, and count at once. If a value is not allowed, nothing is
    changed. A group can be changed before its first consumer joins. The keys: rebalance, assignor, policy.…,
    weights.TOPIC-PARTITION, racks.TOPIC-PARTITION; docs/operations.md ("The group record") explains them.
    """
    chosen = _chosen(pairs)
    address = settings.zookeeper_address()
    with settings.tree() as tree:
        layout = read_tree(tree, address).layout
        known = name in group_names(tree, layout)
        if not known:
            check_name("group", name)
        if chosen:
            record: GroupRecord | None = edit_record(tree, layout, name, lambda now: changed(now, chosen), new=True)
        else:
            record = read_record(tree, layout, name)
        absent = [*_absent(tree, layout, chosen), *_absent_assignor(tree, layout, chosen.get("assignor"))]
        grace_ms = record.policy.evict_grace_ms if record is not None else None
        timeouts_ms = _session_timeouts_ms(tree, layout, name) if grace_ms is not None else []
    if record is None and not known:
        raise UsageError(no_such_group(name))
    if chosen and not known:
        warn(f"there is no group {name} yet: this counts once its first consumer joins")
    for what in absent:
        warn(f"{what}: correct it, or leave it: it counts once there is one")
    if grace_ms is not None:
        _warn_of_grace(grace_ms, timeouts_ms)
    values, defaults = flat(record or DEFAULT_RECORD), flat(DEFAULT_RECORD)
    told = [key for key, value in values.items() if value != defaults.get(key)]
    rows = [_row(key, values.get(key), key in told) for key in chosen or values]
    show(settings, [{"group": name, "config": values, "set": told}], COLUMNS, rows)


def _row(key: str, value: Any, told: bool) -> list[Any]:
    """Return a key as a row of COLUMNS, with the value that applies."""
    unset = UNSET.get(key) or UNSET.get(f"{key.partition('.')[0]}.")
    return [key, unset if value is None else value, SET if told else DEFAULT]


def _session_timeouts_ms(tree: BlockingTree, layout: Layout, group: str) -> list[int]:
    """Return the session timeouts of all members whose registration can be parsed."""
    (listed,) = tree.read([Read(layout.ids(group), Kind.CHILDREN)])
    nodes = tree.read([Read(layout.registration(group, name)) for name in listed.children]) if listed.children else ()
    found = []
    for node in nodes:
        with suppress(CorruptError):  # `describe` names it
            if node.exists:
                found.append(decode_registration(node.data).session_timeout_ms)
    return found


def _warn_of_grace(grace_ms: int, timeouts_ms: Sequence[int]) -> None:
    """Warn if the grace is shorter than a member's session timeout. For this member it does not apply: two members
    might read."""
    above = [timeout_ms for timeout_ms in timeouts_ms or [SESSION_TIMEOUT_MS] if timeout_ms > grace_ms]
    if not above:
        return
    counts = f"{'up to ' if len({*above}) > 1 else ''}{max(above)} ms"
    if timeouts_ms:
        who = f" for {len(above)} of the {len(timeouts_ms)} members"
    else:
        who = ", unless the members ask for less (there are none now)"
    warn(
        f"policy.evict_grace_ms is {grace_ms}, but the partitions of an evicted member wait for its own session timeout"
        f" at least: {counts}{who}"
    )


def _chosen(pairs: Sequence[str]) -> dict[str, str]:
    """Return key -> value as text. An empty value is the default."""
    chosen: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise UsageError(f"{pair!r}: write KEY=VALUE; KEY= takes a key back to its default")
        section, _, rest = key.partition(".")
        if key not in PLAIN_KEYS and not (section in BY_PARTITION and partition_of(rest)):
            raise UsageError(f"{key!r} is no key of a group: {_meant(key)}")
        if not value.isprintable():
            raise UsageError(f"{key}: {value!r} is no printable text")
        chosen[key] = value
    return chosen


def _meant(key: str) -> str:
    """Return a hint what to write instead: the nearest key, or all keys.

    >>> _meant("policy.max_move"), _meant("weight.clicks-0"), _meant("max_moves")
    ('did you mean policy.max_moves?', 'did you mean weights.TOPIC-PARTITION?', 'did you mean policy.max_moves?')
    """
    by_partition = {name: f"{name}.TOPIC-PARTITION" for name in BY_PARTITION}
    section, dot, _ = key.partition(".")
    if dot and (near := nearest(section, BY_PARTITION)) is not None:
        return f"did you mean {by_partition[near]}?"
    short = {known.rpartition(".")[2]: known for known in PLAIN_KEYS}
    near = nearest(key, PLAIN_KEYS) or short.get(nearest(key, short) or "")
    return f"did you mean {near}?" if near else f"choose from {', '.join([*PLAIN_KEYS, *by_partition.values()])}"


def _absent(tree: BlockingTree, layout: Layout, chosen: Mapping[str, str]) -> list[str]:
    """Return the keys about partitions that do not exist now, each with what exists instead."""
    about = {key: partition_of(key.partition(".")[2]) for key, value in chosen.items() if value}
    keys = {key: partition for key, partition in about.items() if partition is not None}
    topics = sorted({partition.topic for partition in keys.values()})
    nodes = tree.read([Read(layout.topic(topic)) for topic in topics]) if topics else ()
    known: dict[str, tuple[int, ...] | None] = {}
    for topic, node in zip(topics, nodes, strict=True):
        with suppress(CorruptError):  # nobody can tell; `describe` names it
            known[topic] = topic_of(topic, node.data).partitions if node.exists else None
    found = []
    for key, partition in keys.items():
        numbers = known.get(partition.topic, (partition.partition,))
        if numbers is None:
            found.append(f"{key}: there is no topic {partition.topic} now")
        elif partition.partition not in numbers:
            found.append(f"{key}: {partition.topic} has {len(numbers)} partitions now, and no {partition.partition}")
    return found


def _absent_assignor(tree: BlockingTree, layout: Layout, name: str | None) -> list[str]:
    """Say that the serving coordinator has no such assignor. Without a coordinator, say that zkcoord has none."""
    if name in (None, "", "null"):
        return []
    leader, listed = tree.read([Read(layout.coordinator), Read(CANDIDATES, Kind.CHILDREN)])
    nodes = tree.read([Read(f"{CANDIDATES}/{each}") for each in listed.children]) if listed.children else ()
    candidates = in_charge(nodes, leader.data.decode("utf-8", "replace"))
    known = (assignors_of(candidates[0].data) if candidates else None) or ASSIGNORS.keys()
    if name in known:
        return []
    who = "the coordinator has" if candidates else "zkcoord has"
    near = nearest(str(name), known)
    meant = f"did you mean {near}?" if near else f"choose from {', '.join(sorted(known))}"
    return [f"assignor: {who} none called {name} now ({meant}), and the members' lists decide"]


def changed(record: GroupRecord, chosen: Mapping[str, str]) -> GroupRecord:
    """Return the record with these values. An empty value or `null` is the default. Raise UsageError for an illegal
    value.

    >>> changed(DEFAULT_RECORD, {"policy.max_moves": "10"}).policy.max_moves
    10
    >>> changed(DEFAULT_RECORD, {"policy.max_moves": "many"})
    Traceback (most recent call last):
    ...
    zkcoord.errors.UsageError: policy.max_moves is 'many', allowed is an integer from 1 to 2147483647
    """
    document = json.loads(encode_record(record))
    for key, value in chosen.items():
        section, dot, name = key.partition(".")
        place, name = (document.setdefault(section, {}), name) if dot else (document, key)
        place.pop(name, None)
        if value not in ("", "null"):
            place[name] = value
    data = compact(document)
    try:
        return decode_record(data)
    except CorruptError as error:
        raise UsageError(str(error).removeprefix(str(corrupt(WHAT, data, "")))) from error


def flat(record: GroupRecord) -> dict[str, Any]:
    """Return people's decisions as key -> value. None: the members decide, or there is no limit.

    >>> flat(changed(DEFAULT_RECORD, {"assignor": "range"}))["assignor"]
    'range'
    """
    return {
        "rebalance": record.rebalance.value,
        "assignor": record.assignor,
        **{f"policy.{key}": getattr(record.policy, key) for key in POLICY_KEYS},
        **{f"weights.{partition}": weight for partition, weight in sorted(record.weights.items())},
        **{f"racks.{partition}": rack for partition, rack in sorted(record.racks.items())},
    }
