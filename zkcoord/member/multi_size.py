"""How large the multi may become that acknowledges starts: known before they are obeyed, since then it must be sent.

What a coordinator of zkcoord hands on always fits (`core.replay_quota`): at most 942,000 bytes. This is a member's own
guard against another one: a multi above the server's limit would cost it its session, again and again.
"""

from __future__ import annotations

from collections.abc import Mapping

from zkcoord.core.command import Command
from zkcoord.core.replay_quota import range_bytes
from zkcoord.member.session import MemberSession
from zkcoord.tree.status import REFUSED_BYTES_MAX

ACKNOWLEDGED_BYTES_MAX = 960 * 1024
"""Below the server's 1 MiB by what a chroot adds to each path, and the server itself."""

WEIGHED_BYTES = 256 * 1024
"""Of commands and announced ranges, at a glance: below it the whole is never near the limit."""

RANGE_BYTES_MAX = 400
"""Of one announced range, whatever its topic's name."""

OPERATION_BYTES = 60
"""Of one write beside path and data; of an offset with its number."""


def too_large(session: MemberSession, starts: Mapping[str, Command]) -> int:
    """How many bytes it would take to acknowledge these (sequence -> start), at most, if that is too much; else 0."""
    nodes = (session.commands.get(sequence) for sequence in starts)
    ranges = len(session.holdings.batch) + sum(len(start.replay) for start in starts.values())
    if ranges * RANGE_BYTES_MAX + sum(len(node.data) for node in nodes if node is not None) < WEIGHED_BYTES:
        return 0
    paths, named = session.paths, {p for start in starts.values() for p in start.ownership or ()}
    announced = {p: tuple(r) for p, r in session.holdings.standing({}, session.holdings.batch).items()}
    announced |= {p: r for start in starts.values() for p, r in start.replay.items()}
    status = REFUSED_BYTES_MAX + sum(range_bytes(p, r) for p, r in announced.items())
    offsets = sum(max(len(paths.offset(p)), len(paths.owner(p))) + OPERATION_BYTES for p in named)
    above = {paths.layout.topic_offsets(paths.group, p.topic) for p in named}
    parents = sum(len(path) + OPERATION_BYTES for path in above)
    whole = status + offsets + parents + len(starts) * (len(paths.channel) + OPERATION_BYTES)
    return whole if whole > ACKNOWLEDGED_BYTES_MAX else 0
