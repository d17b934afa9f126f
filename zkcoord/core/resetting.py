"""Waits for the tool that resets a group's offsets, and ends its run when it takes too long.

While a reset is requested everything is stopped, and the tool writes offsets. If the tool dies nobody knows whether it
has written all of them. So an expired run ends in a paused group, and a person decides how to go on. The wait is on the
coordinator's monotonic clock, from its first sight of the request: each failover begins it anew.
"""

from __future__ import annotations

from typing import NamedTuple

from zkcoord.core.decisions import WriteResponse
from zkcoord.core.record import RESET
from zkcoord.core.view import GroupView

RESET_EXPIRY_MS = 600_000
"""Of a request that does not say how long: a tool writes 10,000 offsets in a second."""

EXPIRED = "expired"


class ResetTimer(NamedTuple):
    """The run of the standing reset ("": none), and since when this coordinator has seen it."""

    run: str = ""
    since_ms: int = 0
    expiry_ms: int = RESET_EXPIRY_MS

    def seen(self, view: GroupView, now_ms: int) -> ResetTimer:
        """Return the timer of the request that stands now."""
        request = view.record.requests.get(RESET)
        if request is None:
            return ResetTimer()
        expiry_ms = RESET_EXPIRY_MS if request.expiry_ms is None else request.expiry_ms
        since_ms = self.since_ms if self.run == request.run else now_ms
        return ResetTimer(request.run, since_ms, expiry_ms)

    def expired(self, view: GroupView, now_ms: int) -> list[WriteResponse]:
        """End the run when its time is over: the group is paused in its place."""
        if RESET not in view.record.requests or not view.answerable or now_ms < self.since_ms + self.expiry_ms:
            return []
        reason = f"its tool did not end it within {self.expiry_ms} ms: the group is paused; some offsets may be written"
        return [
            WriteResponse(request=RESET, run=self.run, state=EXPIRED, reason=reason, ends=True, pauses=True, why=reason)
        ]

    def wake_at_ms(self, view: GroupView) -> int | None:
        """When the wait ends; None: nothing is waited for."""
        return self.since_ms + self.expiry_ms if RESET in view.record.requests else None
