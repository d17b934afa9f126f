"""How a member obeys starts: it looks offsets up, tells the application, and acknowledges. Partitions that cannot start
are refused in the acknowledgement.

Starts that wait one behind the other are obeyed together: no two commands of a channel name the same partition. A
partition is the application's exactly from the acknowledgement of its start to the multi that releases it (rule 3).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from zkcoord.core.command import Command, Option
from zkcoord.core.fast_replace import fast_replace
from zkcoord.core.member import ownership, replaying, start_offsets
from zkcoord.core.member.application import Answer, Application
from zkcoord.core.member.compare import at_rest, lose
from zkcoord.core.member.decisions import (
    AcknowledgeStarts,
    AskReset,
    Decision,
    LetGo,
    LookUp,
    ReadAgain,
    ReadStatuses,
    Rejoin,
    Report,
    Versions,
)
from zkcoord.core.member.memory import Grant, Memory, Start
from zkcoord.core.member.start_offsets import known, next_offsets
from zkcoord.core.member.status import Held, Sizes, handed_on
from zkcoord.core.member.view import ANNOUNCED, NOBODY, NOWHERE, STATUSES, MemberView, Position
from zkcoord.core.model import TopicPartition
from zkcoord.core.quarantine import BROKER, UNREADABLE_OFFSET
from zkcoord.core.view import Refusal
from zkcoord.errors import UnavailableError, UnknownPartitionError, ZkcoordError

UNKNOWN_MS = 60_000
"""ms for which a partition that Kafka does not know may be a new one, so that refusing it counts against nobody. After
that somebody must act. (By then the coordinator has tried it five times. A topic that is gone for good is dropped after
the same time.)"""

UNKNOWN_AGAIN_MS = 120_000
"""ms after which an earlier refusal of a partition that Kafka does not know is unrelated. Such a partition is tried
again at least every half a minute (`core.ack_timeouts`)."""

PUT_OFF_MS = 1_000
"""ms after the beginning of a start by the plan of a mixed group. Partitions that could not be started are claimed
again then."""

STARTS_MAX = 100
"""Number of starts that are acknowledged in one multi. So deleting them takes little of the multi's size."""


def starts_behind(view: MemberView, first: str, command: Command, sizes: Sizes) -> dict[str, Command]:
    """The starts right behind the first one (sequence -> start), as far as one acknowledgement has room for them."""
    found: dict[str, Command] = {}
    for sequence in sorted(sequence for sequence in view.commands if sequence > first):
        received = view.commands[sequence]
        if received is not None and received.asks(Option.PING):
            continue  # answered at once, independently of others
        if received is None or received.command is None or not received.asks(Option.START_FETCHER):
            break
        if len(found) + 1 == STARTS_MAX or received.command.offsets != command.offsets:
            break
        found[sequence] = received.command
    if not found:
        return found
    named = [p for start in (command, *found.values()) for p in start.ownership or ()]
    room = sizes.room(named) - len(command.ownership or ())
    for sequence, start in list(found.items()):
        room -= len(start.ownership or ())
        if room < 0:
            del found[sequence]
    return found


def begin(view: MemberView, memory: Memory, starts: Mapping[str, Command]) -> tuple[list[Decision], Memory]:
    """Take up starts (sequence -> start, in their order), and look their partitions up. They were free when the starts
    were written: a partition of them that is held belongs to another grant."""
    grants = {
        partition: Grant(thread, sequence, command.generation, command.incarnations.get(partition.topic, 0))
        for sequence, command in starts.items()
        for partition, thread in (command.ownership or {}).items()
    }
    start = Start(commands=starts, grants=dict(sorted(grants.items())))
    batch = memory.batch
    for command in starts.values():
        batch = handed_on(batch, command)
    refused = memory.refused
    if refused:
        refused = {p: refusal for p, refusal in refused.items() if p not in grants}
    memory = fast_replace(memory, start=start, batch=batch, refused=refused)
    mine = grants.keys() & memory.held.keys()
    decisions = lose(view, memory, [p for p in mine if p in view.application.running])
    if mine:
        memory = memory.without(mine)
    if memory.last_own:  # a start may hand other ranges on
        memory = fast_replace(memory, last_own={p: v for p, v in memory.last_own.items() if p not in grants})
    owners = ownership.known_owners(view, start)
    decisions.append(LookUp(name=start.name, partitions=tuple(start.grants), known=owners, parents=True))
    left = memory.left_over() - grants.keys()
    if left:
        decisions.append(LookUp(name=ANNOUNCED, partitions=tuple(sorted(left))))
        memory = fast_replace(memory, cleaning=True)
    return decisions, memory


