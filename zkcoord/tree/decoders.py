"""Each function turns one node into one value of the view: a registration into a member, a command's node into a queued
command, and so on.

A node that cannot be parsed becomes a value, too: a member that is not eligible, a command that its consumer will
refuse, an owner that is left alone. These functions know no earlier readings and no other nodes; `view` does.
"""

from __future__ import annotations

from zkcoord.core.command import Option
from zkcoord.core.fast_replace import fast_replace
from zkcoord.core.record import CARRIED_OUT, GroupRecord
from zkcoord.core.view import (
    SESSION_TIMEOUT_MS,
    Channel,
    Instance,
    Member,
    OffsetSeen,
    QueuedCommand,
    Wildcard,
)
from zkcoord.errors import CorruptError
from zkcoord.tree.command import (
    announced,
    decode_command,
    is_refused,
    refused_option,
    refused_ownership,
    refused_replay,
)
from zkcoord.tree.evicted import Evicted, decode_evicted
from zkcoord.tree.instance import decode_instance
from zkcoord.tree.registration import BLACK_LIST, MARKER, STATIC, Registration, decode_registration
from zkcoord.tree.snapshot import Node, Stat
from zkcoord.tree.status import decode_status, held_partitions

OFFSET_TEXT_MAX = 40
"""Characters of an offset that are shown: more than a 63-bit number has."""


def member_of(consumer_id: str, node: Node) -> Member:
    """The member for a registration node. An unreadable one makes a member that is not eligible."""
    stat = node.stat
    if stat is None:
        raise ValueError(f"{node.path} does not exist")
    try:
        registration = decode_registration(node.data)
    except CorruptError as error:
        return Member(consumer_id=consumer_id, czxid=stat.czxid, version=stat.version, unreadable=str(error))
    return Member(
        consumer_id=consumer_id,
        czxid=stat.czxid,
        version=stat.version,
        threads=registration.subscription if registration.pattern == STATIC else {},
        wildcard=wildcard_of(registration),
        speaks_protocol=registration.coordination == MARKER,
        instance=registration.instance,
        replaces=registration.replaces,
        assignors=registration.assignors,
        stores=registration.offsets or (),
        rebalance_timeout_ms=registration.rebalance_timeout_ms,
        session_timeout_ms=registration.session_timeout_ms,
        offers=registration.offers,
        protocols=registration.protocols,
        hold_ms=registration.hold_ms,
        rack=registration.rack,
        capacity=registration.capacity,
    )


def wildcard_of(registration: Registration) -> Wildcard | None:
    """The wildcard of a registration. None: it names its topics."""
    regex = registration.wildcard
    if regex is None:
        return None
    return Wildcard(regex, registration.pattern == BLACK_LIST, registration.subscription[regex])


def outstanding(sequence: str, node: Node) -> QueuedCommand:
    """The command in a node. A command that cannot be understood, or was refused, carries the error."""
    version = node.stat.version if node.stat is not None else 0
    if is_refused(node.data):
        return QueuedCommand(
            sequence=sequence,
            version=version,
            option=refused_option(node.data).value,  # the owners that a refused start left behind are freed
            threads=refused_ownership(node.data),
            error=node.data[:200].decode("utf-8", "replace"),
            replay=refused_replay(node.data),
        )
    try:
        command = decode_command(node.data)
    except CorruptError:
        return QueuedCommand(sequence=sequence, version=version, option="?", threads={})  # its consumer will refuse it
    fetchers = command.option in (Option.START_FETCHER, Option.STOP_FETCHER)
    return QueuedCommand(
        sequence=sequence,
        version=version,
        option=command.option.value,
        threads=command.ownership if fetchers else {},
        generation=command.generation,
        replay=announced(command.replay, command.generation, command.incarnations) if command.replay else {},
        store_name=command.offsets or "",
        store_step=command.step or 0,
    )


def with_status(channel: Channel, node: Node) -> tuple[Channel, str | None]:
    """The channel with the status in its node, and what is wrong with the status (then the progress stays
    unchanged)."""
    version, mzxid = (channel.version, 0) if node.stat is None else (node.stat.version, node.stat.mzxid)
    try:
        status = decode_status(node.data)
        held = held_partitions(status)
    except CorruptError as error:
        unread = fast_replace(channel, version=version, refusals={}, status_unreadable=True, status_mzxid=mzxid)
        return unread, f"{error}: its consumer must be mended; its status is left out"
    read = fast_replace(
        channel,
        version=version,
        refusals=status.refused,
        held=held,
        announced=status.batch,
        pinged=status.pinged,
        progress=status.progress,
        lag=status.lag,
        store_name=status.store_name,
        store_step=status.store_step,
        status_unreadable=False,
        timing=status.timing,
        written_ms=0 if node.stat is None else node.stat.mtime_ms,
        status_mzxid=mzxid,
    )
    return read, None


def has_status(channel: Channel, node: Node) -> bool:
    """True if the channel's status comes from exactly this version of the node."""
    return node.stat is not None and node.stat.mzxid != 0 and node.stat.mzxid == channel.status_mzxid


def with_mark(channel: Channel, node: Node) -> tuple[Channel, str | None]:
    """The channel with the eviction mark in this node, or without a mark if the node does not exist; and what is wrong
    with the mark (then the usual session timeout is waited)."""
    evicted, wrong = None, None
    if node.stat is not None:
        try:
            evicted = decode_evicted(node.data)
        except CorruptError as error:
            evicted = Evicted(SESSION_TIMEOUT_MS)
            wrong = f"{error}: {SESSION_TIMEOUT_MS} ms are waited in its place; who wrote it must be mended"
    evicted_ms, owned = evicted or (None, frozenset())
    return fast_replace(channel, evicted_ms=evicted_ms, evicted_owned=owned), wrong


def offset_seen(data: bytes, version: int) -> OffsetSeen:
    """An offset as text for people. It is cut, and never refused."""
    return OffsetSeen(data[:OFFSET_TEXT_MAX].decode("utf-8", "replace"), version)


def instance_of(data: bytes, stat: Stat) -> Instance:
    """A static member as remembered. An empty one if its node cannot be read: the node is then written again, or
    removed."""
    try:
        return decode_instance(data, stat.version, stat.mtime_ms)
    except CorruptError:
        return Instance(last_id="", hold_ms=0, threads={}, share={}, version=stat.version)


def not_carried_out(record: GroupRecord) -> str | None:
    """A text with the requests that this version does not carry out. The rest of the record counts."""
    names = sorted(name for name in record.requests if name not in CARRIED_OUT)
    return f"{', '.join(names)}: not carried out by this version; take it back, or upgrade" if names else None
