"""From decisions to writes: every transaction of a coordinator, complete with its guards."""

from __future__ import annotations

from dataclasses import replace

from zkcoord.core.decisions import (
    ChangeStore,
    DropTopic,
    EvictMember,
    FoundGroup,
    GrantPartitions,
    MarkTopic,
    PurgeChannel,
    ReleaseForDraftMember,
    RememberInstances,
    RemoveRefused,
    SetState,
    StateEvent,
    StopFetching,
    WriteResponse,
)
from zkcoord.core.model import TopicPartition
from zkcoord.core.record import GroupRecord, Request, Response
from zkcoord.core.state import Announced, GroupState
from zkcoord.core.view import Channel, GroupView, Instance, Leftovers, Member, Owner, QueuedCommand
from zkcoord.tree.command import decode_command
from zkcoord.tree.instance import encode_instance
from zkcoord.tree.paths import DRAFT, EPOCH
from zkcoord.tree.plan import Term, plan
from zkcoord.tree.record import encode_record
from zkcoord.tree.state import decode_state, encode_state
from zkcoord.tree.topic import Mark, MarkSeen
from zkcoord.tree.view import GroupNodes
from zkcoord.tree.writes import ITEMS_MAX, CheckNode, CreateNode, DeleteNode, SetNode

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
GROUP = "/consumers/groups/g"
MARK = Mark(incarnation=1, topic_id=None, czxid=7, root_czxid=3)
TERM = Term(epoch=4, epoch_version=9, marks={"t": MARK})
GUARDS = (CheckNode(EPOCH, 9), CheckNode("/zkcoord/groups/g", 2), CheckNode("/zkcoord/groups/g/state", 5))
VIEW = GroupView(
    group="g",
    members={"a": Member(consumer_id="a", czxid=1)},
    channels={"a": Channel(consumer_id="a", version=3)},
    owners={T0: Owner("", 8)},
    record_version=2,
    state_version=5,
    state=GroupState(generation=6),
)
NODES = GroupNodes(view=VIEW)


def state_set(event: StateEvent, **changes: object) -> SetState:
    """The decision that writes the state of VIEW with these changes."""
    return SetState(state=replace(VIEW.state, **changes), event=event, why="x")  # type: ignore[arg-type]


def test_a_grant_sets_what_exists_creates_what_does_not_and_sends_the_start_in_one_multi() -> None:
    [grant] = plan([GrantPartitions(consumer_id="a", partitions={T0: "a-0", T1: "a-0"}, why="x")], NODES, TERM, DRAFT)
    *writes, start = grant.writes
    assert tuple(writes) == (
        *GUARDS,
        SetNode(f"{GROUP}/owners/t/0", b"a-0", 8),
        CreateNode(f"{GROUP}/owners/t/1", b"a-0"),
    )
    assert isinstance(start, CreateNode)
    assert (start.path, start.sequential, start.ephemeral) == (f"{GROUP}/channel/a", True, False)
    command = decode_command(start.data)
    assert dict(command.ownership or {}) == {T0: "a-0", T1: "a-0"}
    assert dict(command.owner_versions) == {T0: 9, T1: 0}  # the versions that these writes leave, if they are applied
    assert (command.generation, command.epoch, command.offsets) == (6, 4, "zookeeper")


def test_a_change_of_store_names_the_store_and_the_number_of_the_step() -> None:
    [change] = plan([ChangeStore(consumer_id="a", store="dual", step=3, why="x")], NODES, TERM, DRAFT)
    *guards, told = change.writes
    assert tuple(guards) == GUARDS
    assert isinstance(told, CreateNode)
    assert (told.path, told.sequential, told.ephemeral) == (f"{GROUP}/channel/a", True, False)
    assert told.data == b'{"version":1,"option":"offset-store","generation":6,"epoch":4,"offsets":"dual","step":3}'


def test_a_start_names_the_records_store() -> None:
    nodes = GroupNodes(view=replace(VIEW, record=GroupRecord(store_name="dual", store_step=1)))
    [grant] = plan([GrantPartitions(consumer_id="a", partitions={T0: "a-0"}, why="x")], nodes, TERM, DRAFT)
    start = grant.writes[-1]
    assert isinstance(start, CreateNode)
    assert decode_command(start.data).offsets == "dual"


