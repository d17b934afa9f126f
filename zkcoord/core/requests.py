"""People's requests in a group's record, and the responses. A request stays until it is taken back or carried out.

    hold       members read on, what is available is granted, nothing is stopped     until it is taken back
    pause      everything is stopped, nothing granted                                until it is taken back
    rebalance  the target is asked for again, a failure forgotten                    once
    reset      everything is stopped while a tool writes offsets (`core.resetting`)  until it is taken back, or expires
    delete     what the group leaves behind is removed                               once
    poke       old members are made to claim again (`core.beside`)                   once

A response names the request's run, so that a tool recognises the response to its own request. If the request is
refused, the response says why.
"""

from __future__ import annotations

from zkcoord.core.decisions import WriteResponse
from zkcoord.core.record import DELETE, HOLD, PAUSE, POKE, REBALANCE, RESET, GroupRecord, Request
from zkcoord.core.topics import Available
from zkcoord.core.view import GroupView
from zkcoord.core.words import count

STANDING = (HOLD, PAUSE)
ADOPTED = "it was adopted from old consumers: release it, then delete it with their tool"
"""Why such a group is not deleted."""
HELD, PAUSED, STOPPED, DONE, REFUSED, DELETING = "held", "paused", "stopped", "done", "refused", "deleting"


def deleting(view: GroupView) -> bool:
    """True once a deletion has begun. A consumer that joins now waits until the deletion is over."""
    request, response = view.record.requests.get(DELETE), view.record.responses.get(DELETE)
    return request is not None and response is not None and response.says(request.run, DELETING)


def paused(view: GroupView) -> bool:
    """True while everything is stopped, and nothing is granted."""
    stopped = view.record.moved is not None or not {PAUSE, RESET}.isdisjoint(view.record.requests)
    return stopped or deleting(view)


def has_paused(record: GroupRecord) -> bool:
    """True once a pause was carried out: nobody reads."""
    request, response = record.requests.get(PAUSE), record.responses.get(PAUSE)
    return request is not None and response is not None and response.says(request.run, PAUSED)


def has_been_left(record: GroupRecord) -> bool:
    """True once the group is paused and left to Kafka's consumers. An old member that joins does not end that."""
    return record.left_to_kafka and has_paused(record)


def has_stopped(record: GroupRecord) -> bool:
    """True once everything was stopped for a reset. Nobody reads, and the tool with that run may write offsets."""
    request, response = record.requests.get(RESET), record.responses.get(RESET)
    return request is not None and response is not None and response.says(request.run, STOPPED)


def rebalancing(view: GroupView) -> bool:
    """True while a rebalance is requested and not refused."""
    requests = view.record.requests
    return REBALANCE in requests and _OBSTACLES.keys().isdisjoint(requests)


def responses(view: GroupView, available: Available, *, waiting: bool) -> list[WriteResponse]:
    """Respond to the requests for which that can be done now. Of a deletion only the beginning is answered here
    (`core.retention` ends it).

    `waiting`: a requested rebalance is not carried out yet, so its response comes later. Either the group waits for
    joins and cannot raise, or a partition that the request forgave cannot be granted yet, and only the request would
    tell the next coordinator of it.
    """
    if not view.answerable:
        return []
    requests, given = view.record.requests, view.record.responses
    found = [
        WriteResponse(request=name, run=response.run, state=None, ends=False, why=f"{name} was taken back")
        for name, response in sorted(given.items())
        if name not in requests and (name in STANDING or (name == RESET and response.state == STOPPED))
    ]
    for name, request in sorted(requests.items()):
        response = given.get(name)
        later = waiting and name == REBALANCE and rebalancing(view)
        if not later and (response is None or response.run != request.run):
            written = _response(view, name, request, available)
            found += [written] if written is not None else []
    return found


def _response(view: GroupView, name: str, request: Request, available: Available) -> WriteResponse | None:
    if name == HOLD:
        why = "nothing is stopped from now on"
        return WriteResponse(request=name, run=request.run, state=HELD, ends=False, why=why)
    if name == PAUSE:
        why = "everything has stopped, nothing is granted"
        stopped = _nobody_reads(view, available)
        return WriteResponse(request=name, run=request.run, state=PAUSED, ends=False, why=why) if stopped else None
    if name == REBALANCE:
        obstacle = next((why for standing, why in _OBSTACLES.items() if standing in view.record.requests), "")
        state, why = (REFUSED, obstacle) if obstacle else (DONE, "the target was asked for again")
        return WriteResponse(request=name, run=request.run, state=state, reason=obstacle, ends=True, why=why)
    if name == RESET:
        return _response_to_reset(view, request, available)
    if name == DELETE:
        return begin_deletion(view, request)
    if name == POKE:
        reason = "no old member is there to be poked"
        return WriteResponse(request=name, run=request.run, state=REFUSED, reason=reason, ends=True, why=reason)
    return None


def _response_to_reset(view: GroupView, request: Request, available: Available) -> WriteResponse | None:
    if DELETE in view.record.requests:
        reason = _OBSTACLES[DELETE]
        return WriteResponse(request=RESET, run=request.run, state=REFUSED, reason=reason, ends=True, why=reason)
    if not _nobody_reads(view, available):
        return None
    why = "everything has stopped: offsets may be written"
    return WriteResponse(request=RESET, run=request.run, state=STOPPED, ends=False, why=why)


_OBSTACLES = {
    DELETE: "the group is being deleted",
    RESET: "its offsets are being reset",
    PAUSE: "the group is paused: resume it first",
    HOLD: "the group is held: resume it first",
}


def begin_deletion(view: GroupView, request: Request) -> WriteResponse:
    """Begin a deletion. Refuse it while a consumer is registered, or if the group was adopted from old consumers."""
    if view.record.adoption is not None:
        return WriteResponse(request=DELETE, run=request.run, state=REFUSED, reason=ADOPTED, ends=True, why=ADOPTED)
    if view.members:
        reason = f"it has {count(len(view.members), 'member')}: stop its consumers first"
        return WriteResponse(request=DELETE, run=request.run, state=REFUSED, reason=reason, ends=True, why=reason)
    return WriteResponse(request=DELETE, run=request.run, state=DELETING, ends=False, why="the group has no members")


def _nobody_reads(view: GroupView, available: Available) -> bool:
    """True when nobody reads any more: every owned partition could be granted (no member owns it, and no evicted
    consumer that may not have noticed), and no member still has to start or stop anything."""
    if not all(map(available, view.owners.values())):
        return False
    channels = (channel for c, channel in view.channels.items() if c in view.members)
    return not any(command.moves for channel in channels for command in channel.commands)
