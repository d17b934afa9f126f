"""The assignors by the name that registrations offer and groups agree on."""

from __future__ import annotations

from zkcoord.core.assignors.contract import Assignor
from zkcoord.core.assignors.range import assign_range
from zkcoord.core.assignors.sticky import assign_sticky

ASSIGNORS: dict[str, Assignor] = {
    "range": assign_range,
    "sticky": assign_sticky,
}
