"""A member's writes, complete. Each multi begins with the check of the member's own registration."""

from __future__ import annotations

from dataclasses import replace

from zkcoord.core.member.decisions import Versions
from zkcoord.core.member.status import Held
from zkcoord.core.model import TopicPartition
from zkcoord.tree import member
from zkcoord.tree.member import Acknowledgement, MemberPaths
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.snapshot import Kind, Node, Stat
from zkcoord.tree.writes import ITEMS_MAX, CheckNode, CreateNode, DeleteNode, SetNode

T0, T1, T2 = (TopicPartition("t", n) for n in range(3))
NONE = Versions(3, None)  # the partition has no offset yet
PATHS = MemberPaths(layout=DRAFT, group="g", consumer_id="c")
GROUP = "/consumers/groups/g"
FENCE = CheckNode(f"{GROUP}/ids/c", 0)
DONE = Acknowledgement(commands={"0000000002": 0}, status=b"{}", status_version=6)
ACKNOWLEDGED = (DeleteNode(f"{GROUP}/channel/c/0000000002", 0), SetNode(f"{GROUP}/channel/c", b"{}", 6))


def held(offset: int, *, offset_version: int = 4) -> Held:
    """A held partition whose offset is `offset`."""
    return Held(thread="c-0", owner_version=3, offset=offset, offset_version=offset_version, generation=1)


def test_joining_sets_the_status_and_registers_in_one_multi() -> None:
    assert member.join(PATHS, b"registration", b"status", 0).writes == (
        SetNode(f"{GROUP}/channel/c", b"status", 0),
        CreateNode(f"{GROUP}/ids/c", b"registration", ephemeral=True),
    )


def test_parents_are_made_outermost_first_and_only_when_missing() -> None:
    nodes = [Node("/a", Kind.DATA, Stat(0, 1, 0)), Node("/a/b", Kind.DATA, None), Node("/a/b/c", Kind.DATA, None)]
    transaction = member.make_parents(nodes, DRAFT)
    assert transaction is not None
    assert transaction.writes == (CreateNode("/a/b"), CreateNode("/a/b/c"))
    assert member.make_parents(nodes[:1], DRAFT) is None


def test_a_start_writes_first_offsets_frees_what_it_refuses_and_deletes_the_command() -> None:
    transaction = member.start(
        PATHS, {T0: (10, NONE), T1: (20, Versions(3, 5))}, [f"{GROUP}/offsets"], {T2: Versions(7, 1)}, DONE
    )
    assert transaction.writes == (
        FENCE,
        CreateNode(f"{GROUP}/offsets"),
        CreateNode(f"{GROUP}/offsets/t/0", b"10"),
        SetNode(f"{GROUP}/offsets/t/1", b"20", 5),
        SetNode(f"{GROUP}/owners/t/2", b"", 7),
        *ACKNOWLEDGED,
    )


def test_starts_that_are_obeyed_together_go_together() -> None:
    both = replace(DONE, commands={"0000000002": 0, "0000000003": 1})
    assert member.start(PATHS, {T0: (10, NONE)}, [], {}, both).writes == (
        FENCE,
        CreateNode(f"{GROUP}/offsets/t/0", b"10"),
        DeleteNode(f"{GROUP}/channel/c/0000000002", 0),
        DeleteNode(f"{GROUP}/channel/c/0000000003", 1),
        SetNode(f"{GROUP}/channel/c", b"{}", 6),
    )
    many = [TopicPartition("t", n) for n in range(ITEMS_MAX + 1)]
    assert (member.room(PATHS, many[:3]), member.room(PATHS, many), member.room(PATHS, [])) == (3, ITEMS_MAX, 0)


def test_a_release_writes_the_final_offset_and_the_empty_owner_with_the_deletion() -> None:
    [release] = member.release(PATHS, {T0: held(5), T1: held(9)}, {T0: 8, T1: 9}, DONE)
    assert release.writes == (
        FENCE,
        SetNode(f"{GROUP}/offsets/t/0", b"8", 4),
        SetNode(f"{GROUP}/owners/t/0", b"", 3),
        SetNode(f"{GROUP}/owners/t/1", b"", 3),
        *ACKNOWLEDGED,
    )


def test_a_large_release_deletes_its_command_with_the_last_part_only() -> None:
    many = {TopicPartition("t", n): held(0) for n in range(ITEMS_MAX + 1)}
    first, *_, last = member.release(PATHS, many, {}, DONE)
    assert not any(isinstance(write, DeleteNode) for write in first.writes)
    assert last.writes[-2:] == ACKNOWLEDGED
    assert first.writes[0] == last.writes[0] == FENCE
    offsets = dict.fromkeys(many, 2**62)
    assert max(t.payload_bytes() for t in member.release(PATHS, many, offsets, DONE)) < 256 * 1024


def test_an_early_releases_last_multi_says_the_rest_and_wakes_the_channels_watcher() -> None:
    many = {TopicPartition("t", n): held(5) for n in range(1_001)}
    first, last = member.release(PATHS, many, {}, Acknowledgement(commands={}, status=b"{}", status_version=6))
    assert len(first.writes) == 1_001
    assert last.writes == (
        FENCE,
        SetNode(f"{GROUP}/owners/t/1000", b"", held(5).owner_version),
        SetNode(f"{GROUP}/channel/c", b"{}", 6),
        CreateNode(f"{GROUP}/channel/c/released"),
        DeleteNode(f"{GROUP}/channel/c/released", 0),
    )


def test_stopping_what_is_not_held_is_acknowledged_as_done() -> None:
    [release] = member.release(PATHS, {}, {}, DONE)
    assert release.writes == (FENCE, *ACKNOWLEDGED)
    assert member.release(PATHS, {}, {}, None) == []


def test_a_commit_is_fenced_and_guarded_by_each_offsets_version() -> None:
    [commit] = member.commit(PATHS, {T0: held(5), T1: held(9, offset_version=8)}, {T1: 12, T0: 6})
    assert commit.writes == (
        FENCE,
        SetNode(f"{GROUP}/offsets/t/0", b"6", 4),
        SetNode(f"{GROUP}/offsets/t/1", b"12", 8),
    )


def test_a_refused_command_stays_and_raises_the_mark() -> None:
    node = Node(f"{GROUP}/channel/c/0000000002", Kind.DATA, Stat(0, 1, 0), b'{"version":9}')
    refused = member.refuse(PATHS, node, ValueError("version is 9"))
    assert refused.writes == (
        FENCE,
        SetNode(node.path, b'{"error":"version is 9","command":{"version":9}}', 0),
        CreateNode(f"{GROUP}/channel/c/refused"),
    )
