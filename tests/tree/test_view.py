"""From znodes to the view: a read replaces the known value. A node that nobody can parse stops nothing, and its path is
reported."""

from __future__ import annotations

import random

import pytest

from zkcoord.core.command import Command, Option
from zkcoord.core.model import TopicPartition
from zkcoord.core.record import GroupRecord, Policy
from zkcoord.core.state import GroupState
from zkcoord.core.view import Channel, Leftovers, OffsetSeen, Owner, Refusal
from zkcoord.tree.command import encode_command, refusal
from zkcoord.tree.looked_up import leftovers
from zkcoord.tree.ownership import UNREADABLE_OWNER
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.record import encode_record
from zkcoord.tree.registration import MARKER, Registration, encode_registration
from zkcoord.tree.snapshot import Kind, Node, Stat
from zkcoord.tree.state import encode_state
from zkcoord.tree.status import Status, encode_status
from zkcoord.tree.view import GroupNodes, fold, unread

GROUP = "/consumers/groups/g"
T0 = TopicPartition("t", 0)


def data(path: str, content: bytes | None, version: int = 0) -> Node:
    """A node that was read; None: it is missing."""
    return Node(path, Kind.DATA, None if content is None else Stat(version, 5, 0), content or b"")


def children(path: str, *names: str) -> Node:
    """A list that was read."""
    return Node(path, Kind.CHILDREN, Stat(0, 5, 0), b"", tuple(sorted(names)))


def folded(*nodes: Node, before: GroupNodes | None = None) -> GroupNodes:
    """The group's nodes after these answers."""
    return fold(before or unread("g", DRAFT), nodes, DRAFT)


def registered(name: str, subscription: dict[str, int]) -> Node:
    """A registration of ours."""
    document = Registration(
        subscription=subscription, timestamp="1", coordination=MARKER, assignors=("range",), session_timeout_ms=6_000
    )
    return data(f"{GROUP}/ids/{name}", encode_registration(document))


def test_a_member_comes_with_its_registration_and_goes_with_the_list() -> None:
    known = folded(children(f"{GROUP}/ids", "a", "b"), registered("a", {"t": 2}), registered("b", {"t": 1}))
    assert {name: dict(m.threads) for name, m in known.view.members.items()} == {"a": {"t": 2}, "b": {"t": 1}}
    assert known.view.members["a"].session_timeout_ms == 6_000
    assert folded(children(f"{GROUP}/ids", "b"), before=known).view.members.keys() == {"b"}


def written(node: Node, *, version: int, czxid: int, mzxid: int) -> Node:
    """The same bytes, written by another transaction, or in another node."""
    return node._replace(stat=Stat(version, czxid, 0, 0, 0, mzxid))


def status_of(progress: int, *, version: int = 1, czxid: int = 5, mzxid: int) -> Node:
    """A status that was read."""
    node = data(f"{GROUP}/channel/a", encode_status(Status(progress=progress)))
    return written(node, version=version, czxid=czxid, mzxid=mzxid)


def test_unchanged_registrations_and_statuses_cost_nothing_when_read_again() -> None:
    nodes = (children(f"{GROUP}/ids", "a"), registered("a", {"t": 2}), status_of(1, mzxid=9))
    known = folded(children(f"{GROUP}/channel/a"), *nodes)
    assert known.view.channels["a"].progress == 1
    again = folded(*nodes, before=known)
    assert (again.view.members, again.view.channels) == (known.view.members, known.view.channels)
    assert again.view.members is known.view.members
    assert again.view.channels is known.view.channels


def test_a_registration_or_status_that_was_written_again_or_made_again_is_read_again() -> None:
    known = folded(children(f"{GROUP}/channel/a"), registered("a", {"t": 2}), status_of(1, mzxid=9))
    for at in ({"version": 1, "czxid": 5}, {"version": 0, "czxid": 8}):
        node = written(registered("a", {"u": 1}), **at, mzxid=10)
        assert folded(node, before=known).view.members["a"].threads == {"u": 1}
    assert folded(status_of(2, version=2, mzxid=10), before=known).view.channels["a"].progress == 2
    assert folded(status_of(2, czxid=10, mzxid=10), before=known).view.channels["a"].progress == 2
    assert folded(status_of(2, mzxid=0), before=known).view.channels["a"].progress == 2  # its mzxid is unknown


