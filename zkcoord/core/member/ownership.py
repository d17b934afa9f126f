"""How a member comes to own what it was given, in each layout. Nothing else in `core.member` asks for that.

Where owners are persistent nodes, the grant has set them, and the start tells their versions. Where owners are claims,
the ephemeral nodes of their consumers, a claim comes before the application is told: whoever has the node is the owner,
and only one can have it. It is the first of two multis. The second acknowledges it, and sets the partition's offset, by
its version: so the writes of whoever had an earlier claim are refused from then on.
"""

from __future__ import annotations

from collections.abc import Mapping

from zkcoord.core.fast_replace import fast_replace
from zkcoord.core.member.compare import at_rest
from zkcoord.core.member.decisions import ClaimPartitions, Decision
from zkcoord.core.member.memory import Memory, Start
from zkcoord.core.member.view import NOBODY, MemberView, Position
from zkcoord.core.model import TopicPartition
from zkcoord.core.view import TAKEN, Owner

Threads = Mapping[TopicPartition, str]


def known_owners(view: MemberView, start: Start) -> dict[TopicPartition, Owner]:
    """The owners that need not be read: those that the grant has set, as its command tells them.

    Where owners are claims every partition counts as free. Nothing is read before the claim, which fails if another
    consumer has made one.
    """
    if view.claims:
        return dict.fromkeys(start.grants, NOBODY)
    return {
        partition: Owner(start.grants[partition].thread, version)
        for command in start.commands.values()
        for partition, version in command.owner_versions.items()
    }


def claim(view: MemberView, memory: Memory, start: Start) -> tuple[list[Decision] | None, Start]:
    """Return the decisions that make the member the owner of what the start names, and the start. None: it owns all
    that the start does not refuse. In the start that is returned, what another consumer has claimed is refused."""
    if not view.claims:
        return None, start
    wanted = {p: grant.thread for p, grant in start.grants.items() if p not in start.refused}
    if missing := _unclaimed(view, wanted):
        ready = view.may_write and at_rest(view, memory)
        return [ClaimPartitions(partitions=missing)] if ready else [], start
    if others := _taken(view, wanted):
        start = fast_replace(start, refused={**start.refused, **others})
    return None, start


def sets_offset(view: MemberView, memory: Memory, at: Position) -> bool:
    """True when the acknowledgement of a start sets the partition's offset: there is none, or earlier owners must be
    fenced, in a store with tenures and where owners are claims. The same value has another version, too: so what they
    still write is refused."""
    return at.offset is None or memory.store.tenured or view.claims


def freed_by_session(view: MemberView, memory: Memory) -> bool:
    """True when a member that leaves gives nothing back: its claims go with the session, together with the
    registration. If they went before, it would look as if they were taken from a member that reads on. (A tenure must
    be ended: there the member gives all back.)"""
    return view.claims and not memory.store.tenured


def _unclaimed(view: MemberView, wanted: Threads) -> dict[TopicPartition, str]:
    """Those of these partitions that nobody owns, with the threads that are to own them."""
    return {p: thread for p, thread in wanted.items() if view.owners.get(p, NOBODY) == NOBODY}


def _taken(view: MemberView, wanted: Threads) -> dict[TopicPartition, str]:
    """Those of them that another consumer has claimed, with the words of the refusal."""
    owners = {p: view.owners.get(p, NOBODY) for p in wanted}
    return {
        p: f"{TAKEN}: {owners[p].thread or 'another session'} has claimed it"
        for p, thread in wanted.items()
        if owners[p] not in (NOBODY, (thread, owners[p].version))
    }
