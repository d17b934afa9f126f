"""Announcements: the ranges of a batch are in the member's status before any of the batch is processed.

So the next owner, after a death or after a stop in the middle of a batch, is given exactly these ranges. The write sets
the status in one multi with the fence. If it did not take effect, it is repeated.
"""

from __future__ import annotations

from zkcoord.core.fast_replace import fast_replace
from zkcoord.core.member import ownership
from zkcoord.core.member.compare import at_rest, lose
from zkcoord.core.member.decisions import Announce, AnswerRequest, Decision, Report
from zkcoord.core.member.memory import Announcement, Memory
from zkcoord.core.member.requests import AnnounceRequest, Ranges
from zkcoord.core.member.status import ANNOUNCED_BYTES_MAX, Batch, MemberStatus, Sizes, standing
from zkcoord.core.member.view import MemberView
from zkcoord.core.model import TopicPartition
from zkcoord.core.state import Announced
from zkcoord.errors import FencedError, UnavailableError, UsageError, ZkcoordError


def announced(view: MemberView, memory: Memory) -> tuple[list[Decision], Memory]:
    """Find out what became of the announcement that was sent."""
    sent = memory.announcement
    if sent is None or not view.settled or view.writing:
        return [], memory
    if view.status == sent.status:
        memory = fast_replace(memory, batch=sent.status.batch, announcement=None)
        asked = [r.ranges for n, r in view.requests if n == sent.request and isinstance(r, AnnounceRequest)]
        if any(_new(memory, ranges) for ranges in asked):
            return [], memory
        named = sorted(p for ranges in asked for p in ranges)
        told = Report(event="announced", fields={"partitions": named, "level": "debug"})
        return [told, AnswerRequest(number=sent.request)], memory
    return [], fast_replace(memory, announcement=None) if view.channel_read else memory


def announcements(view: MemberView, memory: Memory, sizes: Sizes) -> tuple[list[Decision], Memory]:
    """Send the first requested announcement."""
    if not view.requests or not view.may_write or not at_rest(view, memory):
        return [], memory
    for number, request in view.requests:
        if isinstance(request, AnnounceRequest):
            return _announce(view, memory, number, request, sizes)
    return [], memory


def _announce(
    view: MemberView, memory: Memory, number: int, request: AnnounceRequest, sizes: Sizes
) -> tuple[list[Decision], Memory]:
    wrong = _wrong(view, memory, request)
    if wrong is None:
        new = _with(memory, request.ranges)
        status = _status(view, memory, new)
        size = sizes.status_bytes(status)
        if size <= ANNOUNCED_BYTES_MAX:
            return _send(view, memory, number, request.ranges, status, sizes)
        # all are announced already; other members may have handed them on
        if all(new.get(p) == memory.batch.get(p) for p in request.ranges):
            return [AnswerRequest(number=number)], memory
        wrong, memory = _no_room(view, memory, request.ranges, size, sizes)
    decisions = lose(view, memory, _strayed(view, memory, request))
    return [*decisions, AnswerRequest(number=number, error=wrong[0], why=wrong[1])], memory


def _send(
    view: MemberView, memory: Memory, number: int, ranges: Ranges, status: MemberStatus, sizes: Sizes
) -> tuple[list[Decision], Memory]:
    """Announce these ranges with this status, or as many as one multi has room for: what is left is announced when that
    is done."""
    new = _new(memory, ranges)
    offsets = ownership.announced_under(view, memory, new)
    if offsets:
        part = new[: sizes.room(new)]
        offsets = {p: offsets[p] for p in part}
        status = _status(view, memory, _with(memory, {p: ranges[p] for p in part}))
    return [Announce(status=status, offsets=offsets)], fast_replace(memory, announcement=Announcement(number, status))


def _new(memory: Memory, ranges: Ranges) -> list[TopicPartition]:
    """The partitions of those ranges that are not announced yet."""
    known = memory.batch
    return sorted(p for p, its_range in ranges.items() if p not in known or known[p][:2] != tuple(its_range))


def _status(view: MemberView, memory: Memory, batch: Batch) -> MemberStatus:
    return fast_replace(memory, batch=batch).status(view, memory.held)


def _with(memory: Memory, ranges: Ranges) -> Batch:
    """All announced ranges, with these ranges of held partitions."""
    new = {
        p: Announced(start, end, mine.generation, mine.incarnation)
        for p, (start, end) in ranges.items()
        if (mine := memory.held.get(p)) is not None
    }
    return standing(memory.held, {**memory.batch, **new})


def _no_room(
    view: MemberView, memory: Memory, ranges: Ranges, size: int, sizes: Sizes
) -> tuple[tuple[type[ZkcoordError], str], Memory]:
    """Why there is no room for these ranges: they are too many, or others in the status must leave it first."""
    new = _with(memory, ranges)
    alone = sizes.status_bytes(_status(view, memory, {p: new[p] for p in ranges}))
    allowed = f"{ANNOUNCED_BYTES_MAX} are allowed"
    if alone > ANNOUNCED_BYTES_MAX:
        why = f"the status would have {alone} bytes with this announcement, {allowed}: announce fewer partitions"
        return (UsageError, why), memory
    left = memory.left_over()
    held = len(standing(memory.held, memory.batch).keys() - left - ranges.keys())
    why = (
        f"the status would have {size} bytes with this announcement, {allowed}, as other announced ranges"
        f" stand in it: {held} of partitions held here, which this program must process first, and {len(left)} that it"
        " left unfinished, which stay until somebody else is given their partitions"
    )
    return (UnavailableError, why), fast_replace(memory, short_of_room=True)  # ranges that are over leave the status


def _strayed(view: MemberView, memory: Memory, request: AnnounceRequest) -> list[TopicPartition]:
    """The partitions for which the program assumes another committed offset, for example after a commit that it gave
    up. Another start tells it the committed one."""
    running, held = view.application.running, memory.held
    return [
        p
        for p, (start, _) in request.ranges.items()
        if p in running and request.starts.get(p, 0) == running[p] and p in held and held[p].offset != start
    ]


def _wrong(view: MemberView, memory: Memory, request: AnnounceRequest) -> tuple[type[ZkcoordError], str] | None:
    """Why these ranges cannot be announced now: not held, started again since, or not beginning at the committed
    offset."""
    running = view.application.running
    for partition, (start, _) in sorted(request.ranges.items()):
        mine = memory.held.get(partition)
        if mine is None or partition not in running:
            return FencedError, f"not held by this consumer any more: {partition}"
        if request.starts.get(partition, 0) != running[partition]:
            return FencedError, f"decided before it was started again: {partition}"
        if start != mine.offset:
            return FencedError, f"{partition} is announced from {start}, its committed offset is {mine.offset}"
    return None
