"""Announced ranges: which of them count, which member gets them, and how long the nodes with them stay."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.groups import T0, T1, altered, channel, decided, group, member, states
from zkcoord.core.decisions import GrantPartitions, PurgeChannel, RemoveRefused, SetState, StateEvent
from zkcoord.core.mode import COORDINATED, GroupMode, Mode
from zkcoord.core.model import TopicPartition
from zkcoord.core.offset_store import DUAL, KAFKA, STORES
from zkcoord.core.replay import OpenRanges, replays, takers
from zkcoord.core.replay_quota import KEPT_BYTES_MAX
from zkcoord.core.state import Announced
from zkcoord.core.view import Channel, GroupView, Owner, QueuedCommand, TopicChange

EARLY, LATE, PASSED = Announced(100, 600, 5), Announced(100, 700, 6), Announced(50, 100, 7)
OFFERS = {"offers": frozenset({"ping", "replay", "offset-store"}), "stores": STORES}


def dead(name: str, batch: dict[object, Announced]) -> Channel:
    """The channel of a consumer whose registration is gone."""
    return channel(name, announced=batch)


def orphaned(batch: dict[object, Announced], *, offers: bool = True, **fields: object) -> GroupView:
    """b owned t-0, announced this batch, and died. a is there to take the partition."""
    fields = {"topics": {"t": (0,)}, "committed": {T0: 100}, **fields}
    view = group([member("a", **(OFFERS if offers else {}))], {T0: "b-0"}, **fields)
    return replace(view, channels={**view.channels, "b": dead("b", batch)})


def grants(view: GroupView) -> list[GrantPartitions]:
    return [d for d in decided(view) if isinstance(d, GrantPartitions)]


def purged(view: GroupView) -> list[str]:
    return [d.consumer_id for d in decided(view) if isinstance(d, PurgeChannel)]


def test_a_dead_members_announcement_goes_along_and_keeps_its_channel() -> None:
    view = orphaned({T0: EARLY})
    assert [dict(d.replay) for d in grants(view)] == [{T0: (100, 600)}]
    assert purged(view) == []
    owned = replace(view, owners={T0: Owner("a-0", 6)})
    assert purged(owned) == ["b"]
    before = OpenRanges().seen(view)
    assert (set(before.found), before.seen(owned).found) == ({T0}, {})


def test_a_range_that_a_commit_has_passed_or_whose_offset_is_another_one_counts_no_more() -> None:
    for committed in (600, 300, 50, None):
        view = orphaned({T0: EARLY}, committed={T0: committed})
        assert [dict(d.replay) for d in grants(view)] == [{}]
        assert purged(view) == ["b"]


def test_of_several_with_one_start_the_highest_generations_counts() -> None:
    view = orphaned({T0: EARLY}, replay={T0: PASSED})
    living = channel("a", announced={T0: LATE})  # it was stopped in the middle, and is still a member
    view = replace(view, channels={**view.channels, "a": living})
    assert dict(replays(view, OpenRanges().seen(view).found).counting) == {T0: LATE}
    assert [dict(d.replay) for d in grants(view)] == [{T0: (100, 700)}]


@pytest.mark.parametrize("store", [DUAL, KAFKA])
def test_where_only_the_receiver_knows_what_is_committed_the_highest_generations_is_handed_on(store: str) -> None:
    for committed in ({}, {T0: 600}):
        view = orphaned({T0: EARLY}, replay={T0: PASSED}, committed=committed, store_name=store, store_step=2)
        using = channel("a", store_name=store, store_step=2)
        view = replace(view, channels={**view.channels, "a": using})
        assert [dict(d.replay) for d in grants(view)] == [{T0: (50, 100)}]
        assert purged(view) == []  # the range is not stored anywhere else yet
    other_topic = altered(view, incarnations={"t": 2}, replay={T0: Announced(50, 100, 7, 1)})
    assert [dict(d.replay) for d in grants(other_topic)] == [{T0: (100, 600)}]


@pytest.mark.parametrize("store", [DUAL, KAFKA])
def test_f143_of_a_topic_that_was_dropped_no_range_is_waited_for(store: str) -> None:
    view = orphaned({T0: EARLY}, committed={}, store_name=store, store_step=2)
    view = replace(view, channels={**view.channels, "a": channel("a", store_name=store, store_step=2)})
    gone = altered(view, topics={}, owners={})
    assert purged(gone) == ["b"]
    assert purged(altered(gone, changed={"t": TopicChange.DELETED})) == []  # the topic may come back in a moment
    assert purged(altered(gone, incarnations={"t": 1})) == []  # nobody subscribes to the topic at present


@pytest.mark.parametrize("store", [DUAL, KAFKA])
def test_f362_a_range_of_a_topic_without_a_mark_is_kept_while_nobody_subscribes_to_it(store: str) -> None:
    """Beside old members no topic is marked, so nothing tells that it is gone."""
    for incarnation, over in ((0, []), (1, ["b"])):
        view = orphaned({T0: Announced(100, 600, 7, incarnation)}, committed={}, store_name=store, store_step=2)
        view = replace(view, channels={**view.channels, "a": channel("a", store_name=store, store_step=2)})
        assert purged(altered(view, topics={}, owners={}, claims=True)) == over


def test_an_unacknowledged_start_of_a_dead_member_holds_what_it_was_handed() -> None:
    start = QueuedCommand(
        sequence="0000000000", version=0, option="start-fetcher", threads={T0: "b-0"}, replay={T0: EARLY}
    )
    view = orphaned({})
    view = replace(view, channels={**view.channels, "b": channel("b", start)})
    assert [dict(d.replay) for d in grants(view)] == [{T0: (100, 600)}]
    assert purged(view) == []


def test_readers_without_replay_get_no_range_and_end_it() -> None:
    view = orphaned({T0: EARLY}, offers=False)
    assert [dict(d.replay) for d in grants(view)] == [{}]
    assert purged(replace(view, owners={T0: Owner("a-0", 6)})) == ["b"]


def test_nothing_is_granted_or_purged_before_the_offset_is_known() -> None:
    view = orphaned({T0: EARLY}, committed={})
    assert grants(view) == []
    assert purged(view) == []
    assert set(OpenRanges().seen(view).found) == {T0}


def kept_ranges(view: GroupView) -> list[dict[TopicPartition, Announced]]:
    """The announced ranges that are written into the state because they are stored nowhere else."""
    return [dict(state.replay) for state in states(decided(view), StateEvent.REPLAY_KEPT)]


def kept_and_removed(view: GroupView) -> list[object]:
    """The same, together with the sequences of removed refused commands, in the order of writing."""
    return [
        dict(d.state.replay) if isinstance(d, SetState) else d.sequence
        for d in decided(view)
        if isinstance(d, RemoveRefused) or (isinstance(d, SetState) and d.event is StateEvent.REPLAY_KEPT)
    ]


def test_the_state_holds_a_range_while_its_offset_is_not_known() -> None:
    view = orphaned({}, replay={T0: EARLY}, committed={})
    assert kept_ranges(view) == []
    passed = orphaned({}, replay={T0: EARLY}, committed={T0: 600})
    assert kept_ranges(passed) == [{}]


def test_announcements_of_living_owners_are_not_looked_at() -> None:
    view = group([member("a", **OFFERS)], {T0: "a-0"}, topics={"t": (0,)})
    view = replace(view, channels={"a": channel("a", announced={T0: EARLY})})
    assert OpenRanges().seen(view).found == {}


MIXED = GroupMode(mode=Mode.MIXED, old=frozenset({"o"}))


@pytest.mark.parametrize(("store", "mode"), [(DUAL, MIXED), (KAFKA, MIXED), *((each, COORDINATED) for each in STORES)])
def test_f217_f235_a_range_is_open_until_the_status_of_who_claimed_it_says_that_it_holds_it(
    store: str, mode: GroupMode
) -> None:
    """The status decides, even if members, owners and the dead consumer's channel stay as they are."""
    view = orphaned({T0: EARLY}, claims=True, store_name=store, store_step=2)
    view = replace(view, mode=mode, owners={T0: Owner("a-0", 6)}, channels={**view.channels, "a": channel("a")})
    before = OpenRanges().seen(view)
    assert (set(before.found), takers(view, before.found)) == ({T0}, frozenset({"a"}))
    taken = replace(view, channels={**view.channels, "a": channel("a", held=frozenset({T0}))})
    assert before.seen(taken).found == {}
    of_a_coordinator = replace(view, claims=False)
    assert OpenRanges().seen(of_a_coordinator).found == {}