def test_a_status_that_nobody_can_parse_stays_named_when_it_is_read_again() -> None:
    garbage = status_of(1, mzxid=9)._replace(data=b"garbage")
    known = folded(children(f"{GROUP}/channel/a"), garbage)
    again = folded(garbage, before=known)
    assert again.view.channels["a"].status_unreadable
    assert again.problems == known.problems
    assert list(known.problems) == [f"{GROUP}/channel/a"]
    mended = folded(status_of(3, version=2, mzxid=11), before=again)
    assert (mended.view.channels["a"].progress, mended.problems) == (3, {})


def test_a_registration_nobody_can_parse_is_a_member_that_gets_nothing_and_is_named() -> None:
    known = folded(data(f"{GROUP}/ids/a", b"garbage"))
    assert known.view.members["a"].unreadable is not None
    assert list(known.problems) == [f"{GROUP}/ids/a"]
    assert "must register again" in known.problems[f"{GROUP}/ids/a"]
    assert folded(data(f"{GROUP}/ids/a", None), before=known).problems == {}


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0, 1), (0, 2, 1, 2, 2)])
def test_commands_stand_in_the_order_of_writing_in_whatever_order_they_are_read(order: tuple[int, ...]) -> None:
    names = [f"{number:010d}" for number in range(3)]
    texts = [
        encode_command(Command(option=Option.STOP_FETCHER, ownership={TopicPartition("t", n): ""})) for n in range(3)
    ]
    before = folded(children(f"{GROUP}/channel", "a"), children(f"{GROUP}/channel/a", *names))
    read = [data(f"{GROUP}/channel/a/{names[n]}", texts[n]) for n in order]
    known = folded(*read, before=before)
    assert [(c.sequence, c.threads) for c in known.view.channels["a"].commands] == [
        (name, {TopicPartition("t", n): ""}) for n, name in enumerate(names)
    ]
    for gone in ((1, [0, 2]), (2, [0, 1])):
        left = folded(data(f"{GROUP}/channel/a/{names[gone[0]]}", None), before=known).view.channels["a"].commands
        assert [c.sequence for c in left] == [names[n] for n in gone[1]]


def test_a_channel_holds_what_its_list_names_and_its_commands_say() -> None:
    stop = encode_command(Command(option=Option.STOP_FETCHER, ownership={T0: ""}, generation=3))
    refused = encode_status(Status(refused={T0: Refusal(generation=2, reason="no disk", sequence="0000000001")}))
    path = f"{GROUP}/channel/a"
    known = folded(
        children(path, "0000000004", "refused"), data(path, refused, version=7), data(f"{path}/0000000004", stop)
    )
    found = known.view.channels["a"]
    assert [(c.sequence, c.option, c.threads, c.generation) for c in found.commands] == [
        ("0000000004", "stop-fetcher", {T0: ""}, 3)
    ]
    assert (found.version, found.refused_mark, found.refusals) == (7, True, {T0: Refusal(2, "0000000001", "no disk")})
    after = folded(children(path), before=known).view.channels["a"]
    assert after == Channel(consumer_id="a", version=7, czxid=5, refusals=found.refusals)


def test_a_commands_store_and_a_consumers_store_come_from_command_and_status() -> None:
    path = f"{GROUP}/channel/a"
    change = encode_command(Command(option=Option.OFFSET_STORE, offsets="kafka", step=2))
    start = encode_command(Command(option=Option.START_FETCHER, ownership={T0: "a-0"}, offsets="dual"))
    said = encode_status(Status(store_name="dual", store_step=1))
    nodes = (data(f"{path}/0000000004", change), data(f"{path}/0000000005", start))
    known = folded(children(path, "0000000004", "0000000005"), data(path, said, version=7), *nodes)
    found = known.view.channels["a"]
    assert [(c.store_name, c.store_step, c.threads) for c in found.commands] == [
        ("kafka", 2, {}),
        ("dual", 0, {T0: "a-0"}),
    ]
    assert (found.store_name, found.store_step, found.status_unreadable) == ("dual", 1, False)
    garbage = folded(data(path, b"?", version=8), before=known).view.channels["a"]
    assert (garbage.store_name, garbage.store_step, garbage.status_unreadable) == ("dual", 1, True)
    mended = folded(data(path, said, version=9), before=known).view.channels["a"]
    assert not mended.status_unreadable


