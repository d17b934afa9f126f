"""The comparison of both stores for many groups: its result, and how much is in memory at the same time. No server."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pytest

from tests.legacy.test_walk import Deployment
from zkcoord.core.adoption import Adoption
from zkcoord.core.model import TopicPartition
from zkcoord.core.record import DEFAULT_RECORD, GroupRecord
from zkcoord.core.tenure import CommitOutcome, Counted, KafkaCommit, Rule, Source, Stamp, Tenure
from zkcoord.errors import UnavailableError
from zkcoord.offsets.kafka_logs import known_logs
from zkcoord.offsets.ports import Commits, ReadCommits
from zkcoord.offsets.reading import read_offsets, rule_of
from zkcoord.offsets.verdict import OTHER_TOPIC, Log, Verdict
from zkcoord.offsets.verify import GroupVerified, verify
from zkcoord.shell.ports import Unreadable, UnreadableError
from zkcoord.tree.paths import DRAFT, LEGACY, Layout
from zkcoord.tree.record import encode_record
from zkcoord.tree.snapshot import Node, Read
from zkcoord.tree.topic import Mark, encode_mark

KEEPS_IN_KAFKA = encode_record(GroupRecord(store_name="kafka")).decode()
P0, P1, P2 = (TopicPartition("t", number) for number in range(3))


class MemoryCommits:
    """A store in Kafka that answers at once, but not for the groups in `silent`."""

    def __init__(self, commits: Mapping[str, Commits], silent: Collection[str] = ()) -> None:
        self.commits, self.silent = commits, silent
        self.asked: list[int] = []

    def read(self, groups: Collection[str]) -> ReadCommits:
        self.asked.append(len(groups))
        return ReadCommits(
            found={group: self.commits.get(group, {}) for group in groups if group not in self.silent},
            unknown={group: UnavailableError("it is away") for group in groups if group in self.silent},
        )

    def commit(self, group: str, commits: Commits) -> CommitOutcome:
        raise NotImplementedError


def no_logs(partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Log]:
    return {}


def told(found: GroupVerified) -> list[tuple[str, int | None, int | None, str, str | None]]:
    return [
        (
            str(row.partition),
            None if row.here is None else row.here.node.offset,
            None if row.there is None else row.there.offset,
            row.judged.verdict.value,
            row.owner,
        )
        for row in found.partitions
    ]


@pytest.mark.parametrize("layout", [DRAFT, LEGACY], ids=lambda layout: layout.name)
def test_all_partitions_of_either_store_are_compared_also_those_that_nobody_holds(layout: Layout) -> None:
    tree = Deployment(
        {
            layout.offset("g", P0): "100",
            layout.offset("g", P1): "7",
            f"{layout.topic_offsets('g', 't')}/x": "5",  # the name is no partition
            layout.owner("g", P0): "g_a-0",
            layout.owner("g", P1): "",
        }
    )
    commits = MemoryCommits({"g": {P0: KafkaCommit(offset=100), P2: KafkaCommit(offset=3)}})
    (found,) = verify(tree.read, commits, no_logs, layout, ["g"])
    alike = "foreign" if layout is DRAFT else "equal"  # old members commit to both without metadata
    assert told(found) == [
        ("t-0", 100, 100, alike, "g_a-0"),
        ("t-1", 7, None, "only zookeeper", None),
        ("t-2", None, 3, "only kafka", None),
    ]


def test_f314_a_group_of_which_a_node_may_not_be_read_is_not_compared_and_the_others_are() -> None:
    tree = Deployment({DRAFT.offset("g", P0): "1", DRAFT.offset("g", P1): "2", DRAFT.offset("h", P0): "3"})
    hidden = DRAFT.offset("g", P1)

    def read(reads: Sequence[Read]) -> tuple[Node, ...]:
        refused = [Unreadable(each.path, each.kind, "NoAuth") for each in reads if each.path == hidden]
        if refused:
            raise UnreadableError(f"{hidden}: NoAuth", refused)
        return tree.read(reads)

    g, h = verify(read, MemoryCommits({"g": {P1: KafkaCommit(offset=2)}}), no_logs, DRAFT, ["g", "h"])
    assert (g.partitions, str(g.problem)) == ((), f"{hidden}: NoAuth")
    assert told(h) == [("t-0", 3, None, "only zookeeper", None)]


def test_an_offset_that_only_kafka_has_is_looked_for_in_its_log_too() -> None:
    tree = Deployment({DRAFT.offset("g", P0): "7", DRAFT.record("g"): KEEPS_IN_KAFKA})
    commits = MemoryCommits({"g": {P1: KafkaCommit(offset=9)}})
    logs = {P0: Log(0, 7), P1: Log(0, 8)}
    (found,) = verify(tree.read, commits, lambda asked: {p: logs[p] for p in asked}, DRAFT, ["g"])
    assert [(row.partition, row.log, row.judged.verdict) for row in found.partitions] == [
        (P0, Log(0, 7), Verdict.EXPIRED),
        (P1, Log(0, 8), Verdict.OUT_OF_RANGE),
    ]


def test_a_commit_of_an_earlier_topic_of_that_name_counts_as_none() -> None:
    mark = encode_mark(Mark(incarnation=2, topic_id=None, czxid=1, root_czxid=1)).decode()
    tree = Deployment({DRAFT.offset("g", P0): "7", DRAFT.mark("g", "t"): mark, DRAFT.record("g"): KEEPS_IN_KAFKA})
    (node,) = tree.read([Read(DRAFT.offset("g", P0))])
    assert node.stat is not None
    stamp = Stamp(tenure=Tenure("", node.stat.mzxid), incarnation=1)
    commits = MemoryCommits({"g": {P0: KafkaCommit(offset=100, stamp=stamp)}})
    (found,) = verify(tree.read, commits, no_logs, DRAFT, ["g"])
    (row,) = found.partitions
    assert (row.judged.verdict, row.judged.counts, row.judged.todo) == (
        Verdict.FOREIGN,
        Counted(7, Source.ZOOKEEPER),
        OTHER_TOPIC,
    )


def test_one_group_that_kafka_does_not_answer_for_does_not_end_the_others() -> None:
    tree = Deployment({DRAFT.offset(group, P0): "1" for group in "abc"})
    found = list(verify(tree.read, MemoryCommits({}, silent=["b"]), no_logs, DRAFT, ["a", "b", "c"]))
    assert [(one.group, one.problem and str(one.problem), len(one.partitions)) for one in found] == [
        ("a", None, 1),
        ("b", "it is away", 0),
        ("c", None, 1),
    ]


def test_verify_names_unreadable_offsets_and_records() -> None:
    tree = Deployment({DRAFT.offset("g", P0): "many", DRAFT.record("g"): "{"})
    (found,) = verify(tree.read, MemoryCommits({}), no_logs, DRAFT, ["g"])
    assert found.problem is not None
    assert str(found.problem).startswith("/zkcoord/groups/g: bad group record '{'")
    (row,) = found.partitions
    assert row.here is not None
    assert row.here.problem == "bad offset 'many': not a number"


def test_groups_are_read_in_batches_of_bounded_size() -> None:
    sizes = {"a": 4, "b": 4, "c": 4, "d": 50, "e": 1, "f": 0}
    tree = Deployment(
        {DRAFT.offset(group, TopicPartition("t", n)): "1" for group, size in sizes.items() for n in range(size)}
    )
    batches = list(read_offsets(tree.read, DRAFT, list(sizes), at_once=10))
    assert [[one.group for one in batch] for batch in batches] == [["a", "b"], ["c"], ["d"], ["e", "f"]]
    assert {one.group: len(one.offsets) for batch in batches for one in batch} == sizes


def test_hundreds_of_groups_cost_few_round_trips() -> None:
    names = [f"g{number:03}" for number in range(200)]
    tree = Deployment({DRAFT.offset(name, P0): "1" for name in names})
    commits = MemoryCommits({})
    assert len(list(verify(tree.read, commits, no_logs, DRAFT, names))) == 200
    assert (len(commits.asked), len(tree.asked) <= 8 * 12) == (8, True)


OLD = {"strategy": "range", "kafka": "0.11"}
DUAL = Adoption(offsets="kafka", dual_commit=True, **OLD)
ALONE = Adoption(offsets="kafka", **OLD)


@pytest.mark.parametrize(
    ("layout", "record", "expected"),
    [
        (DRAFT, None, Rule.ZOOKEEPER),
        (DRAFT, DEFAULT_RECORD, Rule.ZOOKEEPER),
        (DRAFT, GroupRecord(store_name="dual"), Rule.TENURE),
        (DRAFT, GroupRecord(store_name="kafka"), Rule.TENURE),
        (LEGACY, None, Rule.OLD_DUAL),
        (LEGACY, DEFAULT_RECORD, Rule.OLD_DUAL),
        (LEGACY, GroupRecord(adoption=Adoption(offsets="zookeeper", **OLD)), Rule.ZOOKEEPER),
        (LEGACY, GroupRecord(adoption=DUAL), Rule.OLD_DUAL),
        (
            LEGACY,
            GroupRecord(store_name="dual", adoption=DUAL),
            Rule.TENURE,
        ),
        (LEGACY, GroupRecord(store_name="kafka", adoption=ALONE), Rule.OLD_IN_KAFKA),
        (LEGACY, GroupRecord(store_name="dual", adoption=ALONE), Rule.OLD_IN_KAFKA),
        (LEGACY, GroupRecord(store_name="zookeeper", adoption=ALONE), Rule.ZOOKEEPER),
    ],
)
def test_the_rule_of_a_group_is_told_by_its_record(layout: Layout, record: GroupRecord | None, expected: Rule) -> None:
    assert rule_of(layout, record) is expected


def test_an_adopted_groups_record_is_read() -> None:
    record = GroupRecord(adoption=Adoption(offsets="zookeeper", **OLD))
    tree = Deployment({LEGACY.offset("g", P0): "1", LEGACY.record("g"): encode_record(record).decode()})
    (found,) = verify(tree.read, MemoryCommits({}), no_logs, LEGACY, ["g"])
    assert (found.store, found.problem) == ("zookeeper", None)


def test_partitions_unknown_to_kafka_are_named_once_in_a_sentence_for_each_reason() -> None:
    class Asked:
        def ask_offsets(self, partitions: Collection[TopicPartition], *_: object) -> object:
            reasons = {
                P0: "Kafka does not know t-0: check it",
                P1: "Kafka does not know t-1: check it",
                P2: "no answer",
            }
            return {}, {p: UnavailableError(reasons[p]) for p in partitions}

    said: list[str] = []
    assert known_logs(Asked(), said.append)([P2, P1, P0]) == {}  # type: ignore[arg-type]
    assert said == [
        f"{reason}; whether offsets lie within such logs is not known"
        for reason in ("Kafka does not know t-0, t-1: check it", "no answer")
    ]
