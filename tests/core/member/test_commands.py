"""How a member answers pings and refuses commands that it cannot understand. Each test gives it views, and compares all
its decisions."""

from __future__ import annotations

import pytest

from tests.core.member.members import FIRST, T0, Member, other
from zkcoord.core.command import Option
from zkcoord.core.member.decisions import AnswerPing, RefuseCommand
from zkcoord.core.member.view import Received

NOT_UNDERSTOOD = Received(sequence=FIRST, error="bad command")


@pytest.mark.parametrize(("command", "kind"), [(other(Option.PING), AnswerPing), (NOT_UNDERSTOOD, RefuseCommand)])
@pytest.mark.parametrize("waits", [{"settled": False}, {"channel_read": False}, {"writing": True}, {"ready": False}])
def test_a_member_writes_nothing_while_its_link_or_a_multi_is_unsettled(
    command: Received, kind: type, waits: dict[str, bool]
) -> None:
    member = Member(T0)
    member.finds(command)
    member.has(**waits)
    assert member.decides() == []
    member.has(**{name: not value for name, value in waits.items()})
    assert [type(decision) for decision in member.decides()] == [kind]
