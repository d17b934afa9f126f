"""Finds members that keep their session and do no work (F6): it sends probes, and judges the answers.

If the group's record asks for it, a member that offers `ping` is probed every `probe_interval_ms`. It answers with its
status, in the multi that acknowledges. The answer is read from the status, and never concluded from a missing command.
A member with partitions and lag that makes no progress in `max_probes` answers in a row is stalled. A member that
reports neither progress nor lag is not judged. A member that does not answer at all is overdue (`core.ack_timeouts`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from zkcoord.core.fast_replace import fast_replace
from zkcoord.core.model import consumer_of
from zkcoord.core.view import PING, REJECT, Channel, GroupView


@dataclass(frozen=True, kw_only=True)
class _Probe:
    answered: str  # the sequence of the last ping that the status answers
    at_ms: int  # when this coordinator first saw that answer
    progress: int | None
    stuck: int = 0  # number of answers in a row without progress


@dataclass(frozen=True, slots=True)
class Liveness:
    """The first sights of one group's answers. `seen` must be called with every view before any other method."""

    _probes: Mapping[str, _Probe] = field(default_factory=dict)

    def seen(self, view: GroupView, now_ms: int) -> Liveness:
        """Return a copy that has judged the new answers, without members that are gone."""
        probed: dict[str, _Probe] = {}
        if view.record.policy.probe_interval_ms is not None:
            owning = {consumer_of(thread) for thread in view.living_threads()}
            for consumer_id, member in view.members.items():
                channel = view.channels.get(consumer_id)
                if channel is not None and PING in member.offers:
                    known = self._probes.get(consumer_id)
                    asked_ms = now_ms if known is None else known.at_ms + view.record.policy.probe_interval_ms
                    probed[consumer_id] = _judged(known, channel, consumer_id in owning, now_ms, asked_ms)
        return Liveness(probed)

    def due(self, view: GroupView, now_ms: int) -> list[str]:
        """The members to probe now, sorted. At most one ping is outstanding for a member, and none beside a reject."""
        interval_ms = view.record.policy.probe_interval_ms or 0
        return sorted(
            consumer_id
            for consumer_id, probe in self._probes.items()
            if now_ms >= probe.at_ms + interval_ms and not busy(view.channels[consumer_id])
        )

    def stalled(self, view: GroupView) -> list[tuple[str, str]]:
        """The members that answered `max_probes` times in a row without progress, each with a description; sorted."""
        return sorted(
            (
                consumer_id,
                f"stalled: lag {view.channels[consumer_id].lag} and progress {probe.progress} unchanged "
                f"at {probe.stuck} probes",
            )
            for consumer_id, probe in self._probes.items()
            if probe.stuck >= view.record.policy.max_probes
        )

    def wake_at_ms(self, view: GroupView, now_ms: int) -> int | None:
        """When the next probe is due. None: nobody is probed, or all answers are awaited."""
        interval_ms = view.record.policy.probe_interval_ms or 0
        times = (p.at_ms + interval_ms for c, p in self._probes.items() if not busy(view.channels[c]))
        return min((at_ms for at_ms in times if at_ms > now_ms), default=None)


def _judged(known: _Probe | None, channel: Channel, owning: bool, now_ms: int, asked_ms: int) -> _Probe:
    if known is None:
        return _Probe(answered=channel.pinged, at_ms=now_ms, progress=channel.progress)
    if known.answered == channel.pinged:
        return known
    if now_ms < asked_ms:  # it was pinged for another reason (`core.replay_quota`), too soon to be judged
        return fast_replace(known, answered=channel.pinged)
    lagging = owning and channel.lag is not None and channel.lag > 0
    stuck = lagging and channel.progress is not None and channel.progress == known.progress
    return _Probe(
        answered=channel.pinged, at_ms=now_ms, progress=channel.progress, stuck=known.stuck + 1 if stuck else 0
    )


def busy(channel: Channel) -> bool:
    """True while a ping would be a second one, or would be of no use."""
    return channel.evicted_ms is not None or channel.outstanding(PING) or channel.outstanding(REJECT)
