"""Wildcards: a group's topics follow from the list of topics, and a change concerns only the groups that it touches."""

from __future__ import annotations

import pytest

from tests.sim.actors import GROUP, ConsumerFactory, topic_json
from tests.sim.script import Script, on_seeds
from zkcoord.core.model import TopicPartition
from zkcoord.tree.paths import DRAFT, TOPICS
from zkcoord.tree.writes import CreateNode, DeleteNode

T0 = TopicPartition("t", 0)


class WildcardGroup(Script):
    """A group of two consumers with one wildcard. The test creates the topics."""

    def __init__(self, seed: int, regex: str, *, pattern: str = "white_list", topics: dict[str, int]) -> None:
        super().__init__(seed, consumers=0, topics=topics)
        self.consumers = ConsumerFactory(self.logs, {regex: 1}, pattern=pattern)
        for n in range(2):
            self.join(f"consumer{n}")

    def make(self, topic: str, partitions: int) -> None:
        result = self.world.ensemble.operate(CreateNode(f"{TOPICS}/{topic}", topic_json(partitions)))
        assert not result.reason, result

    def topics_owned(self) -> list[str]:
        return sorted({p.topic for (_, p), thread in self.field.owners.items() if thread})

    def settle_with(self, *topics: str) -> None:
        self.world.run_until(lambda: self.topics_owned() == sorted(topics) and not self.outstanding(), what=str(topics))

    def share(self) -> None:
        """Run until both are members and own a partition: the group is rebalanced once more when the second one
        joins."""
        names = ("consumer0", "consumer1")
        self.world.run_until(
            lambda: all(self.registered(name) and self.owned(name) for name in names) and not self.outstanding(),
            what="both own something",
        )


@on_seeds()
@pytest.mark.parametrize(
    ("pattern", "regex", "takes"),
    [
        ("white_list", "t|u.*", ["t", "u2"]),
        ("black_list", "t|u.*", ["other"]),
        ("black_list", "_.*", ["other", "t", "u2"]),
        ("white_list", ".*", ["other", "t", "u2"]),
    ],
)
def test_a_wildcard_takes_whole_names_and_no_internal_topic(
    seed: int, pattern: str, regex: str, takes: list[str]
) -> None:
    topics = {"t": 2, "u2": 1, "other": 1, "__consumer_offsets": 3, "__transaction_state": 1}
    group = WildcardGroup(seed, regex, pattern=pattern, topics=topics)
    group.settle_with(*takes)
    group.calm()


@on_seeds()
def test_new_topics_join_by_themselves_and_a_failover_takes_the_same(seed: int) -> None:
    group = WildcardGroup(seed, "t.*", topics={"t": 2})
    group.settle_with("t")
    group.share()
    group.make("t2", 3)
    group.make("x", 3)
    group.settle_with("t", "t2")
    generation, owners = group.generation(), dict(group.field.owners)
    group.world.crash(group.leader(), exact=True)
    group.world.run_for(15_000)
    assert (group.generation(), group.field.owners) == (generation, owners)
    group.make("t3", 1)
    group.settle_with("t", "t2", "t3")
    assert group.generation() == generation + 1
    group.calm()


@on_seeds()
def test_a_wildcard_group_without_any_topic_waits_for_the_first(seed: int) -> None:
    group = WildcardGroup(seed, ".*", topics={})
    group.world.run_until(lambda: len(group.field.registrations) == 2, what="members")
    group.world.run_for(5_000)
    assert group.topics_owned() == []
    group.make("t", 2)
    group.settle_with("t")
    group.calm()


@on_seeds()
def test_members_with_different_wildcards_and_names_share_what_each_takes(seed: int) -> None:
    group = WildcardGroup(seed, "a.*", topics={"a1": 1, "b1": 1, "c1": 1})
    group.world.spawn("other", ConsumerFactory(group.logs, {"a.*": 2}, pattern="black_list"))
    group.world.spawn("named", ConsumerFactory(group.logs, {"b1": 1}))
    group.settle_with("a1", "b1", "c1")
    group.world.run_until(lambda: group.registered("named"), what="named")
    group.world.run_for(5_000)
    assert group.owner(TopicPartition("c1", 0)) == group.member("other")
    assert group.owner(TopicPartition("a1", 0)) in {group.member("consumer0"), group.member("consumer1")}
    assert group.owner(TopicPartition("b1", 0)) in {group.member("other"), group.member("named")}
    group.calm()


@on_seeds(1)
def test_a_topic_that_was_taken_by_a_wildcard_and_is_deleted_leaves(seed: int) -> None:
    group = WildcardGroup(seed, "t.*", topics={"t": 2, "t2": 2})
    group.settle_with("t", "t2")
    assert not group.world.ensemble.operate(DeleteNode(f"{TOPICS}/t2", 0)).reason
    group.settle_with("t")
    group.calm()


def test_the_other_wildcard_groups_are_not_written_when_a_topic_of_one_comes() -> None:
    group = WildcardGroup(1, "t.*", topics={"t": 2, "u": 1})
    group.world.spawn("other0", ConsumerFactory(group.logs, {"u.*": 1}, "h", pattern="white_list"))
    group.settle_with("t", "u")
    group.world.run_for(5_000)
    since_ms = group.world.now_ms + 1
    group.world.run_for(5)
    group.make("t9", 2)
    group.settle_with("t", "t9", "u")
    assert group.changes_below(DRAFT.group("h"), since_ms) == []
    assert group.changes_below(DRAFT.record("h"), since_ms) == []
    assert group.changes_below(DRAFT.owners(GROUP), since_ms) != []


@on_seeds()
def test_a_wildcard_that_no_topic_matches_is_told_once_and_not_of_one_that_is_read(seed: int) -> None:
    group = WildcardGroup(seed, "view.+", topics={"t": 2})
    group.world.run_for(30_000)
    told = group.world.events("topic_missing")
    assert sorted((e.client.partition("#")[0], e.fields["include"]) for e in told) == [
        ("consumer0", "view.+"),
        ("consumer1", "view.+"),
    ]
    group.make("views", 2)
    group.settle_with("views")
    group.share()
    group.world.run_for(30_000)
    assert len(group.world.events("topic_missing")) == 2
    group.calm()
