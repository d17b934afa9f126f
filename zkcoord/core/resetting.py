"""Waits for the tool that resets a group's offsets, and ends its run when it takes too long.

While a reset is requested, everything is stopped, and the tool writes offsets. If the tool dies, nobody knows whether
it has written all of them. So an expired run ends in a paused group, and a person decides how to go on. The wait is
measured on the coordinator's monotonic clock, from its first sight of the request: each failover begins it again.
"""

from __future__ import annotations

from typing import NamedTuple

from zkcoord.core.decisions import WriteResponse
from zkcoord.core.record import RESET
from zkcoord.core.view import GroupView

RESET_EXPIRY_MS = 600_000
"""ms: the expiry of a request that names none. It is ample, since a tool writes 10,000 offsets in a second."""

EXPIRED = "expired"


class ResetTimer(NamedTuple):
    """The run of the present reset, and since when this coordinator has seen it (None: there is none)."""

    run: str = ""
    since_ms: int | None = None
    expiry_ms: int = RESET_EXPIRY_MS

    def seen(self, view: GroupView, now_ms: int) -> ResetTimer:
        """Return the timer of the present request."""
        request = view.record.requests.get(RESET)
        if request is None:
            return ResetTimer()
        expiry_ms = RESET_EXPIRY_MS if request.expiry_ms is None else request.expiry_ms
        first = self.since_ms is None or self.run != request.run
        return ResetTimer(request.run, now_ms if first else self.since_ms, expiry_ms)

    @property
    def until_ms(self) -> int | None:
        """When the wait ends; None: no reset is requested."""
        return None if self.since_ms is None else self.since_ms + self.expiry_ms

    def expired(self, view: GroupView, now_ms: int) -> list[WriteResponse]:
        """End the run when its time is over. The group is paused instead."""
        if self.until_ms is None or not view.answerable or now_ms < self.until_ms:
            return []
        reason = f"its tool did not end it within {self.expiry_ms} ms: the group is paused; some offsets may be written"
        return [
            WriteResponse(request=RESET, run=self.run, state=EXPIRED, reason=reason, ends=True, pauses=True, why=reason)
        ]
