"""How a member's offsets get into Kafka, in the stores `dual` and `kafka` (docs/offsets.md).

For every held partition Kafka should have the committed offset, with the partition's present tenure. Whenever Kafka
lacks something, and no commit is under way, it is sent. In `dual` the node was written first, and Kafka follows. In
`kafka` this is the commit itself: a stranger's commit is looked for before it, and the program is answered after it.

What Kafka does not take is committed to the node (in `kafka`, too). That begins a new tenure, so the node counts
whatever lands late in Kafka. Then one partition is tried from time to time, and all once that one is taken.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from zkcoord.core.fast_replace import fast_replace
from zkcoord.core.member import start_offsets
from zkcoord.core.member.compare import at_rest, lost
from zkcoord.core.member.decisions import AskCommits, CommitOffsets, CommitToKafka, Decision, Report, WatchOffsets
from zkcoord.core.member.log import CHECKPOINT_MS, CommitLog, LogAnswer
from zkcoord.core.member.memory import Memory
from zkcoord.core.member.mirror import Acked, Exchange, Mirror, Target
from zkcoord.core.member.view import MemberView
from zkcoord.core.model import TopicPartition
from zkcoord.core.tenure import CommitOutcome, Foreign, KafkaCommit, Stamp, Tenure, foreign
from zkcoord.errors import UnavailableError, UnknownPartitionError, ZkcoordError

Step = tuple[list[Decision], Memory]
Targets = Mapping[TopicPartition, Target]
Offsets = Mapping[TopicPartition, int]


def take_in(view: MemberView, memory: Memory, now_ms: int) -> Step:
    """Take in Kafka's answers, and note calls that were not answered in time."""
    log, decisions = view.log, list[Decision]()
    if log is None:
        return decisions, memory
    for answer in log.answers:
        told: list[Decision] = []
        if answer.call.starting:
            memory = start_offsets.answered(memory, answer)
        elif memory.mirror.exchange is not None:
            told, memory = _answered(view, memory, memory.mirror.exchange, answer, now_ms)
        decisions += told
    exchange = memory.mirror.exchange
    if exchange is not None and now_ms >= exchange.asked_ms + _given_up_ms(log):
        error = UnavailableError(f"Kafka did not answer within {_given_up_ms(log)} ms")
        told, memory = _unanswered(view, memory, exchange, error, now_ms)
        decisions += told
    return decisions, start_offsets.overdue(view, memory, now_ms)


def _given_up_ms(log: CommitLog) -> int:
    """ms after a call from which its answer is not waited for any more. The call may have waited behind a start's
    question, hence twice the patience."""
    return 2 * log.patience_ms


def wake_at_ms(view: MemberView, memory: Memory, now_ms: int) -> int | None:
    """When something is due that waits only for the time."""
    if view.log is None:
        return None
    mirror, times = memory.mirror, list[int]()
    if mirror.exchange is not None:
        times += [mirror.exchange.since_ms + view.log.patience_ms, mirror.exchange.asked_ms + _given_up_ms(view.log)]
    if memory.start is not None and memory.start.asking:
        times.append(memory.start.asked_ms + view.log.patience_ms)
    if mirror.failing:
        times.append(mirror.retry_ms)
    if mirror.due_ms is not None:
        times.append(mirror.due_ms)
    return min((at_ms for at_ms in times if at_ms > now_ms), default=None)


def unsettled(memory: Memory) -> set[TopicPartition]:
    """Held partitions whose committed offset is open: a commit to Kafka is under way, or a tenure must end."""
    mirror, held = memory.mirror, memory.held
    return committing(memory) | {p for p, mzxid in mirror.doubtful.items() if p in held and held[p].mzxid == mzxid}


def awaited(view: MemberView, memory: Memory, now_ms: int) -> set[TopicPartition]:
    """Those of them whose release waits for the outcome, but no longer than the patience. The release then sets the
    node and ends the tenure, so that a late commit does not count."""
    exchange, log = memory.mirror.exchange, view.log
    late = exchange is None or log is None or now_ms >= exchange.since_ms + log.patience_ms
    return set() if late else committing(memory)


def committing(memory: Memory) -> set[TopicPartition]:
    """Held partitions for which a new offset is being committed to Kafka."""
    exchange, held = memory.mirror.exchange, memory.held
    targets = exchange.targets if exchange is not None else {}
    return {
        p for p, goal in targets.items() if p in held and held[p].mzxid == goal.mzxid and held[p].offset != goal.offset
    }