def test_the_mark_of_an_eviction_is_kept_until_the_list_misses_it() -> None:
    path = f"{GROUP}/channel/a"
    known = folded(children(path, "evicted"), data(f"{path}/evicted", b"6000"))
    assert known.view.channels["a"].evicted_ms == 6_000
    assert folded(children(path), before=known).view.channels["a"].evicted_ms is None


@pytest.mark.parametrize("garbage", [b"soon", b"", b"-1", b"\xff", b"9" * 5_000, "²".encode()])
def test_a_mark_of_an_eviction_that_nobody_can_parse_counts_as_the_usual_timeout_and_is_told(garbage: bytes) -> None:
    path = f"{GROUP}/channel/a"
    known = folded(children(path, "evicted"), data(f"{path}/evicted", garbage))
    assert known.view.channels["a"].evicted_ms == 10_000
    assert "10000 ms are waited in its place; who wrote it must be mended" in known.problems[f"{path}/evicted"]
    assert folded(data(f"{path}/evicted", None), before=known).problems == {}
    assert folded(children(path), before=known).problems == {}


def test_a_refused_start_is_read_with_what_it_named() -> None:
    start = encode_command(Command(option=Option.START_FETCHER, ownership={T0: "a-0"}))
    node = data(f"{GROUP}/channel/a/0000000004", refusal(start, ValueError("version is 9")), version=1)
    known = folded(children(f"{GROUP}/channel/a", "0000000004"), node)
    [command] = known.view.channels["a"].commands
    assert (command.threads, command.version) == ({T0: "a-0"}, 1)
    assert "version is 9" in (command.error or "")


def test_owners_are_free_owned_absent_or_unreadable() -> None:
    known = folded(
        data(f"{GROUP}/owners/t/0", b"a-0", 2), data(f"{GROUP}/owners/t/1", b"", 3), data(f"{GROUP}/owners/t/2", b"?!")
    )
    assert known.view.owners == {
        T0: Owner("a-0", 2),
        TopicPartition("t", 1): Owner("", 3),
        TopicPartition("t", 2): Owner(UNREADABLE_OWNER, 0),
    }
    assert list(known.problems) == [f"{GROUP}/owners/t/2"]
    assert T0 not in folded(data(f"{GROUP}/owners/t/0", None), before=known).view.owners


def test_record_and_state_are_what_people_and_the_coordinator_wrote_last() -> None:
    record = GroupRecord(assignor="range", policy=Policy(on_timeout="fail", max_rebalance_retries=1))
    known = folded(
        data("/zkcoord/groups/g", encode_record(record), 3),
        data("/zkcoord/groups/g/state", encode_state(GroupState(generation=7, target="abc")), 9),
    )
    view = known.view
    assert (view.record, view.record_version) == (record, 3)
    assert (view.state, view.state_version) == (GroupState(generation=7, target="abc"), 9)


def test_a_record_nobody_can_parse_leaves_what_was_decided_before() -> None:
    record = encode_record(GroupRecord(assignor="range"))
    known = folded(data("/zkcoord/groups/g", record, 3))
    broken = folded(data("/zkcoord/groups/g", b"{", 4), before=known)
    assert (broken.view.record.assignor, broken.view.record_version) == ("range", 4)
    assert (broken.view.unreadable, list(broken.problems)) == (None, ["/zkcoord/groups/g"])


def test_a_state_nobody_can_parse_leaves_what_was_decided_before() -> None:
    known = folded(data("/zkcoord/groups/g/state", encode_state(GroupState(generation=7)), 3))
    broken = folded(data("/zkcoord/groups/g/state", b"{", 4), before=known)
    assert (broken.view.state.generation, broken.view.state_version) == (7, 4)
    assert (broken.view.unreadable, list(broken.problems)) == (None, ["/zkcoord/groups/g/state"])


