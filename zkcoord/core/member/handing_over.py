"""How a member commits to Kafka before it releases partitions, where old members read offsets only in Kafka.

Old members do not see the node that a release sets. So final offsets are committed to Kafka before the partitions are
free: once, and only as long as old members wait. The next owner reads again what Kafka has not taken by then.
"""

from __future__ import annotations

from collections.abc import Collection

from zkcoord.core.fast_replace import fast_replace
from zkcoord.core.member import mirroring
from zkcoord.core.member.decisions import Decision
from zkcoord.core.member.memory import Memory
from zkcoord.core.member.neighbours import EARLY_MS
from zkcoord.core.member.view import MemberView
from zkcoord.core.model import TopicPartition

AFTER_STOP_MS = EARLY_MS // 2
"""ms between the application's last moment to stop and the release. Old members wait EARLY_MS longer than the
application has: half of it is for the release."""


def hand_over(
    view: MemberView, memory: Memory, released: Collection[TopicPartition], now_ms: int
) -> tuple[bool, list[Decision], Memory]:
    """Commit these partitions to Kafka before their release. True: the release waits for Kafka."""
    stop, mirror = memory.stop, memory.mirror
    if stop is None or not view.neighbours.old_in_kafka or memory.store.node_counts or over(view, memory, now_ms):
        return False, [], memory
    if mirror.exchange is not None:
        return view.log is not None and now_ms < mirror.exchange.since_ms + view.log.patience_ms, [], memory
    left = [p for p in released if p not in stop.committed and p not in mirror.failing and not view.deleted(p)]
    if not left or mirror.away or not mirroring.free(view, memory):
        return False, [], memory
    finals = memory.finals()
    offsets = {p: finals.get(p, memory.held[p].offset) for p in left}
    memory = fast_replace(memory, stop=fast_replace(stop, committed=stop.committed.union(left)))
    decisions, memory = mirroring.commit(view, memory, offsets, now_ms)
    return True, decisions, memory


def over(view: MemberView, memory: Memory, now_ms: int) -> bool:
    """True when old members would give up waiting: the release waits for Kafka no longer."""
    ends_ms = wake_at_ms(view, memory)
    return ends_ms is not None and now_ms >= ends_ms


def wake_at_ms(view: MemberView, memory: Memory) -> int | None:
    """When a release stops waiting for Kafka, since old members wait for it, or for another one behind it."""
    free_by_ms = None if memory.stop is None else awaited_by_ms(view, memory)
    return None if free_by_ms is None else free_by_ms + AFTER_STOP_MS


def late(view: MemberView, memory: Memory, now_ms: int) -> bool:
    """True when old members that wait for partitions would give up: the application is not waited for any more."""
    ends_ms = awaited_by_ms(view, memory)
    return ends_ms is not None and now_ms >= ends_ms


def awaited_by_ms(view: MemberView, memory: Memory) -> int | None:
    """When the application must have stopped what old members wait for, whatever it is doing. None: the plan gives to
    others nothing that is held, or being started."""
    if not view.neighbours.planned:
        return None
    starting = memory.start.grants if memory.start is not None else {}
    return view.neighbours.stopped_by_ms([*memory.held, *starting])
