"""One node to one value of the view: a registration to a member, a command's node to what is outstanding.

What nobody can parse is a value, too: a member without eligibility, a command that its consumer will refuse.
"""

from __future__ import annotations

from zkcoord.core.view import Member, Outstanding, Wildcard
from zkcoord.errors import CorruptError
from zkcoord.tree.codec import INT32_MAX, corrupt, text_of, whole
from zkcoord.tree.command import Option, decode_command, is_refused, refused_ownership
from zkcoord.tree.registration import BLACK_LIST, MARKER, STATIC, Registration, decode_registration
from zkcoord.tree.snapshot import Node


def member_of(consumer_id: str, node: Node) -> Member:
    """The member that a registration node makes; an unreadable one is a member without eligibility."""
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
        wildcard=_wildcard(registration),
        coordinated=registration.coordination == MARKER,
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


def _wildcard(registration: Registration) -> Wildcard | None:
    regex = registration.wildcard
    if regex is None:
        return None
    return Wildcard(regex, registration.pattern == BLACK_LIST, registration.subscription[regex])


def decode_evicted(data: bytes) -> int:
    """The session timeout in ms that the mark of an eviction holds; CorruptError for anything else."""
    found = whole(text_of("mark of an eviction", data))
    if found is None or not 0 <= found <= INT32_MAX:
        raise corrupt("mark of an eviction", data, "no session timeout in ms")
    return found


def outstanding(sequence: str, node: Node) -> Outstanding:
    """The command that stands at a node; one that cannot be understood, or was refused, carries the error."""
    version = node.stat.version if node.stat is not None else 0
    if is_refused(node.data):
        return Outstanding(
            sequence=sequence,
            version=version,
            option=Option.START_FETCHER.value,  # what a refused start left behind is freed; other options name nothing
            threads=refused_ownership(node.data),
            error=node.data[:200].decode("utf-8", "replace"),
        )
    try:
        command = decode_command(node.data)
    except CorruptError:
        return Outstanding(sequence=sequence, version=version, option="?", threads={})  # its consumer will refuse it
    fetchers = command.option in (Option.START_FETCHER, Option.STOP_FETCHER)
    return Outstanding(
        sequence=sequence,
        version=version,
        option=command.option.value,
        threads=command.ownership if fetchers else {},
        generation=command.generation,
    )