def cleaned(view: MemberView, memory: Memory) -> tuple[list[Decision], Memory]:
    """Forget leftover ranges that a commit has passed, or that somebody else has. The next status shows it."""
    if ANNOUNCED in view.unread:
        return [], memory
    named = memory.start.grants.keys() if memory.start is not None else set[TopicPartition]()
    left = sorted(p for p in memory.left_over() - named if p in view.positions)
    over = {p for p in left if ownership.leftover_over(view, memory, p)}
    batch = {p: r for p, r in memory.batch.items() if p not in over}
    seen = {p: version for p in left if (version := view.positions[p].version) is not None}
    last_own = {p: version for p, version in {**seen, **memory.last_own}.items() if p in batch}
    memory = fast_replace(memory, batch=batch, last_own=last_own, cleaning=False)
    return [LetGo(partitions=tuple(left))], memory


def answered(view: MemberView, memory: Memory, answer: Answer, now_ms: int) -> Memory:
    """Take in the application's answer: offsets for a reset; nothing or an error for a start."""
    start, call = memory.start, answer.call
    if start is None:
        return memory
    if answer.error is not None:
        return _refused(memory, start, answer, now_ms)
    if call.name != "reset":
        return fast_replace(memory, overwritten=memory.overwritten.difference(call.partitions))
    offsets = {p: answer.value.get(p, -1) for p in call.partitions}
    refused = dict.fromkeys((p for p, offset in offsets.items() if offset < 0), "reset: gave no offset")
    first = {p: offset for p, offset in offsets.items() if offset >= 0}
    start = fast_replace(start, first={**start.first, **first}, refused={**start.refused, **refused})
    return fast_replace(memory, start=start)


def _refused(memory: Memory, start: Start, answer: Answer, now_ms: int) -> Memory:
    """These cannot be started. If Kafka does not know some of them, only those are refused, and the rest is asked for
    again."""
    partitions, error = answer.call.partitions, answer.error
    kind = "" if isinstance(error, ZkcoordError) else f"{type(error).__name__}: "
    reason = f"{answer.call.name}: {kind}{error}"
    away = isinstance(error, UnavailableError)  # Kafka is away: that counts against nobody, and is tried again here
    unknown = set[TopicPartition]()
    tried = dict(memory.unknown)
    if isinstance(error, UnknownPartitionError):
        unknown = {p for p in partitions if p in error.partitions} or set(partitions)
    refused = dict(start.refused)
    for partition in unknown or partitions:
        new = False
        if partition in unknown:
            first_ms, last_ms = tried.get(partition, (now_ms, now_ms))
            first_ms = now_ms if now_ms - last_ms > UNKNOWN_AGAIN_MS else first_ms
            tried[partition] = first_ms, now_ms
            new = now_ms - first_ms < UNKNOWN_MS
        refused[partition] = f"{BROKER}: {reason}" if away or new else reason
    return fast_replace(memory, start=fast_replace(start, refused=refused), unknown=tried)


