"""A coordinator's decisions, phases and problems as events (docs/operations.md, "The log")."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from operator import itemgetter
from typing import Any, assert_never

from zkcoord.core.decisions import (
    ChangeStore,
    Decision,
    DeleteClaims,
    DropTopic,
    EvictMember,
    FoundGroup,
    GrantPartitions,
    LookUpTopic,
    MarkTopic,
    PingMember,
    PokeMembers,
    PurgeChannel,
    RejectMember,
    ReleaseForDraftMember,
    RememberInstances,
    RemoveGroup,
    RemoveRefused,
    RenewMark,
    SetState,
    StateEvent,
    StopFetching,
    WriteResponse,
)
from zkcoord.core.model import Phase, consumer_of
from zkcoord.core.phase import phase_reason
from zkcoord.core.view import GroupView, Member
from zkcoord.serving.decided import DecidedGroup
from zkcoord.serving.taking_over import TakeOver
from zkcoord.shell.role import Events

OF_A_CONSUMER = {
    EvictMember: "evicted",
    RejectMember: "member_rejected",
    PingMember: "member_pinged",
    PurgeChannel: "channel_purged",
    RemoveRefused: "command_removed",
}
"""Decisions about one consumer -> the name of their event."""

OF_A_GROUP = {FoundGroup: "group_found", RemoveGroup: "group_removed", PokeMembers: "old_members_poked"}
"""Decisions about a whole group -> the name of their event."""


class Reporter:
    """Turns decisions, phases and problems into events. A problem or a phase is logged when it changes."""

    def __init__(self, events: Events) -> None:
        self.event = events
        self.reset()

    def reset(self) -> None:
        """Forget what was logged: a new session begins."""
        self._phases: dict[str, Phase] = {}
        self._members: dict[str, Mapping[str, Member]] = {}  # members as they were last logged
        self._problems: dict[str, str] = {}
        self._of_groups: dict[str, Mapping[str, str]] = {}  # group -> path -> what is wrong with it, as logged
        self._behind: str | None = None  # id of the serving coordinator, as logged while standing by
        self._taking: TakeOver | None = None  # until all groups were found that existed when the term began

    def elected(self, candidate_id: int | None, epoch: int, groups: Collection[str], now_ms: int) -> None:
        """Log that this coordinator serves, and that it finds these groups."""
        self.event("elected", {"coordinator": candidate_id, "epoch": epoch})
        self._taking = TakeOver(groups, epoch, now_ms) if groups else None

    def taken_over(self, now_ms: int) -> tuple[int, ...]:
        """Log once in which phases the groups were found. Until all were found, return when to log it anyway."""
        if self._taking is None:
            return ()
        due_ms = self._taking.due_ms(now_ms)
        if now_ms < due_ms:
            return (due_ms,)
        self.event("took_over", self._taking.fields(now_ms))
        self._taking = None
        return ()

    def forget(self, group: str) -> None:
        """Forget the group: it is gone."""
        self._phases.pop(group, None)
        self._members.pop(group, None)
        self._of_groups.pop(group, None)
        if self._taking is not None:
            self._taking.gone(group)

    def decision(self, group: str, decision: Decision) -> None:
        """Log one decision that was sent."""
        fields: dict[str, Any] = {"group": group, "why": decision.why}
        match decision:
            case StopFetching() | GrantPartitions():
                name = "stop_sent" if isinstance(decision, StopFetching) else "start_sent"
                fields |= {"consumer": decision.consumer_id, "partitions": list(decision.partitions)}
                if isinstance(decision, GrantPartitions) and decision.replay:
                    fields |= {"replay": sorted(decision.replay)}
            case SetState():
                name = decision.event.value
                fields |= _of_state(decision)
            case WriteResponse():
                name = "request_answered"
                fields |= {"request": decision.request, "run": decision.run, "state": decision.state}
            case DeleteClaims():
                name = "claims_deleted"
                fields |= {"consumer": decision.consumer_id, "partitions": list(decision.partitions)}
            case EvictMember() | RejectMember() | PingMember() | PurgeChannel() | RemoveRefused():
                name = OF_A_CONSUMER[type(decision)]
                fields |= {"consumer": decision.consumer_id}
                if isinstance(decision, PingMember):
                    fields |= {"level": "debug"}
            case ChangeStore():
                name = "store_change_sent"
                fields |= {"consumer": decision.consumer_id, "store": decision.store, "step": decision.step}
            case ReleaseForDraftMember():
                name = "draft_member_stopped"
                fields |= {"consumer": decision.consumer_id, "partitions": list(decision.partitions)}
            case RememberInstances():
                self._instances(group, decision)
                return
            case MarkTopic() | RenewMark():
                name = "topic_marked"
                fields |= {"topic": decision.topic}
            case LookUpTopic():
                return  # its outcome is logged
            case DropTopic():
                name = "topic_dropped"
                offsets = {partition: seen.text for partition, seen in decision.offsets.items()}
                fields |= {"topic": decision.topic, "offsets": offsets, "level": "warning"}
            case FoundGroup() | RemoveGroup() | PokeMembers():
                name = OF_A_GROUP[type(decision)]
            case _:
                assert_never(decision)
        self.event(name, fields)

    def _instances(self, group: str, decision: RememberInstances) -> None:
        """Log each static member that went away, returned or was given up, and those whose share was written down."""
        for instance in decision.away:
            known = decision.known[instance]
            fields = {"group": group, "instance": instance, "consumer": known.last_id, "partitions": len(known.share)}
            why = "its registration is gone: its share waits for it"
            self.event("instance_away", dict(fields, hold_ms=known.hold_ms, why=why))
        for instance in decision.returned:
            consumer = decision.known[instance].last_id
            self.event("instance_returned", {"group": group, "instance": instance, "consumer": consumer})
        for instance in decision.forgotten:
            why = "it was away for too long, was evicted, or is no static member any more: its share goes to others"
            self.event("instance_given_up", {"group": group, "instance": instance, "why": why})
        written = sorted(decision.known.keys() - set(decision.away))
        if written:
            self.event("instances_remembered", {"group": group, "instances": written, "why": decision.why})

    def decided(self, of: DecidedGroup) -> None:
        """Log who came and went. Log the group's phase when it has changed, with the reason."""
        group, now = of.view.group, of.phase
        self._tell_members(of.view)
        if self._phases.get(group) is not now:
            self._phases[group] = now
            found = self._taking is not None and self._taking.found(group, now)
            name = "rebalance_stable" if now is Phase.STABLE and not found else "group_phase"
            why = phase_reason(now, of.view, of.memory.target, of.decisions)
            fields = {"group": group, "state": now.value, "generation": of.view.state.generation, "why": why}
            self.event(name, fields | ({"level": "debug"} if found else {}))

    def _tell_members(self, view: GroupView) -> None:
        """Log members that joined, left or died since the last view. At the first view no member counts as new.

        A member that still owns partitions when its registration is gone has died. An eviction has an event of its own.
        """
        group, now = view.group, view.members
        before, self._members[group] = self._members.get(group, now), now
        if before.keys() == now.keys():
            return
        for consumer in sorted(now.keys() - before.keys()):
            told = {"group": group, "consumer": consumer, "instance": now[consumer].instance, "members": len(now)}
            self.event("member_joined", told)
        gone = sorted(before.keys() - now.keys())
        threads = Counter(map(itemgetter(0), view.owners.values())) if gone else Counter[str]()  # there are many owners
        for consumer in gone:
            channel = view.channels.get(consumer)
            if channel is not None and channel.evicted_ms is not None:
                continue
            owned = sum(count for thread, count in threads.items() if consumer_of(thread) == consumer)
            told = {"group": group, "consumer": consumer, "instance": before[consumer].instance, "members": len(now)}
            self.event("member_died" if owned else "member_left", {**told, "partitions": owned} if owned else told)

    def problems(self, group: str, now: Mapping[str, str]) -> None:
        """Log what is new in `now`, a mapping from path to what is wrong with the node and who must act."""
        before = self._of_groups.get(group, {})
        if now is before:
            return
        self._of_groups[group] = now
        for path, what in now.items():
            if before.get(path) != what:
                self._tell(path, what)
        for path in sorted(before.keys() - now.keys()):
            self.event("problem_over", {"path": path})

    def standing_by(self, candidate_id: int | None, serving: str | None) -> None:
        """Log once that this coordinator stands by. `serving` is the id of the coordinator that serves; None: this one
        does not stand by."""
        if serving is not None and serving != self._behind:
            self.event("standing_by", {"coordinator": candidate_id, "serving": serving})
        self._behind = serving

    def _tell(self, path: str, what: str, event: str = "unreadable") -> None:
        self.event(event, {"path": path, "why": what, "level": "warning"})

    def problem(self, path: str, what: str | None, event: str = "unreadable") -> None:
        """Log what is wrong with a node and who must act, as the event `event`. With None, log that the problem is
        over."""
        if what is None:
            if self._problems.pop(path, None) is not None:
                self.event("problem_over", {"path": path})
        elif self._problems.get(path) != what:
            self._problems[path] = what
            self._tell(path, what, event)


def _of_state(decision: SetState) -> dict[str, Any]:
    """The fields of a state change's event, in addition to its group and reason."""
    state = decision.state
    match decision.event:
        case StateEvent.REBALANCE_STARTED:
            return {"generation": state.generation} | ({"stopping": True} if state.stopping else {})
        case StateEvent.REBALANCE_FAILED | StateEvent.REBALANCE_RECOVERED | StateEvent.ASSIGNMENT_PROBLEM:
            return {"level": "warning"}
        case StateEvent.QUARANTINED:
            told = {"partitions": sorted(state.quarantined), "forgiven": sorted(state.forgiven)}
            return told | ({"level": "warning"} if state.quarantined else {})
        case StateEvent.REPLAY_KEPT:
            return {"partitions": sorted(state.replay)}
        case StateEvent.GROUP_EMPTY:
            return {"ms": state.empty_ms, "level": "debug"}
        case StateEvent.MODE_CHANGED:
            return {"mode": state.mode.value}
        case StateEvent.OLD_OWNERS:
            return {"partitions": sorted(state.old), "level": "debug"}
        case StateEvent.STOPPING | StateEvent.STOPPED | StateEvent.ASSIGNMENT_AS_ASKED:
            return {}
        case _:
            assert_never(decision.event)
