"""The group's offset store: which members are told of it, which are granted nothing because of it, and when a step is
done."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.groups import NOW, T0, T1, T2, T3, Steps, altered, channel, command, decided, group, member, settled
from zkcoord.core.ack_timeouts import REBALANCE_BACKOFF_MS, AckTimeouts
from zkcoord.core.decisions import ChangeStore, GrantPartitions, SetState, StopFetching
from zkcoord.core.eligibility import set_aside
from zkcoord.core.mode import GroupMode, Mode
from zkcoord.core.offset_store import DUAL, KAFKA, STORES, ZOOKEEPER
from zkcoord.core.stores import come_to, lagging, store_changes
from zkcoord.core.view import Channel, GroupView, Member, Owner, QueuedCommand

ALL = (T0, T1, T2, T3)
OFFERS = frozenset({"ping", "offset-store"})


def able(name: str, czxid: int = 1, **values: Any) -> Member:
    """A consumer that can use every store."""
    return member(name, czxid, **{"stores": STORES, "offers": OFFERS, **values})


def at_store(name: str, store: str, step: int, *commands: QueuedCommand, **values: Any) -> Channel:
    """A channel whose consumer says that it uses this store."""
    return channel(name, *commands, store_name=store, store_step=step, **values)


def change(store: str, step: int, sequence: int = 0) -> QueuedCommand:
    """An outstanding offset-store command."""
    return replace(command("offset-store", sequence=sequence), threads={}, store_name=store, store_step=step)


def start(store: str, sequence: int = 0) -> QueuedCommand:
    """An outstanding start."""
    return replace(command("start-fetcher", T0, sequence=sequence, thread="a-0"), store_name=store)


def reading(*members: Member, **values: Any) -> GroupView:
    """A group at rest whose first member owns everything."""
    return altered(settled(group(list(members), dict.fromkeys(ALL, f"{members[0].consumer_id}-0"))), **values)


def told(view: GroupView, steps: Steps | None = None, now_ms: int = NOW) -> list[tuple[str, str, int]]:
    """The changes of the store that are sent: consumer, store, step."""
    changes = [d for d in decided(view, steps, now_ms) if isinstance(d, ChangeStore)]
    return [(d.consumer_id, d.store, d.step) for d in changes]


def test_in_a_group_that_was_never_moved_nobody_is_told_of_a_store() -> None:
    assert decided(reading(able("a"))) == []
    assert decided(reading(able("a"), channels={"a": at_store("a", ZOOKEEPER, 0)})) == []
    assert lagging(reading(able("a"))) == {}


def test_a_change_that_was_refused_is_none_that_the_member_comes_to() -> None:
    refused = replace(change(DUAL, 1), error="this consumer does not offer offset-store")
    assert come_to(at_store("a", ZOOKEEPER, 0, refused)) == (ZOOKEEPER, 0)
    assert come_to(at_store("a", ZOOKEEPER, 0, change(DUAL, 1))) == (DUAL, 1)


def test_each_member_is_told_of_the_records_store_once_and_again_of_the_next_step() -> None:
    view = reading(able("a"), store_name=DUAL, store_step=1)
    assert decided(view) == [
        ChangeStore(consumer_id="a", store=DUAL, step=1, why="the group's offset store is 'dual' (step 1)")
    ]
    assert told(altered(view, channels={"a": channel("a", change(DUAL, 1))})) == []
    done = altered(view, channels={"a": at_store("a", DUAL, 1)})
    assert decided(done) == []
    assert told(altered(done, store_step=3)) == [("a", DUAL, 3)]
    assert told(altered(done, store_name=KAFKA, store_step=2)) == [("a", KAFKA, 2)]


def test_a_member_that_does_not_know_the_command_is_not_told_even_of_the_way_back() -> None:
    view = reading(able("a", offers=frozenset({"ping"})), store_name=ZOOKEEPER, store_step=2)
    assert told(altered(view, channels={"a": at_store("a", DUAL, 1)})) == []


def test_a_member_that_has_not_obeyed_one_change_is_not_told_of_the_next() -> None:
    """A command is never withdrawn, and only one change is outstanding at a time, so the channel stays small."""
    view = reading(able("a"), store_name=KAFKA, store_step=2, channels={"a": channel("a", change(DUAL, 1))})
    assert decided(view) == []
    assert lagging(view) == {"a": "has not obeyed yet"}


def test_the_way_back_to_zookeeper_is_told_to_whoever_uses_another_store_and_to_nobody_else() -> None:
    channels = {"a": at_store("a", DUAL, 3), "b": channel("b"), "c": at_store("c", ZOOKEEPER, 2)}
    view = reading(able("a"), able("b", 2), able("c", 3), store_step=4, channels=channels)
    assert told(view) == [("a", ZOOKEEPER, 4)]
    assert lagging(view) == {"a": "was not told yet"}


def test_a_partition_is_granted_once_its_receiver_has_come_to_the_records_store() -> None:
    empty = settled(group([able("a")], {}, store_name=DUAL, store_step=1))
    assert [type(d) for d in decided(empty)] == [ChangeStore]
    behind = altered(empty, channels={"a": channel("a", change(DUAL, 1))})  # it obeys its commands in order
    for view in (behind, altered(empty, channels={"a": at_store("a", DUAL, 1)})):
        assert [type(d) for d in decided(view)] == [GrantPartitions]
    other = altered(empty, channels={"a": channel("a", change(KAFKA, 0))})
    assert decided(other) == []


def test_a_member_is_stopped_whatever_store_it_uses() -> None:
    view = settled(group([able("a"), able("b", 2)], dict.fromkeys(ALL, "a-0"), store_name=DUAL, store_step=1))
    assert {type(d) for d in decided(view)} == {ChangeStore, StopFetching}


@pytest.mark.parametrize(
    "values", [{"stores": ()}, {"stores": (ZOOKEEPER,)}, {"offers": frozenset({"ping"})}, {"speaks_protocol": False}]
)
def test_a_member_without_the_groups_store_gets_nothing_and_the_problem_says_so(
    values: dict[str, Any],
) -> None:
    values = {"stores": STORES, "offers": OFFERS, **values}
    if values.get("speaks_protocol") is False:
        values |= {"stores": (), "offers": frozenset()}
    view = settled(group([member("a", **values)], {}, store_name=DUAL, store_step=1))
    assert set_aside(view) == {"a": "cannot use the offset store 'dual'"}
    why = (
        "members cannot use the group's offset store 'dual', and are given nothing (a): give them bootstrap servers, or"
        " upgrade them, or run `zkcoord offsets migrate g --to zookeeper`"
    )
    (problem,) = [d for d in decided(view) if isinstance(d, SetState) and d.state.problem]
    assert (problem.state.problem, problem.why) == (why, why)
    assert [d for d in decided(view) if isinstance(d, ChangeStore | GrantPartitions)] == []
    assert lagging(view) == {}  # it is granted nothing, so nobody waits for it


@pytest.mark.parametrize("store", [ZOOKEEPER, DUAL, KAFKA])
def test_old_members_that_share_a_group_are_not_waited_for(store: str) -> None:
    old = member("old", 2, speaks_protocol=False)
    mixed = GroupMode(mode=Mode.MIXED, why="an old member", old=frozenset({"old"}))
    view = altered(reading(able("a"), old), mode=mixed, owners=reading(old).owners)
    view = altered(view, store_name=store, store_step=1, channels={"a": at_store("a", store, 1)})
    assert lagging(view) == {}


def test_a_member_that_cannot_use_the_store_and_may_still_read_is_stopped_and_waited_for() -> None:
    view = reading(member("a"), store_name=DUAL, store_step=1)
    assert [type(d) for d in decided(view) if not isinstance(d, SetState)] == [StopFetching]
    waits = {"a": "cannot use 'dual', and may still read"}
    assert lagging(view) == waits
    freed = altered(view, owners={})
    assert lagging(freed) == {}
    assert lagging(altered(freed, channels={"a": channel("a", held=frozenset({T0}))})) == waits
    assert lagging(altered(freed, channels={"a": channel("a", start(ZOOKEEPER))})) == waits
    assert lagging(altered(view, channels={})) == waits


def test_a_step_is_done_when_every_status_says_it_and_no_start_names_another_store() -> None:
    view = reading(able("a"), store_name=DUAL, store_step=1)
    for standing, waits in (
        (channel("a"), "was not told yet"),
        (channel("a", change(DUAL, 1)), "has not obeyed yet"),
        (at_store("a", DUAL, 0), "was not told yet"),
        (at_store("a", ZOOKEEPER, 1), "was not told yet"),
        (at_store("a", DUAL, 1, start(ZOOKEEPER)), "is still to start partitions with another store"),
        (at_store("a", DUAL, 1, start("")), "is still to start partitions with another store"),
        (
            at_store("a", KAFKA, 1, status_unreadable=True),
            "has a status that nobody can read: its consumer must be mended",
        ),
    ):
        assert lagging(altered(view, channels={"a": standing})) == {"a": waits}
    for standing in (at_store("a", DUAL, 1), at_store("a", DUAL, 1, start(DUAL))):
        assert lagging(altered(view, channels={"a": standing})) == {}


def test_nobody_is_told_who_goes_or_whose_status_nobody_can_read() -> None:
    view = reading(able("a"), store_name=DUAL, store_step=1)
    leaving = replace(command("reject"), threads={})
    for standing in (channel("a", leaving), channel("a", evicted_ms=1), channel("a", status_unreadable=True)):
        assert told(altered(view, channels={"a": standing})) == []


def test_a_member_that_refuses_to_change_is_asked_again_after_a_back_off() -> None:
    steps = Steps()
    view = reading(able("a"), store_name=DUAL, store_step=1)
    refused = QueuedCommand(sequence="0000000001", version=1, option="start-fetcher", threads={}, error="no port")
    assert told(altered(view, channels={"a": channel("a", refused)}), steps) == []
    assert told(view, steps, NOW + REBALANCE_BACKOFF_MS - 1) == []
    assert told(view, steps, NOW + REBALANCE_BACKOFF_MS) == [("a", DUAL, 1)]


def test_ten_members_that_cannot_are_named_in_one_sentence() -> None:
    view = settled(group([member(f"m{n}", n) for n in range(7)], {}, store_name=DUAL, store_step=1))
    (problem,) = [d.state.problem for d in decided(view) if isinstance(d, SetState) and d.state.problem]
    assert "(m0, m1, m2, m3, m4 and 2 more)" in problem


# members obey in order while the record changes


class Course:
    """One member and its record. The member obeys its commands in order, one at a time."""

    def __init__(self) -> None:
        self.view = reading(able("a"))
        self.sent = 0

    def move(self, store: str) -> None:
        """A tool takes a step."""
        self.view = altered(self.view, store_name=store, store_step=self.view.record.store_step + 1)

    def coordinate(self) -> None:
        """A coordinator sends what is due."""
        for decision in store_changes(self.view, AckTimeouts(), NOW):
            known = self.view.channels["a"]
            self.sent += 1
            commands = (*known.commands, change(decision.store, decision.step, self.sent))
            self.view = altered(self.view, channels={"a": replace(known, commands=commands)})
        assert [c.option for c in self.view.channels["a"].commands].count("offset-store") <= 1

    def obey(self) -> None:
        """The member obeys the first command."""
        known = self.view.channels["a"]
        if known.commands:
            first, *rest = known.commands
            said = replace(known, commands=tuple(rest), store_name=first.store_name, store_step=first.store_step)
            self.view = altered(self.view, channels={"a": said})


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from([*STORES, "coordinate", "obey"]), max_size=30))
def test_a_member_reaches_its_store_within_two_commands(
    course: list[str],
) -> None:
    group_at = Course()
    for turn in course:
        if turn in STORES:
            group_at.move(turn)
        elif turn == "coordinate":
            group_at.coordinate()
        else:
            group_at.obey()
        uses = group_at.view.channels["a"]
        if not lagging(group_at.view):
            assert (uses.store_name or ZOOKEEPER) == group_at.view.record.store_name
    before = group_at.sent
    for _ in range(3):
        group_at.coordinate()
        group_at.obey()
    assert lagging(group_at.view) == {}
    assert group_at.sent - before <= 2
    assert store_changes(group_at.view, AckTimeouts(), NOW) == []
    assert group_at.view.owners == dict.fromkeys(ALL, Owner("a-0", 5))
