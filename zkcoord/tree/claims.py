"""A member's writes that only claims need: where owners are ephemeral nodes of their consumers.

Two claims of one partition have the same version, so no version of an owner tells a new claim from an earlier one. The
offset does: an acknowledgement sets it, even to the same value, and each write about a held partition checks its
version.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from zkcoord.core.member.decisions import AcknowledgeStarts
from zkcoord.core.member.view import NOWHERE, Position
from zkcoord.core.model import TopicPartition
from zkcoord.tree.member import Acknowledgement, MemberPaths, acknowledge
from zkcoord.tree.offset_store import unchanged
from zkcoord.tree.writes import WRITE_BYTES, CheckNode, Transaction, Write, parts


def claim(
    paths: MemberPaths, partitions: Mapping[TopicPartition, str], missing_parents: Sequence[str]
) -> Iterator[Transaction]:
    """Claim partitions (partition -> thread). A part is refused as a whole when one of it is another's meanwhile."""
    ownership = paths.layout.ownership
    made: list[Write] = [paths.parent(path) for path in missing_parents]
    for part in parts(sorted(partitions), lambda p: 2 * (len(paths.owner(p)) + WRITE_BYTES) + len(partitions[p])):
        claims = [write for p in part for write in ownership.claim(paths.owner(p), partitions[p])]
        yield Transaction(writes=(paths.check(), *made, *claims), why="claim")
        made = []


def acknowledge_claims(
    paths: MemberPaths,
    decision: AcknowledgeStarts,
    positions: Mapping[TopicPartition, Position],
    missing_parents: Sequence[str],
    done: Acknowledgement,
) -> Transaction:
    """Acknowledge starts: each claim stands, its offset is set, and what cannot be started is given back."""
    writes: list[Write] = [paths.parent(path) for path in missing_parents]
    for partition, (owner_version, offset) in sorted(decision.claimed.items()):
        path, version = paths.offset(partition), positions.get(partition, NOWHERE).version
        writes += paths.guard(partition, owner_version)
        writes += paths.store.begin(path, offset, version)
    for partition, version in sorted(decision.refused.items()):
        writes.append(paths.free(partition, version))
        writes += unchanged(paths.offset(partition), positions.get(partition, NOWHERE).version)
    if decision.record_version is not None:
        writes.insert(0, CheckNode(paths.layout.record(paths.group), decision.record_version))
    check, *rest = acknowledge(paths, done).writes
    return Transaction(writes=(check, *writes, *rest), why=f"acknowledge start {', '.join(done.commands)}")
