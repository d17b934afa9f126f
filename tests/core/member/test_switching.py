"""How a member changes its offset store. Each test gives it views, and compares all its decisions."""

from __future__ import annotations

import pytest

from tests.core.member.members import FIRST, ME, SECOND, T0, T1, T2, Member, Roomy, commit, other, start
from tests.core.member.stores import Keeper, done, failed, reads, stamped, to_kafka
from zkcoord.core.command import Option
from zkcoord.core.fast_replace import fast_replace
from zkcoord.core.member.decisions import (
    CommitOffsets,
    CommitToKafka,
    LookUp,
    RefuseCommand,
    Report,
    SwitchStore,
)
from zkcoord.core.member.log import CommitLog
from zkcoord.core.member.mirror import NO_MIRROR
from zkcoord.core.member.status import Held, MemberStatus, Store
from zkcoord.core.member.view import Position
from zkcoord.errors import UnavailableError

HELD = Held(ME, 0, 5, 3, 1, mzxid=70)


def switch(store: str, step: int = 1, sequence: str = FIRST) -> object:
    """The command to change the store."""
    return other(Option.OFFSET_STORE, sequence, offsets=store, step=step)


def holding(*held: object, **fields: object) -> Member:
    """A member with a connection to Kafka that holds these partitions."""
    member = Member(*held, **fields)  # type: ignore[arg-type]
    member.memory = fast_replace(member.memory, held=dict.fromkeys(held, HELD))
    member.has(log=CommitLog(), positions=dict.fromkeys(held, Position(5, 3, None, 70)))
    return member


def changed(name: str, step: int = 1) -> Report:
    """The report of a change that is done."""
    return Report(event="offset_store_changed", fields={"store": name, "step": step})


def test_an_offset_store_sets_every_held_offset_and_says_so_in_the_multi_that_acknowledges() -> None:
    member = holding(T0, T1)
    member.finds(switch("dual", 7))
    held = {T0: HELD, T1: HELD}
    status = MemberStatus(held=held, store="dual", step=7)
    assert member.decides() == [SwitchStore(held=held, offsets={T0: 5, T1: 5}, commands={FIRST: 0}, status=status)]
    assert member.memory.store == Store()  # not before the outcome is certain
    member.finds()
    member.reads({T0: Position(5, 4, None, 80), T1: Position(5, 4, None, 80)})
    assert member.decides() == [changed("dual", 7)]
    assert member.memory.store == Store("dual", 7)
    assert member.memory.held == dict.fromkeys((T0, T1), HELD._replace(offset_version=4, mzxid=80))
    assert member.view.application.running == {T0: 1, T1: 1}  # they were read all the time
    member.finds(switch("zookeeper", 8))
    [back] = member.decides()
    assert isinstance(back, SwitchStore)
    assert (back.offsets, back.status.store, back.status.step) == ({T0: 5, T1: 5}, "zookeeper", 8)


def test_a_change_of_the_store_sets_nothing_before_all_that_is_held_is_as_read() -> None:
    member = holding(T0, T1)
    member.finds(switch("dual"))
    for unread, writing in ((frozenset({SECOND}), False), (frozenset[str](), True)):
        member.has(unread=unread, writing=writing)
        assert member.decides() == []
    member.has(writing=False)
    assert [type(decision) for decision in member.decides()] == [SwitchStore]


def test_f114_an_offset_store_that_is_refused_is_decided_again_with_what_somebody_else_wrote() -> None:
    member = holding(T0, T1)
    member.finds(switch("dual"))
    member.decides()
    member.reads({T0: Position(2, 4, None, 75), T1: Position(5, 3, None, 70)})  # the multi was refused
    assert member.decides()[0].event == "foreign_offset"  # type: ignore[union-attr]
    member.runs(T1)
    [again] = member.decides()
    assert isinstance(again, SwitchStore)  # the stranger's write has begun a tenure, too
    assert again.offsets == {T1: 5}


@pytest.mark.parametrize("waits", [{"writing": True}, {"settled": False}, {"channel_read": False}, {"ready": False}])
def test_an_offset_store_waits_for_what_is_under_way(waits: dict[str, bool]) -> None:
    member = holding(T0)
    member.finds(switch("dual"))
    member.has(**waits)
    assert member.decides() == []
    member.has(**{name: not value for name, value in waits.items()})
    assert isinstance(member.decides()[0], SwitchStore)


def test_a_switch_sends_its_multis_in_turn_and_the_last_one_acknowledges() -> None:
    class OneByOne(Roomy):
        def room(self, partitions: list[object]) -> int:  # type: ignore[override]
            return 1

    member = holding(T0, T1, T2, sizes=OneByOne())
    member.finds(switch("dual"))
    for n, (partition, kind) in enumerate([(T0, CommitOffsets), (T1, CommitOffsets), (T2, SwitchStore)]):
        [decision] = member.decides()
        assert isinstance(decision, kind)
        assert decision.offsets == {partition: 5}
        assert member.decides() == [decision]  # the multi was refused
        member.reads({partition: Position(5, 4, None, 80 + n)})
    member.finds()
    assert member.decides() == [changed("dual")]


def test_a_change_that_is_done_is_acknowledged_and_nothing_is_set() -> None:
    member = holding(T0)
    member.memory = fast_replace(member.memory, store=Store("dual", 3))
    member.finds(switch("dual", 3))
    [decision] = member.decides()
    assert isinstance(decision, SwitchStore)
    assert decision.offsets == {}