def places(view: MemberView, memory: Memory, offsets: Offsets) -> tuple[Offsets, Offsets]:
    """Return (what to commit to Kafka now, what to commit to nodes). Nothing: wait for the call that is under way."""
    mirror = memory.mirror
    if memory.store.node_counts:
        return {}, offsets
    if untaken := {p: offset for p, offset in offsets.items() if mirror.away or p in mirror.failing}:
        return {}, untaken
    if mirror.exchange is not None:
        return {}, {}
    return (offsets, {}) if free(view, memory) else ({}, offsets)


def commit(view: MemberView, memory: Memory, offsets: Mapping[TopicPartition, int], now_ms: int) -> Step:
    """In the store `kafka`: commit these offsets to Kafka, together with everything else that it lacks."""
    lacking, memory = _lacking(view, memory, now_ms)
    wanted = {p: Target(offset, memory.held[p].mzxid) for p, offset in offsets.items()}
    return _begin(view, memory, {**lacking, **wanted}, now_ms)


def free(view: MemberView, memory: Memory) -> bool:
    """True when no call to Kafka is under way, so that a commit can be sent."""
    return view.log is not None and memory.mirror.exchange is None and not view.log.waits_for(starting=False)


def renew(view: MemberView, memory: Memory, now_ms: int) -> Step:
    """In the store `kafka`: set nodes to the committed offsets, where a tenure must end or a checkpoint is due."""
    mirror = memory.mirror
    if memory.store.node_counts or mirror.exchange is not None or view.log is None:
        return [], memory
    due = mirror.due_ms is not None and now_ms >= mirror.due_ms
    if not (mirror.doubtful or due) or not view.ready or not at_rest(view, memory):
        return [], memory
    held = memory.held
    ended = {p for p, mzxid in mirror.doubtful.items() if p in held and held[p].mzxid == mzxid}
    if due:
        before_ms = _soon_due_ms(view, now_ms)
        ended |= {
            p for p, a in mirror.acked.items() if a.since_ms <= before_ms and p in held and held[p].mzxid == a.mzxid
        }
    ended = {p for p in ended if not view.deleted(p)}  # only a start can create its node
    if memory.commit is not None:  # the offset that is committed to its node next sets the node, too
        ended -= memory.commit.offsets.keys() & mirror.failing & memory.readable
    elif not ended:
        return [], fast_replace(memory, mirror=_swept(view, memory, now_ms))
    if not ended:
        return [], memory
    offsets = {p: held[p].offset for p in sorted(ended)}
    decisions: list[Decision] = [CommitOffsets(held={p: held[p] for p in offsets}, offsets=offsets)]
    return decisions, fast_replace(memory, writing=offsets)


def follow(memory: Memory) -> Step:
    """Watch the nodes of everything held while commits go to Kafka: nothing else shows that somebody set one."""
    mirror, store = memory.mirror, memory.store
    chosen = memory.turns, store.name
    if mirror.followed == chosen or (store.node_counts and not mirror.watched):
        return [], memory
    wanted = frozenset[TopicPartition]() if store.node_counts else frozenset(memory.held)
    memory = fast_replace(memory, mirror=fast_replace(mirror, watched=wanted, followed=chosen))
    changes = {True: wanted - mirror.watched, False: mirror.watched - wanted}
    return [WatchOffsets(partitions=tuple(sorted(p)), watch=watch) for watch, p in changes.items() if p], memory


def mirror(view: MemberView, memory: Memory, now_ms: int) -> Step:
    """Commit to Kafka what it lacks, while no call to it is under way."""
    if not memory.store.tenured or memory.switch is not None or not free(view, memory):
        return [], memory
    lacking, memory = _lacking(view, memory, now_ms)
    return _begin(view, memory, lacking, now_ms) if lacking else ([], memory)


def _checkpoint_ms(view: MemberView) -> int:
    return view.log.checkpoint_ms if view.log is not None else CHECKPOINT_MS


def _soon_due_ms(view: MemberView, now_ms: int) -> int:
    """Offsets first committed before this time go together with a checkpoint that is due."""
    return now_ms - _checkpoint_ms(view) // 2