def test_f217_beside_old_members_only_an_old_members_claim_ends_a_range() -> None:
    view = replace(orphaned({T0: EARLY}, claims=True), mode=MIXED)
    view = replace(view, members={**view.members, "o": member("o")})
    ours = replace(
        view, owners={T0: Owner("a-0", 6)}, channels={**view.channels, "a": channel("a", held=frozenset({T0}))}
    )
    known = OpenRanges().seen(ours).found
    assert (set(known), takers(ours, known)) == ({T0}, frozenset())
    assert OpenRanges().seen(replace(view, owners={T0: Owner("o-0", 6)})).found == {}


NAMES, PARTITIONS = ("a", "b", "o"), (T0, T1)
PARTS = st.fixed_dictionaries(
    {
        "mode": st.sampled_from([COORDINATED, MIXED]),
        "store": st.sampled_from(STORES),
        "members": st.sampled_from([frozenset(NAMES), frozenset("bo")]),
        "owners": st.fixed_dictionaries({}, optional={p: st.sampled_from(NAMES) for p in PARTITIONS}),
        "announced": st.fixed_dictionaries({name: st.sampled_from([(), PARTITIONS]) for name in NAMES}),
        "held": st.fixed_dictionaries({name: st.sampled_from([(), PARTITIONS]) for name in NAMES}),
        "replay": st.frozensets(st.sampled_from(PARTITIONS)),
    }
)