def test_a_member_without_partitions_acknowledges_and_obeys_a_start_in_that_store() -> None:
    member = holding()
    member.finds(switch("dual", 2))
    status = MemberStatus(store="dual", step=2)
    assert member.decides() == [SwitchStore(held={}, offsets={}, commands={FIRST: 0}, status=status)]
    member.finds(start(T0, sequence=SECOND, offsets="dual"))
    assert member.decides() == [changed("dual", 2)]
    assert isinstance(member.decides()[0], LookUp)
    assert member.memory.store == Store("dual", 2)


def test_a_start_names_the_store_of_a_member_that_holds_nothing() -> None:
    member = holding()
    member.finds(start(T0, offsets="dual", step=4))
    assert isinstance(member.decides()[0], LookUp)
    assert member.memory.store == Store("dual", 4)


def test_a_start_in_another_store_is_refused_by_who_holds_something() -> None:
    member = holding(T0)
    member.finds(start(T1, offsets="dual"))
    [refused] = member.decides()
    assert isinstance(refused, RefuseCommand)
    assert "have it send offset-store first" in refused.why


def test_starts_in_two_stores_are_not_obeyed_as_one() -> None:
    member = holding()
    member.finds(start(T0), start(T1, sequence=SECOND, offsets="dual"))
    [look] = member.decides()
    assert isinstance(look, LookUp)
    assert look.partitions == (T0,)


def test_a_store_that_is_not_known_or_not_offered_is_refused() -> None:
    member = holding()
    member.finds(switch("redis"))
    assert member.decides() == [
        RefuseCommand(
            sequence=FIRST, why="it names the offset store 'redis', this consumer knows zookeeper, dual, kafka"
        )
    ]
    member.finds(start(T0, offsets="redis"))
    assert isinstance(member.decides()[0], RefuseCommand)
    member.has(log=None)
    member.finds(start(T0, offsets="dual"))
    why = "it names the offset store 'dual', this consumer offers zookeeper"
    assert member.decides() == [RefuseCommand(sequence=FIRST, why=why)]


def test_a_commit_that_waits_goes_on_in_the_new_store() -> None:
    member = holding(T0)
    member.asks(commit({T0: 8}))
    member.finds(switch("dual"))
    assert isinstance(member.decides()[0], SwitchStore)
    member.has(writing=True)
    assert member.decides() == []
    member.has(writing=False)
    member.finds()
    member.reads({T0: Position(5, 4, None, 80)})
    assert member.decides() == [changed("dual")]
    now = HELD._replace(offset_version=4, mzxid=80)
    assert member.decides() == [CommitOffsets(held={T0: now}, offsets={T0: 8})]


def test_a_member_that_comes_to_zookeeper_remembers_nothing_of_kafka() -> None:
    """The member has nothing to retry in Kafka. When it comes back, a new failure is reported again."""
    member = Keeper(T0, store="dual", level=False)
    assert [type(each) for each in member.decides()] == [CommitToKafka]
    member.kafka_answers(error=UnavailableError("no broker answers"))
    assert member.decides() == [failed("no broker answers", T0)]
    member.finds(switch("zookeeper", 2))
    assert [type(each) for each in member.decides()] == [SwitchStore]
    member.finds()
    member.node(T0, 5, 4, 80)
    assert member.decides() == [changed("zookeeper", 2)]
    assert (member.memory.mirror, member.wake_at_ms) == (NO_MIRROR, None)


@pytest.mark.parametrize("store", ["zookeeper", "kafka"])
def test_f356_in_both_stores_a_change_does_not_wait_for_a_commit_under_way(store: str) -> None:
    """The commit names a tenure that the change ends."""
    member = Keeper(T0, store="dual", level=False)
    assert member.decides() == [to_kafka({T0: 5})]
    member.finds(switch(store, 2))
    [change] = member.decides()
    assert isinstance(change, SwitchStore)
    assert (change.offsets, change.status.store) == ({T0: 5}, store)
    member.finds()
    member.node(T0, 5, 4, 80)
    assert member.decides() == [changed(store, 2)]
    member.decides()
    member.kafka_answers(done(T0))
    if store == "kafka":
        assert member.decides() == [reads(T0)]
        member.kafka_answers({T0: stamped(5)})
        assert member.decides() == [to_kafka({T0: 5}, mzxid=80)]
    else:
        assert member.decides() == []


def test_f144_a_commit_after_a_change_to_both_stores_waits_for_it_and_sets_the_node() -> None:
    """Before the fix, the commit went to Kafka alone, in the tenure that the change had begun. The node stayed behind
    for good."""
    member = holding(T0)
    member.memory = fast_replace(member.memory, store=Store("kafka", 1))
    member.finds(switch("dual", 2))
    assert isinstance(member.decides()[0], SwitchStore)
    member.finds()
    member.reads({T0: Position(5, 4, None, 80)})
    member.has(channel_read=False)
    member.decides()  # the decision to watch the node
    member.asks(commit({T0: 9}))
    assert member.decides() == []  # the reply says that the command is gone, but its channel is still being read
    member.has(channel_read=True)
    assert member.decides() == [changed("dual", 2)]
    member.decides()  # the decision to stop watching the node
    held = {T0: HELD._replace(offset_version=4, mzxid=80)}
    assert member.decides() == [CommitOffsets(held=held, offsets={T0: 9})]
