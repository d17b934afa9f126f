"""People's wishes in a group's record, and the answers. A wish stands until it is taken back or carried out.

    hold       members read on, what is available is granted, nothing is stopped     until it is taken back
    pause      everything is stopped, nothing granted                                until it is taken back
    rebalance  the target is asked for again, a failure forgotten                    once
    delete     what the group leaves behind is removed                               once

An answer names the wish's run, so that a tool recognises its own. A wish that cannot be met is answered with why.
"""

from __future__ import annotations

from zkcoord.core.decisions import AnswerWish
from zkcoord.core.record import DELETE, HOLD, PAUSE, REBALANCE, Request, Response
from zkcoord.core.topics import Available
from zkcoord.core.view import GroupView

STANDING = (HOLD, PAUSE)
HELD, PAUSED, DONE, REFUSED, DELETING = "held", "paused", "done", "refused", "deleting"


def deleting(view: GroupView) -> bool:
    """True once a deletion has begun: whoever joins now waits until it is over."""
    wish, done = view.record.requests.get(DELETE), view.record.responses.get(DELETE)
    return wish is not None and done is not None and done.run == wish.run and done.state == DELETING


def paused(view: GroupView) -> bool:
    """True while everything is stopped and nothing granted."""
    return PAUSE in view.record.requests or deleting(view)


def has_paused(view: GroupView) -> bool:
    """True once a pause was carried out: nobody reads."""
    wish, done = view.record.requests.get(PAUSE), view.record.responses.get(PAUSE)
    return wish is not None and done == Response(wish.run, PAUSED)


def rebalancing(view: GroupView) -> bool:
    """True while a rebalance is wished, and not refused."""
    requests = view.record.requests
    return REBALANCE in requests and _OBSTACLES.keys().isdisjoint(requests)


def answers(view: GroupView, available: Available, *, waiting: bool) -> list[AnswerWish]:
    """Answer the wishes that can be answered now; of a deletion only its beginning (`core.retention` ends it).

    `waiting`: a wished rebalance is not carried out yet, and is answered afterwards: for joins nothing can be raised,
    or what it forgave cannot be granted yet, and only the wish would tell the next coordinator of it.
    """
    if not view.answerable:
        return []
    requests, responses = view.record.requests, view.record.responses
    found = [
        AnswerWish(wish=name, run=done.run, state=None, ends=False, why=f"{name} was taken back")
        for name, done in sorted(responses.items())
        if name in STANDING and name not in requests
    ]
    for name, wish in sorted(requests.items()):
        done = responses.get(name)
        later = waiting and name == REBALANCE and rebalancing(view)
        if not later and (done is None or done.run != wish.run):
            answer = _answer(view, name, wish, available)
            found += [answer] if answer is not None else []
    return found


def _answer(view: GroupView, name: str, wish: Request, available: Available) -> AnswerWish | None:
    if name == HOLD:
        return AnswerWish(wish=name, run=wish.run, state=HELD, ends=False, why="nothing is stopped from now on")
    if name == PAUSE:
        why = "everything has stopped, nothing is granted"
        stopped = _nobody_reads(view, available)
        return AnswerWish(wish=name, run=wish.run, state=PAUSED, ends=False, why=why) if stopped else None
    if name == REBALANCE:
        obstacle = next((why for standing, why in _OBSTACLES.items() if standing in view.record.requests), "")
        state, why = (REFUSED, obstacle) if obstacle else (DONE, "the target was asked for again")
        return AnswerWish(wish=name, run=wish.run, state=state, reason=obstacle, ends=True, why=why)
    if name == DELETE:
        return _begin_deletion(view, wish)
    return None


_OBSTACLES = {
    DELETE: "the group is being deleted",
    PAUSE: "the group is paused: resume it first",
    HOLD: "the group is held: resume it first",
}


def _begin_deletion(view: GroupView, wish: Request) -> AnswerWish:
    if view.record.adoption is not None:
        reason = "it was adopted from old consumers: release it, then delete it with their tool"
        return AnswerWish(wish=DELETE, run=wish.run, state=REFUSED, reason=reason, ends=True, why=reason)
    count = len(view.members)
    if count:
        reason = f"it has {count} member{'' if count == 1 else 's'}: stop its consumers first"
        return AnswerWish(wish=DELETE, run=wish.run, state=REFUSED, reason=reason, ends=True, why=reason)
    return AnswerWish(wish=DELETE, run=wish.run, state=DELETING, ends=False, why="the group has no members")


def _nobody_reads(view: GroupView, available: Available) -> bool:
    """True when nobody reads any more: all that is owned could be granted (no member has it, nor somebody evicted who
    may not have noticed yet), and no member is to start or stop anything."""
    if not all(map(available, view.owners.values())):
        return False
    channels = (channel for c, channel in view.channels.items() if c in view.members)
    return not any(command.moves for channel in channels for command in channel.commands)
