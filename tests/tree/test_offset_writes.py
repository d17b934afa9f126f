"""Every write of a member about a partition's offset comes from the store, so another store needs no other multis."""

from __future__ import annotations

from collections.abc import Sequence

from zkcoord.core.member.decisions import Versions
from zkcoord.core.member.status import Held
from zkcoord.core.model import TopicPartition
from zkcoord.tree import member
from zkcoord.tree.member import Acknowledgement, MemberPaths
from zkcoord.tree.paths import DRAFT, LEGACY
from zkcoord.tree.writes import DeleteNode, SetNode, Transaction, Write


class Stamped:
    """A store that sets the node at every step, even if the offset is unchanged. So each step has a transaction of its
    own."""

    def begin(self, path: str, offset: int, version: int | None) -> Sequence[Write]:
        """Set the node."""
        return [SetNode(path, b"begun", version or 0)]

    def commit(self, path: str, offset: int, version: int) -> Sequence[Write]:
        """Set the node."""
        return [SetNode(path, b"committed", version)]

    def release(self, path: str, offset: int, version: int, *, committed: bool) -> Sequence[Write]:
        """Set the node."""
        return [SetNode(path, b"same" if committed else b"released", version)]


PATHS = MemberPaths(layout=DRAFT, group="g", consumer_id="c", offset_writes=Stamped())
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
HELD = {p: Held(thread="c-0", owner_version=3, offset=10, offset_version=4, generation=1) for p in (T0, T1)}
DONE = Acknowledgement(commands={"0000000002": 0}, status=b"{}", status_version=6)


def offsets_set(*transactions: Transaction) -> dict[str, bytes]:
    """Path -> data: the offsets that these multis write."""
    writes = [write for transaction in transactions for write in transaction.writes]
    return {w.path: w.data for w in writes if isinstance(w, SetNode) and w.path.startswith(DRAFT.offsets("g"))}


def test_a_start_a_commit_and_a_release_write_offsets_by_the_store() -> None:
    t0, t1 = PATHS.offset(T0), PATHS.offset(T1)
    assert offsets_set(member.start(PATHS, {T0: (10, Versions(3, None))}, [], {}, DONE)) == {t0: b"begun"}
    assert offsets_set(*member.commit(PATHS, HELD, {T0: 11})) == {t0: b"committed"}
    assert offsets_set(*member.release(PATHS, HELD, {T0: 11}, DONE)) == {t0: b"released", t1: b"same"}


def test_a_release_in_a_store_with_tenures_sets_every_offset() -> None:
    paths = MemberPaths(layout=DRAFT, group="g", consumer_id="c")
    t0, t1 = paths.offset(T0), paths.offset(T1)
    assert offsets_set(*member.release(paths, HELD, {T0: 11}, DONE)) == {t0: b"11"}
    assert offsets_set(*member.release(paths, HELD, {T0: 11}, DONE, tenured=True)) == {t0: b"11", t1: b"10"}


def test_a_change_of_the_store_is_one_multi_that_sets_offsets_deletes_the_command_and_says_so() -> None:
    for layout in (DRAFT, LEGACY):
        paths = MemberPaths(layout=layout, group="g", consumer_id="c")
        transaction = member.switch(paths, HELD, {T0: 10, T1: 10}, DONE)
        guards = [*paths.guard(T0, 3)], [*paths.guard(T1, 3)]
        assert transaction.writes == (
            paths.check(),
            *guards[0],
            SetNode(paths.offset(T0), b"10", 4),
            *guards[1],
            SetNode(paths.offset(T1), b"10", 4),
            DeleteNode(paths.command("0000000002"), 0),
            SetNode(paths.channel, b"{}", 6),
        )
        assert len(guards[0]) == (1 if layout is LEGACY else 0)