def test_announced_ranges_go_along_with_their_grant_and_only_with_it() -> None:
    decision = GrantPartitions(consumer_id="a", partitions={T0: "a-0", T1: "a-0"}, replay={T1: (100, 600)}, why="x")
    [grant] = plan([decision], NODES, TERM, DRAFT)
    start = grant.writes[-1]
    assert isinstance(start, CreateNode)
    assert dict(decode_command(start.data).replay) == {T1: (100, 600)}
    [kept] = plan([state_set(StateEvent.REPLAY_KEPT, replay={T0: Announced(1, 9, 4)})], NODES, TERM, DRAFT)
    assert kept.writes[:2] == GUARDS[:2]
    assert isinstance(kept.writes[2], SetNode)
    assert dict(decode_state(kept.writes[2].data).replay) == {T0: Announced(1, 9, 4)}


def test_a_raise_goes_first_and_what_follows_checks_the_state_it_leaves() -> None:
    decisions = [
        state_set(StateEvent.REBALANCE_STARTED, generation=7, target="new"),
        StopFetching(consumer_id="a", partitions={T0: "b-0"}, why="y"),
    ]
    raised, stop = plan(decisions, NODES, TERM, DRAFT)
    assert raised.writes[:2] == GUARDS[:2]
    state = raised.writes[2]
    assert isinstance(state, SetNode)
    assert state.version == 5
    assert (decode_state(state.data).generation, decode_state(state.data).target) == (7, "new")
    assert stop.writes[:3] == (*GUARDS[:2], CheckNode("/zkcoord/groups/g/state", 6))
    command = stop.writes[3]
    assert isinstance(command, CreateNode)
    assert decode_command(command.data).generation == 7


def test_a_state_that_is_written_behind_the_removal_of_a_mark_keeps_the_number_of_that_mark() -> None:
    view = replace(VIEW, leftovers={"t": Leftovers(version=0)}, owners={})
    marks = {"t": MarkSeen(replace(MARK, incarnation=8), 6)}
    decisions = [
        DropTopic(topic="t", again=False, offsets={}, why="x"),
        state_set(StateEvent.GROUP_EMPTY, empty_ms=7),
    ]
    kept, _, noted = plan(decisions, GroupNodes(view=view, marks=marks), TERM, DRAFT)
    expected = GroupState(generation=6, incarnations=8)
    assert kept.writes[-1] == SetNode("/zkcoord/groups/g/state", encode_state(expected), 5)
    assert noted.writes[-1] == SetNode("/zkcoord/groups/g/state", encode_state(replace(expected, empty_ms=7)), 6)


def test_a_new_group_gets_record_and_state_under_the_epoch() -> None:
    new = GroupNodes(view=GroupView(group="g"))
    [found] = plan([FoundGroup(why="x")], new, TERM, DRAFT)
    assert [type(w).__name__ for w in found.writes] == ["CheckNode", "CreateNode", "CreateNode"]
    assert [w.path for w in found.writes] == [EPOCH, "/zkcoord/groups/g", "/zkcoord/groups/g/state"]


def test_a_mark_makes_the_parents_of_owners_and_offsets_once() -> None:
    [first] = plan([MarkTopic(topic="t", why="x")], NODES, TERM, DRAFT)
    offsets = [f"{GROUP}/offsets", f"{GROUP}/offsets/t"]
    assert [w.path for w in first.writes[3:]] == [f"{GROUP}/owners", *offsets, f"{GROUP}/owners/t"]
    known = replace(NODES, parents=frozenset({f"{GROUP}/owners", *offsets}))
    [second] = plan([MarkTopic(topic="t", why="x")], known, TERM, DRAFT)
    assert [w.path for w in second.writes[3:]] == [f"{GROUP}/owners/t"]


