"""Differences between the versions of the old consumers that the vectors of three versions do not show."""

from __future__ import annotations

import pytest

from zkcoord.core.model import TopicPartition
from zkcoord.errors import UsageError
from zkcoord.legacy.planning import RANGE, ROUND_ROBIN, OldGroup, Plan, plan_of
from zkcoord.legacy.versions import old_version
from zkcoord.tree.registration import THREADS_MAX


def registration(pattern: str = "static", **counts: int) -> str:
    listed = ",".join(f'"{name}":{count}' for name, count in counts.items())
    return f'{{"version":1,"subscription":{{{listed}}},"pattern":"{pattern}","timestamp":"1"}}'


def wildcard(regex: str) -> str:
    return f'{{"version":1,"subscription":{{"{regex}":1}},"pattern":"white_list","timestamp":"1"}}'


def planned(version: str, assignor: str, topics: dict[str, int], *texts: str) -> Plan:
    """The plan of members g_a, g_b, … with these registrations."""
    return plan_of(
        OldGroup(
            version=old_version(version),
            assignor=assignor,
            registrations={f"g_{'abcdefgh'[number]}": text for number, text in enumerate(texts)},
            topics={name: tuple(range(size)) for name, size in topics.items()},
        )
    )


def owners(plan: Plan) -> str:
    """The members that own the partitions, as `a a b`, in the order of the partitions."""
    assert plan.owners is not None, plan.error
    return " ".join(plan.owners[partition][2] for partition in sorted(plan.owners))


@pytest.mark.parametrize("version", ["0.8.0", "0.8.1.1"])
def test_before_0_8_2_there_is_no_round_robin_and_range_is_computed(version: str) -> None:
    topics, member = {"t": 4}, registration(t=1)
    assert owners(planned(version, ROUND_ROBIN, topics, member, member)) == "a a b b"
    assert owners(planned("0.8.2", ROUND_ROBIN, topics, member, member)) == "a b a b"


@pytest.mark.parametrize(
    ("version", "deals"),
    [("0.8.2.2", False), ("0.9.0.1", False), ("0.10.1.1", False), ("0.10.2.0", True), ("0.11", True)],
)
def test_different_subscriptions_are_dealt_from_0_10_2_on(version: str, deals: bool) -> None:
    plan = planned(version, ROUND_ROBIN, {"t": 1, "u": 1}, registration(t=1, u=1), registration(t=1))
    assert (plan.owners is not None) is deals
    assert deals or "topics 't' and 'u' have different threads" in str(plan.error)


@pytest.mark.parametrize(("version", "fails"), [("0.8.2.2", True), ("0.9.0.0", False), ("1.1.1", False)])
def test_a_wildcard_without_a_topic_breaks_round_robin_of_0_8_2_only(version: str, fails: bool) -> None:
    plan = planned(version, ROUND_ROBIN, {"t": 1}, wildcard("x.*"))
    assert plan.owners == (None if fails else {})
    assert not fails or "KAFKA-1648" in str(plan.error)


@pytest.mark.parametrize(
    ("version", "taken"), [("0.8.1", "a b"), ("0.8.2", "b"), ("0.10.2", "b"), ("0.11", ""), ("1.1", "")]
)
def test_a_wildcard_leaves_the_internal_topics_that_its_version_knows(version: str, taken: str) -> None:
    topics = {"__consumer_offsets": 1, "__transaction_state": 1}
    plan = planned(version, RANGE, topics, wildcard("__.*"))
    assert plan.owners is not None
    names = {"__consumer_offsets": "a", "__transaction_state": "b"}
    assert " ".join(names[partition.topic] for partition in sorted(plan.owners)) == taken


@pytest.mark.parametrize(("version", "reads"), [("0.8.0", True), ("0.11.0.2", True), ("1.0.0", False), ("1.0.1", True)])
def test_a_backslash_that_0_8_1_wrote_unescaped_breaks_1_0_0_only(version: str, reads: bool) -> None:
    plan = planned(version, RANGE, {"foo.bar": 1, "fooxbar": 1}, wildcard(r"foo\.bar"))
    assert plan.owners == ({TopicPartition("foo.bar", 0): "g_a-0"} if reads else None)


def test_names_that_1_0_1_escaped_twice_match_nothing() -> None:
    for version in ("0.8.2.2", "0.11.0.2", "1.1.1"):
        assert planned(version, RANGE, {"foo.bar": 1}, wildcard(r"foo\\\\.bar")).owners == {}


def test_an_empty_subscription_adds_nothing_and_hinders_nobody() -> None:
    for version in ("0.8.2.2", "0.9", "0.10.2", "1.1.1"):
        plan = planned(version, ROUND_ROBIN, {"t": 2}, registration(t=1), registration(), registration(t=1))
        assert set((plan.owners or {}).values()) == {"g_a-0", "g_c-0"}


