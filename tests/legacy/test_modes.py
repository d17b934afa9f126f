"""The mode of a group beside old members: which members are ours, with whom partitions are shared, and when nothing is
done."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

import pytest

from tests.legacy.groups import static, wildcard
from zkcoord.core.adoption import Adoption
from zkcoord.core.mode import GroupMode, Mode
from zkcoord.core.model import TopicPartition
from zkcoord.legacy.modes import GRACE_MS, Neighbours, mode_of, named_as_ours
from zkcoord.tree.registration import MARKER, Registration, encode_registration
from zkcoord.tree.snapshot import Kind, Node, Stat

OURS, OURS2 = "g_h1-1416335000123-z1a2b3c4", "g_h2-1416335000123-zaabbcc1"
OLD, OLD2 = "g_h1-1416335000123-1a2b3c4d", "g_h2-1416335000123-2b3c4d5e"
POKE = "g_zpoke-1"
NOW = 1_000_000
ADOPTED = Adoption(offsets="zookeeper", strategy="range", kafka="1.1")


def ours(**threads: int) -> str:
    return encode_registration(Registration(subscription=threads, coordination=MARKER, timestamp="1")).decode()


def registered(texts: Mapping[str, str | bytes], version: int = 0) -> dict[str, Node]:
    """The nodes of these registrations, in the order of joining."""
    return {
        name: Node("", Kind.DATA, Stat(version, czxid, 1), text if isinstance(text, bytes) else text.encode())
        for czxid, (name, text) in enumerate(texts.items(), start=1)
    }


def mode(
    texts: Mapping[str, str | bytes],
    adoption: Adoption | None = ADOPTED,
    topics: Mapping[str, int] | None = None,
    since_ms: Mapping[str, int] | None = None,
    version: int = 0,
) -> GroupMode:
    """The mode of group g with these members. Topic t has four partitions, unless `topics` says otherwise."""
    found = {topic: tuple(range(size)) for topic, size in (topics or {"t": 4}).items()}
    return mode_of(Neighbours.of("g", registered(texts, version)), found, adoption, since_ms or {}, NOW)


def plan(found: GroupMode) -> dict[str, str]:
    """The plan of a mixed group: partition -> consumer."""
    assert found.mode is Mode.MIXED, found.why
    assert found.plan is not None
    return {str(p): thread.rpartition("-")[0] for p, thread in sorted(found.plan.items())}


def test_a_group_whose_members_are_all_ours_is_coordinated_and_so_is_one_that_was_only_poked() -> None:
    for texts in ({}, {OURS: ours(t=1)}, {OURS: ours(t=1), OURS2: ours(t=1), POKE: ours()}, {POKE: static()}):
        assert mode(texts) == GroupMode(), texts


def test_with_an_old_member_the_group_is_mixed_and_its_plan_is_the_old_members() -> None:
    found = mode({OURS: ours(t=1), OLD: static(t=1), POKE: ours()})
    assert plan(found) == {"t-0": OLD, "t-1": OLD, "t-2": OURS, "t-3": OURS}
    assert found.share_of(OURS) == {TopicPartition("t", 2): f"{OURS}-0", TopicPartition("t", 3): f"{OURS}-0"}
    assert (found.old, found.patience_ms) == ({OLD}, 6_000)
    assert "1 old member" in found.why
    assert OLD in found.why


@pytest.mark.parametrize(
    ("name", "own"),
    [
        (OURS, True),
        ("g_some-instance-7-1416335000123-z1a2b3c4", True),
        ("h_h1-1416335000123-z1a2b3c4", False),
        ("g_h1-1416335000123-z1a2b3c4d", False),
        ("g_h1-1416335000123-z1a2b3cg", False),
        ("g_h1-z1a2b3c4", False),
        ("xg_h1-1416335000123-z1a2b3c4", False),
    ],
)
def test_a_member_is_ours_by_its_whole_name_and_the_marker_both(name: str, own: bool) -> None:
    assert named_as_ours("g", name) is own
    with_marker = Neighbours.of("g", registered({name: ours(t=1)}))
    without = Neighbours.of("g", registered({name: static(t=1)}))
    assert (with_marker.ours, with_marker.old) == (({name}, set()) if own else (set(), {name}))
    assert (without.ours, without.old) == (set(), {name})


def test_a_group_s_name_is_a_text_not_a_regex() -> None:
    assert not named_as_ours("g.", OURS)
    assert named_as_ours("g+", "g+_h-1-z1a2b3c4")


def test_a_poke_counts_as_nobody_but_a_member_of_such_a_name_with_topics_is_an_old_one() -> None:
    assert plan(mode({POKE: static(t=1), OURS: ours(t=1)})) == {"t-0": OURS, "t-1": OURS, "t-2": POKE, "t-3": POKE}
    assert Neighbours.of("g", registered({"g_zpoke": b"\xff"})).old == {"g_zpoke"}


def test_beside_old_members_a_group_that_was_not_adopted_is_observed() -> None:
    found = mode({OURS: ours(t=1), OLD: static(t=1)}, None)
    assert (found.mode, found.why) == (Mode.OBSERVE, "the group was not adopted")
    assert mode({OURS: ours(t=1)}, None).coordinated


@pytest.mark.parametrize(
    ("name", "text", "library"),
    [
        ("h:12345678-1234-1234-1234-123456789abc", "t", "pykafka"),
        ("g_h", '{"t":1}', "kafka 0.7"),
        ("h:12345678-1234-1234-1234-123456789abc", static(t=1), "kazoo-go"),
        ("g_12345678-1234-1234-1234-123456789abc", static(t=1), "kafka-node"),
        ("g_h", "{}", "poseidon"),
    ],
)
def test_beside_another_library_a_group_is_observed_and_its_reason_names_it(name: str, text: str, library: str) -> None:
    found = mode({OURS: ours(t=1), name: text, OLD: static(t=1)})
    assert (found.mode, found.plan, found.old) == (Mode.OBSERVE, None, {name, OLD})
    assert library in found.why
    assert name in found.why


@pytest.mark.parametrize("text", [b"", b"{", b"\xff\xfe", b'{"version":1,"subscription":{"t":0},"pattern":"static"}'])
def test_a_registration_that_nobody_can_read_is_waited_for_ten_seconds_and_observed_then(text: bytes) -> None:
    texts: dict[str, str | bytes] = {OURS: ours(t=1), OLD: text}
    first = mode(texts)
    if b"subscription" in text:  # it can be parsed, but old members fail because of it: waiting would not help
        assert (first.mode, first.plan) == (Mode.OBSERVE, None)
        return
    assert (first.mode, first.plan, first.grace_ends_ms) == (Mode.MIXED, None, NOW + GRACE_MS)
    assert OLD in first.why
    late = mode(texts, since_ms={OLD: NOW - GRACE_MS + 1})
    assert (late.mode, late.grace_ends_ms) == (Mode.MIXED, NOW + 1)
    over = mode(texts, since_ms={OLD: NOW - GRACE_MS})
    assert (over.mode, over.plan, over.grace_ends_ms) == (Mode.OBSERVE, None, None)


def test_a_registration_that_old_members_read_and_whose_maker_is_unknown_is_as_one_that_nobody_reads() -> None:
    texts = {OURS: ours(t=1), "stranger": static(t=1)}
    assert mode(texts).plan is None
    over = mode(texts, since_ms={"stranger": NOW - GRACE_MS})
    assert (over.mode, "an id that does not begin with g_" in over.why) == (Mode.OBSERVE, True)


def test_of_several_unreadable_registrations_the_first_ends_the_grace() -> None:
    texts: dict[str, str | bytes] = {OURS: ours(t=1), OLD: b"", OLD2: b""}
    assert mode(texts, since_ms={OLD: NOW - GRACE_MS, OLD2: NOW}).mode is Mode.OBSERVE


def test_one_version_reads_what_another_cannot() -> None:
    texts = {OURS: ours(t=1), OLD: '{"version":1,"subscription":{"t":1},"pattern":"static","timestamp":1416335000123}'}
    assert plan(mode(texts))["t-3"] == OURS
    refused = mode(texts, replace(ADOPTED, kafka="0.11"), since_ms={OLD: 0})
    assert (refused.mode, "cannot read" in refused.why) == (Mode.OBSERVE, True)


def test_a_wildcard_that_only_java_can_evaluate_has_the_group_observed_at_once() -> None:
    found = mode({OURS: ours(t=1), OLD: wildcard("[a-[:x]")})
    assert (found.mode, found.plan) == (Mode.OBSERVE, None)
    assert found.why.startswith(f"old members may evaluate a wildcard by rules of their Java: {OLD!r} (")


def test_a_wildcard_takes_what_old_members_of_that_version_take() -> None:
    texts = {OURS: ours(t=1), OLD: wildcard("t|_.*")}
    topics = {"t": 2, "__transaction_state": 1, "u": 1}
    assert plan(mode(texts, topics=topics)) == {"t-0": OLD, "t-1": OURS}
    # 0.10 knows only one internal topic: its wildcard matches the other one, which our members never read
    older = mode(texts, replace(ADOPTED, kafka="0.10"), topics=topics)
    assert (older.mode, "__transaction_state" in older.why) == (Mode.OBSERVE, True)
    told = mode(texts, replace(ADOPTED, exclude_internal=False), topics=topics)
    assert (told.mode, "__transaction_state" in told.why) == (Mode.OBSERVE, True)


def test_equal_hashes_are_a_reason_to_observe_under_round_robin_only() -> None:
    texts, topics = {OURS: ours(Aa=1, BB=1), OLD: static(Aa=1, BB=1)}, {"Aa": 2, "BB": 2}
    dealt = mode(texts, replace(ADOPTED, strategy="roundrobin"), topics=topics)
    assert (dealt.mode, dealt.plan) == (Mode.OBSERVE, None)
    assert "equal hashes for Aa-0, BB-0" in dealt.why
    assert len(plan(mode(texts, topics=topics))) == 4
    untied = {OURS: ours(t=1), OLD: static(t=1)}
    assert len(plan(mode(untied, replace(ADOPTED, strategy="roundrobin")))) == 4


def test_a_group_that_old_members_cannot_settle_is_observed() -> None:
    texts = {OURS: ours(t=1), OLD: static(t=1, u=1)}
    adoption = replace(ADOPTED, strategy="roundrobin", kafka="0.8.2.2")
    found = mode(texts, adoption, topics={"t": 1, "u": 1})
    assert (found.mode, "different threads" in found.why) == (Mode.OBSERVE, True)


def test_the_plan_needs_the_topics_that_anybody_names_or_takes() -> None:
    neighbours = Neighbours.of("g", registered({OURS: ours(t=1), OLD: wildcard("x.*"), OLD2: b""}))
    assert neighbours.topics(ADOPTED, ["xa", "xb", "y", "t"]) == {"t", "xa", "xb"}


def test_a_reason_names_five_members_and_counts_the_others() -> None:
    many = {f"g_h{n}-1-1a2b3c4d": static(t=1) for n in range(8)}
    assert mode({OURS: ours(t=1), **many}).why.endswith("g_h4-1-1a2b3c4d and 3 more")


def test_f375_a_wildcard_that_takes_for_ever_costs_its_time_once_for_all_members() -> None:
    """It was evaluated for each member again, whenever a member came or went, and the coordinator served nobody."""
    members = {f"g_h{n}-1-1a2b3c4d": wildcard("(a|aa)+b") for n in range(50)}
    neighbours = Neighbours.of("g", registered({**members, OLD: static(u=1), OLD2: wildcard("t.*")}))
    began = time.process_time()
    found = neighbours.topics(ADOPTED, ["a" * 200, "t1", "t2", "v"], seconds=0.1)
    assert time.process_time() - began < 2
    assert found == {"a" * 200, "t1", "t2", "u"}


def test_f377_a_wildcard_that_takes_for_ever_has_the_group_observed_whatever_else_it_takes() -> None:
    """The plan was computed without the topics that only its member subscribes to."""
    neighbours = Neighbours.of("g", registered({OURS: ours(t=1), OLD: wildcard("(a|aa)+b|t|u")}))
    wanted = neighbours.topics(ADOPTED, ["a" * 200, "t", "u"], seconds=0.1)
    found = mode_of(neighbours, dict.fromkeys(wanted, (0,)), ADOPTED, {}, NOW)
    assert (found.mode, "old members fail at it" in found.why) == (Mode.OBSERVE, True)


def test_f379_a_group_that_was_left_to_kafkas_consumers_is_observed_while_old_members_are_there() -> None:
    neighbours, topics = Neighbours.of("g", registered({OURS: ours(t=1), OLD: static(t=1)})), {"t": (0,)}
    found = mode_of(neighbours, topics, ADOPTED, {}, NOW, left=True)
    assert (found.mode, found.why) == (
        Mode.OBSERVE,
        "it is handed over to consumers of Kafka's own protocol: stop its old members",
    )
    alone = Neighbours.of("g", registered({OURS: ours(t=1)}))
    assert mode_of(alone, topics, ADOPTED, {}, NOW, left=True).coordinated
