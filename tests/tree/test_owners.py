"""The owners where owners are claims, and the coordinator's writes about them."""

from __future__ import annotations

import pytest

from zkcoord.core.decisions import DeleteClaims, DropTopic, EvictMember, GrantPartitions, MarkTopic, RemoveRefused
from zkcoord.core.model import TopicPartition
from zkcoord.core.state import GroupState
from zkcoord.core.view import Channel, GroupView, Leftovers, Member, Owner, QueuedCommand
from zkcoord.errors import CorruptError
from zkcoord.tree.evicted import Evicted, decode_evicted, encode_evicted
from zkcoord.tree.owners import NO_NODE, effective_owners
from zkcoord.tree.paths import LEGACY, Place
from zkcoord.tree.plan import Term, plan
from zkcoord.tree.reading import below, of_topic
from zkcoord.tree.snapshot import Kind, Node, Stat
from zkcoord.tree.topic import Mark, MarkSeen
from zkcoord.tree.view import GroupNodes, fold, unread
from zkcoord.tree.writes import BYTES_MAX, CheckNode, CreateNode, DeleteNode, Write

T0, T1, T2 = (TopicPartition("t", n) for n in range(3))
START = QueuedCommand(sequence="0000000004", version=0, option="start-fetcher", threads={T0: "a-0", T1: "a-1"})
STOP = QueuedCommand(sequence="0000000005", version=0, option="stop-fetcher", threads={T2: "b-0"})
A = Member(consumer_id="a", czxid=1)
OWNERS, OFFSETS = "/consumers/g/owners", "/consumers/g/offsets"
MARK = Mark(incarnation=1, topic_id=None, czxid=7, root_czxid=3)
TERM = Term(epoch=4, epoch_version=9, marks={"t": MARK})


def channel(consumer_id: str, *commands: QueuedCommand, owned: frozenset[TopicPartition] = frozenset()) -> Channel:
    """A consumer's channel. With `owned`, the consumer was evicted."""
    return Channel(
        consumer_id=consumer_id,
        version=1,
        commands=commands,
        evicted_ms=6_000 if owned else None,
        evicted_owned=owned,
    )


def test_a_start_reserves_its_partitions_only_while_its_receivers_registration_stands() -> None:
    channels = {"a": channel("a", START, STOP)}
    assert effective_owners({}, {"a": A}, channels) == {T0: Owner("a-0", NO_NODE), T1: Owner("a-1", NO_NODE)}
    assert effective_owners({}, {}, channels) == {}


def test_a_claim_counts_more_than_a_start_and_a_start_more_than_what_an_evicted_consumer_owned() -> None:
    channels = {"a": channel("a", START), "b": channel("b", owned=frozenset({T0, T1, T2}))}
    claims = {T0: Owner("old-0", 0)}
    assert effective_owners(claims, {"a": A}, channels) == {
        T0: Owner("old-0", 0),
        T1: Owner("a-1", NO_NODE),
        T2: Owner("b-0", NO_NODE),
    }


def test_the_mark_of_an_eviction_says_what_was_owned_and_can_be_read_again() -> None:
    assert decode_evicted(encode_evicted(6_000, [T2, T0])) == Evicted(6_000, frozenset({T0, T2}))
    assert decode_evicted(encode_evicted(6_000, None)) == Evicted(6_000)
    for wrong in (b"", b"-1", b"soon", b"{", b'{"owned":{}}', b'{"session_timeout_ms":1,"owned":{"t":"1-"}}'):
        with pytest.raises(CorruptError):
            decode_evicted(wrong)


def test_the_mark_of_an_eviction_has_room_for_one_node_whatever_was_owned() -> None:
    many = [TopicPartition(f"{n:03}{'t' * 240}", number) for n in range(400) for number in range(0, 1_000, 2)]
    data = encode_evicted(6_000, many)
    assert len(data) <= BYTES_MAX + 100
    assert decode_evicted(data).owned < set(many)


