"""Limits the announced ranges in one node: in a member's status and in the group's state, each below 1 MiB.

The ranges that a member was handed are in its status until they are committed, beside its own announcements:

    announced   a status with an announcement                            256 KiB   `core.member.status`, the member
    under way   handed, and the start not acknowledged                   192 KiB   here
    held        in its status as last read, under way, and handed now    448 KiB   here
    kept        in the group's state, since their start was refused      256 KiB   here; applied by `core.replay`

So a member's ranges never take more than the third limit. If it has announced since its status was read, they are at
most the first limit plus the ranges under way then; else they are the ranges read plus those under way.

A partition whose range has no room is not granted yet. No command names it, so nobody is evicted because of it. A full
member is pinged for its status until there is room: ranges that it has committed leave the status with its answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from zkcoord.core.decisions import PingMember
from zkcoord.core.liveness import Liveness, busy
from zkcoord.core.model import TopicPartition, consumer_of
from zkcoord.core.view import START, Channel, GroupView

UNDER_WAY_BYTES_MAX = 192 * 1024
"""Bytes: about 2,000 ranges of a topic with a short name, which is more than one command holds."""

HELD_BYTES_MAX = 448 * 1024
"""Bytes. Together with refusals, and everything else in the acknowledging multi, it is below the server's 1 MiB
(`tree.status`)."""

KEPT_BYTES_MAX = 256 * 1024
"""Bytes. A refused start with more ranges stays until others are handed on. The first start always has room, and holds
no more than one command (`tree.writes`)."""

ASK_AGAIN_MS = 2_000
"""ms after the last status of a member without room. Then it is pinged for the next one."""

RANGE_BYTES = 44
"""Bytes of a range in a status, without topic, partition and offsets: punctuation, a generation, an incarnation."""


def range_bytes(partition: TopicPartition, announced: tuple[int, ...]) -> int:
    """The most bytes of an announced range in a status (topic names are plain ASCII)."""
    return RANGE_BYTES + len(f"{partition.topic}{partition.partition}{announced[0]}{announced[1]}")


def under_way(channel: Channel) -> int:
    """Bytes of the ranges in the starts of a channel."""
    return sum(range_bytes(p, r) for command in channel.commands for p, r in command.replay.items())


class ReplayQuota:
    """The room that each member has for the ranges of one step."""

    def __init__(self) -> None:
        self._handed: dict[str, tuple[int, int]] = {}  # consumer -> bytes under way, bytes held
        self.full: set[str] = set()  # members that had no room for a range

    def takes(self, view: GroupView, channel: Channel, partition: TopicPartition, announced: tuple[int, int]) -> bool:
        """True when there is room for this range; then the room is taken. The first range always has room: else two
        members could each be full of ranges whose partitions the other one is to get."""
        consumer_id, weight = channel.consumer_id, range_bytes(partition, announced)
        if consumer_id not in self._handed:
            sent = under_way(channel)
            self._handed[consumer_id] = sent, sent + sum(range_bytes(p, r) for p, r in channel.announced.items())
        sent, held = self._handed[consumer_id]
        known = channel.announced.get(partition)
        # it is in the status already: it was the member's own
        more = 0 if known is not None and known[:2] == announced else weight
        fits = not sent or sent + weight <= UNDER_WAY_BYTES_MAX
        fits = fits and (not more or held + more <= HELD_BYTES_MAX or not (sent or _has_work(view, channel)))
        if not fits:
            self.full.add(consumer_id)
            return False
        self._handed[consumer_id] = sent + weight, held + more
        return True


@dataclass(frozen=True, slots=True)
class FullMembers:
    """The first sights of members without room."""

    _since: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    # for members that were full at the last step: version of the status, and when this coordinator first saw it

    def seen(self, view: GroupView, full: Iterable[str], now_ms: int) -> FullMembers:
        """Return a copy with the members that have no room now."""
        since: dict[str, tuple[int, int]] = {}
        for consumer_id in full:
            version, known = view.channels[consumer_id].version, self._since.get(consumer_id)
            since[consumer_id] = known if known and known[0] == version else (version, now_ms)
        return FullMembers(since)

    def due(self, view: GroupView, now_ms: int) -> list[str]:
        """The members to ask for their status now, since they had no room; sorted. No ping is sent beside a start."""
        since = self._since.items()
        return sorted(c for c, (_, at_ms) in since if now_ms >= at_ms + ASK_AGAIN_MS and _idle(view, c))

    def wake_at_ms(self, view: GroupView, now_ms: int) -> int | None:
        """The next moment at which a member must be asked."""
        times = (at_ms + ASK_AGAIN_MS for c, (_, at_ms) in self._since.items() if _idle(view, c))
        return min((at_ms for at_ms in times if at_ms > now_ms), default=None)


def pings(view: GroupView, full: FullMembers, liveness: Liveness, now_ms: int) -> list[PingMember]:
    """Ping members, for one of two reasons: to make room in their status, or to prove that they are alive."""
    why = dict.fromkeys(full.due(view, now_ms), "it had no room for announced ranges: has it now?")
    why |= dict.fromkeys(liveness.due(view, now_ms), "a probe is due")
    return [PingMember(consumer_id=c, why=why[c]) for c in sorted(why)]


def _has_work(view: GroupView, channel: Channel) -> bool:
    """True while the consumer owns a partition with a range in its status: its commits there make room."""
    owners = (view.owners.get(partition) for partition in channel.announced)
    return any(owner is not None and consumer_of(owner.thread) == channel.consumer_id for owner in owners)


def _idle(view: GroupView, consumer_id: str) -> bool:
    channel = view.channels.get(consumer_id)
    return channel is not None and not busy(channel) and not channel.outstanding(START)