@settings(deadline=None)
@given(
    st.sampled_from([True, True, True, False]),
    st.lists(st.tuples(st.sampled_from("mmssoohar"), PARTS), min_size=4, max_size=8),
)
def test_remembered_open_ranges_always_equal_those_of_the_view(
    claims: bool, steps: list[tuple[str, dict[str, Any]]]
) -> None:
    """From view to view, only changed parts are new objects. The letter names the one part that changes."""
    changes = {"m": ["mode"], "o": ["owners"], "s": ["store"], "a": ["announced"], "h": ["held"], "r": ["replay"]}
    view, parts, known = group([], {}, claims=claims), dict(steps[0][1]), OpenRanges()
    for letter, drawn in steps:
        parts |= {name: drawn[name] for name in changes[letter]}
        members = {name: member(name) for name in sorted(parts["members"])}
        owners = {p: Owner(f"{name}-0", 6) for p, name in sorted(parts["owners"].items())}
        owners = {p: owner if view.owners.get(p) != owner else view.owners[p] for p, owner in owners.items()}
        channels = dict(view.channels)
        for name in NAMES:
            announced = dict.fromkeys(sorted(parts["announced"][name]), EARLY)
            now = channel(name, announced=announced, held=frozenset(parts["held"][name]))
            channels[name] = now if now != channels.get(name) else channels[name]
        state = replace(view.state, replay=dict.fromkeys(sorted(parts["replay"]), LATE))
        view = replace(
            altered(view, store_name=parts["store"]),
            mode=parts["mode"],
            members=members if members != view.members else view.members,
            owners=owners if owners != view.owners else view.owners,
            channels=channels if channels != view.channels else view.channels,
            state=state if state != view.state else view.state,
        )
        known = known.seen(view)
        assert known.seen(replace(view, topics={})) is known
        anew = OpenRanges().seen(view)
        assert known.found == anew.found
        for name in NAMES:
            all_held = replace(view.channels[name], held=frozenset(PARTITIONS))
            other = OpenRanges().seen(replace(view, channels={**view.channels, name: all_held}))
            assert (other.found == anew.found) is (name not in takers(view, anew.found))


