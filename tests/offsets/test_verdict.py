"""The verdicts on two offsets of a partition."""

from __future__ import annotations

import pytest

from zkcoord.core.tenure import KafkaCommit, OffsetNode, Rule, Stamp, Tenure
from zkcoord.offsets import verdict
from zkcoord.offsets.verdict import Log, Verdict, judge

NODE = OffsetNode(100, mzxid=9)


def ours(offset: int, *, mzxid: int = 9, incarnation: int = 2) -> KafkaCommit:
    return KafkaCommit(offset=offset, stamp=Stamp(tenure=Tenure("", mzxid), incarnation=incarnation))


def foreign(offset: int) -> KafkaCommit:
    return KafkaCommit(offset=offset)


NOT_READ, COMMIT, START = verdict.NOT_READ, verdict.NEXT_COMMIT, verdict.NEXT_START


@pytest.mark.parametrize(
    ("rule", "node", "commit", "expected", "counts", "todo"),
    [
        (Rule.TENURE, NODE, ours(100), Verdict.EQUAL, 100, ""),
        (Rule.TENURE, NODE, ours(150), Verdict.AHEAD, 150, verdict.CHECKPOINT),
        (Rule.TENURE, NODE, ours(90), Verdict.REWOUND, 90, COMMIT),
        (Rule.TENURE, NODE, ours(90, mzxid=8), Verdict.BEHIND, 100, COMMIT),
        (Rule.TENURE, NODE, ours(100, mzxid=8), Verdict.BEHIND, 100, COMMIT),
        (Rule.TENURE, NODE, ours(150, mzxid=8), Verdict.REWOUND, 100, COMMIT),
        (Rule.TENURE, NODE, ours(150, incarnation=1), Verdict.FOREIGN, 100, verdict.OTHER_TOPIC),
        (Rule.TENURE, NODE, foreign(90), Verdict.FOREIGN, 100, COMMIT),
        (Rule.TENURE, NODE, foreign(9_000), Verdict.FOREIGN, 100, "not followed"),
        (Rule.TENURE, NODE, None, Verdict.EXPIRED, 100, COMMIT),
        (Rule.TENURE, None, ours(150), Verdict.ONLY_KAFKA, 150, ""),
        (Rule.TENURE, None, ours(150, incarnation=1), Verdict.ONLY_KAFKA, None, verdict.OTHER_TOPIC),
        (Rule.ZOOKEEPER, NODE, None, Verdict.ONLY_ZOOKEEPER, 100, ""),
        (Rule.ZOOKEEPER, NODE, ours(100), Verdict.EQUAL, 100, ""),
        (Rule.ZOOKEEPER, NODE, ours(150), Verdict.AHEAD, 100, NOT_READ),
        (Rule.ZOOKEEPER, NODE, foreign(90), Verdict.FOREIGN, 100, NOT_READ),
        (Rule.ZOOKEEPER, None, foreign(90), Verdict.ONLY_KAFKA, None, "set it in ZooKeeper"),
        (Rule.OLD_DUAL, NODE, foreign(100), Verdict.EQUAL, 100, ""),
        (Rule.OLD_DUAL, NODE, foreign(90), Verdict.BEHIND, 100, "lower both"),
        (Rule.OLD_DUAL, NODE, foreign(150), Verdict.AHEAD, 150, "lower both"),
        (Rule.OLD_DUAL, NODE, None, Verdict.ONLY_ZOOKEEPER, 100, ""),
        (Rule.OLD_DUAL, None, foreign(150), Verdict.ONLY_KAFKA, 150, ""),
        (Rule.OLD_IN_KAFKA, NODE, foreign(150), Verdict.AHEAD, 150, ""),
        (Rule.OLD_IN_KAFKA, NODE, None, Verdict.EXPIRED, 100, verdict.OLD_KAFKA_LOST),
    ],
)
def test_the_verdict_on_a_partition_that_somebody_owns(
    rule: Rule, node: OffsetNode | None, commit: KafkaCommit | None, expected: Verdict, counts: int | None, todo: str
) -> None:
    judged = judge(rule, node, commit, incarnation=2, held=True, log=Log(0, 10_000))
    assert (judged.verdict, judged.counts.offset) == (expected, counts)
    assert todo in judged.todo
    assert bool(todo) is bool(judged.todo)


def test_where_nobody_owns_the_partition_the_next_start_makes_the_stores_equal() -> None:
    for commit in (None, ours(90, mzxid=8), ours(150)):
        assert START in judge(Rule.TENURE, NODE, commit, held=False).todo


@pytest.mark.parametrize(
    ("log", "expected", "todo"),
    [
        (Log(0, 100), Verdict.EQUAL, ""),
        (Log(100, 100), Verdict.EQUAL, ""),
        (Log(0, 99), Verdict.OUT_OF_RANGE, "behind the end of the log (0 to 99)"),
        (Log(101, 200), Verdict.OUT_OF_RANGE, "before the start of the log (101 to 200)"),
        (None, Verdict.EQUAL, ""),
    ],
)
def test_an_offset_outside_of_the_log_is_told_before_anything_else(
    log: Log | None, expected: Verdict, todo: str
) -> None:
    judged = judge(Rule.TENURE, NODE, ours(100), log=log)
    assert judged.verdict is expected
    assert todo in judged.todo