def advance(view: MemberView, memory: Memory, now_ms: int) -> tuple[list[Decision], Memory]:
    """Do what can be done now for the starts that are being obeyed."""
    start = memory.start
    if start is None or start.name in view.unread or memory.cleaning or start.asking:
        return [], memory
    application = view.application
    if application.waits_for("reset") or application.waits_for("start"):
        return [], memory
    stands = start.planned or not start.commands.keys().isdisjoint(view.commands)
    if start.acknowledged and stands and not (view.channel_read and at_rest(view, memory)):
        return [], memory  # the outcome of the acknowledgement is not known yet
    granted = _granted(view, start)
    standing = {s: received.version for s in start.commands if (received := view.commands.get(s)) is not None}
    if _done(view, memory, start, granted):
        return _finish(view, memory, start, granted)
    if start.acknowledged:  # the acknowledgement was refused, or its outcome was unknown and it did not happen
        return _look_again(memory, start)
    claims, start = ownership.claim(view, memory, start)
    if start is not memory.start:
        memory = fast_replace(memory, start=start)
    if claims is not None:
        return claims, memory
    if (start.planned or memory.shared) and _not_refused(start, granted):  # others may have had these by the plan
        if not start.looked:
            return [ReadStatuses()], fast_replace(memory, start=fast_replace(start, looked=True))
        if STATUSES in view.unread:
            return [], memory
        memory, start = replaying.behind_earlier(view, memory, start)
    if memory.store.tenured and (new := [p for p in granted if p not in start.refused and p not in start.commits]):
        question, memory = start_offsets.ask(memory, start, new, now_ms)
        return [question], memory
    wrong = {p: f"{UNREADABLE_OFFSET}: {at.problem}" for p, at in granted.items() if at.problem}
    if wrong:
        start = fast_replace(start, refused={**start.refused, **wrong})
        memory = fast_replace(memory, start=start)
    over = [p for p, at in granted.items() if p in memory.batch and not known(view, memory, start, p, at)]
    if over:  # its topic or its offset was dropped, which ends the announced range
        memory = fast_replace(memory, batch={p: r for p, r in memory.batch.items() if p not in over})
    able = next_offsets(view, memory, start, _not_refused(start, granted))
    unknown = tuple(p for p, offset in able.items() if offset < 0)
    if unknown:
        return [AskReset(partitions=unknown)], memory
    if start.looked:
        memory = replaying.taking_over(view, memory, start, able)
    running, begin_at = application.running, replaying.beginnings(memory, able)
    starting = {p: able[p] for p, at in begin_at.items() if p not in running or start.told.get(p, at) != at}
    if starting:
        if not view.leased or application.full:
            return [], memory  # the application would be told at once that it is lost; the next lease has it started
        told = {**start.told, **{p: begin_at[p] for p in starting}}
        memory = fast_replace(memory, start=fast_replace(start, told=told))
        return [replaying.ask_start(memory, starting, {p: start.grants[p].incarnation for p in starting})], memory
    if not view.may_write or not at_rest(view, memory):
        return [], memory
    if start.planned and not granted:  # others have claimed everything: there is nothing to acknowledge
        return _finish(view, memory, start, granted)
    return _acknowledge(view, memory, start, granted, standing)


def _look_again(memory: Memory, start: Start) -> tuple[list[Decision], Memory]:
    """Read everything about these partitions again. If others may have claimed them, one may have announced a range of
    them, and committed to Kafka before that."""
    commits = {} if start.looked else start.commits
    begun_again = fast_replace(start, acknowledged=False, looked=False, commits=commits)
    return [ReadAgain(partitions=tuple(start.grants), parents=True)], fast_replace(memory, start=begun_again)


def _done(view: MemberView, memory: Memory, start: Start, granted: Mapping[TopicPartition, Position]) -> bool:
    """True once the start is acknowledged. Its commands are gone then. For a planned start the status that was sent
    with it must be in the channel, and refused partitions must be given back."""
    if not start.planned:
        return not start.commands.keys() & view.commands.keys()
    if not start.acknowledged or not view.channel_read or not at_rest(view, memory):
        return False
    return view.status == start.said and start.refused.keys().isdisjoint(granted)


def _granted(view: MemberView, start: Start) -> dict[TopicPartition, Position]:
    """The positions of the partitions whose owner is the thread that their start names. The others were not granted, or
    are not granted any more."""
    owners, positions = view.owners, view.positions
    return {
        p: positions.get(p, NOWHERE)
        for p, grant in start.grants.items()
        if owners.get(p, NOBODY).thread == grant.thread
    }


def _acknowledge(
    view: MemberView,
    memory: Memory,
    start: Start,
    granted: Mapping[TopicPartition, Position],
    standing: Mapping[str, int],
) -> tuple[list[Decision], Memory]:
    refusals = (
        {}
        if start.planned
        else {
            p: Refusal(generation=start.grants[p].generation, reason=why, sequence=start.grants[p].sequence)
            for p, why in start.refused.items()
        }
    )
    start = fast_replace(start, acknowledged=True)
    given_back = {p: granted[p].version or 0 for p in start.refused if p in granted and p in memory.batch}
    last_own = {**memory.last_own, **given_back} if given_back else memory.last_own
    memory = fast_replace(memory, refused={**memory.refused, **refusals}, last_own=last_own, start=start)
    able = _not_refused(start, granted)
    holds = _holds(view, memory, start, able)
    if not start.planned:
        memory = fast_replace(memory, times=memory.times.acknowledged(view, _by_start(start, holds)))
    status, memory = memory.saying(view, {**memory.held, **holds})
    if start.planned:
        memory = fast_replace(memory, start=fast_replace(start, said=status))
    acknowledged = AcknowledgeStarts(
        commands=standing,
        first={
            p: (holds[p].offset, Versions(view.owners[p].version, at.version))
            for p, at in able.items()
            if ownership.sets_offset(view, memory, at)
        },
        refused={p: Versions(view.owners[p].version, granted[p].version) for p in start.refused if p in granted},
        status=status,
        record_version=view.neighbours.record_version if start.planned else None,
        statuses=ownership.may_announce(view, able) if start.looked else {},
    )
    return [acknowledged], memory


