"""An inventory of one group: its facts, the problems to be expected, and the questions that only people can answer."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.legacy.groups import MADE_MS, SINCE_MS, WRITTEN_MS, A, B, group, partition, static, wildcard
from zkcoord.core.adoption import Adoption
from zkcoord.legacy.adopting import objections
from zkcoord.legacy.findings import problems_of, questions_of
from zkcoord.legacy.inventory import Claim, Committed, GroupInventory
from zkcoord.tree.registration import TOMBSTONE, encode_tombstone

UUID = "6c84fb90-12c4-11e1-840d-7b25c5ee775a"
TOPICS = {"t": 4}
RANGE = {"t/0": f"{A}-0", "t/1": f"{A}-0", "t/2": f"{B}-0", "t/3": f"{B}-0"}
DEALT = {"t/0": f"{A}-0", "t/1": f"{B}-0", "t/2": f"{A}-0", "t/3": f"{B}-0"}
OFFSETS = {f"t/{n}": str(n) for n in range(4)}


def suggested(found: GroupInventory) -> dict[str, object]:
    """Key -> what the tree suggests."""
    return {question.key: question.suggested for question in questions_of(found)}


def test_a_group_at_rest_has_no_problem_and_its_facts_are_told() -> None:
    found = group({A: static(t=1), B: static(t=1)}, RANGE, OFFSETS, TOPICS, kafka={})
    assert problems_of(found) == ()
    assert (found.kind, found.store, found.fits, found.versions()) == ("old", "zookeeper", ("range",), ("0.8.0-1.1.1",))
    assert (found.made_ms, found.last_commit_ms, found.topics) == (MADE_MS, WRITTEN_MS, ("t",))
    assert [(m.consumer, dict(m.threads), m.since_ms) for m in found.members] == [
        (A, {"t": 1}, SINCE_MS),
        (B, {"t": 1}, SINCE_MS),
    ]
    assert found.owners[partition("t/3")] == Claim(f"{B}-0", SINCE_MS)
    assert found.offsets[partition("t/3")] == Committed(3, WRITTEN_MS)
    assert found.owned() == {A: 2, B: 2}
    assert suggested(found) == {
        "offsets": "zookeeper",
        "dual_commit": False,
        "strategy": "range",
        "kafka": None,
        "retries": 4,
        "backoff_ms": 2_000,
        "auto_commit_interval_ms": 60_000,
        "exclude_internal": True,
    }


def test_owners_tell_the_strategy_only_where_no_other_fits() -> None:
    two = {A: static(t=1), B: static(t=1)}
    dealt = group(two, DEALT, OFFSETS, TOPICS)
    assert (dealt.fits, suggested(dealt)["strategy"]) == (("roundrobin-0.8", "roundrobin-1.0"), "roundrobin")
    alone = group({A: static(t=1)}, {"t/0": f"{A}-0"}, {}, {"t": 1})
    assert (alone.fits, suggested(alone)["strategy"]) == (("range", "roundrobin-0.8", "roundrobin-1.0"), None)
    other = group(two, {**RANGE, "t/0": f"{B}-0"}, OFFSETS, TOPICS)
    assert (other.fits, suggested(other)["strategy"]) == ((), None)


def test_round_robin_of_which_side_is_told_where_the_owners_tell_it() -> None:
    topics = {"events": 12, "a": 3}
    names = ("g_h-1-aaaaaaaa", "g_h-2-bbbbbbbb", "g_h-3-cccccccc")
    asks = {names[0]: static(events=2, a=1), names[1]: static(events=2, a=1), names[2]: static(events=1)}
    new = "A1 B0 B1 C0 A0 A1 B0 B1 C0 A0"  # events in the order of `a/0..2, events/10, 11, 0..9`
    order = [*(f"a/{n}" for n in range(3)), "events/10", "events/11", *(f"events/{n}" for n in range(10))]
    threads = ["A0", "B0", "A0", *new.split(), "A1", "B0"]
    owners = {p: f"{names['ABC'.index(t[0])]}-{t[1]}" for p, t in zip(order, threads, strict=True)}
    found = group(asks, owners, {}, topics)
    assert found.fits == ("roundrobin-1.0",)
    assert "round robin as 1.0 and 1.1" in next(q.why for q in questions_of(found) if q.key == "kafka")


@pytest.mark.parametrize(
    ("consumer", "text", "kind", "words"),
    [
        (
            f"h:{UUID}",
            "t",
            "foreign",
            "is a member by pykafka (a bare topic name, and an id of host and uuid): it may compute other shares",
        ),
        (f"g_{UUID}", wildcard("t"), "foreign", "by kafka-node (an id with a whole uuid)"),
        ("g_x", "{}", "foreign", "by poseidon_cluster"),
        ("g_x", '{ "t": 4 }', "foreign", "by kafka 0.7"),
        ("g_x", "", "foreign", "is of no library that is known here (its node is empty"),
        ("g_x", static(t=0), "old", "no old member can rebalance while it is registered"),
        (
            "g_x",
            wildcard("[^a-z&&[^b]]"),
            "old",
            "mean another thing in each Java; old members fail at this wildcard, or evaluate it by rules of their Java",
        ),
        ("g_x", static(t=1)[:-1] + ',"x":1.5}', "old", "members of Kafka before 1.0 cannot read its registration"),
        ("g_x", static(t=1)[:-1] + ',"x":"\t"}', "old", "members of Kafka 1.0 and later cannot read its registration"),
        ("g_x", wildcard(r"foo\\\\.bar"), "old", "matches no topic (Kafka 1.0.1 to 1.1.1 escape a backslash twice)"),
        ("g_x", wildcard("nothing"), "old", "its wildcard 'nothing' matches no topic"),
        ("g_x", wildcard("t|u", "black_list"), "old", "its wildcard 't|u' matches no topic"),
        ("g_x", static(u=1), "old", "topic u is subscribed, and not there"),
    ],
)
def test_a_member_that_would_hinder_the_group_is_named(consumer: str, text: str, kind: str, words: str) -> None:
    found = group({A: static(t=1), consumer: text}, {f"t/{n}": f"{A}-0" for n in range(4)}, OFFSETS, TOPICS)
    problems = problems_of(found)
    assert found.kind == kind
    assert [problem for problem in problems if words in problem], problems


@pytest.mark.parametrize(
    ("registrations", "kind"),
    [
        ({}, "empty"),
        ({"g_x": '{ "t": 4 }'}, "0.7"),
        ({"g_x": static(t=1)[:-1] + ',"coordination":"zkcoord/1"}'}, "zkcoord"),
        ({"g_x": static(t=1)[:-1] + ',"coordination":"zkcoord/1"}', A: static(t=1)}, "mixed"),
        ({A: static(t=1), "g_zpoke1": static()[:-1] + ',"coordination":"zkcoord/1"}'}, "old"),
    ],
)
def test_the_kind_of_a_group_follows_from_who_is_registered(registrations: dict[str, str], kind: str) -> None:
    assert group(registrations, {}, {}, TOPICS).kind == kind


def test_a_wildcard_that_takes_for_ever_is_given_up_once_for_all_members() -> None:
    members = {f"g_{number}": wildcard("(a|aa)+b") for number in range(20)}
    found = group(members, {}, {}, {"a" * 200: 1}, regex_seconds=0.2)
    reason = f"bad regex '(a|aa)+b': no answer for the topic {'a' * 200} in 0.2 s"
    assert dict(found.cluster._matched) == {("(a|aa)+b", False): reason}
    assert {member.problem for member in found.members} == {reason}


def test_copied_registrations_and_owners_are_told_since_no_session_ever_ends_them() -> None:
    found = group({A: static(t=1), B: static(t=1)}, RANGE, OFFSETS, TOPICS, session=0)
    assert [problem.partition(",")[0] for problem in problems_of(found)] == [
        f"consumers {A}",
        "partitions t-0",
    ]
    assert "registered in persistent nodes" in problems_of(found)[0]
    assert "t-0, t-1, t-2 and 1 more are owned in persistent nodes" in problems_of(found)[1]


def test_f262_nobody_is_told_to_remove_what_keeps_old_members_out_of_a_group_that_was_moved() -> None:
    """It is in a persistent node, which no member of the group made. A copied registration is such a node, too."""
    moved = {TOMBSTONE: encode_tombstone("zk2:2181/kafka").decode()}
    found = group(moved, {}, OFFSETS, TOPICS, session=0)
    assert (found.kind, found.members, found.moved_to) == ("moved", (), "zk2:2181/kafka")
    assert problems_of(found) == (
        "zkcoord moved it to 'zk2:2181/kafka', or is about to: the node zkcoord-moved below ids keeps old members from "
        "reading in both places; leave it there",
    )
    told = Adoption(offsets="zookeeper", strategy="range", kafka="1.1")
    assert objections(found, told) == (
        "zkcoord moved it to 'zk2:2181/kafka': move it back from there, or read it there",
    )
    here = group({**moved, A: static(t=4)}, {f"t/{n}": f"{A}-{n}" for n in range(4)}, OFFSETS, TOPICS)
    assert (here.kind, [member.consumer for member in here.members]) == ("moved", [A])


def test_a_group_of_0_7_is_left_alone_with_one_note() -> None:
    found = group({"g_x": '{ "t": 4 }'}, {"t/0-1": "x"}, {"t/0-1": "7"}, {"t": 1})
    assert [problem.partition(":")[0] for problem in problems_of(found)] == [
        "its members are of Kafka 0.7, which no later one can join"
    ]


def test_orphans_are_told_partition_by_partition() -> None:
    found = group(
        {A: static(t=1), B: static(t=1)},
        {"t/0": f"{A}-0", "t/1": "g_gone-1-1a-0", "old/0": f"{A}-0"},
        {"t/0": "7", "t/9": "7", "gone/0": "7"},
        TOPICS,
    )
    assert found.orphaned_owners() == [partition("t/1")]
    assert found.unowned() == [partition("t/2"), partition("t/3")]
    assert found.gone_topics() == ["gone", "old"]
    assert found.gone_partitions() == [partition("t/9")]
    assert [problem.partition(":")[0] for problem in problems_of(found)] == [
        "partitions t-2, t-3 are without an owner, though subscribed",
        "partition t-1 is owned by a consumer that is not registered",
        "topics gone, old are gone, with owners or offsets left",
        "partition t-9 is not in the topic, but an offset is left of it",
    ]


def test_a_member_that_owns_nothing_while_partitions_are_free_failed_to_rebalance() -> None:
    found = group({A: static(t=1), B: static(t=1)}, {"t/0": f"{A}-0", "t/1": f"{A}-0"}, OFFSETS, TOPICS)
    assert problems_of(found) == (
        f"partitions t-2, t-3 are without an owner, though subscribed: consumer {B} is registered without a partition: "
        "a rebalance failed there; restart one of them",
    )


def test_ties_are_told_where_round_robin_is_possible() -> None:
    members = {A: static(Aa=1, BB=1), B: static(BB=1, Aa=1)}
    found = group(members, {}, {}, {"Aa": 2, "BB": 2})
    assert len([problem for problem in problems_of(found) if "of equal hashes" in problem]) == 2
    by_range = {f"{topic}/{n}": f"{name}-0" for topic in ("Aa", "BB") for n, name in enumerate((A, B))}
    assert problems_of(group(members, by_range, {"Aa/0": "1"}, {"Aa": 2, "BB": 2})) == ()


def test_different_subscriptions_are_told_where_round_robin_is_possible() -> None:
    found = group({A: static(t=1, u=1), B: static(t=1)}, {}, {}, {"t": 1, "u": 1})
    assert [problem for problem in problems_of(found) if problem.startswith("topics have different threads")]


def test_nodes_foreign_to_old_members_are_told_by_path() -> None:
    found = group(
        {A: static(t=1)},
        {**{f"t/{n}": f"{A}-0" for n in range(4)}, "t/0-1": "x", "t/x": "x"},
        {"t/0": "7\n", "t/1": "-1", "t/2": "many", "t/0-3": "7"},
        TOPICS,
        others=("channel",),
    )
    assert found.strange == {
        "channel": "no old consumer makes it",
        "owners/t/0-1": "a partition as Kafka 0.7 and pykafka name it (<broker>-<number>): Kafka's own members do not "
        "look at it",
        "owners/t/x": "no partition's name: Kafka's own members do not look at it",
        "offsets/t/1": "b'-1' is no offset: the reset policy decides",
        "offsets/t/2": "bad offset 'many': not a number: old members fail to rebalance until it is a number",
        "offsets/t/0-3": "a partition as Kafka 0.7 and pykafka name it (<broker>-<number>): Kafka's own members do not "
        "read it",
    }
    assert {p.partition: c.offset for p, c in found.offsets.items()} == {0: 7, 1: None, 2: None}
    assert len(problems_of(found)) == 6


@pytest.mark.parametrize(
    ("offsets", "commits", "store", "words"),
    [
        ({}, None, "none", "no offset anywhere (Kafka was not asked: give --bootstrap-servers)"),
        ({}, {}, "none", "no offset anywhere: the group keeps them elsewhere"),
        ({}, {"t/0": 7}, "kafka", "its offsets are in Kafka alone"),
        ({"t/0": "5"}, {"t/0": 7}, "both", "partition t-0 is at different offsets in ZooKeeper and in Kafka"),
        ({"t/0": "7"}, {"t/0": 7}, "both", None),
        ({"t/0": "7"}, None, "zookeeper", None),
    ],
)
def test_where_offsets_stand(
    offsets: dict[str, str], commits: dict[str, int] | None, store: str, words: str | None
) -> None:
    found = group({A: static(t=1)}, {"t/0": f"{A}-0"}, offsets, {"t": 1}, commits)
    assert found.store == store
    told = problems_of(found)
    assert told == () if words is None else words in told[0]
    assert suggested(found)["offsets"] == (store if commits is not None and store == "kafka" else None)


def test_whether_internal_topics_are_excluded_must_be_told_where_a_wildcard_matches_one() -> None:
    topics = {"t": 1, "__consumer_offsets": 1}
    asked = [
        group({A: text}, owners, {}, topics)
        for text, owners in (
            (static(t=1), {}),
            (wildcard("t.*"), {}),
            (wildcard(".*"), {}),
            (wildcard("x", "black_list"), {}),
            (wildcard(".*"), {"__consumer_offsets/0": f"{A}-0"}),
        )
    ]
    assert [suggested(found)["exclude_internal"] for found in asked] == [True, True, None, None, False]
    assert [dict(found.members[0].threads) for found in asked[1:4]] == [{"t": 1}] * 3


def test_without_brokers_it_is_said_that_old_members_stand_still() -> None:
    found = group({A: static(t=1)}, {"t/0": f"{A}-0"}, {"t/0": "1"}, {"t": 1}, brokers=0)
    assert problems_of(found) == ("no broker is registered: old members keep what they own, and take nothing",)


def test_the_page_explains_each_needed_fact() -> None:
    page = (Path(__file__).parents[2] / "docs" / "migrating.md").read_text(encoding="utf-8")
    told = page.partition("\n## 2 ")[2].partition("\n## 3 ")[0]
    explained = set(re.findall(r"`([a-z_]+)`", told))
    assert suggested(group({A: static(t=1)}, {}, {}, TOPICS)).keys() <= explained