@pytest.mark.parametrize("version", ["0.8.2.2", "0.9.0.1", "0.10.1.1"])
def test_an_empty_subscription_has_no_share_where_hashes_are_equal(version: str) -> None:
    alike = registration(Aa=1, BB=1)
    plan = planned(version, ROUND_ROBIN, {"Aa": 2, "BB": 2}, alike, registration(), alike)
    assert sorted((plan.owners or {}).values()) == ["g_a-0", "g_a-0", "g_c-0", "g_c-0"]


@pytest.mark.parametrize("version", ["0.8.2.2", "0.9.0.1", "0.10.1.1"])
def test_members_of_0_8_2_to_0_10_1_that_list_tied_topics_differently_never_settle(version: str) -> None:
    topics = {"Aa": 2, "BB": 2}
    alike = planned(version, ROUND_ROBIN, topics, registration(Aa=1, BB=1), registration(Aa=1, BB=1))
    assert owners(alike) == "b b a a"
    apart = planned(version, ROUND_ROBIN, topics, registration(Aa=1, BB=1), registration(BB=1, Aa=1))
    assert "is wanted by" in str(apart.error)
    assert owners(planned("0.11", ROUND_ROBIN, topics, registration(Aa=1, BB=1), registration(BB=1, Aa=1))) == "a a b b"


@pytest.mark.parametrize(
    ("version", "first", "later"),
    [("0.11.0.2", "0 1 0 1 0", "1 0 1 0 1"), ("1.1.1", "0 1 0 1 0", "0 0 1 0 1")],
)
def test_where_hashes_are_equal_it_may_count_who_registered_first(version: str, first: str, later: str) -> None:
    """The plans that members of these versions computed on a server where they had registered in the first order."""
    registrations = {
        "g_node-2": registration(events=1, absent=2, BBBB=2, BB=2, AaBB=2, e_1=2, t2=1),
        "g_h-1-aa1": registration(absent=1, e_1=1, AaBB=2, r=1),
        "g_bx": registration(Aa=2, e_1=1),
    }
    registrations = {name: text.replace("e_1", "e-1") for name, text in registrations.items()}
    sizes = {"BB": 5, "Aa": 1, "r": 11, "t2": 11, "BBBB": 5, "e-1": 1, "AaBB": 11}
    topics = {**{name: tuple(range(size)) for name, size in sizes.items()}, "events": (0, 17, 19, 25)}
    found = []
    for names in (list(registrations), list(registrations)[::-1]):
        group = OldGroup(
            version=old_version(version),
            assignor=ROUND_ROBIN,
            registrations={name: registrations[name] for name in names},
            topics=topics,
        )
        plan = plan_of(group).owners or {}
        found.append(" ".join(plan[TopicPartition("BB", number)].removeprefix("g_node-2-") for number in range(5)))
    assert found == [first, later]


def test_a_count_of_0_under_a_wildcard_breaks_old_members_only_where_a_topic_matches() -> None:
    text = wildcard("t.*").replace(":1}", ":0}")
    assert planned("0.11", RANGE, {"u": 1}, text).owners == {}
    assert "at least 1" in str(planned("0.11", RANGE, {"t1": 1}, text).error)


def test_a_registration_that_asks_for_too_many_threads_is_not_planned() -> None:
    assert "more than 65536" in str(planned("1.1", RANGE, {"t": 1}, registration(t=2**31 - 1)).error)


@pytest.mark.parametrize("text", ["2.0.0", "0.7.2", "1", "0.8.2.2.2", "", "1.1.1 "])
def test_a_version_without_an_old_consumer_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"no version of Kafka|no ZooKeeper consumer that is known"):
        old_version(text)


@pytest.mark.parametrize("version", ["0.7.2", "1.2", "1.2.0"])
def test_versions_without_the_old_consumer_are_refused(version: str) -> None:
    with pytest.raises(UsageError, match=f"Kafka {version} has no ZooKeeper consumer"):
        old_version(version)


@pytest.mark.parametrize(
    ("pattern", "version", "fails"), [("5", "0.11", True), ("null", "0.11", False), ("null", "1.1", True)]
)
def test_a_pattern_that_is_no_text_breaks_old_members_but_null_those_since_1_0_only(
    pattern: str, version: str, fails: bool
) -> None:
    text = registration(t=1).replace('"static"', pattern)
    plan = planned(version, RANGE, {"t": 1}, text)
    assert (plan.owners is None, "not a text" in str(plan.error)) == (fails, fails)


@pytest.mark.parametrize(("threads", "planned_here"), [(THREADS_MAX, True), (THREADS_MAX + 1, False)])
def test_more_threads_than_a_registration_may_have_are_not_planned(threads: int, planned_here: bool) -> None:
    plan = planned("1.1", RANGE, {"t": 1}, registration(t=threads))
    assert (plan.owners is not None) is planned_here
