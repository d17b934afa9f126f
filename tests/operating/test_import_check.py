"""What an import says of topics, partitions and offsets that do not exist, as far as it is known. No server."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest

from tests.legacy.test_walk import Deployment
from zkcoord.core.model import TopicPartition
from zkcoord.offsets.verdict import Log
from zkcoord.offsets.verify import Logs
from zkcoord.operating.import_check import COUNTS, ImportCheck
from zkcoord.tree.paths import DRAFT

P0, P1, P2 = (TopicPartition("t", number) for number in range(3))
NO_1 = f"topic t has 2 partitions now, and no 1 (1 offset): correct the numbers, or leave them: {COUNTS}"
KNOWN = '{"version":1,"partitions":{"0":[1],"2":[1]}}'


def logs(asked: Collection[TopicPartition]) -> Mapping[TopicPartition, Log]:
    return dict.fromkeys(asked, Log(10, 20))


def said(
    topic: str | None, *offsets: int, told: Collection[TopicPartition] | None = None, of: Logs | None = None
) -> list[str]:
    """What is said of these offsets of partitions 0, 1, ...; `topic`: the node in ZooKeeper."""
    nodes = {DRAFT.topics: ""} if topic is None else {DRAFT.topic("t"): topic}
    check = ImportCheck(Deployment(nodes).read, DRAFT, told, of)
    check.look(dict(zip((P0, P1, P2), offsets, strict=False)))
    return list(check.lines())


def test_f308_a_partition_between_others_may_not_exist() -> None:
    assert said(KNOWN, 1, 2, 3) == [NO_1]


def test_f308_partitions_told_by_kafka_count_also_without_topics_in_zookeeper() -> None:
    assert said(None, 1, 2, told=[P0, P1]) == []
    assert said(KNOWN, 1, 2, 3, told=[P1]) == []
    check = ImportCheck(Deployment({}).read, DRAFT, [P0])
    check.look({P0: 1})
    assert list(check.lines()) == []


def test_f308_of_a_topic_that_nobody_can_read_nothing_is_said_but_of_its_logs() -> None:
    assert said("{", 1, 2) == []
    (line,) = said("{", 10, 21, of=logs)
    assert line.startswith("topic t: 1 offset outside of the log, as t-1 at 21 (10 to 20): ")


@pytest.mark.parametrize(("offset", "outside"), [(9, True), (10, False), (20, False), (21, True)])
def test_f308_the_first_offset_of_a_log_and_its_end_lie_within_it(offset: int, outside: bool) -> None:
    assert bool(said(KNOWN, offset, of=logs)) is outside
