"""What owner nodes and registrations that are not an old member's do to real old members.

Nobody watches owner nodes; a claim is a create; a node that is there with the own thread's name counts as claimed. The
registrations of all members are read in each try, so one that cannot be read stops them all.
"""

from __future__ import annotations

from functools import partial

import pytest

from tests.old_consumers.lab import EACH_AT_LENGTH, RETRIES, V011, V08, V11, Lab, shares
from tests.waiting import wait_until
from zkcoord.embedded.artifacts import OLD_KAFKA_VERSIONS

pytestmark = [pytest.mark.legacy, pytest.mark.zookeeper]


@pytest.mark.parametrize("version", OLD_KAFKA_VERSIONS)
def test_a_member_without_tries_stays_registered_and_its_share_waits_for_a_poke(lab: Lab, version: str) -> None:
    lab.topic("t", 4)
    lab.topic("u", 1)
    stranger = lab.claim("u", 0, "g_x-0")
    a = lab.join("a", version)
    b = lab.start("b", version, "topics=t:1,u:1")
    b.await_event("gave_up")
    lab.await_owners({**shares("t", *"aa"), "u-0": "g_x-0"})
    assert (b.tries(), b.owned(), lab.members()) == (RETRIES, set(), {a.id, b.id})
    before = (a.rebalances(), b.rebalances())
    lab.zk.delete(stranger)
    poke = lab.poke()
    wait_until(lambda: a.rebalances() > before[0] and b.rebalances() > before[1], "both rebalance")
    lab.await_owners({**shares("t", *"aabb"), "u-0": "g_b-0"})
    once = (before[0] + 1, before[1] + 1)  # the stranger's node that went was noticed by nobody
    assert (a.rebalances(), b.rebalances()) == once
    lab.zk.delete(poke)
    wait_until(lambda: (a.rebalances(), b.rebalances()) == (before[0] + 2, before[1] + 2), "its end is a change, too")
    lab.await_owners({**shares("t", *"aabb"), "u-0": "g_b-0"})


@pytest.mark.parametrize("version", EACH_AT_LENGTH)
def test_a_poke_that_is_made_and_removed_in_one_transaction_makes_each_member_rebalance_once(
    lab: Lab, version: str
) -> None:
    """Nobody can read it, so no member fails at it, and its end is no second event."""
    lab.topic("t", 4)
    a, b = lab.join("a", version), lab.join("b", version)
    lab.await_owners(shares("t", *"aabb"))
    lab.zk.delete(lab.path("owners", "t", "3"))
    before = (a.rebalances(), b.rebalances())
    path, poke = lab.path("ids", f"{lab.group}_zpoke-1"), lab.zk.transaction()
    poke.create(path, b"", ephemeral=True)
    poke.delete(path)
    assert [type(result) for result in poke.commit()] == [str, bool]
    lab.await_owners(shares("t", *"aabb"))
    wait_until(lambda: (a.rebalances(), b.rebalances()) == (before[0] + 1, before[1] + 1), "for the poke")
    lab.join("c", version)
    lab.await_owners(shares("t", *"aabc"))
    wait_until(lambda: (a.rebalances(), b.rebalances()) == (before[0] + 2, before[1] + 2), "for c")


@pytest.mark.parametrize("version", EACH_AT_LENGTH)
def test_one_owner_node_of_a_stranger_costs_its_claimer_the_whole_share(lab: Lab, version: str) -> None:
    lab.topic("t", 4)
    stranger = lab.claim("t", 3, "g_x-0")
    a = lab.start("a", version)
    a.await_event("gave_up")
    assert lab.owners() == {"t-3": "g_x-0"}  # it has released again what it had claimed
    lab.zk.delete(stranger)
    lab.poke()
    lab.await_owners(shares("t", *"aaaa"))


@pytest.mark.parametrize("version", EACH_AT_LENGTH)
def test_an_owner_node_that_goes_before_the_last_try_is_in_time(lab: Lab, version: str) -> None:
    lab.topic("t", 2)
    for name in "abcdefgh":  # where the node went too late, on a busy machine, another member comes
        stranger = lab.claim("t", 0, "g_x-0")
        member = lab.start(name, version)
        wait_until(partial(member.tries, RETRIES - 2), "the last try but one")
        lab.zk.delete(stranger)
        if not member.tries(RETRIES - 1):
            break
        member.child.kill()
        wait_until(lambda: lab.members() == set(), "its session is over")
    member.await_event("started")
    lab.await_owners(shares("t", name, name))
    assert member.tries() in (RETRIES - 1, RETRIES)


