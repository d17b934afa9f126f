"""Every write that grants, frees or marks an owner comes from the layout, so another layout needs no other planner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from zkcoord.core.decisions import DropTopic, GrantPartitions, ReleaseForDraftMember, RemoveRefused, StopFetching
from zkcoord.core.member.decisions import Versions
from zkcoord.core.model import TopicPartition
from zkcoord.core.state import GroupState
from zkcoord.core.view import Channel, GroupView, Leftovers, Member, Owner, QueuedCommand
from zkcoord.tree import member
from zkcoord.tree.member import Acknowledgement, Held, MemberPaths
from zkcoord.tree.ownership import CLAIMED_OWNERS, PERSISTENT_OWNERS
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.plan import Term, plan
from zkcoord.tree.topic import Mark, MarkSeen
from zkcoord.tree.view import GroupNodes
from zkcoord.tree.writes import CheckNode, CreateNode, DeleteNode, SetNode, Write


class Claims:
    """A node exists while its partition is owned, as with the old consumers. But here the coordinator creates the
    node."""

    claimed = False

    def claim(self, path: str, thread: str) -> Sequence[Write]:
        """No writes."""
        return ()

    def parents(self, owners: str, topics: Sequence[str]) -> Sequence[str]:
        """No further parents."""
        return ()

    def guard(self, path: str, version: int) -> Sequence[Write]:
        """Check the node's version."""
        return [CheckNode(path, version)]

    def grant(self, path: str, thread: str, owner: Owner | None) -> tuple[Sequence[Write], int]:
        """Create the node."""
        return [CreateNode(path, thread.encode())], 1

    def free(self, path: str, version: int) -> Write:
        """Delete the node."""
        return DeleteNode(path, version)

    def guard_free(self, offset_path: str, version: int | None) -> Sequence[Write]:
        """No writes."""
        return ()

    def withdraw(self, path: str, version: int) -> Sequence[Write]:
        """Delete the node."""
        return [DeleteNode(path, version)]

    def drop(self, path: str, owner: Owner, *, stays: bool) -> Sequence[Write]:
        """Delete the node in any case."""
        return [DeleteNode(path, owner.version)]

    def noted(self, owned: Sequence[TopicPartition]) -> Sequence[TopicPartition] | None:
        """None: the nodes stay."""
        return None

    def why_not_mended(self, session: int) -> str:
        """Nothing prevents it."""
        return ""

    def halt(self, path: str, owner: Owner) -> Write:
        """Mark the owner in this layout's own way."""
        return SetNode(path, b"halt", owner.version)


LAYOUT = replace(DRAFT, name="claims", ownership=Claims())
T0 = TopicPartition("t", 0)
OWNER = LAYOUT.owner("g", T0)
REFUSED = QueuedCommand(sequence="0000000004", version=1, option="start-fetcher", threads={T0: "a-0"}, error="no")
VIEW = GroupView(
    group="g",
    members={"a": Member(consumer_id="a", czxid=1, speaks_protocol=False)},
    channels={"a": Channel(consumer_id="a", version=3, commands=(REFUSED,))},
    owners={T0: Owner("a-0", 1)},
    topics={"t": (0,)},
    leftovers={"t": Leftovers()},
    record_version=2,
    state_version=5,
    state=GroupState(generation=6),
)
MARK = Mark(incarnation=1, topic_id=None, czxid=7, root_czxid=3)
NODES = GroupNodes(view=VIEW, marks={"t": MarkSeen(MARK, 0)})
TERM = Term(epoch=4, epoch_version=9, marks={"t": MARK})
DONE = Acknowledgement(commands={"0000000004": 0}, status=b"{}", status_version=6)


def written(
    decision: GrantPartitions | StopFetching | ReleaseForDraftMember | RemoveRefused | DropTopic,
) -> list[Write]:
    """The writes of this decision to the owner."""
    transactions = plan([decision], NODES, TERM, LAYOUT)
    return [write for transaction in transactions for write in transaction.writes if write.path == OWNER]


def test_the_coordinator_grants_frees_and_marks_owners_by_the_layout() -> None:
    freed = [DeleteNode(OWNER, 1)]
    assert written(GrantPartitions(consumer_id="a", partitions={T0: "a-0"}, why="x")) == [CreateNode(OWNER, b"a-0")]
    assert written(StopFetching(consumer_id="a", partitions={T0: ""}, why="x")) == [SetNode(OWNER, b"halt", 1)]
    assert written(ReleaseForDraftMember(consumer_id="a", partitions=(T0,), why="x")) == freed
    assert written(RemoveRefused(consumer_id="a", sequence="0000000004", why="x")) == freed
    assert written(DropTopic(topic="t", again=True, offsets={}, why="x")) == freed


def test_only_persistent_owners_are_taken_back_or_end_with_their_topic() -> None:
    claims, persistent = CLAIMED_OWNERS, PERSISTENT_OWNERS
    free, owned = Owner("", 3), Owner("a-0", 4)
    assert (claims.withdraw("/o", 4), persistent.withdraw("/o", 4)) == ((), [SetNode("/o", b"", 4)])
    assert [claims.drop("/o", owner, stays=stays) for owner in (free, owned) for stays in (True, False)] == [()] * 4
    assert [persistent.drop("/o", owner, stays=False) for owner in (free, owned)] == [
        [DeleteNode("/o", 3)],
        [DeleteNode("/o", 4)],
    ]
    assert [persistent.drop("/o", owner, stays=True) for owner in (free, owned)] == [[], [SetNode("/o", b"", 4)]]


def test_only_claims_are_noted_with_an_eviction() -> None:
    assert (CLAIMED_OWNERS.noted([T0]), PERSISTENT_OWNERS.noted([T0])) == ([T0], None)


def test_a_member_gives_partitions_back_by_the_layout() -> None:
    paths = MemberPaths(layout=LAYOUT, group="g", consumer_id="a")
    held = Held(thread="a-0", owner_version=1, offset=5, offset_version=2, generation=6)
    [release] = member.release(paths, {T0: held}, {}, DONE)
    assert DeleteNode(OWNER, 1) in release.writes
    assert DeleteNode(OWNER, 1) in member.start(paths, {}, [], {T0: Versions(1, 2)}, DONE).writes


def test_a_commit_has_the_checks_of_the_layout_beside_each_offset() -> None:
    held = Held(thread="a-0", owner_version=1, offset=5, offset_version=2, generation=6)
    for layout, checks in ((LAYOUT, [CheckNode(OWNER, 1)]), (DRAFT, [])):
        paths = MemberPaths(layout=layout, group="g", consumer_id="a")
        [commit] = member.commit(paths, {T0: held}, {T0: 8})
        assert list(commit.writes) == [paths.check(), *checks, SetNode(paths.offset(T0), b"8", 2)]
