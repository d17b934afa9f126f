"""A member's writes in the layout legacy: its claims, and the checks that go with each offset."""

from __future__ import annotations

from zkcoord.core.member.decisions import AcknowledgeStarts, ClaimPartitions, ReleasePartitions, Versions
from zkcoord.core.member.status import Held, MemberStatus
from zkcoord.core.member.view import MemberView, Position
from zkcoord.core.model import TopicPartition
from zkcoord.tree.member import MemberPaths
from zkcoord.tree.member_plan import plan
from zkcoord.tree.member_view import MemberNodes
from zkcoord.tree.paths import LEGACY
from zkcoord.tree.writes import CheckNode, CreateNode, DeleteNode, SetNode

T0, T1, T2 = (TopicPartition("t", n) for n in range(3))
PATHS = MemberPaths(layout=LEGACY, group="g", consumer_id="g_c-1-z0000000")
FENCE = CheckNode("/consumers/g/ids/g_c-1-z0000000", 0)
OWNERS, OFFSETS, CHANNEL = "/consumers/g/owners", "/consumers/g/offsets", "/zkcoord/channels/g/g_c-1-z0000000"
THREAD = "g_c-1-z0000000-0"
POSITIONS = {T0: Position(7, 3), T1: Position(None, None)}
ACKNOWLEDGED = (DeleteNode(f"{CHANNEL}/0000000002", 0), SetNode(CHANNEL, b"{}", 6))


def nodes(parents: dict[str, bool] | None = None) -> MemberNodes:
    """The nodes as they were read: T0 has an offset, T1 has none."""
    return MemberNodes(
        paths=PATHS, view=MemberView(claims=True, status_version=6, positions=POSITIONS), parents=parents or {}
    )


def test_a_claim_is_made_and_set_once_in_one_multi_so_that_it_has_version_1() -> None:
    claims = ClaimPartitions(partitions={T0: THREAD, T1: THREAD})
    made = [
        write
        for n in (0, 1)
        for write in (CreateNode(f"{OWNERS}/t/{n}", ephemeral=True), SetNode(f"{OWNERS}/t/{n}", THREAD.encode(), 0))
    ]
    [transaction] = plan(claims, nodes(), b"")
    assert transaction.writes == (FENCE, *made)
    [transaction] = plan(claims, nodes({OWNERS: True, f"{OWNERS}/t": False}), b"")
    assert transaction.writes == (FENCE, CreateNode(f"{OWNERS}/t", shared=True), *made)


def test_many_claims_are_several_multis_and_only_the_first_makes_the_parents() -> None:
    many = ClaimPartitions(partitions={TopicPartition("t" * 200, n): THREAD for n in range(1_000)})
    first, *others = plan(many, nodes({OWNERS: False}), b"")
    assert first.writes[1] == CreateNode(OWNERS, shared=True)
    assert others
    assert all(transaction.writes[0] == FENCE for transaction in others)
    assert not any(CreateNode(OWNERS, shared=True) in transaction.writes for transaction in others)
    assert sum(len(t.writes) - 1 for t in (first, *others)) == 2_001


def test_an_acknowledgement_checks_each_claim_and_sets_its_offset_whatever_it_says() -> None:
    decision = AcknowledgeStarts(
        commands={"0000000002": 0},
        first={T0: (7, Versions(1, 3)), T1: (20, Versions(1, None))},
        refused={},
        status=MemberStatus(),
    )
    [transaction] = plan(decision, nodes(), b"{}")
    assert transaction.writes == (
        FENCE,
        CheckNode(f"{OWNERS}/t/0", 1),
        SetNode(f"{OFFSETS}/t/0", b"7", 3),
        CheckNode(f"{OWNERS}/t/1", 1),
        CreateNode(f"{OFFSETS}/t/1", b"20"),
        *ACKNOWLEDGED,
    )


def test_a_claim_that_is_given_back_unread_checks_that_the_offset_is_as_it_was() -> None:
    decision = AcknowledgeStarts(
        commands={"0000000002": 0},
        first={},
        refused={T0: Versions(1, 3), T1: Versions(1, None)},
        status=MemberStatus(),
    )
    [transaction] = plan(decision, nodes({OFFSETS: True, f"{OFFSETS}/t": False}), b"{}")
    assert transaction.writes == (
        FENCE,
        CreateNode(f"{OFFSETS}/t", shared=True),
        CheckNode(f"{OFFSETS}/t/0", 3),
        DeleteNode(f"{OWNERS}/t/0", 1),
        CreateNode(f"{OFFSETS}/t/1"),
        DeleteNode(f"{OFFSETS}/t/1", 0),
        DeleteNode(f"{OWNERS}/t/1", 1),
        *ACKNOWLEDGED,
    )


def test_a_release_deletes_the_claim_and_sets_or_checks_the_offset() -> None:
    held = {p: Held(THREAD, 1, 7, 3, 1) for p in (T0, T1, T2)}
    decision = ReleasePartitions(held=held, offsets={T2: 9}, commands={"0000000002": 0}, status=MemberStatus())
    before = MemberNodes(
        paths=PATHS,
        view=MemberView(claims=True, status_version=6, positions={**POSITIONS, T2: Position(7, 3)}),
    )
    [transaction] = plan(decision, before, b"{}")
    assert transaction.writes == (
        FENCE,
        CheckNode(f"{OFFSETS}/t/0", 3),
        DeleteNode(f"{OWNERS}/t/0", 1),
        CreateNode(f"{OFFSETS}/t/1"),  # somebody deleted the offset
        DeleteNode(f"{OFFSETS}/t/1", 0),
        DeleteNode(f"{OWNERS}/t/1", 1),
        SetNode(f"{OFFSETS}/t/2", b"9", 3),
        DeleteNode(f"{OWNERS}/t/2", 1),
        *ACKNOWLEDGED,
    )
