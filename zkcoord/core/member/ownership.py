"""How a member comes to own what it was given, in each layout. No other module of `core.member` distinguishes the
layouts.

Where owners are persistent nodes, the grant has set them, and the start tells their versions. Where owners are claims
(ephemeral nodes of their consumers), the claim comes before the application is told. Only one consumer can have the
node, and that consumer is the owner. The claim is the first of two multis. The second one acknowledges the start, and
sets the partition's offset by its version: so later writes of anybody with an earlier claim are refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from zkcoord.core.fast_replace import fast_replace
from zkcoord.core.member.compare import at_rest
from zkcoord.core.member.decisions import ClaimPartitions, Decision
from zkcoord.core.member.memory import Memory, Start
from zkcoord.core.member.view import NOBODY, MemberView, Position
from zkcoord.core.model import TopicPartition
from zkcoord.core.view import TAKEN, Owner

Threads = Mapping[TopicPartition, str]


def known_owners(view: MemberView, start: Start) -> dict[TopicPartition, Owner]:
    """The owners that need not be read: the grant has set them, and its command tells them.

    Where owners are claims, every partition counts as free. Nothing is read before the claim, which fails if another
    consumer has claimed the partition.
    """
    if view.claims:
        return dict.fromkeys(start.grants, NOBODY)
    return {
        partition: Owner(start.grants[partition].thread, version)
        for command in start.commands.values()
        for partition, version in command.owner_versions.items()
    }


def claim(view: MemberView, memory: Memory, start: Start) -> tuple[list[Decision] | None, Start]:
    """Return the decisions that make the member the owner of the start's partitions, and the start. None for the
    decisions: the member owns everything that the start does not refuse. In the returned start, partitions that another
    consumer has claimed are refused, and statuses and commits that were read before a claim must be read again."""
    if not view.claims:
        return None, start
    wanted = {p: grant.thread for p, grant in start.grants.items() if p not in start.refused}
    if missing := _unclaimed(view, wanted):
        if start.looked or start.commits:  # claims are gone: another consumer may have had their partitions since
            start = fast_replace(start, looked=False, commits={})
        ready = view.may_write and at_rest(view, memory)
        return [ClaimPartitions(partitions=missing)] if ready else [], start
    if others := _taken(view, wanted):
        start = fast_replace(start, refused={**start.refused, **others})
    return None, start


def sets_offset(view: MemberView, memory: Memory, at: Position) -> bool:
    """True when the acknowledgement of a start sets the partition's offset. There is no offset, or earlier owners must
    be fenced: in a store with tenures, or where owners are claims. Setting the same value also changes the version, so
    later writes of earlier owners are refused."""
    return at.offset is None or memory.store.tenured or view.claims


def announced_under(
    view: MemberView, memory: Memory, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return the partitions whose offset an announcement of them must find unchanged, with its version. A claim may be
    gone, and the next consumer's acknowledgement sets the offset: from then on nobody looks at this member's status."""
    return {p: memory.held[p].offset_version for p in partitions} if view.claims else {}


def may_announce(view: MemberView, partitions: Iterable[TopicPartition]) -> dict[str, int]:
    """Return the consumers that may still announce one of these partitions, as far as their statuses were read, with
    the version of each status. The claim of such a consumer is gone, which it may not have seen yet."""
    named = tuple(partitions)
    return {c: other.version for c, other in view.holders.items() if any(map(other.may_hold, named))}


def leftover_over(view: MemberView, memory: Memory, partition: TopicPartition) -> bool:
    """True when a commit has passed a leftover range, or another consumer has it, as the partition's nodes were read.

    Where grants set owners, an owner was handed the range. A claim tells nothing: beside old members its consumer reads
    the ranges of others later, and has them in its own status only from its acknowledgement on. That sets the offset
    (`sets_offset`). So where Kafka may tell another offset than the node, the node's version tells the acknowledgement.
    If nobody has the partition, a tool may have set the node to the offset that counts, and the range is not over.
    """
    at, owned = view.positions[partition], view.owners.get(partition, NOBODY).thread != ""
    if owned and not view.claims:
        return True
    elsewhere = at.offset != memory.batch[partition].start
    if not memory.store.tenured:
        return elsewhere
    if not view.claims:
        return False
    last = memory.last_own.get(partition)
    if at.version is None or last is None:
        return at.version is None
    return at.version < last - 1 or (at.version > last and (elsewhere or owned))


def freed_by_session(view: MemberView, memory: Memory) -> bool:
    """True when a member that leaves gives nothing back: its claims go with the session, together with the
    registration. If they went earlier, it would look as if they were taken from a member that reads on. (In a store
    with tenures the tenure must be ended, so the member gives everything back.)"""
    return view.claims and not memory.store.tenured


def _unclaimed(view: MemberView, wanted: Threads) -> dict[TopicPartition, str]:
    """Those of these partitions that nobody owns, with the threads that are to own them."""
    return {p: thread for p, thread in wanted.items() if view.owners.get(p, NOBODY) == NOBODY}


def _taken(view: MemberView, wanted: Threads) -> dict[TopicPartition, str]:
    """Those of these partitions that another consumer has claimed, each with the reason of the refusal."""
    owners = {p: view.owners.get(p, NOBODY) for p in wanted}
    return {
        p: f"{TAKEN}: {owners[p].thread or 'another session'} has claimed it"
        for p, thread in wanted.items()
        if owners[p] not in (NOBODY, (thread, owners[p].version))
    }