def test_an_eviction_is_refused_when_the_command_was_acknowledged_meanwhile() -> None:
    stop = QueuedCommand(sequence="0000000004", version=0, option="stop-fetcher", threads={T0: ""})
    view = replace(VIEW, channels={"a": Channel(consumer_id="a", version=3, commands=(stop,))})
    evict = EvictMember(consumer_id="a", sequence="0000000004", session_timeout_ms=6_000, why="x")
    [transaction] = plan([evict], replace(NODES, view=view), TERM, DRAFT)
    assert transaction.writes == (
        *GUARDS,
        CheckNode(f"{GROUP}/channel/a/0000000004", 0),
        DeleteNode(f"{GROUP}/ids/a", 0),
        CreateNode(f"{GROUP}/channel/a/evicted", b"6000"),
    )


def test_a_purge_deletes_what_was_read_by_version() -> None:
    left = QueuedCommand(sequence="0000000004", version=1, option="stop-fetcher", threads={T0: ""})
    gone = Channel(consumer_id="a", version=3, commands=(left,), evicted_ms=1, refused_mark=True)
    nodes = replace(NODES, view=replace(VIEW, members={}, channels={"a": gone}))
    [purge] = plan([PurgeChannel(consumer_id="a", why="x")], nodes, TERM, DRAFT)
    assert purge.writes == (
        *GUARDS,
        DeleteNode(f"{GROUP}/channel/a/0000000004", 1),
        DeleteNode(f"{GROUP}/channel/a/refused", 0),
        DeleteNode(f"{GROUP}/channel/a/evicted", 0),
        DeleteNode(f"{GROUP}/channel/a", 3),
    )


def test_removing_a_refused_start_frees_the_owners_that_it_named() -> None:
    refused = QueuedCommand(sequence="0000000004", version=1, option="start-fetcher", threads={T0: "a-0"}, error="no")
    channel = Channel(consumer_id="a", version=3, commands=(refused,), refused_mark=True)
    view = replace(VIEW, owners={T0: Owner("a-0", 9)}, channels={"a": channel})
    decision = RemoveRefused(consumer_id="a", sequence="0000000004", why="x")
    [removal] = plan([decision], replace(NODES, view=view), TERM, DRAFT)
    assert removal.writes == (
        *GUARDS,
        SetNode(f"{GROUP}/owners/t/0", b"", 9),
        DeleteNode(f"{GROUP}/channel/a/0000000004", 1),
        DeleteNode(f"{GROUP}/channel/a/refused", 0),
    )


def test_removing_a_refused_start_frees_nothing_that_another_thread_owns() -> None:
    """The partitions may be granted on by now, the command may name another consumer's partition, or it may be a stop.
    In each case the owner reads."""
    refused = QueuedCommand(
        sequence="0000000004", version=1, option="start-fetcher", threads={T0: "a-0", T1: "b-0"}, error="no"
    )
    for command, first in ((refused, "b-0"), (refused, "a-1"), (replace(refused, option="stop-fetcher"), "a-0")):
        channel = Channel(consumer_id="a", version=3, commands=(command,), refused_mark=True)
        owners = {T0: Owner(first, 9), T1: Owner("b-0", 2)}
        nodes = replace(NODES, view=replace(VIEW, owners=owners, channels={"a": channel}))
        [removal] = plan([RemoveRefused(consumer_id="a", sequence="0000000004", why="x")], nodes, TERM, DRAFT)
        assert removal.writes == (
            *GUARDS,
            DeleteNode(f"{GROUP}/channel/a/0000000004", 1),
            DeleteNode(f"{GROUP}/channel/a/refused", 0),
        )


def test_answers_to_requests_come_last_in_one_and_check_the_state_that_they_were_decided_from() -> None:
    """After a raise, they check the version of the state that the raise leaves."""
    paused = WriteResponse(request="pause", run="r1", state="paused", ends=False, why="nobody reads")
    done = WriteResponse(request="rebalance", run="r2", state="done", ends=True, why="asked again")
    record = replace(VIEW.record, requests={"rebalance": Request(run="r2"), "pause": Request(run="r1")})
    answered = replace(
        record,
        requests={"pause": Request(run="r1")},
        responses={"pause": Response(run="r1", state="paused"), "rebalance": Response(run="r2", state="done")},
    )
    raised = state_set(StateEvent.ASSIGNMENT_PROBLEM, problem="p")
    for before, version in (([], 5), ([raised], 6)):
        *others, answer = plan([paused, *before, done], replace(NODES, view=replace(VIEW, record=record)), TERM, DRAFT)
        assert len(others) == len(before)
        assert answer.writes == (
            CheckNode(EPOCH, 9),
            SetNode("/zkcoord/groups/g", encode_record(answered), 2),
            CheckNode("/zkcoord/groups/g/state", version),
        )


