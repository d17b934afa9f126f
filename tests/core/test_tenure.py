"""Which of two offsets counts: every case of the rule, and results that no sequence of writes and commits may have."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zkcoord.core.tenure import (
    NOTHING,
    Counted,
    Foreign,
    KafkaCommit,
    OffsetNode,
    Rule,
    Source,
    Stamp,
    Tenure,
    counted,
    foreign,
)

TREE = "a1"
NODE = OffsetNode(100, mzxid=9)
FOREIGN = KafkaCommit(offset=150)


def ours(offset: int = 150, *, mzxid: int = 9, tree: str = TREE, incarnation: int = 2) -> KafkaCommit:
    return KafkaCommit(offset=offset, stamp=Stamp(tenure=Tenure(tree, mzxid), incarnation=incarnation))


def here(offset: int) -> Counted:
    return Counted(offset, Source.ZOOKEEPER)


def there(offset: int) -> Counted:
    return Counted(offset, Source.KAFKA)


@pytest.mark.parametrize(
    ("why", "rule", "node", "commit", "expected"),
    [
        ("nobody has committed", Rule.TENURE, None, None, NOTHING),
        ("the commit is of the node's tenure", Rule.TENURE, NODE, ours(), there(150)),
        ("the same, and it is lower: its owner went back", Rule.TENURE, NODE, ours(90), there(90)),
        ("the node was written after it", Rule.TENURE, NODE, ours(mzxid=8), here(100)),
        ("a later number is another tenure, too", Rule.TENURE, NODE, ours(mzxid=10), here(100)),
        ("the transaction is another tree's", Rule.TENURE, NODE, ours(tree="b2"), here(100)),
        ("Kafka has lost it", Rule.TENURE, NODE, None, here(100)),
        ("the topic was created again", Rule.TENURE, NODE, ours(incarnation=1), here(100)),
        ("nobody said which incarnation it is of", Rule.TENURE, NODE, ours(incarnation=0), there(150)),
        ("it is of a later incarnation than was read", Rule.TENURE, NODE, ours(incarnation=3), there(150)),
        ("somebody else made it", Rule.TENURE, NODE, FOREIGN, here(100)),
        ("the node holds no offset, in its tenure", Rule.TENURE, OffsetNode(None, 9), ours(), there(150)),
        ("the node holds no offset, after it", Rule.TENURE, OffsetNode(None, 9), ours(mzxid=8), NOTHING),
        ("no node: any commit of ours", Rule.TENURE, None, ours(mzxid=8), there(150)),
        ("no node: of an earlier incarnation", Rule.TENURE, None, ours(incarnation=1), NOTHING),
        ("no node: somebody else's", Rule.TENURE, None, FOREIGN, there(150)),
        ("Kafka is not read", Rule.ZOOKEEPER, NODE, ours(), here(100)),
        ("Kafka is not read, without a node", Rule.ZOOKEEPER, None, ours(), NOTHING),
        ("old members commit to Kafka alone", Rule.OLD_IN_KAFKA, NODE, FOREIGN, there(150)),
        ("a commit of ours beside them", Rule.OLD_IN_KAFKA, NODE, ours(mzxid=8), here(100)),
        ("a commit of ours beside them, in its tenure", Rule.OLD_IN_KAFKA, NODE, ours(), there(150)),
        ("old members with both: Kafka's is larger", Rule.OLD_DUAL, NODE, FOREIGN, there(150)),
        ("old members with both: ZooKeeper's is larger", Rule.OLD_DUAL, NODE, KafkaCommit(offset=99), here(100)),
        ("old members with both: equal", Rule.OLD_DUAL, NODE, KafkaCommit(offset=100), here(100)),
        ("old members with both: one without an offset", Rule.OLD_DUAL, OffsetNode(None, 9), FOREIGN, there(150)),
        ("old members with both: only Kafka's", Rule.OLD_DUAL, None, FOREIGN, there(150)),
        ("old members with both: only ZooKeeper's", Rule.OLD_DUAL, NODE, None, here(100)),
    ],
)
def test_the_offset_that_counts(
    why: str, rule: Rule, node: OffsetNode | None, commit: KafkaCommit | None, expected: Counted
) -> None:
    assert counted(rule, node, commit, tree=TREE, incarnation=2) == expected, why


@pytest.mark.parametrize(
    ("commit", "expected"),
    [
        (None, Foreign.IGNORE),
        (ours(50), Foreign.IGNORE),
        (KafkaCommit(offset=100), Foreign.IGNORE),
        (KafkaCommit(offset=99), Foreign.ADOPT),
        (KafkaCommit(offset=9_000), Foreign.OVERWRITE),
    ],
)
def test_a_foreign_commit_behind_is_a_rewind_and_one_ahead_is_never_followed(
    commit: KafkaCommit | None, expected: Foreign
) -> None:
    assert foreign(100, commit) is expected


@dataclass(slots=True)
class Owner:
    """A consumer that was granted the partition once, and may still run."""

    tenure: Tenure
    position: int


@dataclass(slots=True)
class History:
    """One partition: its node, Kafka's commit, and its owners. The last one is the present owner."""

    zxids: count[int] = field(default_factory=lambda: count(1))
    node: OffsetNode | None = None
    commit: KafkaCommit | None = None
    owners: list[Owner] = field(default_factory=list)

    def counts(self) -> int:
        found = counted(Rule.TENURE, self.node, self.commit, tree=TREE)
        return 0 if found.offset is None else found.offset

    def written(self) -> int:
        return 0 if self.node is None or self.node.offset is None else self.node.offset

    def write(self, offset: int) -> Tenure:
        self.node = OffsetNode(offset, next(self.zxids))
        return Tenure(TREE, self.node.mzxid)

    def start(self) -> None:
        position = self.counts()
        self.owners.append(Owner(self.write(position), position))

    def commit_to_kafka(self, owner: Owner) -> None:
        self.commit = KafkaCommit(offset=owner.position, stamp=Stamp(tenure=owner.tenure))


STEPS = ("start", "commit", "dual", "half", "checkpoint", "late", "expire", "rewind", "foreign", "fail")


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 50)), max_size=60))
def test_no_sequence_of_events_moves_the_offset_but_the_owners_commits_and_rewinds(
    events: list[tuple[str, int]],
) -> None:
    world = History()
    world.start()
    processed = 0
    for step, number in events:
        owner, before = world.owners[-1], world.counts()
        fenced = world.node is not None and world.node.mzxid != owner.tenure.mzxid  # somebody has set the node
        expected = before
        if step == "start":
            world.start()
        elif step == "late":  # a former owner goes on, and its commit lands
            former = world.owners[number % len(world.owners)]
            if former is owner and not fenced:
                continue
            former.position += number
            world.commit_to_kafka(former)
            expected = world.written()
        elif step == "expire":
            world.commit = None
            expected = world.written()
        elif step == "rewind":
            world.write(number)
            expected = number
        elif step == "foreign":
            world.commit = KafkaCommit(offset=number * 1_000)
            expected = world.written()
        elif not fenced:
            owner.position += number
            processed = max(processed, owner.position)
            if step in ("dual", "half", "checkpoint"):
                owner.tenure = world.write(owner.position)
            if step in ("commit", "dual", "checkpoint"):
                world.commit_to_kafka(owner)
            expected = before if step == "fail" else owner.position
        assert world.counts() == expected
        assert world.counts() <= max(processed, 50)