def _swept(view: MemberView, memory: Memory, now_ms: int) -> Mirror:
    """Return a copy without doubts that are over, and with the time of the next checkpoint."""
    mirror, held = memory.mirror, memory.held
    doubtful = {p: mzxid for p, mzxid in mirror.doubtful.items() if p in held and held[p].mzxid == mzxid}
    times = [a.since_ms + _checkpoint_ms(view) for a in mirror.acked.values()]
    return fast_replace(mirror, doubtful=doubtful, due_ms=min((t for t in times if t > now_ms), default=None))


def _lacking(view: MemberView, memory: Memory, now_ms: int) -> tuple[Targets, Memory]:
    """What Kafka lacks and can be tried now."""
    mirror, held = memory.mirror, memory.held
    due = memory.store.node_counts and mirror.due_ms is not None and now_ms >= mirror.due_ms
    if mirror.level[0] is held and mirror.level[1] is mirror.acked and not due:
        return {}, memory
    before_ms = _soon_due_ms(view, now_ms) if due else -1
    found: dict[TopicPartition, Target] = {}
    acked, failing = mirror.acked, mirror.failing
    for p, mine in held.items():
        known = acked.get(p)
        if known is None or known[:2] != (mine.offset, mine.mzxid) or known.since_ms <= before_ms:
            found[p] = Target(mine.offset, mine.mzxid)
    if not found:
        mirror = fast_replace(_swept(view, memory, now_ms) if due else mirror, level=(held, acked))
        return found, fast_replace(memory, mirror=mirror)
    again = sorted(p for p in found if p in failing)
    if again and now_ms < mirror.retry_ms:
        tried: Collection[TopicPartition] = ()
    else:  # one of them shows whether Kafka takes commits again
        tried = again if not mirror.tries else again[mirror.tries % len(again) :][:1] if again else ()
    left = failing.difference(tried)
    return {p: goal for p, goal in found.items() if p not in left and not mirror.doubts(p, goal.mzxid)}, memory


def _begin(view: MemberView, memory: Memory, targets: Targets, now_ms: int) -> Step:
    """Send these. In `kafka` read the present commits first. But do not read them while Kafka takes no commits: either
    somebody who keeps Kafka from taking them wrote these commits, or they are followed once Kafka takes some."""
    mirror, looks = memory.mirror, not memory.store.node_counts
    unseen = targets.keys() if mirror.away else mirror.failing
    seen = sorted(p for p in targets if p not in unseen or p in mirror.unfollowed) if looks else []
    exchange = Exchange(targets=targets, since_ms=now_ms, asked_ms=now_ms, sent=not seen)
    memory = fast_replace(memory, mirror=fast_replace(mirror, exchange=exchange))
    return [AskCommits(partitions=tuple(seen)) if seen else _commits(view, memory, targets)], memory


def _commits(view: MemberView, memory: Memory, targets: Targets) -> CommitToKafka:
    tree = "" if view.log is None else view.log.tree
    commits: dict[TopicPartition, KafkaCommit] = {}
    for p, goal in sorted(targets.items()):
        mine = memory.held[p]
        stamp = Stamp(
            tenure=Tenure(tree, goal.mzxid),
            incarnation=mine.incarnation,
            generation=mine.generation,
            thread=mine.thread,
        )
        commits[p] = KafkaCommit(offset=goal.offset, stamp=stamp)
    return CommitToKafka(commits=commits)


def _answered(view: MemberView, memory: Memory, exchange: Exchange, answer: LogAnswer, now_ms: int) -> Step:
    if answer.error is not None:
        return _unanswered(view, memory, exchange, answer.error, now_ms)
    if exchange.sent:
        return _committed(view, memory, exchange, answer.value, now_ms)
    return _read(view, memory, exchange, answer.value, now_ms)


def _unanswered(view: MemberView, memory: Memory, exchange: Exchange, error: BaseException, now_ms: int) -> Step:
    """The outcome of what was sent is unknown. A question that failed has changed nothing."""
    if not exchange.sent:
        every = not isinstance(error, UnknownPartitionError)
        return _failed(memory, exchange.targets, now_ms, str(error), every=every)
    known = error if isinstance(error, ZkcoordError) else UnavailableError(f"{type(error).__name__}: {error}")
    return _committed(view, memory, exchange, CommitOutcome(unknown=dict.fromkeys(exchange.targets, known)), now_ms)