@pytest.mark.parametrize("version", EACH_AT_LENGTH)
def test_a_strangers_owner_node_with_the_own_thread_name_counts_as_claimed(lab: Lab, version: str) -> None:
    lab.topic("t", 2)
    stranger = lab.claim("t", 0, "g_a-0")
    a = lab.join("a", version)
    wait_until(lambda: a.owned() == {"t-0", "t-1"}, "it takes both for its own")
    assert lab.zk.get(stranger)[1].ephemeralOwner == lab.zk.client_id[0]
    before = a.rebalances()
    lab.zk.delete(stranger)
    poke = lab.poke()
    lab.await_owners(shares("t", *"aa"))
    assert a.rebalances() == before + 1
    lab.zk.delete(poke)


@pytest.mark.parametrize("version", EACH_AT_LENGTH)
def test_a_member_deletes_an_owner_node_that_was_taken_from_it_whoever_has_it_now(lab: Lab, version: str) -> None:
    lab.topic("t", 2)
    a = lab.join("a", version)
    lab.await_owners(shares("t", *"aa"))
    lab.zk.delete(lab.path("owners", "t", "1"))
    lab.claim("t", 1, "g_x-0")
    lab.poke()
    lab.await_owners(shares("t", *"aa"))
    assert a.tries(1) == 0


MARKED = '{"version":1,"subscription":{"t":1},"pattern":"static","timestamp":"1","coordination":"zkcoord/1"}'
TOLERATED = '{"version":1,"subscription":{"t":1},"pattern":"static","more":{"a":[null,true,-5,"\\u00e9"]}}'
LONG_NUMBER = '{"version":1,"subscription":{"t":1},"pattern":"static","timestamp":1416335000123}'


@pytest.mark.parametrize("version", OLD_KAFKA_VERSIONS)
def test_a_registration_with_our_marker_or_more_of_small_values_is_a_member_like_any_other(
    lab: Lab, version: str
) -> None:
    lab.topic("t", 4)
    a = lab.join("a", version)
    lab.await_owners(shares("t", *"aaaa"))
    for text in (MARKED, TOLERATED):
        before = a.tries(1)
        other = lab.register("z", text)
        lab.await_owners(shares("t", *"aa"))
        assert a.tries(1) == before
        lab.zk.delete(other)  # right behind a rebalance: another one may list it, and not find it any more
        lab.await_owners(shares("t", *"aaaa"))


@pytest.mark.parametrize(
    ("version", "text"),
    [
        (V11, ""),
        pytest.param(V08, "", marks=pytest.mark.long),
        pytest.param(V011, "", marks=pytest.mark.long),
        pytest.param(V08, LONG_NUMBER, marks=pytest.mark.long),
        pytest.param(V011, LONG_NUMBER, marks=pytest.mark.long),
        pytest.param(V11, "t", marks=pytest.mark.long),
        pytest.param(V08, "t", marks=pytest.mark.long),
    ],
)
def test_a_registration_that_cannot_be_read_stops_every_member_until_it_goes(lab: Lab, version: str, text: str) -> None:
    lab.topic("t", 2)
    a = lab.join("a", version)
    lab.await_owners(shares("t", *"aa"))
    bad = lab.register("x", text)
    a.await_event("gave_up")
    wait_until(lambda: (lab.owners(), a.owned()) == ({}, set()), "nothing is owned, and the consumer tells so")
    lab.zk.delete(bad)
    lab.await_owners(shares("t", *"aa"))


@pytest.mark.long
def test_1_1_reads_a_long_number_in_a_registration(lab: Lab) -> None:
    lab.topic("t", 4)
    a = lab.join("a", V11)
    lab.register("z", LONG_NUMBER)
    lab.await_owners(shares("t", *"aa"))
    assert a.tries(1) == 0
