"""Membership for any Python program: join a group, obey the coordinator, commit fenced offsets, leave cleanly.

What is read, and how, is the program's own affair: it is told what to start, what to stop, and what it has lost.
"""

from __future__ import annotations

import socket
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import replace
from functools import partial
from typing import Any

from zkcoord import settings
from zkcoord.assignors import check_offers
from zkcoord.core.given import (
    given_config,
    given_function,
    given_number,
    given_offsets,
    given_partition,
    given_partitions,
    given_ranges,
)
from zkcoord.core.member.application import FirstRecords
from zkcoord.core.member.requests import AnnounceRequest, CommitRequest
from zkcoord.core.model import Starting, TopicPartition
from zkcoord.core.record import STORES
from zkcoord.core.replay import REPLAY
from zkcoord.core.view import OFFSET_STORE, PING
from zkcoord.errors import FencedError, LoopEndedError, UnavailableError, UsageError, ZkcoordError
from zkcoord.logs import emit_fields
from zkcoord.member.callbacks import ApplicationCallbacks, Positions, Ranges, answered_offsets, check_size
from zkcoord.member.role import MemberSettings, MembershipRole
from zkcoord.metrics.start import consumer_metrics
from zkcoord.offsets.group_commits import GroupCommits, kafka_commits
from zkcoord.shell.worker import Worker
from zkcoord.shell.zk.store import KazooSessions, zookeeper_sessions
from zkcoord.subscription import check_name, registration_of
from zkcoord.tree.decoders import wildcard_of
from zkcoord.tree.registration import Registration, encode_registration

ANSWERS_WITHIN = 3
"""Kafka's answer about offsets is waited for a third of the rebalance timeout: what waits for it must end in time."""