def _read(
    view: MemberView, memory: Memory, exchange: Exchange, found: Mapping[TopicPartition, Any], now_ms: int
) -> Step:
    """Judge the commits in Kafka, and commit over the rest."""
    targets = {p: goal for p, goal in exchange.targets.items() if _stands(memory, p, goal)}
    strange = {p: found[p].offset for p in sorted(targets.keys() & found.keys())}
    again = memory.mirror.unfollowed
    verdicts = {
        p: foreign(targets[p].offset, KafkaCommit(offset=o) if again.get(p) == o else found[p])
        for p, o in strange.items()
    }
    if view.neighbours.old_in_kafka:  # a lower offset may be the late commit of an old member
        verdicts = {p: v for p, v in verdicts.items() if not view.neighbours.former.may_commit(p, now_ms)}
    ahead = [p for p, verdict in verdicts.items() if verdict is Foreign.OVERWRITE]
    decisions: list[Decision] = [_told("offset_overwritten", p, strange[p], targets[p].offset) for p in ahead]
    adopted = {p: targets[p].offset for p, verdict in verdicts.items() if verdict is Foreign.ADOPT}
    targets |= {p: Target(strange[p], targets[p].mzxid) for p in adopted}
    going = fast_replace(exchange, targets=targets, asked_ms=now_ms, sent=True, adopted=adopted) if targets else None
    memory = fast_replace(memory, mirror=fast_replace(memory.mirror, exchange=going))
    return [*decisions, *([_commits(view, memory, targets)] if targets else [])], memory


def _told(event: str, partition: TopicPartition, offset: int, own: int) -> Report:
    return Report(event=event, fields={"partitions": [partition], "offset": offset, "own": own, "level": "warning"})


def _stands(memory: Memory, partition: TopicPartition, goal: Target) -> bool:
    """True while this may be committed: in its tenure, and, if it goes beyond the committed offset, read by the
    application or its final offset."""
    mine = memory.held.get(partition)
    if mine is None or mine.mzxid != goal.mzxid:
        return False
    return partition in memory.readable or goal.offset in (mine.offset, memory.finals().get(partition))


def _adopt(view: MemberView, memory: Memory, exchange: Exchange, outcome: CommitOutcome) -> Step:
    """Take over what somebody else committed, like an offset that somebody else set in ZooKeeper. The tenure ends. Do
    not do so while Kafka refuses commits: then the same commit would be found again and again."""
    mirror, strange = memory.mirror, {p: exchange.targets[p] for p in exchange.adopted}
    taken = [p for p in _in_tenure(memory, strange) if p in outcome.done or _new(memory, p, outcome)]
    adopted = {p: strange[p].offset for p in sorted(taken)}
    unfollowed = {p: offset for p, offset in mirror.unfollowed.items() if p not in exchange.targets}
    left = strange.keys() & memory.held.keys() - adopted.keys() - outcome.refused.keys()
    unfollowed |= {p: strange[p].offset for p in left}
    memory = fast_replace(memory, mirror=fast_replace(mirror, unfollowed=unfollowed))
    if not adopted:
        return [], memory
    decisions: list[Decision] = [_told("foreign_offset", p, o, exchange.adopted[p]) for p, o in adopted.items()]
    held = {p: memory.held[p]._replace(offset=offset) for p, offset in adopted.items()}
    sent = memory.commit
    memory = fast_replace(
        memory,
        held={**memory.held, **held},
        overwritten=memory.overwritten | adopted.keys(),
        commit=None if sent is None else fast_replace(sent, spoiled=sent.spoiled | adopted.keys()),
        mirror=_doubting(memory, adopted),
    )
    return [*decisions, *lost(view, memory, adopted.keys())], memory


def _new(memory: Memory, partition: TopicPartition, outcome: CommitOutcome) -> bool:
    """True if a stranger's commit came after an own commit of this tenure, so that nobody has followed it yet. (Any
    other may have been followed already, by an earlier owner whose commit in its place Kafka did not take either.)"""
    known = memory.mirror.acked.get(partition)
    in_tenure = known is not None and known.mzxid == memory.held[partition].mzxid
    return in_tenure and partition not in outcome.refused


