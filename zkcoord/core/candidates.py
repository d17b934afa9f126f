"""Who of the members can be given work, and which assignor they agree on."""

from __future__ import annotations

from collections.abc import Sequence

from zkcoord.core.assignors import ASSIGNORS
from zkcoord.core.view import GroupView, Member


def agree(candidates: Sequence[Member], decided: str | None) -> tuple[str, dict[str, str]]:
    """The assignor that all can use, and whom to send away for leaving nothing in common (design, section 4).

    Candidates in the order of joining; the one `decided` in the group's record counts before all, then the oldest
    member's preference.
    """
    rejected: dict[str, str] = {}
    common = [decided] if decided in ASSIGNORS else []
    for member in sorted(candidates, key=lambda m: (m.czxid, m.consumer_id)):
        offered = [name for name in member.assignors if name in ASSIGNORS]
        shared = [name for name in common if name in offered] if common else offered
        if shared:
            common = shared
        else:
            rejected[member.consumer_id] = (
                f"offers the assignors {list(member.assignors)}, the group uses {common or sorted(ASSIGNORS)}"
            )
    return (common[0] if common else "sticky"), rejected


def candidates_of(view: GroupView) -> list[Member]:
    """Members that could be given work: readable, of this protocol, with a channel, not asked to go."""
    replaced = {m.replaces for m in view.members.values() if m.replaces}
    found = []
    for consumer_id, member in view.members.items():
        channel = view.channels.get(consumer_id)
        if member.unreadable or not member.coordinated or channel is None or channel.evicted:
            continue
        if consumer_id in replaced or (member.stores and view.store not in member.stores):
            continue
        if any(command.option == "reject" for command in channel.commands):
            continue
        found.append(member)
    return found