def test_a_refused_start_is_removed_behind_the_write_that_keeps_its_range() -> None:
    start = QueuedCommand(
        sequence="0000000000",
        version=1,
        option="start-fetcher",
        threads={T0: "a-0"},
        error="dance",
        replay={T0: EARLY},
    )
    view = group([member("a", **OFFERS)], {T0: "a-0"}, topics={"t": (0,)})
    view = replace(view, channels={"a": channel("a", start)})
    assert kept_and_removed(view) == [{T0: EARLY}, "0000000000"]
    again = altered(view, replay={T0: EARLY})
    assert kept_ranges(again) == []


def test_the_state_holds_a_range_until_it_is_handed_on_or_over() -> None:
    view = group([member("a", **OFFERS)], {T0: ""}, topics={"t": (0,)}, replay={T0: EARLY, T1: LATE})
    view = replace(view, committed={T0: 100, T1: 700})
    assert kept_ranges(view) == [{T0: EARLY}]
    owned = altered(view, owners={T0: Owner("a-0", 6)}, replay={T0: EARLY})
    assert kept_ranges(owned) == [{}]


def test_a_group_that_announces_nothing_decides_as_ever() -> None:
    view = orphaned({}, committed={})
    kinds = [type(d) for d in decided(view)]
    assert kinds == [SetState, GrantPartitions, PurgeChannel]


def refused_start(name: str, partition: TopicPartition, sequence: int = 0) -> QueuedCommand:
    """A start with a range that its consumer could not understand."""
    return QueuedCommand(
        sequence=f"{sequence:010d}",
        version=1,
        option="start-fetcher",
        threads={partition: f"{name}-0"},
        error="dance",
        replay={partition: EARLY},
    )


def test_a_refused_start_stands_until_the_state_has_room_for_its_ranges() -> None:
    topic = "t" * (KEPT_BYTES_MAX // 2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    owners = {first: "a-0", second: "a-0"}
    of_topic = {"topics": {topic: (0, 1)}, "marked": frozenset({topic})}
    view = group([member("a", threads={topic: 1}, **OFFERS)], owners, **of_topic)
    view = replace(view, channels={"a": channel("a", refused_start("a", first), refused_start("a", second, 1))})
    assert kept_and_removed(view) == [{first: EARLY}, "0000000000"]
    one_less = replace(
        view, channels={"a": channel("a", refused_start("a", second, 1))}, owners={**view.owners, first: Owner("", 6)}
    )
    full = altered(one_less, replay={first: EARLY}, committed={first: 100})
    assert kept_and_removed(full) == []
    handed = replace(full, owners={**view.owners, first: Owner("a-0", 7)}, committed={})
    assert kept_and_removed(handed) == [{second: EARLY}, "0000000001"]


def test_a_range_of_another_incarnation_counts_not_and_one_that_does_not_say_it_does() -> None:
    for incarnation, counts in ((0, True), (1, False), (2, True)):
        view = orphaned({T0: EARLY._replace(incarnation=incarnation)}, incarnations={"t": 2})
        assert bool(replays(view, OpenRanges().seen(view).found).counting) is counts
        assert purged(view) == ([] if counts else ["b"])
    unreadable = orphaned({T0: EARLY._replace(incarnation=1)}, incarnations={})
    assert purged(unreadable) == []