def _by_start(start: Start, holds: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    found: dict[str, list[TopicPartition]] = {}
    for partition in holds:
        found.setdefault(start.grants[partition].sequence, []).append(partition)
    return found


def _not_refused(start: Start, granted: Mapping[TopicPartition, Position]) -> Mapping[TopicPartition, Position]:
    return {p: at for p, at in granted.items() if p not in start.refused} if start.refused else granted


def _holds(
    view: MemberView, memory: Memory, start: Start, able: Mapping[TopicPartition, Position]
) -> dict[TopicPartition, Held]:
    """What is held once the acknowledgement has happened."""
    holds, grants, owners = {}, start.grants, view.owners
    for partition, offset in next_offsets(view, memory, start, able).items():
        (thread, _, generation, incarnation), (_, version, _, mzxid) = grants[partition], able[partition]
        owner = owners[partition].version  # without a version of its offset it is not held
        holds[partition] = Held(thread, owner, offset, version or 0, generation, incarnation, mzxid)
    return holds


def _finish(
    view: MemberView, memory: Memory, start: Start, granted: Mapping[TopicPartition, Position]
) -> tuple[list[Decision], Memory]:
    """The starts are acknowledged. A partition that has no offset now cannot be read: only a start can give it one, and
    nobody sends another start to its owner."""
    mine = _not_refused(start, granted)
    without = [str(p) for p, at in mine.items() if at.offset is None]
    if without:
        why = f"somebody deleted the offsets of {', '.join(without[:5])}, or nobody can parse them"
        return [Rejoin(why=why)], memory
    holds = _holds(view, memory, start, mine)
    running = view.application.running
    unknown = {p: tried for p, tried in memory.unknown.items() if p not in holds} if memory.unknown else memory.unknown
    memory = memory.holding(holds)
    times = memory.times.holding(start.commands, memory.held)
    memory = fast_replace(memory, start=None, unknown=unknown, times=times)
    if start.planned:
        again_ms = start.begun_ms + PUT_OFF_MS
        put_off = {p: at_ms for p, at_ms in memory.put_off.items() if at_ms > start.begun_ms and p not in holds}
        put_off |= dict.fromkeys(start.refused, again_ms)
        memory = fast_replace(memory, put_off=put_off)
    # somebody else set the offset right after the acknowledgement: the partition is started again there
    told = start.told
    strayed = [p for p, held in holds.items() if p in told and told[p].offset != held.offset and p in running]
    # told to start, and taken away before the acknowledgement: its topic was dropped
    gone = [p for p in start.grants if p not in holds and p in running]
    decisions = lose(view, memory, [*strayed, *gone])
    decisions.append(LetGo(partitions=tuple(p for p in start.grants if p not in holds), parents=True))
    return [*decisions, *_started(holds), *_start_refused(start)], memory


def _started(holds: Mapping[TopicPartition, Held]) -> list[Report]:
    by_generation: dict[int, dict[TopicPartition, int]] = {}
    for partition, held in holds.items():
        by_generation.setdefault(held.generation, {})[partition] = held.offset
    return [fetch_started(offsets, generation) for generation, offsets in by_generation.items()]


def fetch_started(offsets: Mapping[TopicPartition, int], generation: int) -> Report:
    """Report the partitions that may be read from now on, while the lease holds."""
    fields = {"partitions": sorted(offsets), "offsets": dict(offsets), "generation": generation}
    return Report(event="fetch_started", fields=fields)


def _start_refused(start: Start) -> list[Report]:
    by_reason: dict[str, list[TopicPartition]] = {}  # one reason is often that of them all
    for partition in start.grants:
        if partition in start.refused:
            by_reason.setdefault(start.refused[partition], []).append(partition)
    return [
        Report(event="start_refused", fields={"partitions": partitions, "why": why, "level": "warning"})
        for why, partitions in by_reason.items()
    ]


def started(application: Application, memory: Memory) -> set[TopicPartition]:
    """All partitions that the application was told to start, and may be reading or be about to read."""
    named = set(application.running).union(application.resuming)
    if memory.start is not None and (application.waits_for("start") or application.waits_for("reset")):
        named |= memory.start.grants.keys()
    if memory.stop is not None:
        named -= memory.stop.left
    return named
