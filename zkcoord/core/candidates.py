"""Who of the members can be given work, and which assignor they agree on."""

from __future__ import annotations

from collections.abc import Sequence

from zkcoord.core.assignors import ASSIGNORS
from zkcoord.core.view import GroupView, Member

PROTOCOL = 1
"""The version of zkcoord's protocol that this coordinator sends."""


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


def admit(candidates: Sequence[Member], view: GroupView) -> tuple[list[Member], dict[str, str]]:
    """Whom the group's rules let take part, and whom to send away, with the reason."""
    admitted: list[Member] = []
    rejected: dict[str, str] = {}
    for member in candidates:
        low, high = member.protocols
        if not low <= PROTOCOL <= high:
            rejected[member.consumer_id] = f"speaks the protocols {low} to {high}, the coordinator {PROTOCOL}"
        elif member.session_timeout_ms < view.session_timeout_min_ms:
            rejected[member.consumer_id] = (
                f"its session timeout of {member.session_timeout_ms} ms is below the group's minimum of "
                f"{view.session_timeout_min_ms} ms"
            )
        else:
            admitted.append(member)
    return admitted, rejected


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