def follow_unanswered(view: MemberView, memory: Memory, released: Collection[TopicPartition]) -> Step:
    """Take over strangers' commits of these partitions, though it is open whether Kafka takes the own commits in their
    place: their release waits no longer."""
    exchange = memory.mirror.exchange
    if exchange is None or exchange.adopted.keys().isdisjoint(released):
        return [], memory
    adopted = {p: own for p, own in exchange.adopted.items() if p in released}
    as_done = CommitOutcome(done=frozenset(adopted))
    decisions, memory = _adopt(view, memory, fast_replace(exchange, adopted=adopted), as_done)
    going = fast_replace(exchange, adopted={p: own for p, own in exchange.adopted.items() if p not in adopted})
    return decisions, fast_replace(memory, mirror=fast_replace(memory.mirror, exchange=going))


def _doubting(memory: Memory, partitions: Collection[TopicPartition]) -> Mirror:
    mirror, held = memory.mirror, memory.held
    if memory.store.node_counts:
        return mirror
    return fast_replace(mirror, doubtful={**mirror.doubtful, **{p: held[p].mzxid for p in partitions if p in held}})


def _committed(view: MemberView, memory: Memory, exchange: Exchange, outcome: CommitOutcome, now_ms: int) -> Step:
    """Take in the outcome of a commit. An answer counts for the tenure in which the commit was sent."""
    targets, held, known = exchange.targets, memory.held, memory.mirror.acked
    checkpoint_ms, soon_ms = _checkpoint_ms(view), _soon_due_ms(view, now_ms)
    in_kafka = not memory.store.node_counts
    done = {p: targets[p] for p in targets if p in outcome.done}
    acked: dict[TopicPartition, Acked] = {}
    moved = {}
    for p, goal in done.items():
        mine, last = held.get(p), known.get(p)
        if mine is None or mine.mzxid != goal.mzxid:
            continue
        since_ms = now_ms
        if last is not None and last.mzxid == goal.mzxid and (in_kafka or last.since_ms > soon_ms):
            since_ms = last.since_ms
        acked[p] = Acked(goal.offset, goal.mzxid, since_ms)
        if mine.offset != goal.offset:
            moved[p] = mine._replace(offset=goal.offset)
    before = memory.mirror
    due_ms = min((a.since_ms + checkpoint_ms for a in acked.values()), default=before.due_ms)
    mirror = fast_replace(
        before,
        exchange=None,
        acked={**known, **acked},
        failing=before.failing.difference(done),
        away=before.away and not done,
        tries=0 if done else before.tries,
        due_ms=due_ms if before.due_ms is None or due_ms is None else min(due_ms, before.due_ms),
    )
    memory = fast_replace(memory, held={**held, **moved} if moved else held, mirror=mirror)
    decisions: list[Decision] = []
    if before.failing and not mirror.failing:
        decisions.append(Report(event="kafka_commits_work", fields={"level": "notice"}))
    told, memory = _adopt(view, memory, exchange, outcome)
    decisions += told
    failed = {p: goal for p, goal in targets.items() if p not in done}
    if failed:
        every = not done and not all(isinstance(outcome.refused.get(p), UnknownPartitionError) for p in failed)
        doubt = {p: goal for p, goal in failed.items() if p not in outcome.refused}
        memory = fast_replace(memory, mirror=_doubting(memory, _in_tenure(memory, doubt)))
        told, memory = _failed(memory, failed, now_ms, str(outcome.error()), every=every)
        decisions += told
    return decisions, memory


def _in_tenure(memory: Memory, targets: Targets) -> list[TopicPartition]:
    return [p for p, goal in targets.items() if p in memory.held and memory.held[p].mzxid == goal.mzxid]


def _failed(memory: Memory, targets: Targets, now_ms: int, why: str, *, every: bool) -> Step:
    """Kafka did not take these. `every`: the reason is not these partitions, so nothing else is tried now either."""
    before = memory.mirror
    failed = [p for p in (memory.held if every else targets) if p in memory.held]
    mirror = fast_replace(before.failed(failed, now_ms), exchange=None, away=before.away or every)
    memory = fast_replace(memory, mirror=mirror)
    if before.failing or not mirror.failing:
        return [], memory
    fields = {"partitions": sorted(targets), "why": why, "level": "warning"}
    return [Report(event="kafka_commits_failed", fields=fields)], memory
