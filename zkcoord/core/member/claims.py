"""How a member claims what it was given, where owners are the ephemeral nodes of their consumers.

A claim comes before the application is told: whoever has the node is the owner, and only one can have it. It is the
first of two multis. The second acknowledges it, and sets the partition's offset, by its version: so the writes of
whoever had an earlier claim are refused from then on.
"""

from __future__ import annotations

from collections.abc import Mapping

from zkcoord.core.member.view import NOBODY, MemberView
from zkcoord.core.model import TopicPartition
from zkcoord.core.view import TAKEN

Threads = Mapping[TopicPartition, str]


def unclaimed(view: MemberView, wanted: Threads) -> dict[TopicPartition, str]:
    """Those of these partitions that nobody owns, with the threads that are to own them."""
    return {p: thread for p, thread in wanted.items() if view.owners.get(p, NOBODY) == NOBODY}


def taken(view: MemberView, wanted: Threads) -> dict[TopicPartition, str]:
    """Those of them that another consumer has claimed, with the words of the refusal."""
    owners = {p: view.owners.get(p, NOBODY) for p in wanted}
    return {
        p: f"{TAKEN}: {owners[p].thread or 'another session'} has claimed it"
        for p, thread in wanted.items()
        if owners[p] not in (NOBODY, (thread, owners[p].version))
    }
