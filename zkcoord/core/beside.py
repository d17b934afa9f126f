"""A coordinator beside old members (layout `legacy`): it starts and stops nothing, and only watches.

    mixed     members follow the old members' plan by themselves. A zkcoord member that keeps a partition which the plan
              gives to another is evicted, since old members would give up. Partitions that an old member gave up are
              reported; on request a poke has them claimed again
    observe   the coordinator begins nothing

In both modes it finishes what is outstanding. The state notes the mode, so that the next coordinator knows it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from zkcoord.core.decisions import Decision, PokeMembers, RenewMark, SetState, StateEvent, WriteResponse, written
from zkcoord.core.fast_replace import fast_replace
from zkcoord.core.mode import Mode
from zkcoord.core.model import TopicPartition, consumer_of
from zkcoord.core.old_owners import OldOwners, noted
from zkcoord.core.record import DELETE, PAUSE, POKE
from zkcoord.core.requests import DONE, REFUSED, begin_deletion, has_been_left
from zkcoord.core.topics import recreated
from zkcoord.core.view import GroupView, Owner
from zkcoord.core.words import some

GIVEN_UP_MS = 10_000
"""ms beyond an old member's patience. If a partition of the member's share has no owner by then, the member counts as
having given it up."""

POKE_AGAIN_MS = 60_000
"""ms: at most one poke in this time, since a poke makes all old members release and claim everything."""

_NOBODY = Owner("", -1)


@dataclass(frozen=True)
class OnLooker:
    """The first sights of one group beside old members. `seen` must be called with every view before any other
    method."""

    against: Mapping[tuple[str, TopicPartition], int] = field(default_factory=dict)
    # (zkcoord member, partition that it holds and the plan gives to another) -> first sight
    kept: Mapping[tuple[str, TopicPartition], int] = field(default_factory=dict)  # the same for old members
    missing: Mapping[TopicPartition, int] = field(default_factory=dict)
    # partition of an old member without an owner -> first sight
    poked: tuple[str, int] | None = None  # (run of the request for the last poke, time of that poke)

    def seen(self, view: GroupView, now_ms: int) -> OnLooker:
        """Return a copy with the things that are seen for the first time, and without those that are over."""
        mode, plan = view.mode, view.mode.plan
        if plan is None:
            return self if not (self.against or self.kept or self.missing) else OnLooker(poked=self.poked)
        ours = view.members.keys() & view.channels.keys() - mode.old
        held = [
            (consumer_of(owner.thread), partition)
            for partition, owner in view.owners.items()
            if owner.thread and plan.get(partition) != owner.thread
        ]
        against, kept = ([key for key in held if key[0] in whose] for whose in (ours, mode.old))
        missing = [
            partition
            for partition, thread in plan.items()
            if consumer_of(thread) in mode.old and not view.owners.get(partition, _NOBODY).thread
        ]
        return OnLooker(
            {key: self.against.get(key, now_ms) for key in against},
            {key: self.kept.get(key, now_ms) for key in kept},
            {partition: self.missing.get(partition, now_ms) for partition in missing},
            self.poked,
        )

    def overdue(self, view: GroupView, now_ms: int) -> list[tuple[str, str]]:
        """The zkcoord members that keep a partition that the plan gives to others, each with the reason; sorted."""
        found: dict[str, TopicPartition] = {}
        for (consumer_id, partition), since_ms in sorted(self.against.items()):
            if now_ms >= since_ms + self._patience_ms(view, consumer_id):
                found.setdefault(consumer_id, partition)
        why = "holds {} against the plan of the old members, which would give up"
        return [(consumer_id, why.format(partition)) for consumer_id, partition in found.items()]

    def given_up(self, view: GroupView, now_ms: int) -> list[TopicPartition]:
        """The partitions that old members do not claim any more though they are still registered; sorted."""
        return sorted(p for p, since_ms in self.missing.items() if now_ms >= since_ms + _given_up_ms(view))

    def not_freed(self, view: GroupView, now_ms: int) -> list[tuple[TopicPartition, str]]:
        """The partitions that old members keep though the plan gives them to others, each with its owner; sorted."""
        return sorted((p, name) for (name, p), since_ms in self.kept.items() if now_ms >= since_ms + _given_up_ms(view))

    def may_poke(self, run: str, now_ms: int) -> bool:
        """True when the last poke is long enough ago, or was for this run: then it may not have been carried out."""
        return self.poked is None or self.poked[0] == run or now_ms >= self.poked[1] + POKE_AGAIN_MS

    def wake_at_ms(self, view: GroupView, now_ms: int) -> int | None:
        """The next moment at which a wait ends."""
        times = [since_ms + self._patience_ms(view, c) for (c, _), since_ms in self.against.items()]
        times += [since_ms + _given_up_ms(view) for since_ms in (*self.missing.values(), *self.kept.values())]
        if self.poked is not None:
            times.append(self.poked[1] + POKE_AGAIN_MS)
        if view.mode.grace_ends_ms is not None:
            times.append(view.mode.grace_ends_ms)
        return min((at_ms for at_ms in times if at_ms > now_ms), default=None)

    def _patience_ms(self, view: GroupView, consumer_id: str) -> int:
        return view.mode.patience_ms + view.members[consumer_id].session_timeout_ms


def _given_up_ms(view: GroupView) -> int:
    return view.mode.patience_ms + GIVEN_UP_MS


def changes_mode(view: GroupView) -> bool:
    """True when the state names another mode than the present one."""
    return view.state.mode is not view.mode.mode


def mode_changes(view: GroupView, old_owners: OldOwners, before: Sequence[Decision]) -> list[Decision]:
    """Note in the state a new mode, and what old members have or may still commit. When the group becomes coordinated
    again, renew the topics' marks first, and drop no topic: no zkcoord member saw what became of a topic while old
    members read it."""
    if not changes_mode(view):
        return noted(view, old_owners, before)
    again = sorted(recreated(view)) if view.mode.coordinated else []
    if again:
        why = "the topic was created again while old members read it: what they committed stays"
        return [RenewMark(topic=topic, why=why) for topic in again]
    why = view.mode.why or "all members are zkcoord's"
    state = replace(old_owners.in_state(written(view.state, before)), mode=view.mode.mode)
    return [SetState(state=state, event=StateEvent.MODE_CHANGED, why=f"{view.mode.mode.value}: {why}")]


def problem_beside(view: GroupView, looker: OnLooker, now_ms: int) -> str | None:
    """What people must know or do about a group that is shared with old members. None: nothing."""
    if view.mode.plan is None:
        return f"nothing is begun in this group: {view.mode.why}"
    plan, kept = view.mode.plan, dict(looker.not_freed(view, now_ms))
    failing = {consumer_of(plan[partition]) for partition in kept.keys() & plan.keys()}  # a poke would not help these
    healed, failed = dict[TopicPartition, str](), dict[TopicPartition, str]()
    for partition in looker.given_up(view, now_ms):
        owner = consumer_of(plan[partition])
        (failed if owner in failing else healed)[partition] = owner
    problems = []
    if healed:
        problems.append(
            f"{len(healed)} partitions have no reader ({some(list(healed))}): old members gave up claiming them "
            f"({some(sorted(set(healed.values())))}). `zkcoord group poke {view.group}` has them claim again; "
            "larger rebalance.max.retries or rebalance.backoff.ms prevent it"
        )
    if kept:
        problems.append(
            f"{len(kept)} partitions are kept ({some(list(kept))}) by old members that "
            f"should have given them to others: restart {some(sorted(set(kept.values())))}"
        )
    if failed:
        problems.append(
            f"until then {len(failed)} partitions have no reader ({some(list(failed))}): old members claim all of "
            f"their share or nothing ({some(sorted(set(failed.values())))})"
        )
    return "; ".join(problems) or None


def responses_beside(view: GroupView, looker: OnLooker, now_ms: int) -> tuple[list[Decision], OnLooker]:
    """Refuse requests that need a coordinated group, with the reason. Poke when that is asked for and due. (The pause
    of a hand-over to Kafka's consumers stands: only the tool that ends the hand-over ends it.)"""
    decisions: list[Decision] = []
    for name, request in sorted(view.record.carried_out.items()) if view.answerable else ():
        if name == DELETE:
            decisions.append(begin_deletion(view, request))
        elif name == PAUSE and has_been_left(view.record):
            continue
        elif name != POKE or view.mode.mode is not Mode.MIXED:
            reason = (
                f"the group is shared with old members ({view.mode.mode.value}): {view.mode.why}; replace these first"
            )
            decisions.append(_response(name, request.run, REFUSED, reason))
        elif looker.may_poke(request.run, now_ms):
            why = f"asked for (run {request.run}): old members claim again"
            decisions += [PokeMembers(why=why), _response(name, request.run, DONE, "")]
            if looker.poked is None or looker.poked[0] != request.run:
                looker = fast_replace(looker, poked=(request.run, now_ms))
    return decisions, looker


def _response(name: str, run: str, state: str, reason: str) -> WriteResponse:
    why = reason or "the old members were poked"
    return WriteResponse(request=name, run=run, state=state, reason=reason, ends=True, why=why)