def test_a_deletion_that_keeps_offsets_is_in_the_state_until_members_come() -> None:
    state, record = "/zkcoord/groups/g/state", "/zkcoord/groups/g"
    done = WriteResponse(request="delete", run="r1", state="done", ends=True, why="its offsets stay")
    view = replace(VIEW, members={}, channels={}, state=GroupState(generation=6, empty_ms=3))
    empty = replace(NODES, view=view)
    [ended] = plan([done], empty, TERM, DRAFT)
    deleted = GroupState(generation=6, empty_ms=3, deleted=True)
    assert ended.writes == (CheckNode(EPOCH, 9), SetNode(record, b"", 2), SetNode(state, encode_state(deleted), 5))

    [joined] = plan([done], NODES, TERM, DRAFT)  # somebody joined during the deletion
    assert joined.writes == (CheckNode(EPOCH, 9), SetNode(record, b"", 2), CheckNode(state, 5))


def test_many_partitions_are_several_commands() -> None:
    many = {TopicPartition("t", n): "a-0" for n in range(2 * ITEMS_MAX + 1)}
    stops = plan([StopFetching(consumer_id="a", partitions=many, why="x")], NODES, TERM, DRAFT)
    sizes = [len(decode_command(s.writes[-1].data).ownership or {}) for s in stops]  # type: ignore[union-attr]
    assert sizes == [ITEMS_MAX, ITEMS_MAX, 1]
    long = {TopicPartition("t" * 249, n): "c" * 200 + "-0" for n in range(ITEMS_MAX)}
    wide = plan([GrantPartitions(consumer_id="a", partitions=long, why="x")], NODES, TERM, DRAFT)
    assert max(grant.payload_bytes() for grant in wide) < 256 * 1024
    grants = plan([GrantPartitions(consumer_id="a", partitions=many, why="x")], NODES, TERM, DRAFT)
    assert max(grant.payload_bytes() for grant in grants) < 256 * 1024


def test_remembered_instances_are_made_set_and_removed_by_version() -> None:
    known = Instance(last_id="a", hold_ms=9, threads={"t": 1}, share={T0: 0})
    before = {"old": replace(known, version=4), "gone": replace(known, version=6)}
    nodes = replace(NODES, view=replace(VIEW, instances=before))
    decision = RememberInstances(known={"new": known, "old": known}, forgotten=("gone",), why="x")
    made, removed = plan([decision], nodes, TERM, DRAFT)
    instances, data = "/zkcoord/groups/g/state/instances", encode_instance(known)
    assert made.writes == (
        *GUARDS,
        CreateNode(instances),
        CreateNode(f"{instances}/new", data),
        SetNode(f"{instances}/old", data, 4),
    )
    assert removed.writes == (*GUARDS, DeleteNode(f"{instances}/gone", 6))


def test_a_draft_members_stop_marks_its_owners_and_its_stopped_partitions_are_emptied() -> None:
    owners = {T0: Owner("a-0", 8), T1: Owner("a-0", 3)}
    view = replace(VIEW, members={"a": Member(consumer_id="a", czxid=1, speaks_protocol=False)}, owners=owners)
    nodes = replace(NODES, view=view)
    [stop] = plan([StopFetching(consumer_id="a", partitions={T0: "", T1: ""}, why="x")], nodes, TERM, DRAFT)
    assert stop.writes[:-1] == (
        *GUARDS,
        SetNode(f"{GROUP}/owners/t/0", b"!a-0", 8),
        SetNode(f"{GROUP}/owners/t/1", b"!a-0", 3),
    )
    [freed] = plan([ReleaseForDraftMember(consumer_id="a", partitions=(T0, T1), why="x")], nodes, TERM, DRAFT)
    assert freed.writes == (
        *GUARDS,
        SetNode(f"{GROUP}/owners/t/0", b"", 8),
        SetNode(f"{GROUP}/owners/t/1", b"", 3),
    )
