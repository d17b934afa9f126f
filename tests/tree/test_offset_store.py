"""Every write of a member that says where a partition stands is the store's: another store needs no other multis."""

from __future__ import annotations

from collections.abc import Sequence

from zkcoord.core.member.status import Held
from zkcoord.core.model import TopicPartition
from zkcoord.tree import member
from zkcoord.tree.member import Acknowledgement, MemberPaths
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.writes import SetNode, Transaction, Write


class Stamped:
    """Sets the node at every step, also where the offset stands already: so each step has a transaction of its own."""

    def begin(self, path: str, offset: int, version: int | None) -> Sequence[Write]:
        """Set it."""
        return [SetNode(path, b"begun", version or 0)]

    def commit(self, path: str, offset: int, version: int) -> Sequence[Write]:
        """Set it."""
        return [SetNode(path, b"committed", version)]

    def release(self, path: str, offset: int, version: int, *, committed: bool) -> Sequence[Write]:
        """Set it."""
        return [SetNode(path, b"same" if committed else b"released", version)]


PATHS = MemberPaths(layout=DRAFT, group="g", consumer_id="c", store=Stamped())
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
HELD = {p: Held(thread="c-0", owner_version=3, offset=10, offset_version=4, generation=1) for p in (T0, T1)}
DONE = Acknowledgement(commands={"0000000002": 0}, status=b"{}", status_version=6)


def offsets_set(*transactions: Transaction) -> dict[str, bytes]:
    """What these multis write below the group's offsets: path -> data."""
    writes = [write for transaction in transactions for write in transaction.writes]
    return {w.path: w.data for w in writes if isinstance(w, SetNode) and w.path.startswith(DRAFT.offsets("g"))}


def test_a_start_a_commit_and_a_release_write_offsets_by_the_store() -> None:
    t0, t1 = PATHS.offset(T0), PATHS.offset(T1)
    assert offsets_set(member.start(PATHS, {T0: (10, None)}, [], {}, DONE)) == {t0: b"begun"}
    assert offsets_set(*member.commit(PATHS, HELD, {T0: 11})) == {t0: b"committed"}
    assert offsets_set(*member.release(PATHS, HELD, {T0: 11}, DONE)) == {t0: b"released", t1: b"same"}
