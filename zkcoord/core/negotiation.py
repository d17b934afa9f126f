"""Divides a group's eligible members into members that take part and members to reject, and chooses the assignor.

The answer is kept while members, record and protocols stay the same.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from zkcoord.core.eligibility import agree, compatible, eligible_members
from zkcoord.core.instances import assignor_of, superseded
from zkcoord.core.view import GroupView, Member


@dataclass(frozen=True, slots=True, kw_only=True)
class Negotiated:
    """`members` take part. `rejected` maps a consumer id to the reason. `final` are rejected members that must not
    register again.

    `problem` says why the assignor is not the one that the record asks for.
    """

    members: Sequence[Member] = ()
    rejected: Mapping[str, str] = field(default_factory=dict)
    final: frozenset[str] = frozenset()
    assignor: str = ""
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Negotiation:
    """The last answer. Invariant: it is the answer to `_asked`."""

    _asked: object = None
    answer: Negotiated = Negotiated()

    def of(self, view: GroupView, known: Collection[str]) -> Negotiation:
        """Return the answer for this view. It is computed again when something that it depends on has changed.

        `known`: the assignors that this coordinator has.
        """
        eligible, kept = eligible_members(view), assignor_of(view)
        record = view.record
        rules = (view.protocols, record.policy.session_timeout_min_ms, record.assignor)
        asked = (eligible, kept, *rules, list(known))
        if self._asked == asked:
            return self
        answer = _negotiate(eligible, view, known, kept)
        if not any(m.consumer_id in answer.rejected and m.replaces in view.members for m in eligible):
            return Negotiation(asked, answer)
        again = _negotiate(eligible_members(view, answer.rejected), view, known, kept)
        return Negotiation(None, _beside(answer, again))  # computed again until they have gone


def _beside(first: Negotiated, again: Negotiated) -> Negotiated:
    """The second answer: members take part again if the first answer rejects their replacements."""
    return replace(again, rejected={**first.rejected, **again.rejected}, final=first.final | again.final)


def _negotiate(eligible: Sequence[Member], view: GroupView, known: Collection[str], kept: str | None) -> Negotiated:
    found, rejected = compatible(eligible, view)
    agreed = agree(found, view.record.assignor, known, kept)
    rejected |= agreed.rejected
    doubled = superseded([m for m in found if m.consumer_id not in rejected])
    rejected |= doubled
    return Negotiated(
        members=[m for m in found if m.consumer_id not in rejected],
        rejected=rejected,
        final=frozenset(doubled),
        assignor=agreed.assignor,
        problem=agreed.problem,
    )
