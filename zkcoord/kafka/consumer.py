"""A poll-style Kafka consumer for plain Python services: zkcoord assigns the partitions, librdkafka fetches the
messages.

Two threads use it. The user's thread polls, commits and closes. The membership's worker thread starts, stops and loses
partitions. They share the fetch positions under one condition. Only the polling thread calls librdkafka.

    on_start   positions are added; a poll fetches there as soon as the membership allows it (the start is acknowledged)
    on_stop    no more messages of these are handed out; each partition is given back when it has no message in work and
               no commit under way; its finished position is final
    on_lost    their positions are dropped at once, and so are their fetched messages
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Self, Unpack

from zkcoord.core.given import given_config, given_flag, given_number, given_partition, given_partitions
from zkcoord.core.model import Starting, TopicPartition
from zkcoord.errors import FencedError, UnavailableError, UsageError
from zkcoord.kafka.client import Message, check_servers
from zkcoord.kafka.delivery import Delivery
from zkcoord.kafka.fetch_positions import FetchPositions
from zkcoord.kafka.fetcher import Fetcher
from zkcoord.kafka.ports import MembershipFactory, Options
from zkcoord.kafka.resets import Resets
from zkcoord.option_help import with_options
from zkcoord.settings import REBALANCE_TIMEOUT_MS, MemberOptions

LOG = logging.getLogger("zkcoord.kafka")

QUESTION_MS_MIN = 2_000  # names are resolved, and a TLS connection is made, in less time
# how often a waiting stop checks whether the partitions are still held; Spark's loop uses the same interval
LOOK_SECONDS = 0.2
SLICE_SECONDS = 0.05  # how long a poll that waits for messages may delay a change
STOP_WAIT_SHARE = 0.9  # share of the rebalance timeout, so that the stop is acknowledged within it


@with_options(MemberOptions, Options.__annotations__)
class KafkaConsumer:
    """Reads the partitions that the group's coordinator assigns to it; at-least-once.

    A message is *finished* when `poll` (or `poll_many`) is called again, or at `commit` or `close`. To collect
    messages, take them with one `poll_many`, not with several polls. A partition that is taken away is given back at
    its last finished message. Giving it back waits until its own message in work is finished, but at most 0.9 of the
    rebalance timeout (`rebalance_timeout_ms`, 60 s). A message that takes longer is delivered again, to another
    consumer.

    `poll`, `commit`, `seek`, `pause` and `resume` belong to one thread. Any thread may call `close`, but only the
    polling thread's call finishes the messages in work. When an exception leaves the `with` block, these messages are
    not finished, and are delivered again.

    `topics` (or, for a pattern, `include` or `exclude`) and all `settings` (`instance`, `threads`, ...: see `Options`)
    go to `zkcoord.Consumer`. `threads` counts for each topic that is named without a number. `config` holds
    librdkafka's settings. A partition without an offset, or with an offset outside of its log, starts at the log's end,
    or with `from_beginning` at its start. The consumer joins the group at `start`, at `with`, or at the first `poll`.
    `stop_needs_ms` is how long a message (or the messages of one `poll_many`) may take: the consumer does not join
    beside old consumers of the group that wait less.
    """

    def __init__(
        self,
        zookeeper: str,
        bootstrap_servers: str,
        group: str,
        topics: Sequence[str] | Mapping[str, int] = (),
        *,
        from_beginning: bool = False,
        config: Mapping[str, str] | None = None,
        stop_needs_ms: int = 0,
        membership: MembershipFactory | None = None,
        **settings: Unpack[Options],
    ) -> None:
        """Connects to nothing yet. Raises UsageError for arguments that can never work: an illegal name or setting, or
        no topics.

        `membership` makes the membership instead of `zkcoord.Consumer`.
        """
        check_servers(bootstrap_servers)
        if config is not None:
            given_config("config", config)
        given_flag("from_beginning", from_beginning)
        timeout_ms = given_number("rebalance_timeout_ms", settings.get("rebalance_timeout_ms", REBALANCE_TIMEOUT_MS), 1)
        near = {} if settings.get("rack") is None else {"client.rack": str(settings["rack"])}
        kafka = {**near, **(config or {})}
        self._resets = Resets(bootstrap_servers, kafka, "earliest" if from_beginning else "latest")
        self._stop_seconds = timeout_ms / 1000 * STOP_WAIT_SHARE
        self._changed = threading.Condition()
        self._commits = threading.Lock()  # one commit at a time, so that a later one is not overtaken
        self._positions = FetchPositions()  # guarded by _changed, like everything below
        self._poller: int | None = None  # the thread that polled last
        self._polling: object = None  # of the poll under way
        self._committer: int | None = None  # the thread that commits
        self._started = self._joined = False
        self._membership = (membership or _membership())(
            zookeeper,
            group,
            topics,
            on_start=self._on_start,
            on_stop=self._on_stop,
            on_lost=self._on_lost,
            reset=self._resets.positions,
            cluster_id=lambda: self._resets.cluster_id,
            bootstrap_servers=bootstrap_servers,
            kafka_config=kafka,
            **settings,
        )
        self._membership.join_when(lambda: True, stop_needs_ms)
        self._fetcher = Fetcher(bootstrap_servers, group, kafka)
        self._delivery = Delivery(group, self._membership, self._fetcher, self._resets, self._positions, self._changed)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            with self._changed:
                self._positions.take_back()
        self.close()

    def __iter__(self) -> Iterator[Message]:
        """Yield messages until `close`. Asking for the next message finishes the one before."""
        while not self._positions.closed:
            try:
                message = self.poll(1.0)
            except UsageError:
                if self._positions.closed:  # by another thread, just now
                    return
                raise
            if message is not None:
                yield message

    def start(self) -> None:
        """Join the group. Idempotent. Raises the membership's errors, and RefusedError if Kafka refuses the
        credentials.

        If Kafka cannot be reached, the consumer waits for it. The events `kafka_away` and `kafka_back` report it.
        """
        with self._changed:
            self._check_open()
            if self._started:
                return
            self._started = True
        try:
            away = self._resets.check_credentials()
            if away is not None:
                self._delivery.reach.failed(away)
            with self._changed:
                self._check_open()  # another thread may have closed the consumer meanwhile
                self._joined = True
                self._membership.start()
        except BaseException:
            self._started = False
            raise

    def close(self) -> None:
        """Finish, commit, give everything back, leave the group, and end all threads. Idempotent.

        Offsets that cannot be written any more are skipped; their messages are delivered again.
        """
        with self._changed:
            if self._positions.closed:
                return
            me = threading.get_ident()
            own = self._poller == me
            inside = "poll" if own and self._polling else "commit" if self._committer == me else None
            if inside is not None:
                raise UsageError(
                    f"close was called inside of {inside} (by a signal handler?); close when {inside} has returned"
                )
            if own:
                if self._committer is None:  # a commit that an exception ended is not under way
                    self._positions.end_commit(False)
                self._positions.finish()
            else:
                self._positions.take_back()
            self._positions.closed = True
            self._changed.notify_all()
        try:
            if self._joined:
                self._membership.stop()
        finally:
            with self._changed:
                self._changed.wait_for(lambda: not self._polling)
                self._fetcher.close()

    def poll(self, timeout: float) -> Message | None:
        """Return the next message, or None if none comes within `timeout` seconds. Finishes earlier messages.

        Raises UsageError if Kafka refuses the credentials or the topic. If an error ended the membership, raises that
        error. A missing broker, a lost lease and a rebalance raise nothing: there are no messages meanwhile.
        """
        messages = self._take(1, timeout)
        return messages[0] if messages else None

    def poll_many(self, count: int, timeout: float) -> list[Message]:
        """Return at most `count` messages; those of one partition are in order. It waits only for the first one.
        Otherwise it is like `poll`."""
        return self._take(given_number("count", count, 1), timeout)

    def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Write positions through the membership. When it returns, they are stored.

        Without `offsets` it finishes and commits everything handed out so far. With `offsets` (the next offset to read
        of each partition) it finishes the messages before them. Raises FencedError if this consumer no longer holds a
        named partition, or one of which messages were handed out: those messages are delivered again elsewhere. Raises
        UnavailableError if it is unknown whether the offsets were written; the call may be repeated.
        """
        with self._commits:
            self._committer = threading.get_ident()
            written, wanted, told = False, dict[TopicPartition, int](), set[TopicPartition]()
            try:
                with self._changed:
                    self._check_open()
                    wanted = self._positions.begin_commit(offsets)
                    starts = self._positions.starts_of(wanted)
                    self._changed.notify_all()
                if wanted:
                    self._membership.commit(wanted, starts)
                written = True
            except FencedError:
                told = {partition for partition in wanted if not self._membership.allowed(partition)}
                raise
            finally:
                self._committer = None
                with self._changed:
                    self._positions.end_commit(written, told)
                    self._changed.notify_all()
        if offsets is None:
            with self._changed:
                gone = self._positions.take_forfeited()
            if gone:
                names = ", ".join(str(partition) for partition in gone)
                raise FencedError(f"taken away before their messages were committed: {names}; they come again")

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at `offset`, which is then the partition's position, also for commits. Raises FencedError if it is
        not held."""
        where = given_partition(partition), given_number("offset", offset)
        with self._changed:
            self._positions.seek(*where)
            self._changed.notify_all()

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand out no messages of these until `resume`, or until they are started again. Partitions that are not held
        are ignored."""
        given = given_partitions(partitions)
        with self._changed:
            self._positions.pause(given, True)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand out messages of these again. Partitions that are not held are ignored."""
        given = given_partitions(partitions)
        with self._changed:
            self._positions.pause(given, False)

    @property
    def consumer_id(self) -> str | None:
        """The id of the present registration. None: there is none."""
        return self._membership.consumer_id

    def assignment(self) -> tuple[TopicPartition, ...]:
        """The partitions held now, in order."""
        with self._changed:
            return self._positions.partitions()

    def position(self, partition: TopicPartition) -> int:
        """Return the next offset that `poll` will hand out of the partition. Raises FencedError if it is not held."""
        with self._changed:
            return self._positions.position(given_partition(partition))

    @property
    def away(self) -> UnavailableError | None:
        """Why Kafka cannot be reached, as far as is known. None: it can. This sends no request."""
        return self._delivery.reach.error

    def ask_kafka(self) -> UnavailableError | None:
        """Ask the leaders of the held partitions. Returns why they cannot be reached; None: they answer. It takes some
        seconds at most. Raises RefusedError if Kafka refuses the credentials."""
        return self._resets.ask(self.assignment())

    def ask_within(self, timeout_ms: int) -> None:
        """Limit each question to Kafka to `timeout_ms`, but not to less than a working Kafka may need. It is for a
        program that ends soon. Call it before `start`."""
        self._resets.timeout_ms = max(timeout_ms, QUESTION_MS_MIN)

    # ---- the polling thread

    def _take(self, count: int, timeout: float) -> list[Message]:
        if not isinstance(timeout, int | float) or not timeout >= 0:
            raise UsageError(f"a poll cannot wait {timeout!r} seconds: pass a number of 0 or more")
        self.start()
        this = object()
        try:  # an exception may come anywhere, as at Ctrl-C
            self._enter(this)
            deadline = time.monotonic() + timeout
            while True:
                left = max(0.0, deadline - time.monotonic())
                messages = self._delivery.turn(count, min(SLICE_SECONDS, left))
                if messages or self._positions.closed:
                    return messages
                if self._membership.error is not None:
                    raise self._membership.error
                if left == 0:
                    return []
        except BaseException:  # the messages taken from librdkafka did not reach the user
            with self._changed:
                if self._polling is this:
                    self._positions.take_back()
            raise
        finally:
            if self._polling is this:
                self._polling = None
            with self._changed:
                self._changed.notify_all()

    def _enter(self, this: object) -> None:
        with self._changed:
            self._check_open()
            if self._polling:
                raise UsageError("two threads poll one consumer; give each its own")
            self._poller = threading.get_ident()
            self._polling = this
            self._positions.finish()
            self._membership.report(self._delivery.handed, 0)
            self._changed.notify_all()

    def _check_open(self) -> None:
        if self._positions.closed:
            raise UsageError("this consumer is closed; open another")

    # ---- the membership's worker thread

    def _on_start(self, starting: Starting) -> None:
        with self._changed:
            self._positions.start(starting)
            self._changed.notify_all()

    def _on_stop(self, partitions: tuple[TopicPartition, ...]) -> Mapping[TopicPartition, int]:
        """Give back partitions at rest at once, and the others when they come to rest. A slow message delays only its
        own partition."""
        deadline = time.monotonic() + self._stop_seconds
        left = set(partitions)
        with self._changed:
            self._positions.begin_stop(left)
            while (rested := self._positions.at_rest(left)) != left:
                if rested:
                    self._membership.stopped(rested, self._positions.stop(rested))
                    left.difference_update(rested)
                if (why := self._await_rest(left, deadline)) is not None:
                    LOG.warning(
                        "messages of %s are in work, and will come again, elsewhere: %s; handle messages faster",
                        *(", ".join(map(str, sorted(left))), why),
                    )
                    break
            return self._positions.stop(left)

    def _await_rest(self, partitions: Collection[TopicPartition], deadline: float) -> str | None:
        """Wait until one of these is at rest, and return None. If waiting must end, return the reason."""
        while not self._positions.at_rest(partitions):
            if not all(map(self._membership.allowed, partitions)):
                return "the stop waited until this consumer had lost them"
            left = deadline - time.monotonic()
            if left <= 0:
                return f"the stop waited {self._stop_seconds * 1000:.0f} ms; raise rebalance_timeout_ms"
            self._changed.wait(min(left, LOOK_SECONDS))
        return None

    def _on_lost(self, partitions: tuple[TopicPartition, ...]) -> None:
        with self._changed:
            self._positions.lose(partitions)
            self._changed.notify_all()


def _membership() -> MembershipFactory:
    from zkcoord.consumer import Consumer

    return Consumer
