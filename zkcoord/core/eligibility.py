"""The members that can be given partitions, and the assignor that they agree on."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from zkcoord.core.stores import can_use
from zkcoord.core.view import REJECT, Channel, GroupView, Member

PROTOCOLS = (1, 1)
"""The lowest and the highest version of the protocol that this program speaks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """The assignor that a group's members have in common.

    `rejected` maps a consumer id to the reason why it shares no assignor with the others. `problem` says why the group
    does not use the assignor that the record names, and who must act.
    """

    assignor: str
    rejected: Mapping[str, str]
    problem: str | None = None


def agree(members: Sequence[Member], decided: str | None, known: Collection[str], kept: str | None = None) -> Agreement:
    """Return the assignor that all can use, and the members to reject because they share none (protocol, section 8).

    Members are considered in the order in which they joined. First counts the assignor `decided` in the group's
    record; then `kept`, the one that static members had, if all can use it; then the oldest member's preference. A
    decided assignor that this coordinator does not have (`known`), or that no member offers, is ignored and becomes the
    problem: a record must not stop a group. A member that knows only the draft accepts any assignor.
    """
    choosing = [member for member in members if member.speaks_protocol]
    problem = None if decided is None else _why_not(choosing, decided, known)
    common = [decided] if decided is not None and problem is None else []
    rejected: dict[str, str] = {}
    for member in sorted(choosing, key=lambda m: (m.czxid, m.consumer_id)):
        offered = [name for name in member.assignors if name in known]
        shared = [name for name in common if name in offered] if common else offered
        if shared:
            common = shared
        else:
            rejected[member.consumer_id] = f"offers the assignors {list(member.assignors)}, " + (
                f"the group uses {common}: offer one of these"
                if common
                else f"only {sorted(known)} are known: offer one of these, or install yours beside the coordinator"
            )
    chosen = common[0] if common else "sticky"
    agreed = [member for member in choosing if member.consumer_id not in rejected]
    free = decided is None or problem is not None
    if kept is not None and kept in known and free and all(kept in member.assignors for member in agreed):
        chosen = kept
    return Agreement(assignor=chosen, rejected=rejected, problem=problem and f"{problem}; until then it is {chosen!r}")


def _why_not(members: Sequence[Member], decided: str, known: Collection[str]) -> str | None:
    wanted = f"the group's record asks for the assignor {decided!r}"
    if decided not in known:
        names = ", ".join(sorted(known))
        return f"{wanted}, only {names} are known: install it beside the coordinator, or change the record"
    if members and not any(decided in member.assignors for member in members):
        return f"{wanted}, no member offers it: start consumers that offer it, or change the record"
    return None


def in_common(
    protocols: tuple[int, int], others: Iterable[tuple[str, tuple[int, int]]]
) -> tuple[tuple[int, int], dict[str, str]]:
    """Return (the lowest and the highest protocol that all can speak, those left out: name -> why).

    `others` are taken in their order: one that shares no protocol with those before it is left out. The highest common
    protocol is used.

    >>> in_common((1, 3), [("a", (1, 2)), ("b", (3, 4)), ("c", (2, 2))])
    ((2, 2), {'b': 'speaks the protocols 3 to 4, the others 1 to 2'})
    """
    low, high = protocols
    left: dict[str, str] = {}
    for name, (lowest, highest) in others:
        if lowest > high or highest < low:
            left[name] = f"speaks {_range(lowest, highest)}, the others {low if low == high else f'{low} to {high}'}"
        else:
            low, high = max(low, lowest), min(high, highest)
    return (low, high), left


def _range(low: int, high: int) -> str:
    return f"the protocol {low}" if low == high else f"the protocols {low} to {high}"


def compatible(eligible: Sequence[Member], view: GroupView) -> tuple[list[Member], dict[str, str]]:
    """Return (the members that may take part, the members to reject: consumer id -> why).

    A member that knows only the draft would not understand a reject: it always takes part, and has no influence on the
    protocol.
    """
    found: list[Member] = []
    in_order = sorted((m for m in eligible if m.speaks_protocol), key=lambda m: (m.czxid, m.consumer_id))
    _, rejected = in_common(view.protocols, [(member.consumer_id, member.protocols) for member in in_order])
    for member in eligible:
        if member.consumer_id in rejected:
            continue
        if member.speaks_protocol and member.session_timeout_ms < view.record.policy.session_timeout_min_ms:
            rejected[member.consumer_id] = (
                f"its session timeout of {member.session_timeout_ms} ms is below the group's minimum of "
                f"{view.record.policy.session_timeout_min_ms} ms"
            )
        else:
            found.append(member)
    return found, rejected


def eligible_members(view: GroupView, sent_away: Collection[str] = ()) -> list[Member]:
    """The members that could be given partitions: readable, with a channel, and not asked to go.

    A member with a channel but without the marker `coordination` knows only the draft. (Old consumers have no channel.)
    """
    aside = set_aside(view, sent_away).keys() | sent_away
    return [member for consumer_id, member in view.members.items() if consumer_id not in aside]


def set_aside(view: GroupView, sent_away: Collection[str] = ()) -> dict[str, str]:
    """The members that are not eligible, each with the reason. Tools show it for a member that is given nothing.

    A member goes on as before while its replacement cannot be given partitions, or is about to be `sent_away`.
    """
    heirs = {
        m.replaces: name
        for name, m in view.members.items()
        if m.replaces and name not in sent_away and not _why_aside(view, m, view.channels.get(name), None)
    }
    found: dict[str, str] = {}
    for consumer_id, member in view.members.items():
        reasons = _why_aside(view, member, view.channels.get(consumer_id), heirs.get(consumer_id))
        if reasons:
            found[consumer_id] = "; ".join(reasons)
    return found


def _why_aside(view: GroupView, member: Member, channel: Channel | None, heir: str | None) -> list[str]:
    reasons = []
    if member.unreadable is not None:
        reasons.append(f"unreadable: {member.unreadable}")
    if channel is None:
        reasons += ["no channel"] if member.speaks_protocol else ["an old consumer", "no channel"]
    elif channel.evicted_ms is not None:
        reasons.append("evicted")
    if heir is not None:
        reasons.append(f"replaced by {heir}")
    if not can_use(member, view.record.store_name):
        reasons.append(f"cannot use the offset store {view.record.store_name!r}")
    if channel is not None and channel.outstanding(REJECT):
        reasons.append("sent away, and has not left yet")
    return reasons
