"""A coordinator's memory of one group between two steps: first sights and last answers. It holds nothing of the
tree."""

from __future__ import annotations

from dataclasses import dataclass, field

from zkcoord.core.ack_timeouts import AckTimeouts
from zkcoord.core.beside import OnLooker
from zkcoord.core.difference import KeptDifference
from zkcoord.core.fast_replace import fast_replace
from zkcoord.core.holders import Holders
from zkcoord.core.initial_delay import InitialDelay
from zkcoord.core.instances import StaticMemberTimers
from zkcoord.core.liveness import Liveness
from zkcoord.core.negotiation import Negotiation
from zkcoord.core.old_owners import OldOwners
from zkcoord.core.quarantine import Quarantines
from zkcoord.core.rebalance_reason import RebalanceReason
from zkcoord.core.replay import OpenRanges
from zkcoord.core.replay_quota import FullMembers
from zkcoord.core.resetting import ResetTimer
from zkcoord.core.retention import Retention
from zkcoord.core.target import Target
from zkcoord.core.topics import TopicMemory
from zkcoord.core.turned_away import TurnedAway
from zkcoord.core.view import GroupView


@dataclass(frozen=True, kw_only=True)
class Memory:
    """An immutable value: each step makes the next one. Losing it at a failover does no harm."""

    ack_timeouts: AckTimeouts = field(default_factory=AckTimeouts)
    liveness: Liveness = field(default_factory=Liveness)
    static_timers: StaticMemberTimers = field(default_factory=StaticMemberTimers)
    quarantines: Quarantines = field(default_factory=Quarantines)
    negotiation: Negotiation = field(default_factory=Negotiation)
    target: Target = field(default_factory=Target)
    difference: KeptDifference = field(default_factory=KeptDifference)  # of the owners and the target's assignment
    holders: Holders = field(default_factory=Holders)
    initial_delay: InitialDelay = field(default_factory=InitialDelay)
    rebalance_reason: RebalanceReason = field(default_factory=RebalanceReason)
    topics: TopicMemory = field(default_factory=TopicMemory)
    retention: Retention = field(default_factory=Retention)
    full_members: FullMembers = field(default_factory=FullMembers)
    open_ranges: OpenRanges = field(default_factory=OpenRanges)
    looker: OnLooker = field(default_factory=OnLooker)
    old_owners: OldOwners = field(default_factory=OldOwners)
    turned_away: TurnedAway = field(default_factory=TurnedAway)
    reset_timer: ResetTimer = field(default_factory=ResetTimer)
    lingers_until_ms: int | None = None  # until when starts wait for partitions that others are about to release
    rebalanced: str = ""  # run of the last requested rebalance for which the assignor was asked again

    def seen(self, view: GroupView, now_ms: int) -> Memory:
        """Return a copy with the first sights of this view."""
        return fast_replace(
            self,
            ack_timeouts=self.ack_timeouts.seen(view, now_ms),
            liveness=self.liveness.seen(view, now_ms),
            static_timers=self.static_timers.seen(view, now_ms),
            quarantines=self.quarantines.seen(view),
            initial_delay=self.initial_delay.seen(view, now_ms),
            topics=self.topics.seen(view, now_ms),
            retention=self.retention.seen(view, now_ms),
            open_ranges=self.open_ranges.seen(view),
            looker=self.looker.seen(view, now_ms),
            old_owners=self.old_owners.seen(view, now_ms),
            reset_timer=self.reset_timer.seen(view, now_ms),
        )

    def aiming(self, view: GroupView, target: Target) -> Memory:
        """Return a copy with this target, and with the difference between the owners and it."""
        asked = (view.owners, target.assignment)
        known = target.from_owners if target.from_owners.are_of(*asked) else self.difference
        return fast_replace(self, target=target, difference=known.between(*asked))
