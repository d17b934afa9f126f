"""A member's open calls to Kafka, as a value."""

from __future__ import annotations

from tests.core.member.members import T0
from zkcoord.core.member.log import CommitLog, LogCall


def test_an_answer_to_a_call_of_another_registration_changes_nothing() -> None:
    log = CommitLog().asked(2, LogCall("read", (T0,)))
    assert log.answered(1, {}, None) == log


def test_a_call_for_a_start_and_another_one_are_not_waited_for_in_each_others_place() -> None:
    starting = CommitLog().asked(1, LogCall("read", (T0,), starting=1))
    assert (starting.waits_for(starting=True), starting.waits_for(starting=False)) == (True, False)
    assert starting.asked(2, LogCall("commit", (T0,))).waits_for(starting=False)
