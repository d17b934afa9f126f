"""An inventory reads nodes and their stats, even strange ones, and groups of several libraries."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.legacy.groups import SINCE_MS, A, B, group, node, partition, static, wildcard
from zkcoord.core.adoption import Adoption
from zkcoord.legacy.adopting import objections, remarks_on_brokers
from zkcoord.legacy.clients import Library
from zkcoord.legacy.findings import problems_of, questions_of
from zkcoord.legacy.inventory import Claim, Cluster, GroupInventory, GroupNodes, take_inventory
from zkcoord.tree.snapshot import Kind, Node, Stat

PYKAFKA = KAZOO_GO = "h:6c84fb90-12c4-11e1-840d-7b25c5ee775a"
NOT_UTF_8 = b"\xff\xfe"


def taken(
    registrations: Mapping[str, Node],
    owners: Mapping[str, Mapping[str, Node]] | None = None,
    offsets: Mapping[str, Mapping[str, Node]] | None = None,
    cluster: Cluster | None = None,
) -> GroupInventory:
    """The inventory of these nodes; the topic `t` has two partitions."""
    return take_inventory(
        GroupNodes(group="g", folder=node(""), registrations=registrations, owners=owners or {}, offsets=offsets or {}),
        cluster or Cluster(topics={"t": (0, 1)}, brokers=1),
    )


def test_one_wildcard_takes_other_topics_as_a_black_list() -> None:
    found = group({A: wildcard("t"), B: wildcard("t", "black_list")}, topics={"t": 1, "u": 1, "__consumer_offsets": 1})
    assert [dict(member.threads) for member in found.members] == [{"t": 1}, {"u": 1}]
    assert [(member.wildcard, member.black_list) for member in found.members] == [("t", False), ("t", True)]


def test_the_last_commit_is_the_latest_of_all_partitions() -> None:
    offsets = {"t": {"0": node("1", 2_000), "1": node("1", 3_000)}, "u": {"0": node("1", 1_000)}}
    found = taken({}, offsets=offsets)
    assert found.last_commit_ms == 3_000
    assert [found.offsets[partition(name)].written_ms for name in ("t/0", "t/1", "u/0")] == [2_000, 3_000, 1_000]


def test_a_group_has_to_do_with_topics_that_it_subscribes_to_owns_or_has_offsets_of() -> None:
    found = group({A: static(t=1)}, {"u/0": f"{A}-0"}, {"v/0": "1"}, {"t": 1})
    assert found.topics == ("t", "u", "v")


def test_the_versions_are_those_of_kafkas_own_members_and_not_of_0_7() -> None:
    found = group({A: static(t=1), "g_x": '{ "t": 1 }'}, topics={"t": 1})
    assert (found.kind, found.versions()) == ("foreign", ("0.8.0-1.1.1",))


def test_an_owner_of_another_library_is_named_without_a_thread() -> None:
    """Its id ends in the same way as an id with a thread."""
    found = group({PYKAFKA: "t", A: static(t=1)}, {"t/0": PYKAFKA, "t/1": f"{A}-0"}, topics={"t": 2})
    assert found.owned() == {PYKAFKA: 1, A: 1}
    assert found.orphaned_owners() == []


def test_a_topic_that_cannot_be_read_is_not_gone_nor_absent_and_is_told_to_those_who_use_it() -> None:
    cluster = Cluster(topics={"t": (0, 1)}, unreadable={"u": "no JSON", "v": "no JSON"}, brokers=1)
    owners = {"t": {n: node(f"{A}-0") for n in "01"}}
    found = taken({A: node(static(t=1, u=1))}, owners, {"u": {"0": node("1")}}, cluster)
    assert found.gone_topics() == []
    assert problems_of(found) == ("topic u: no JSON; the broker or an operator must mend it",)


def test_a_white_list_that_was_filled_after_its_node_was_made_is_kafka_nodes() -> None:
    later = Node("", Kind.DATA, Stat(1, 1, 1, SINCE_MS), wildcard("t").encode())
    assert [m.client.library for m in taken({"g_x": later, A: node(wildcard("t"))}).members] == [
        Library.KAFKA,
        Library.KAFKA_NODE,
    ]


def test_bytes_that_are_no_text_are_told_and_break_nothing() -> None:
    found = taken({"g_x": node(NOT_UTF_8)}, {"t": {"0": node(NOT_UTF_8)}}, {"t": {"0": node(NOT_UTF_8)}})
    assert (found.kind, found.owners[partition("t/0")].thread) == ("foreign", "\ufffd\ufffd")
    assert found.orphaned_owners() == [partition("t/0")]
    assert list(found.strange) == ["offsets/t/0"]
    assert found.offsets[partition("t/0")].offset is None


def test_nodes_that_vanish_meanwhile_are_no_owners_and_no_offsets() -> None:
    gone = Node("", Kind.DATA, None)
    found = taken({}, {"t": {"0": gone}}, {"t": {"0": gone}})
    assert (dict(found.owners), dict(found.offsets)) == ({}, {})


def test_a_claim_says_whether_a_session_holds_it() -> None:
    owners = {"t": {"0": node(f"{A}-0", 5), "1": node(f"{B}-0", 6, session=0)}}
    assert dict(taken({}, owners).owners) == {
        partition("t/0"): Claim(f"{A}-0", 5, True),
        partition("t/1"): Claim(f"{B}-0", 6, False),
    }


@pytest.mark.parametrize("text", [static(t=0), static(t=1)], ids=["nobody reads it", "another library"])
def test_no_strategy_is_told_by_owners_where_a_member_cannot_be_reckoned_with(text: str) -> None:
    owners = {"t/0": f"{A}-0", "t/1": f"{KAZOO_GO}-0" if text == static(t=1) else f"{A}-0"}
    found = group({A: static(t=1), KAZOO_GO: text}, owners, topics={"t": 2})
    assert found.members[1].client.library is Library.KAZOO_GO
    assert found.fits == ()


@pytest.mark.parametrize("name", ["0-x", "x-0", "0-", "-0", "00"])
def test_only_two_numbers_are_a_partition_as_0_7_names_it(name: str) -> None:
    found = taken({}, {"t": {name: node("x")}})
    assert found.strange == {f"owners/t/{name}": "no partition's name: Kafka's own members do not look at it"}


def test_text_that_only_old_readers_refuse_is_read_as_the_newest_does() -> None:
    """A count that is no 32-bit int breaks the readers that use Jackson. The others read what they can."""
    (member,) = taken({A: node(static(t=1)[:-1] + ',"x":1.5}')}).members
    assert (dict(member.threads), [each.text for each in member.refused_by]) == ({"t": 1}, ["0.8.2", "0.11"])


def test_a_wildcard_that_java_refuses_is_no_registration_that_a_reader_refuses() -> None:
    (member,) = taken({A: node(wildcard("[a"))}).members
    assert (member.refused_by, member.problem is not None) == ((), True)
    (told,) = [each for each in problems_of(taken({A: node(wildcard("[a"))})) if each.startswith("consumer ")]
    assert "whoever runs it should write it plainer" in told


def test_a_member_without_a_topic_is_not_idle_beside_partitions_without_an_owner() -> None:
    (told,) = [each for each in problems_of(group({A: wildcard("x"), B: static(t=1)}, topics={"t": 1})) if "-0" in each]
    assert f"consumer {B} is registered without a partition" in told


def test_partitions_without_an_owner_beside_members_that_all_own_some_are_looked_at_again() -> None:
    found = group({A: static(t=1)}, {"t/0": f"{A}-0"}, {"t/0": "1"}, {"t": 2})
    assert problems_of(found) == (
        "partition t-1 is without an owner, though subscribed: a rebalance is going on, or failed; look again in ten "
        "seconds",
    )


def test_ties_are_told_unless_the_owners_fit_range_alone() -> None:
    """One member owns everything under each strategy."""
    topics = {"Aa": 2, "BB": 2}
    owners = {f"{topic}/{n}": f"{A}-0" for topic in topics for n in range(2)}
    found = group({A: static(Aa=1, BB=1)}, owners, {"Aa/0": "1"}, topics)
    assert found.fits == ("range", "roundrobin-0.8", "roundrobin-1.0")
    assert len([told for told in problems_of(found) if "of equal hashes" in told]) == 2


def test_a_member_that_nobody_can_read_is_left_out_of_what_is_said_of_round_robin() -> None:
    found = group({A: static(t=1), "g_x": static(t=0)}, topics={"t": 1})
    assert not [told for told in problems_of(found) if "different threads" in told or "hashes" in told]


def test_of_a_group_without_members_neither_brokers_nor_offsets_are_missed() -> None:
    assert problems_of(group({}, {}, {}, {"t": 1}, brokers=0)) == ()


def test_control_characters_of_names_are_spelled_out() -> None:
    (told,) = [each for each in problems_of(group({}, {}, {"a\nb/0": "1"}, {"t": 1})) if "gone" in each]
    assert told.startswith(r"topic a\nb is gone")


def suggested(found: GroupInventory, key: str) -> tuple[object, str]:
    """The value that the tree suggests, and the reason."""
    return next((question.suggested, question.why) for question in questions_of(found) if question.key == key)


def test_where_offsets_are_is_not_suggested_before_kafka_was_asked() -> None:
    asked, not_asked = (group({A: static(t=1)}, {}, {"t/0": "1"}, {"t": 1}, commits) for commits in ({}, None))
    assert (suggested(asked, "offsets")[0], suggested(asked, "dual_commit")[0]) == ("zookeeper", False)
    assert (suggested(not_asked, "offsets")[0], suggested(not_asked, "dual_commit")[0]) == (None, None)


def test_a_wildcard_that_takes_for_ever_asks_nothing_of_internal_topics() -> None:
    topics = {"a" * 200: 1, "__consumer_offsets": 1}
    found = group({A: wildcard("(a|aa)+b|__consumer_offsets")}, topics=topics, regex_seconds=0.05)
    assert found.members[0].problem is not None
    assert suggested(found, "exclude_internal")[0] is True


def test_topics_that_nobody_subscribes_to_are_in_no_plan() -> None:
    found = group({A: static(t=1)}, topics={"t": 1, "Aa": 1, "BB": 1})
    assert not [told for told in problems_of(found) if "hashes" in told]


def test_a_wildcard_that_cannot_be_told_asks_nothing_of_internal_topics() -> None:
    found = group({A: wildcard("[^a-z&&[^b]]")}, topics={"t": 1, "__consumer_offsets": 1})
    assert suggested(found, "exclude_internal")[0] is True


def test_round_robin_of_both_sides_tells_no_version() -> None:
    dealt = {"t/0": f"{A}-0", "t/1": f"{B}-0", "t/2": f"{A}-0", "t/3": f"{B}-0"}
    found = group({A: static(t=1), B: static(t=1)}, dealt, {}, {"t": 4})
    assert found.fits == ("roundrobin-0.8", "roundrobin-1.0")
    assert "round robin as" not in suggested(found, "kafka")[1]


def told(**fields: object) -> Adoption:
    """The answers of people."""
    return Adoption(**{"offsets": "zookeeper", "strategy": "range", "kafka": "1.1", **fields})  # type: ignore[arg-type]


def oldest(version: str) -> GroupInventory:
    """A group whose only member is known to be of these versions."""
    text = {"0.8.0-beta1": static(t=1).replace('"timestamp": ', '"when": '), "1.0.1-1.1.1": wildcard(r"a\\\\.b")}
    return group({A: text[version]}, {}, {"t/0": "1"}, {"t": 1}, {})


@pytest.mark.parametrize(
    ("found", "answer", "fits"),
    [
        ("1.0.1-1.1.1", "1.0", True),
        ("1.0.1-1.1.1", "1.0.0", False),
        ("1.0.1-1.1.1", "1.0.1", True),
        ("1.0.1-1.1.1", "1.1", True),
        ("1.0.1-1.1.1", "0.11", False),
        ("1.0.1-1.1.1", "1.1.1", True),
        ("0.8.0-beta1", "0.8", True),
        ("0.8.0-beta1", "0.8.2", False),
        ("0.8.0-beta1", "1.1", False),
    ],
)
def test_a_line_or_a_version_that_is_told_must_be_one_that_the_members_can_be_of(
    found: str, answer: str, fits: bool
) -> None:
    against = [each for each in objections(oldest(found), told(kafka=answer)) if "look up the version" in each]
    assert against == [] if fits else f"registered as Kafka {found} does" in against[0]


@pytest.mark.parametrize(("answer", "side"), [("0.11", "0.8"), ("1.0.0", "1.0"), ("1.0", "1.0"), ("1.1", "1.0")])
def test_round_robin_is_that_of_the_version_that_is_told(answer: str, side: str) -> None:
    by_range = {"t/0": f"{A}-0", "t/1": f"{A}-0", "t/2": f"{B}-0", "t/3": f"{B}-0"}
    found = group({A: static(t=1), B: static(t=1)}, by_range, {"t/0": "1"}, {"t": 4}, {})
    (against,) = objections(found, told(strategy="roundrobin", kafka=answer))
    assert against.startswith(f"what is owned now is what range would give, and not roundrobin-{side}")


def test_members_before_0_8_2_compute_range_whatever_strategy_is_told() -> None:
    by_range = {"t/0": f"{A}-0", "t/1": f"{A}-0", "t/2": f"{B}-0", "t/3": f"{B}-0"}
    found = group({A: static(t=1), B: static(t=1)}, by_range, {"t/0": "1"}, {"t": 4}, {})
    assert objections(found, told(strategy="roundrobin", kafka="0.8.1.1")) == ()
    dealt = {"t/0": f"{A}-0", "t/1": f"{B}-0", "t/2": f"{A}-0", "t/3": f"{B}-0"}
    found = group({A: static(t=1), B: static(t=1)}, dealt, {"t/0": "1"}, {"t": 4}, {})
    (against,) = objections(found, told(strategy="roundrobin", kafka="0.8.1.1"))
    assert "and not range: look up" in against


@pytest.mark.parametrize(
    ("offsets", "commits", "answer", "objected"),
    [
        ({"t/0": "1"}, {}, "kafka", "its offsets are in ZooKeeper, and none is in Kafka"),
        ({"t/0": "1"}, None, "kafka", ""),
        ({"t/0": "1"}, {"t/0": 1}, "kafka", ""),
        ({}, {"t/0": 1}, "zookeeper", "its offsets are in Kafka, and none is in ZooKeeper"),
        ({}, None, "zookeeper", "no offset of it is in ZooKeeper, and Kafka was not asked"),
        ({}, {}, "zookeeper", ""),
        ({}, {}, "kafka", ""),
    ],
)
def test_a_store_that_is_told_must_be_one_in_which_offsets_may_be(
    offsets: dict[str, str], commits: dict[str, int] | None, answer: str, objected: str
) -> None:
    against = objections(group({A: static(t=1)}, {}, offsets, {"t": 1}, commits), told(offsets=answer))
    assert [each for each in against if not objected or objected not in each] == []
    assert bool(against) is bool(objected)


def test_a_group_without_members_and_offsets_may_keep_them_in_zookeeper_though_kafka_was_not_asked() -> None:
    assert objections(group({}, {}, {}, {"t": 1}, None), told(offsets="zookeeper")) == ()


@pytest.mark.parametrize(
    ("broker", "offsets", "remark"),
    [
        (None, "kafka", ""),
        ("0.9", "zookeeper", "are not tried with brokers before 0.10.2"),
        ("0.10", "zookeeper", ""),
        ("0.10", "kafka", "`zkcoord group delete --offsets` needs 1.1"),
        ("1.0", "kafka", "`zkcoord group delete --offsets` needs 1.1"),
        ("1.1", "kafka", ""),
    ],
)
def test_limits_of_old_brokers_are_told(broker: str | None, offsets: str, remark: str) -> None:
    remarks = remarks_on_brokers(told(offsets=offsets, broker=broker))
    assert len(remarks) == bool(remark)
    assert all(remark in each for each in remarks)


def test_f359_a_wildcard_that_takes_for_ever_for_an_internal_topic_alone_leaves_that_to_people() -> None:
    """Nothing of the deployment was shown."""
    found = group(
        {A: wildcard("([_a-z]|[_a-z]|[_a-z])+[0-9]|t")}, topics={"t": 1, "__consumer_offsets": 1}, regex_seconds=0.05
    )
    assert (found.members[0].problem, dict(found.members[0].threads)) == (None, {"t": 1})
    assert suggested(found, "exclude_internal")[0] is None


def test_a_member_of_another_library_is_asked_for_no_version() -> None:
    found = group({A: static(t=1), "g_x": '{ "t": 1 }'}, {}, {"t/0": "1"}, {"t": 1}, {})
    (against,) = objections(found, told())
    assert against.startswith("consumer 'g_x' is by kafka 0.7 (")


def test_an_internal_topic_that_is_owned_and_that_no_wildcard_matches_answers_nothing() -> None:
    topics = {"__transaction_state": 1, "__consumer_offsets": 1}
    found = group({A: wildcard("__t.*")}, {"__consumer_offsets/0": f"{A}-0"}, topics=topics)
    assert suggested(found, "exclude_internal")[0] is None
