"""A coordinator that begins to serve counts the groups. Groups that cannot be read do not delay the others."""

from __future__ import annotations

from zkcoord.core.model import Phase
from zkcoord.serving.reporting import Reporter
from zkcoord.serving.taking_over import TOLD_AFTER_MS, TakeOver


def test_it_is_told_once_all_groups_were_found_or_have_gone() -> None:
    taking = TakeOver({"a", "b", "c"}, 7, 1_000)

    assert [taking.found("a", Phase.STABLE), taking.found("b", Phase.AWAITING_SYNC)] == [True, False]
    assert taking.due_ms(1_100) == 1_000 + TOLD_AFTER_MS
    taking.gone("c")
    assert taking.due_ms(1_200) == 1_200
    assert taking.fields(1_200) == {
        "epoch": 7,
        "groups": 2,
        "states": {"AwaitingSync": 1, "Stable": 1},
        "ms": 200,
    }
    assert not taking.found("a", Phase.STABLE), "it was found before: whatever it is now has changed"


def test_a_group_that_nobody_can_read_is_counted_and_not_waited_for() -> None:
    told: list[tuple[str, object]] = []
    reporter = Reporter(lambda name, fields: told.append((name, fields.get("unread"))))

    reporter.elected(3, 7, {"a", "b"}, 1_000)

    assert reporter.taken_over(1_500) == (1_000 + TOLD_AFTER_MS,)
    assert reporter.taken_over(1_000 + TOLD_AFTER_MS) == reporter.taken_over(20_000) == ()
    assert told == [("elected", None), ("took_over", 2)]


def test_where_there_are_no_groups_nothing_was_taken_over() -> None:
    told: list[str] = []
    reporter = Reporter(lambda name, _fields: told.append(name))

    reporter.elected(3, 7, (), 1_000)

    assert (reporter.taken_over(1_000), told) == ((), ["elected"])
