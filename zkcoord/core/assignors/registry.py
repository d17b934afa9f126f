"""The assignors, by the names that registrations offer and groups use."""

from __future__ import annotations

from zkcoord.core.assignors.contract import Assignor
from zkcoord.core.assignors.legacy.range import assign_range
from zkcoord.core.assignors.legacy.roundrobin_0_8 import assign_roundrobin_0_8
from zkcoord.core.assignors.legacy.roundrobin_1_0 import assign_roundrobin_1_0
from zkcoord.core.assignors.sticky.sticky import assign_sticky

ASSIGNORS: dict[str, Assignor] = {
    "range": assign_range,
    "roundrobin-0.8": assign_roundrobin_0_8,
    "roundrobin-1.0": assign_roundrobin_1_0,
    "sticky": assign_sticky,
}