def test_a_claim_missing_in_its_topics_list_is_nobodys() -> None:
    def claim(number: int, thread: bytes, version: int = 1) -> Node:
        return Node(f"{OWNERS}/t/{number}", Kind.DATA, Stat(version, 5, 0), thread)

    def listed(*names: str) -> Node:
        return Node(f"{OWNERS}/t", Kind.CHILDREN, Stat(0, 5, 0), children=names)

    nodes = fold(unread("g", LEGACY), [listed("0", "1"), claim(0, b"a-0"), claim(1, b"b-0", 0)], LEGACY)
    assert nodes.claims == {T0: Owner("a-0", 1), T1: Owner("b-0", 0)}
    assert fold(nodes, [listed("1")], LEGACY).claims == {T1: Owner("b-0", 0)}
    assert fold(nodes, [Node(f"{OWNERS}/t/0", Kind.DATA, None)], LEGACY).claims == {T1: Owner("b-0", 0)}
    assert fold(nodes, [Node(f"{OWNERS}/t", Kind.CHILDREN, None)], LEGACY).claims == {}


def test_the_list_of_a_topics_claims_is_watched_and_names_its_claims() -> None:
    *_, listed = of_topic("g", "t", LEGACY)
    assert listed == (f"{OWNERS}/t", Kind.CHILDREN, True, False)
    address = LEGACY.parse(f"{OWNERS}/t")
    assert address is not None and address.place is Place.CLAIMS
    assert [want.path for want in below(address, f"{OWNERS}/t", ["0", "x", "1"], LEGACY)] == [
        f"{OWNERS}/t/0",
        f"{OWNERS}/t/1",
    ]


VIEW = GroupView(
    group="g",
    members={"a": A},
    channels={"a": channel("a", START), "b": channel("b", owned=frozenset({T2}))},
    owners={T0: Owner("a-0", 1), T1: Owner("a-1", NO_NODE), T2: Owner("b-0", 1)},
    claims=True,
    topics={"t": (0, 1, 2)},
    leftovers={"t": Leftovers()},
    record_version=2,
    state_version=5,
    state=GroupState(generation=6),
)


def written(
    decision: EvictMember | DeleteClaims | DropTopic | GrantPartitions | MarkTopic | RemoveRefused,
) -> list[Write]:
    """The decision's writes without the guards at the beginning."""
    nodes = GroupNodes(view=VIEW, marks={} if isinstance(decision, MarkTopic) else {"t": MarkSeen(MARK, 0)})
    return [write for transaction in plan([decision], nodes, TERM, LEGACY) for write in transaction.writes[3:]]


def test_a_grant_writes_the_command_alone_which_tells_no_version_of_an_owner() -> None:
    [command] = written(GrantPartitions(consumer_id="a", partitions={T2: "a-0"}, why="x"))
    assert isinstance(command, CreateNode) and command.sequential
    assert b"ownershipMap" in command.data and b"ersions" not in command.data


def test_an_eviction_says_in_the_mark_what_its_consumer_owned_or_was_to_start() -> None:
    *_, mark = written(EvictMember(consumer_id="a", sequence=None, session_timeout_ms=6_000, why="x"))
    assert isinstance(mark, CreateNode)
    assert decode_evicted(mark.data) == Evicted(6_000, frozenset({T0, T1}))


def test_the_claim_of_an_evicted_consumer_is_deleted_only_while_its_offset_is_as_it_was() -> None:
    assert written(DeleteClaims(consumer_id="b", partitions={T2: 3}, why="x")) == [
        CheckNode(f"{OFFSETS}/t/2", 3),
        DeleteNode(f"{OWNERS}/t/2", 1),
    ]
    assert written(DeleteClaims(consumer_id="b", partitions={T2: None}, why="x")) == [
        CreateNode(f"{OFFSETS}/t/2"),
        DeleteNode(f"{OFFSETS}/t/2", 0),
        DeleteNode(f"{OWNERS}/t/2", 1),
    ]


def test_no_other_decision_of_a_coordinator_touches_a_claim() -> None:
    for decision in (
        DropTopic(topic="t", again=False, offsets={}, why="x"),
        RemoveRefused(consumer_id="a", sequence="0000000004", why="x"),
    ):
        assert not [write for write in written(decision) if write.path.startswith(f"{OWNERS}/t/")]


def test_the_parents_of_claims_are_made_with_the_topics_mark_and_are_open_to_old_consumers() -> None:
    made = [write for write in written(MarkTopic(topic="t", why="x")) if write.path.startswith(OWNERS)]
    assert made == [CreateNode(OWNERS, shared=True), CreateNode(f"{OWNERS}/t", shared=True)]