@pytest.mark.parametrize("state_first", [True, False])
def test_f344_a_group_of_which_nothing_was_known_is_readable_once_record_and_state_are(state_first: bool) -> None:
    record, state = encode_record(GroupRecord(assignor="range")), encode_state(GroupState(generation=7))
    broken = folded(data("/zkcoord/groups/g", b"{", 1), data("/zkcoord/groups/g/state", b"[", 1))
    assert broken.view.unreadable is not None
    assert [word in broken.view.unreadable for word in ("record: ", "state: ")] == [True, True]
    mended = [data("/zkcoord/groups/g", record, 2), data("/zkcoord/groups/g/state", state, 2)]
    for node in reversed(mended) if state_first else mended:
        assert broken.view.unreadable is not None
        broken = folded(node, before=broken)
    assert (broken.view.unreadable, broken.view.record.assignor, broken.view.state.generation) == (None, "range", 7)


@pytest.mark.parametrize("path", ["/zkcoord/groups/g", "/zkcoord/groups/g/state"])
def test_f349_a_record_or_state_that_nobody_can_parse_is_over_when_it_is_deleted(path: str) -> None:
    broken = folded(data(path, b"{", 1))
    again = folded(data(path, b"[", 2), before=broken)
    assert broken.view.unreadable != again.view.unreadable is not None
    deleted = folded(data(path, None), before=again)
    assert (deleted.view.unreadable, deleted.problems) == (None, {})


def test_nodes_of_another_group_change_nothing() -> None:
    assert folded(data("/consumers/groups/h/ids/a", b"garbage")) == unread("g", DRAFT)


def test_a_stopped_draft_owner_stays_its_threads_and_is_a_draft_stop() -> None:
    path = f"{GROUP}/owners/t/0"
    told = folded(data(path, b"!a-0", version=4))
    assert (told.view.owners, told.view.draft_stops) == ({T0: Owner("a-0", 4)}, frozenset({T0}))
    freed = folded(data(path, b"", version=5), before=told)
    assert (freed.view.owners, freed.view.draft_stops) == ({T0: Owner("", 5)}, frozenset())


def test_with_a_topics_mark_the_draft_stops_below_it_are_gone() -> None:
    """Before the fix, the coordinator looked up the owner of such a stop, which was gone, and crashed."""
    mark = f"{GROUP}/owners/t"
    marked = folded(data(mark, b""), data(f"{mark}/0", b"!a-0", version=4))
    assert marked.view.draft_stops == frozenset({T0})
    gone = folded(data(mark, None), before=marked)
    assert (gone.view.owners, gone.view.draft_stops) == ({}, frozenset())


@pytest.mark.parametrize("seed", range(50))
def test_a_batch_of_answers_is_the_same_as_one_after_the_other(seed: int) -> None:
    """Topics come and go with their owners. Some owners are draft stops or unreadable, and so are some members."""
    draw = random.Random(seed)
    answers: list[Node] = []
    for version in range(80):
        mark = f"{GROUP}/owners/t{draw.randrange(4)}"
        owner = data(f"{mark}/{draw.randrange(3)}", draw.choice((None, b"a-0", b"!a-0", b"?!", b"")), version)
        member = data(f"{GROUP}/ids/m{draw.randrange(3)}", draw.choice((None, b"garbage")))
        listed = children(f"{GROUP}/ids", *draw.sample(("m0", "m1", "m2"), draw.randrange(4)))
        answers.append(draw.choice((owner, owner, data(mark, draw.choice((None, b"", b"garbage"))), member, listed)))
    singly = batched = unread("g", DRAFT)
    for number in range(0, len(answers), 10):
        for answer in answers[number : number + 10]:
            singly = folded(answer, before=singly)
        batched = folded(*answers[number : number + 10], before=batched)
        assert (batched.view, dict(batched.problems)) == (singly.view, dict(singly.problems))
    assert batched == singly


def test_a_looked_up_topics_list_gives_its_offsets_and_the_rest_is_an_operators() -> None:
    mark, offsets = f"{GROUP}/owners/t", f"{GROUP}/offsets/t"
    known = folded(children(mark, "0", "old"), data(f"{offsets}/0", b"17", 3), data(f"{offsets}/1", b"18", 3))
    assert leftovers(known, "t") is None
    known = folded(children(offsets, "0", "x"), data(f"{GROUP}/offsets/u/0", b"5", 1), before=known)
    assert leftovers(known, "t") == Leftovers(
        offsets={T0: OffsetSeen("17", 3)}, version=0, strange=(f"{mark}/old", f"{offsets}/x")
    )
