"""How a member comes to own what it was given, by the layout: what else in `core.member` starts and stops does not ask.

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
    """The owners that are known before they are read: those that the grant set, as its command tells them.

    Claims are taken for free: nothing is read of them before the claim, which fails if another consumer has made one.
    """
    if view.claims:
        return dict.fromkeys(start.grants, NOBODY)
    return {
        partition: Owner(start.grants[partition].thread, version)
        for command in start.commands.values()
        for partition, version in command.owner_versions.items()
    }


def claim(view: MemberView, memory: Memory, start: Start) -> tuple[list[Decision] | None, Start]:
    """Return what makes the member the owner of what the start names (None: it owns all that is not refused), and the
    start, in which what another consumer owns is refused."""
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
    """True when the acknowledgement of a start sets the partition's offset: there is none yet, or setting it, even to
    the same value, ends what earlier owners may still write. A tenure begins so, and so does a claim."""
    return at.offset is None or memory.store.tenured or view.claims


def freed_by_session(view: MemberView, memory: Memory) -> bool:
    """True when a member that leaves only writes final offsets: its claims go with the session, together with the
    registration. Deleted before, they would seem to be taken from a member that reads on. (A tenure must be ended.)"""
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
