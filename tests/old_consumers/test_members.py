"""What old consumers do among themselves, measured with the real ones: the ground that zkcoord's design stands on.

They fetch nothing here (no broker is needed for ownership). The limits are a third of the old defaults and less: a
session of 2 s, four tries 0.3 s apart. What depends on the version is shown with all three.
"""

from __future__ import annotations

import json
import time

import pytest

from tests.old_consumers.lab import EACH_AT_LENGTH, LONG, SESSION_MS, V011, V08, V11, Lab, shares
from tests.waiting import wait_until
from zkcoord.embedded.artifacts import OLD_KAFKA_VERSIONS

pytestmark = [pytest.mark.legacy, pytest.mark.zookeeper]


def test_members_of_all_versions_share_one_group_and_each_change_moves_whole_ranges(lab: Lab) -> None:
    lab.topic("t", 6)
    a = lab.join("a", V08)
    lab.await_owners(shares("t", *"aaaaaa"))
    b, c = lab.start("b", V011), lab.start("c", V11)
    lab.await_owners(shares("t", *"aabbcc"))
    wait_until(lambda: [x.owned() for x in (a, b, c)] == [{"t-0", "t-1"}, {"t-2", "t-3"}, {"t-4", "t-5"}], "they know")
    a.leave()
    lab.await_owners(shares("t", *"bbbccc"))
    assert lab.members() == {b.id, c.id}
    texts = [json.loads(lab.registration(member)) for member in (b, c)]
    assert [{**text, "timestamp": ""} for text in texts] == 2 * [
        {"version": 1, "subscription": {"t": 1}, "pattern": "static", "timestamp": ""}
    ]
    assert {type(text["timestamp"]) for text in texts} == {str}


@pytest.mark.parametrize("version", EACH_AT_LENGTH)
def test_a_join_makes_every_member_release_all_that_it_owns_also_what_it_keeps(lab: Lab, version: str) -> None:
    lab.topic("t", 4)
    a = lab.join("a", version)
    lab.await_owners(shares("t", *"aaaa"))
    created = {n: lab.zk.get(lab.path("owners", "t", str(n)))[1].czxid for n in (0, 1)}
    lab.join("b", version)
    lab.await_owners(shares("t", *"aabb"))
    assert all(lab.zk.get(lab.path("owners", "t", str(n)))[1].czxid > created[n] for n in (0, 1))
    wait_until(lambda: a.owned() == {"t-0", "t-1"}, "a knows")


@pytest.mark.parametrize("version", EACH_AT_LENGTH)
def test_a_killed_member_s_share_is_taken_over_when_its_session_ends_not_before(lab: Lab, version: str) -> None:
    lab.topic("t", 4)
    a, b = lab.join("a", version), lab.join("b", version)
    lab.await_owners(shares("t", *"aabb"))
    before, begun_ms = a.tries(), time.time_ns() // 1_000_000
    b.child.kill()
    lab.await_owners(shares("t", *"aaaa"))
    (taken,) = [event for event in a.events("rebalance") if event["phase"] == "begin"][before:]
    assert taken["at_ms"] - begun_ms > SESSION_MS / 2  # the last heartbeat was at most a third of a session ago


@pytest.mark.parametrize("version", EACH_AT_LENGTH)
def test_a_member_that_hung_beyond_its_session_comes_back_and_takes_its_share_again(lab: Lab, version: str) -> None:
    lab.topic("t", 4)
    a, b = lab.join("a", version), lab.join("b", version)
    lab.await_owners(shares("t", *"aabb"))
    session = lab.zk.get(lab.path("ids", b.id))[1].ephemeralOwner
    wait_until(lambda: b.owned() == {"t-2", "t-3"}, "b knows")
    b.child.pause()
    lab.await_owners(shares("t", *"aaaa"))
    wait_until(lambda: {"t-2", "t-3"} <= a.owned(), "a knows")
    assert b.owned() == {"t-2", "t-3"}  # so do both: b knows of nothing yet
    b.child.resume()
    lab.await_owners(shares("t", *"aabb"))
    assert lab.zk.get(lab.path("ids", b.id))[1].ephemeralOwner != session


@pytest.mark.parametrize("version", EACH_AT_LENGTH)
def test_a_wildcard_takes_topics_as_they_come_and_as_they_grow(lab: Lab, version: str) -> None:
    lab.topic("click.a", 2)
    lab.topic("views", 1)
    lab.join("a", version, "whitelist=click.*:1")
    lab.await_owners(shares("click.a", *"aa"))
    lab.topic("click.b", 1)
    lab.await_owners({**shares("click.a", *"aa"), **shares("click.b", "a")})
    lab.topic("click.b", 3)
    lab.await_owners({**shares("click.a", *"aa"), **shares("click.b", *"aaa")})


@pytest.mark.parametrize("version", EACH_AT_LENGTH)
def test_a_topic_node_that_says_the_same_again_costs_a_rebalance(lab: Lab, version: str) -> None:
    lab.topic("t", 2)
    a = lab.join("a", version)
    before = a.rebalances()
    lab.topic("t", 2)
    wait_until(lambda: a.rebalances() == before + 1, "one more rebalance")
    lab.await_owners(shares("t", *"aa"))


@pytest.mark.parametrize(
    ("version", "stored"),
    [
        pytest.param(V08, r"foo\\.bar|ba\/z.*", marks=LONG),
        pytest.param(V011, r"foo\\.bar|ba\/z.*", marks=LONG),
        (V11, r"foo\\\\.bar|ba\\/z.*"),
    ],
)
def test_a_regex_is_stored_without_blanks_its_commas_as_bars_and_by_1_1_escaped_twice(
    lab: Lab, version: str, stored: str
) -> None:
    lab.topic("foo.bar", 1)
    a = lab.join("a", version, r"whitelist=foo\.bar,ba /z.*:2")
    assert f'"subscription":{{"{stored}":2}}' in lab.registration(a)
    lab.await_owners({} if version == V11 else {"foo.bar-0": f"{a.id}-0"})  # 1.1 reads back another regex


@pytest.mark.parametrize("version", EACH_AT_LENGTH)
def test_a_member_without_brokers_owns_nothing_and_rebalances_when_one_comes(bare: Lab, version: str) -> None:
    bare.topic("t", 2)
    a = bare.join("a", version)
    assert (bare.owners(), a.rebalances()) == ({}, 1)
    bare.broker()
    bare.await_owners(shares("t", *"aa"))


@pytest.mark.long
@pytest.mark.parametrize("version", OLD_KAFKA_VERSIONS)
def test_a_member_that_finds_no_broker_any_more_keeps_what_it_owns(lab: Lab, version: str) -> None:
    lab.topic("t", 2)
    a = lab.join("a", version)
    lab.await_owners(shares("t", *"aa"))
    lab.zk.delete("/brokers/ids/0")
    before = a.rebalances()
    lab.poke()
    wait_until(lambda: len(a.events("rebalance")) == 2 * (before + 1), "it has rebalanced")
    wait_until(lambda: a.owned() == {"t-0", "t-1"}, "it says that it owns both")  # the rebalance ended before
    assert lab.owners() == shares("t", *"aa")
