"""Where a reset moves a group to."""

from __future__ import annotations

import pytest

from zkcoord.core.model import TopicPartition
from zkcoord.errors import UsageError
from zkcoord.offsets.targets import Goal, Where, chosen, from_file, targets
from zkcoord.offsets.verdict import Log

P0, P1, P2 = (TopicPartition("t", number) for number in range(3))
U0 = TopicPartition("u", 0)
LOGS = {P0: Log(10, 100), P1: Log(0, 50)}
CURRENT = {P0: 60, P1: None}
NO_SHIFT = "1 partition without an offset to shift, left alone: t-1"
OUTSIDE = "outside of the log, so its start or end is taken"


@pytest.mark.parametrize(
    ("goal", "found", "expected", "notes"),
    [
        (Goal(Where.EARLIEST), {}, {P0: 10, P1: 0}, []),
        (Goal(Where.LATEST), {}, {P0: 100, P1: 50}, []),
        (Goal(Where.OFFSET, 20), {}, {P0: 20, P1: 20}, []),
        (Goal(Where.OFFSET, 70), {}, {P0: 70, P1: 50}, [f"1 offset {OUTSIDE}: t-1 at 70 (0 to 50)"]),
        (Goal(Where.OFFSET, 5), {}, {P0: 10, P1: 5}, [f"1 offset {OUTSIDE}: t-0 at 5 (10 to 100)"]),
        (Goal(Where.SHIFT, -20), {}, {P0: 40}, [NO_SHIFT]),
        (Goal(Where.SHIFT, -99), {}, {P0: 10}, [f"1 offset {OUTSIDE}: t-0 at -39 (10 to 100)", NO_SHIFT]),
        (Goal(Where.DATETIME, 1), {P0: 33}, {P0: 33, P1: 50}, []),
        (Goal(Where.FILE), {P0: 44, P1: 0}, {P0: 44, P1: 0}, []),
    ],
)
def test_the_new_offsets(
    goal: Goal, found: dict[TopicPartition, int], expected: dict[TopicPartition, int], notes: list[str]
) -> None:
    assert targets(goal, CURRENT, LOGS, found) == (expected, notes, CURRENT)


def test_partitions_that_cannot_have_what_was_asked_for_are_told_in_one_line_of_each_kind() -> None:
    logs = {TopicPartition("t", number): Log(0, 50 + number) for number in range(100)}
    (line,) = targets(Goal(Where.OFFSET, 200), {}, logs, {}).notes
    assert line.startswith(f"100 offsets {OUTSIDE}: t-0 at 200 (0 to 50), t-1 at 200 (0 to 51), ")
    assert line.endswith(" and 95 more")
    (line,) = targets(Goal(Where.SHIFT, 1), {}, logs, {}).notes
    assert line == "100 partitions without an offset to shift, left alone: t-0, t-1, t-2, t-3, t-4 and 95 more"


def test_topics_and_partitions_are_named_as_in_kafkas_tool() -> None:
    existing = [P2, P1, P0, U0]
    assert chosen(["t"], existing) == [P0, P1, P2]
    assert chosen(["t:2,0", "u"], existing) == [P0, P2, U0]
    for wrong in ("x", "t:7", "t:", "t:a", ":1", "two words"):
        with pytest.raises(UsageError, match=f"--topic {wrong}"):
            chosen([wrong], existing)


def test_a_file_is_kafkas_or_an_export_of_ours() -> None:
    assert from_file(["t,0,5\n", '"t",1,6\n', "\n"], "g") == {P0: 5, P1: 6}
    lines = ["/consumers/g/offsets/t/0:5", "/consumers/h/offsets/t/0:9"]
    lines.append('{"group":"g","topic":"t","partition":1,"offset":6}')
    assert from_file(lines, "g") == {P0: 5, P1: 6}


@pytest.mark.parametrize(
    "line", ["t,0", "t,0,-1", "t,x,1", "t,0,9999999999999999999", "two words,0,1", "/x:1", "t 0 1"]
)
def test_a_file_with_a_line_that_is_none_is_refused_with_its_number(line: str) -> None:
    with pytest.raises(UsageError, match="line 2"):
        from_file(["t,1,1", line], "g")


def test_a_file_without_the_group_is_refused() -> None:
    with pytest.raises(UsageError, match="the file has no offset of group g"):
        from_file(["/consumers/h/offsets/t/0:9"], "g")
