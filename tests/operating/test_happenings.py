"""What is told of two readings that differ; `tests/sim/test_watch.py` has real ones."""

from __future__ import annotations

from dataclasses import replace

from tests.cli.group_tree import P1, A, B
from tests.cli.top.test_screen import ABOVE, group
from zkcoord.core.model import Phase
from zkcoord.core.view import Member
from zkcoord.group_report import Awaited, GroupReport
from zkcoord.operating.happenings import Sight, happenings

AWAY = replace(
    group("g", Phase.AWAITING_MEMBER, 0, A),
    awaited={"etl-2": Awaited(consumer=B, partitions=(P1,), hold_ms=9_000, noted_ms=1)},
)


def told(now: GroupReport) -> list[str]:
    """The events from `AWAY` to this."""
    before, after = (Sight(above=ABOVE, groups={"g": each}) for each in (AWAY, now))
    return [each.event for each in happenings(before, after)]


def test_a_member_that_returns_is_told_once_and_one_that_is_given_up_is_not_awaited() -> None:
    members = {**AWAY.view.members, B: Member(consumer_id=B, czxid=2, instance="etl-2")}
    back = replace(AWAY, view=replace(AWAY.view, members=members), awaited={})

    assert told(back) == ["member_returned"]
    assert told(replace(AWAY, awaited={})) == ["member_not_awaited"]