class Consumer:
    """A member of a group (docs/consumers.md). Membership only: it fetches nothing.

    Callbacks run in order on one worker thread, never on the one that renews the lease and drains the channel:

    `on_start(positions)`
        before the first fetch: partition -> next offset; `positions.number` is the number of this start, which `commit`
        takes. Raising means "cannot start": it goes to another consumer; UnavailableError: it is tried again here.
    `on_stop(partitions) -> Mapping[partition, offset]`
        after it nothing of them is read; returns the final offsets (those left out keep what was committed). It may
        take as long as `rebalance_timeout_ms` allows; a slow one delays its own member only. What it need not wait for
        it may give up at once, with `stopped`.
    `on_lost(partitions)`
        the lease ended or the registration is gone; nothing of them can be committed any more. `on_start` is called
        again if they come back.
    `on_replay(ranges)`
        right before the `on_start` that names these partitions: partition -> (start, end), the range that was announced
        for it and that no commit has passed, `start` being the next offset. To be processed exactly so, before anything
        else of the partition. Raising is as raising in `on_start`. Without it no such ranges come.
    `reset(partitions) -> Mapping[partition, offset]`
        where partitions without an offset start; without it such a start is refused. A question that changes nothing:
        it runs beside the callbacks, on a thread of its own, so that a loss is told while Kafka does not answer. An
        answer that comes after the loss of the registration is ignored.

    Instead of `topics`, `include` or `exclude` is a Java regex, for all topics whose whole names match, or do not,
    without Kafka's internal ones. As in the old consumers `,` means or, and spaces and outer quotes are dropped.

    `hold_ms` makes a static member: its share waits so long for its `instance` to come back after it left or died.
    `replaces` is the `consumer_id` of this program's other Consumer, with another subscription: this one is given what
    they have in common, that one nothing any more; stop that one as soon as this one is a member.

    `assignors` is what it offers, most wanted first, a user's own by its name; `rack` where it runs; `capacity` the
    most that it takes, as the sum of the partitions' weights (1 each unless the group's record weighs them).

    `bootstrap_servers` (and `kafka_config`, librdkafka's settings) let it keep offsets in Kafka, too, as its group does
    (docs/offsets.md); what stands there is committed again after `offset_checkpoint_ms`. Without them it can be a
    member only of groups whose offsets stand in ZooKeeper alone. Kafka is asked nothing while they do.

    `cluster_id()` returns the id of the Kafka cluster that is read, None before its brokers have told it; it asks
    nobody. If it is not the cluster of the tree's topics, this consumer ends with a UsageError, and commits nothing.

    `metrics` is HOST:PORT, where metrics and health are served (docs/monitoring.md).

    A partition may be read only while `allowed(partition)` is true.
    """

    _fatal: ZkcoordError | None = None
    _not_ready = ""  # why `ready` of join_when could not be asked

    def __init__(
        self,
        zookeeper: str,
        group: str,
        topics: Sequence[str] | Mapping[str, int] = (),
        *,
        include: str | None = None,
        exclude: str | None = None,
        threads: int = 1,
        instance: str | None = None,
        hold_ms: int = 0,
        replaces: str | None = None,
        on_start: Callable[[Starting], None],
        on_stop: Callable[[tuple[TopicPartition, ...]], Positions],
        on_lost: Callable[[tuple[TopicPartition, ...]], None],
        on_replay: Callable[[Ranges], None] | None = None,
        reset: Callable[[tuple[TopicPartition, ...]], Positions] | None = None,
        session_timeout_ms: int = settings.SESSION_TIMEOUT_MS,
        rebalance_timeout_ms: int = settings.REBALANCE_TIMEOUT_MS,
        assignors: Sequence[str] = settings.ASSIGNORS,
        rack: str | None = None,
        capacity: int | None = None,
        bootstrap_servers: str | None = None,
        kafka_config: Mapping[str, str] | None = None,
        cluster_id: Callable[[], str | None] | None = None,
        offset_checkpoint_ms: int = settings.OFFSET_CHECKPOINT_MS,
        zookeeper_config: Any = None,
        metrics: str | None = None,
    ) -> None:
        """`zookeeper`: `host:port[,host:port…][/chroot]`; `topics`: names, or name -> threads; times in ms.

        Raises UsageError for what can never work: an illegal name, no topics, a broken regex, no assignor.
        """
        check_name("group", group)
        check_offers(assignors)
        options = settings.MemberOptions(
            include=include,
            exclude=exclude,
            threads=threads,
            instance=instance,
            hold_ms=hold_ms,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            assignors=assignors,
            rack=rack,
            capacity=capacity,
            offset_checkpoint_ms=offset_checkpoint_ms,
            metrics=metrics,
        )
        self._log = _commits(group, bootstrap_servers, kafka_config, rebalance_timeout_ms, cluster_id)
        document = _document(registration_of(topics, options, replaces), on_replay, self._log)
        _registration(document, session_timeout_ms)  # refuses now what would be refused at joining
        self._rebalance_timeout_ms, self._started, self._stopped = rebalance_timeout_ms, False, False
        asked: dict[str, Any] = {"session_timeout_ms": session_timeout_ms, "config": zookeeper_config}
        self._measured = consumer_metrics(metrics, group)
        sessions = zookeeper_sessions(zookeeper, fatal=self._fail, prompt=True, **asked)
        self._driver = self._measured.driver(sessions, "zkcoord-consumer", emit_fields, tells=True)
        self._callbacks = ApplicationCallbacks(on_start, on_stop, on_lost, on_replay, reset)
        told = _settings(group, document, offset_checkpoint_ms)
        self._assemble(replace(told, cluster_id=cluster_id, bootstrap_servers=bootstrap_servers or ""), sessions)

    def _assemble(self, told: MemberSettings, sessions: KazooSessions) -> None:
        """Make the worker and the role, and put the role into the loop."""
        sessions.told = self._driver.told
        served = self._callbacks.functions(), self._callbacks.questions()
        log = self._log.functions() if self._log is not None else {}
        self._worker = Worker(*served, self._driver.answered, partial(self._driver.ask, "exit"), log)
        loop, events = self._driver.loop, self._driver.events
        self._role = MembershipRole(loop, told, self._worker, events, self._worker if log else None)
        loop.run_role(self._role, events)
        self._measured.follow(self._role)

    def start(self) -> None:
        """Begin to join; returns at once. The first `on_start` comes when the coordinator has decided.

        Raises UsageError after `stop`, also when the consumer had not been started then.
        """
        if self._stopped:
            raise UsageError("this consumer was stopped, and never joins again: make a new Consumer")
        if not self._started:
            self._measured.begin()
            self._started = True
            self._worker.start()
            self._driver.start()

    def stop(self) -> None:
        """Leave cleanly: `on_stop` for everything held, offsets and releases, session ended. Idempotent.

        Waits at most the rebalance timeout for `on_stop`, then at most 11 s for its threads; not to be called from a
        callback. While `on_stop` still runs nobody else is given its partitions, for as long as the lease holds.
        A SystemExit (or its like) that a callback raised is raised here, unless a call has told it.
        """
        self._stopped = True
        if not self._started:
            self._driver.ended.set()  # nobody else answers what is asked
            return
        deadline = time.monotonic() + self._rebalance_timeout_ms / 1000
        future = self._driver.ask("stop")
        try:
            future.result(self._rebalance_timeout_ms / 1000)
        except (FutureTimeoutError, LoopEndedError):
            self._driver.ask("abandon", UnavailableError("left without an answer from ZooKeeper"))
        self._driver.join()
        self._worker.stop(max(1.0, deadline - time.monotonic()))
        if self._log is not None:
            self._log.close()
        self._measured.end()
        self._driver.raise_exit()

    def commit(self, offsets: Positions, starts: Mapping[TopicPartition, int] | None = None) -> None:
        """Commit next offsets of held partitions; returns when ZooKeeper has them (in the store `kafka`: Kafka).

        `starts`: for each partition the number of the start (`positions.number` in `on_start`) that had named it last
        when its offset was decided; None: the last ones until now. A partition that was lost and started again since
        would go on from an old position.

        Raises UsageError for what are no offsets of partitions. Raises FencedError when any of them is not held, was
        started again since, or its offset was set by somebody else meanwhile: nothing of this call is then written,
        unless it became several transactions (over 1,000 partitions) or went to Kafka: what has moved is lost, and
        started again there; and when this consumer was stopped. Raises UnavailableError when there is no answer within
        the rebalance timeout, and `error` when this consumer has ended by itself.
        """
        wanted = given_offsets(offsets)
        numbers = self._numbers(wanted) if starts is None else given_offsets(starts)
        self._ask_write("commit", CommitRequest(wanted, numbers))

    def announce(self, ranges: Ranges) -> None:
        """Say in ZooKeeper what is about to be processed: partition -> (start, end), from its committed offset on.

        Returns when it stands there. Whoever is given one of these partitions before a commit has passed the range is
        told to process exactly this range first (`on_replay`), this consumer too. Ranges announced earlier stay until a
        commit has passed them, or their partitions are announced anew; a commit ends its ranges without another write.

        Raises FencedError when a partition is not held, or was started again, or its committed offset is another one
        (then it is lost, and started again there); UsageError for a range that is none, and for more than fit into
        256 KiB: nothing was announced then. Raises UnavailableError as `commit` does, and while ranges that were handed
        to this consumer, or broken off by a stop, leave no room: process those that are held first.
        """
        wanted = given_ranges(ranges)
        if not wanted:
            return
        check_size(wanted)
        self._ask_write("announce", AnnounceRequest(wanted, self._numbers(wanted)))

    def stopped(self, partitions: Collection[TopicPartition], offsets: Positions) -> None:
        """Within `on_stop`, on its thread: nothing of these of its partitions is read any more; `offsets` are their
        final offsets, as `on_stop` returns them. They go to whom they are meant for while `on_stop` waits for the rest.
        """
        if not self._worker.answer_part("stop", (given_partitions(partitions), answered_offsets(offsets))):
            raise UsageError("stopped() is for within on_stop, on the thread that it is called on")

    def _numbers(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {partition: self._callbacks.started(partition) for partition in partitions}

    def _ask_write(self, name: str, wanted: CommitRequest | AnnounceRequest) -> None:
        self._driver.raise_exit()
        if self.error is not None:
            raise self.error
        future: Future[None] = self._driver.ask(name, wanted)
        try:
            future.result(self._rebalance_timeout_ms / 1000)
        except FutureTimeoutError:
            raise UnavailableError(f"ZooKeeper did not answer the {name}: it may have happened, or may still") from None
        except LoopEndedError:
            raise self.error or FencedError("the consumer was stopped") from None
        except FencedError as error:
            raise self.error or error from None

    def report(self, progress: int, lag: int) -> None:
        """Tell how the work goes: `progress` grows with what was done (in any unit), `lag` is what is known to be left.

        It is shown, and answered to the coordinator's probes: a member that has partitions, lag, and no progress
        at several probes counts as stalled, and is evicted. Cheap; may be called from any thread.
        """
        self._role.said = (given_number("progress", progress), given_number("lag", lag))

    def reading(self, partitions: Iterable[TopicPartition]) -> None:
        """Tell that records of these are handed out now. The first time after each start is its first record, which
        `zkcoord group timeline` shows; every other call changes nothing. Cheap; may be called from any thread."""
        if fresh := self._callbacks.first_of(partitions):
            self._role.firsts.append(FirstRecords(fresh, self._driver.clock.now_ms()))

    def join_when(self, ready: Callable[[], bool], stop_needs_ms: int = 0) -> None:
        """Register, at first and after each loss, only when `ready()` is true: one that registers must be able to obey.

        It is asked at least each sixth of the session timeout, on the membership's own thread: it must return at once.
        One that raises is not ready; the warning `not_ready` says why. Nor does it register beside old consumers that
        leave `on_stop` less time than `stop_needs_ms`; the warning `waiting` says so.
        """
        given_function("ready", ready)
        self._role.stop_needs_ms = given_number("stop_needs_ms", stop_needs_ms)
        self._role.may_join = partial(self._is_ready, ready)

    def allowed(self, partition: TopicPartition) -> bool:
        """True while the partition may be read: acknowledged, started, and the lease holds now."""
        if type(partition) is not TopicPartition:
            given_partition(partition)
        return self._role.allowed(partition, self._driver.clock.now_ms())

    def incarnation(self, partition: TopicPartition) -> int:
        """Which topic of this name the partition belongs to: a number that rises, within the group, each time the topic
        is deleted and created again. A sink keys by it, beside the offset. Known from `on_start` on until the partition
        is stopped or lost; else 0, and when the coordinator does not tell it."""
        return self._callbacks.incarnation(given_partition(partition))

    @property
    def consumer_id(self) -> str | None:
        """The id of the present registration, None while there is none."""
        return self._role.consumer_id

    @property
    def generation(self) -> int:
        """The highest generation among the commands obeyed."""
        return self._role.generation

    @property
    def stop_within_ms(self) -> int | None:
        """How long `on_stop` may take where old consumers share the group, or may join it: then what it has not
        stopped is lost. None: there can be none, or this consumer is no member at present."""
        return self._role.stop_within_ms

    @property
    def error(self) -> BaseException | None:
        """Why this consumer ended by itself: a wrong chroot, another layout or cluster, a bug, a SystemExit (or its
        like) that a callback raised; None while it runs."""
        return self._fatal or self._driver.loop.fatal or self._role.cluster.error

    def __enter__(self) -> Consumer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _is_ready(self, ready: Callable[[], bool]) -> bool:
        try:
            return bool(ready())
        except Exception as error:
            why = f"join_when: {type(error).__name__}: {error}"
            if why != self._not_ready:
                self._not_ready = why
                emit_fields("not_ready", {"why": why, "level": "warning"})
            return False

    def _fail(self, error: ZkcoordError) -> None:
        self._fatal = error
        self._driver.ask("abandon", error)


def new_consumer_id(group: str, instance: str | None) -> str:
    """A name that is never used twice: `<group>_<host or instance>-<ms>-<8 hex>` (as the old consumers spell it)."""
    return f"{group}_{instance or socket.gethostname()}-{_wall_ms()}-{uuid.uuid4().hex[:8]}"


def _settings(group: str, document: Registration, offset_checkpoint_ms: int) -> MemberSettings:
    return MemberSettings(
        group=group,
        new_id=partial(new_consumer_id, group, document.instance),
        registration=partial(_registration, document),
        topics=document.topics,
        wildcard=wildcard_of(document),
        log_patience_ms=document.rebalance_timeout_ms // ANSWERS_WITHIN,
        checkpoint_ms=offset_checkpoint_ms,
    )


def _registration(document: Registration, negotiated_ms: int) -> bytes:
    return encode_registration(replace(document, timestamp=str(_wall_ms()), session_timeout_ms=negotiated_ms))


def _commits(
    group: str,
    servers: str | None,
    config: Mapping[str, str] | None,
    rebalance_timeout_ms: int,
    known: Callable[[], str | None] | None,
) -> GroupCommits | None:
    """The group's commits in Kafka; None where it is not told of any Kafka."""
    if config is not None:
        given_config("kafka_config", config)
    if servers is None:
        return None
    patience_ms = rebalance_timeout_ms // ANSWERS_WITHIN
    return kafka_commits(group, servers, config, patience_ms=patience_ms, wall_ms=_wall_ms, known=known)


def _document(document: Registration, on_replay: object, log: GroupCommits | None) -> Registration:
    """What it can do, beside what it was told."""
    offers = {PING} if on_replay is None else {PING, REPLAY}
    if log is None:
        return replace(document, offers=frozenset(offers))
    return replace(document, offers=frozenset({*offers, OFFSET_STORE}), offsets=STORES)


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
