"""Membership for any Python program: join a group, obey the coordinator, commit fenced offsets, leave cleanly.

The program itself reads the records, in any way. The consumer tells it which partitions to start, which to stop, and
which are lost.
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
from typing import Any, Unpack

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
from zkcoord.core.offset_store import STORES
from zkcoord.core.replay import REPLAY
from zkcoord.core.view import OFFSET_STORE, PING
from zkcoord.errors import FencedError, LoopEndedError, UnavailableError, UsageError, ZkcoordError
from zkcoord.logs import emit_fields
from zkcoord.member.callbacks import ApplicationCallbacks, Positions, Ranges, answered_offsets, check_size
from zkcoord.member.role import MemberSettings, MembershipRole
from zkcoord.metrics.start import consumer_metrics
from zkcoord.offsets.group_commits import GroupCommits, kafka_commits
from zkcoord.option_help import with_options
from zkcoord.settings import MemberChoices, MemberOptions
from zkcoord.shell.worker import Worker
from zkcoord.shell.zk.store import KazooSessions, zookeeper_sessions
from zkcoord.subscription import check_name, registration_of
from zkcoord.tree.decoders import wildcard_of
from zkcoord.tree.registration import Registration, encode_registration

ANSWERS_WITHIN = 3
"""An answer of Kafka about offsets is waited for a third of the rebalance timeout, since the calls that wait for it
must end within that timeout."""


@with_options(MemberOptions, MemberChoices.__annotations__)
class Consumer:
    """A member of a group (docs/consumers.md). Membership only: it fetches nothing.

    Callbacks run in order on one worker thread, never on the one that renews the lease and drains the channel:

    `on_start(positions)`
        is called before the first fetch: partition -> next offset. `commit` takes `positions.number`, the number of
        this start. If it raises UnavailableError, this consumer tries the start again; after any other exception the
        partitions go to another consumer.
    `on_stop(partitions) -> Mapping[partition, offset]`
        returns the final offsets; after that the program reads nothing of these partitions. One that is left out keeps
        its committed offset. It may take as long as `rebalance_timeout_ms` allows; this delays its own member only.
        It may call `stopped` for partitions that it can release earlier.
    `on_lost(partitions)`
        is called when the lease has ended or the registration is gone. Nothing of these partitions can be committed
        any more. `on_start` is called again if they come back.
    `on_replay(ranges)`
        is called right before the `on_start` of these partitions: partition -> (start, end), the range that was
        announced and that no commit has passed; `start` is the next offset. The program must process exactly this range
        before other records of the partition. Exceptions mean the same as in `on_start`. Without it no ranges come.
    `reset(partitions) -> Mapping[partition, offset]`
        returns the offsets at which partitions without an offset start; without it such a start is refused. It must
        change nothing. It runs on a thread of its own, so that a loss can be told while Kafka does not answer. An
        answer that comes after the loss of the registration is ignored.

    `include` or `exclude` can be given instead of `topics`. It is a Java regex, and means all topics whose whole names
    match (or do not match), without internal topics. As in old consumers `,` means or; spaces and outer quotes vanish.

    `hold_ms` makes a static member: after its end its share waits so long for its `instance` to come back.
    `replaces` is the `consumer_id` of another Consumer of this program, with another subscription. The new consumer
    gets the partitions that both subscribe to; the other gets none any more, and can be stopped once the new one is
    a member. Beside old consumers both have a share until the other is stopped.

    `assignors`: the names of the assignors that it offers, most wanted first. `rack`: where it runs. `capacity`: the
    largest sum of weights that it takes (a partition weighs 1 unless the group's record sets another weight).

    With `bootstrap_servers` (and `kafka_config`, librdkafka's settings) it can keep offsets in Kafka, if its group does
    (docs/offsets.md); commits there are made again after `offset_checkpoint_ms`. Without them it can join only groups
    with offsets in ZooKeeper alone; in such groups it sends no request to Kafka.

    `cluster_id()` must return the id of the Kafka cluster that is read, None until its brokers have told it; it must
    not wait. If this is another cluster than that of the tree's topics, the consumer ends with a UsageError, and
    commits nothing.

    `metrics` is HOST:PORT, where metrics and health are served (docs/monitoring.md).

    A partition may be read only while `allowed(partition)` is true.
    """

    _fatal: ZkcoordError | None = None
    _not_ready = ""  # why `ready` of `join_when` raised

    def __init__(
        self,
        zookeeper: str,
        group: str,
        topics: Sequence[str] | Mapping[str, int] = (),
        *,
        replaces: str | None = None,
        on_start: Callable[[Starting], None],
        on_stop: Callable[[tuple[TopicPartition, ...]], Positions],
        on_lost: Callable[[tuple[TopicPartition, ...]], None],
        on_replay: Callable[[Ranges], None] | None = None,
        reset: Callable[[tuple[TopicPartition, ...]], Positions] | None = None,
        bootstrap_servers: str | None = None,
        kafka_config: Mapping[str, str] | None = None,
        cluster_id: Callable[[], str | None] | None = None,
        **settings: Unpack[MemberChoices],
    ) -> None:
        """`zookeeper`: `host:port[,host:port…][/chroot]`; `topics`: names, or name -> threads; times in ms.

        Raises UsageError for arguments that can never work: an illegal name, no topics, a broken regex, no assignor.
        """
        check_name("group", group)
        options = MemberOptions(**settings)
        check_offers(options.assignors)
        asked = registration_of(topics, options, replaces)
        self._log = _commits(group, bootstrap_servers, kafka_config, options.rebalance_timeout_ms, cluster_id)
        document = _document(asked, on_replay, self._log)
        _registration(document, options.session_timeout_ms)  # raises now what would be raised at joining
        self._rebalance_timeout_ms, self._started, self._stopped = options.rebalance_timeout_ms, False, False
        lease: dict[str, Any] = {"session_timeout_ms": options.session_timeout_ms, "config": options.zookeeper_config}
        self._measured = consumer_metrics(options.metrics, group)
        sessions = zookeeper_sessions(zookeeper, fatal=self._fail, prompt=True, **lease)
        self._driver = self._measured.driver(sessions, "zkcoord-consumer", emit_fields, tells=True)
        self._callbacks = ApplicationCallbacks(on_start, on_stop, on_lost, on_replay, reset)
        told = _settings(group, document, options.offset_checkpoint_ms)
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

        Raises UsageError after `stop`, even if the consumer had not been started before `stop`.
        """
        if self._stopped:
            raise UsageError("this consumer was stopped, and never joins again: make a new Consumer")
        if not self._started:
            self._measured.begin()
            self._started = True
            self._worker.start()
            self._driver.start()

    def stop(self) -> None:
        """Leave cleanly: call `on_stop` for all held partitions, commit and release them, end the session. Idempotent.

        It waits at most the rebalance timeout for `on_stop`, then at most 11 s for its threads. Do not call it from a
        callback. While `on_stop` still runs and the lease holds, no other consumer gets these partitions.
        If a callback raised SystemExit (or the like), it is raised here, unless an earlier call has raised it.
        """
        self._stopped = True
        if not self._started:
            self._driver.ended.set()  # the loop never ran, so nothing else answers requests
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

        `starts`: for each partition the number of its last start (`positions.number` in `on_start`) at the time when
        its offset was decided. With the number an old offset is refused if the partition was lost and started again
        since. None: the numbers of the last starts until now.

        Raises UsageError for values that are no offsets of partitions. Raises FencedError when this consumer was
        stopped, and when a partition is not held, was started again since, or its offset was set by another program. In
        these cases the call writes nothing, unless it became several transactions (over 1,000 partitions) or went to
        Kafka. A partition whose offset was set is lost, and started again there. Raises UnavailableError when there is
        no answer within the rebalance timeout, and `error` when this consumer has ended by itself.
        """
        wanted = given_offsets(offsets)
        numbers = self._numbers(wanted) if starts is None else given_offsets(starts)
        self._ask_write("commit", CommitRequest(wanted, numbers))

    def announce(self, ranges: Ranges) -> None:
        """Announce in ZooKeeper what will be processed next: partition -> (start, end), from its committed offset on.

        Returns when ZooKeeper has it. If any consumer, also this one, is given such a partition before a commit has
        passed the range, it must process exactly this range first (`on_replay`). Ranges announced earlier stay until a
        commit has passed them, or their partitions are announced again. A commit ends its ranges without another write.

        Raises FencedError when a partition is not held, was started again, or has another committed offset (then it is
        lost, and started again there). Raises UsageError for an invalid range, and for ranges that do not fit into
        256 KiB; nothing is announced then. Raises UnavailableError as `commit` does, and while earlier ranges, which
        came with partitions or which a stop interrupted, leave no room: process those of held partitions first.
        """
        wanted = given_ranges(ranges)
        if not wanted:
            return
        check_size(wanted)
        self._ask_write("announce", AnnounceRequest(wanted, self._numbers(wanted)))

    def stopped(self, partitions: Collection[TopicPartition], offsets: Positions) -> None:
        """Release some of the partitions of an `on_stop` early; call it within `on_stop`, on its thread. Nothing of
        them is read any more; `offsets` are their final offsets, as `on_stop` returns them. Their new owners need not
        wait for the end of `on_stop`."""
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
        """Report progress: `progress` grows with the work that is done (in any unit), `lag` is the work that is left.

        Tools show both, and the coordinator's probes get them as the answer. A member with partitions, with lag, and
        without progress at several probes counts as stalled, and is evicted. Cheap; any thread may call it."""
        self._role.said = (given_number("progress", progress), given_number("lag", lag))

    def reading(self, partitions: Iterable[TopicPartition]) -> None:
        """Tell that the application gets records of these partitions now. The first call after each start is the time
        of the first record in `zkcoord group timeline`; other calls change nothing. Cheap; any thread may call it."""
        if fresh := self._callbacks.first_of(given_partitions(partitions)):
            self._role.firsts.append(FirstRecords(fresh, self._driver.clock.now_ms()))

    def join_when(self, ready: Callable[[], bool], stop_needs_ms: int = 0) -> None:
        """Register only when `ready()` is true, at first and after each loss, since a member must be able to obey.

        `ready` is called at least once each sixth of the session timeout, on the membership's own thread, and must
        return at once. An exception means "not ready"; the warning `not_ready` has it. The consumer also waits, with
        the warning `waiting`, beside old consumers that leave `on_stop` less time than `stop_needs_ms`.
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
        """The number of the topic's incarnation in the group; it rises each time the topic is deleted and created
        again. A sink uses it in its keys, beside the offset. It is known from `on_start` until the partition is stopped
        or lost; otherwise, or if the coordinator does not tell it, it is 0."""
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
        """How long `on_stop` may take if old consumers are in the group, or may join it; partitions that it has not
        stopped by then are lost. None: no old consumers are possible, or this consumer is no member at present."""
        return self._role.stop_within_ms

    @property
    def error(self) -> BaseException | None:
        """Why this consumer ended by itself: a wrong chroot, another layout or cluster, a bug, or a SystemExit (or the
        like) from a callback. None while it runs."""
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
    """Return an id that is never used twice, as the old consumers write it: `<group>_<host or instance>-<ms>-<8
    hex>`."""
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
    """Return the group's commits in Kafka; None if no address of Kafka is given."""
    if config is not None:
        given_config("kafka_config", config)
    if servers is None:
        return None
    patience_ms = rebalance_timeout_ms // ANSWERS_WITHIN
    return kafka_commits(group, servers, config, patience_ms=patience_ms, wall_ms=_wall_ms, known=known)


def _document(document: Registration, on_replay: object, log: GroupCommits | None) -> Registration:
    """Return the registration with the abilities of this consumer."""
    offers = {PING} if on_replay is None else {PING, REPLAY}
    if log is None:
        return replace(document, offers=frozenset(offers))
    return replace(document, offers=frozenset({*offers, OFFSET_STORE}), offsets=STORES)


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
