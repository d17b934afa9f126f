"""Kafka's old high-level consumer (0.8 to 1.1) as a process of the simulated world: its threads, calls and habits.

Written from the measured calls of the real ones (tests/old_consumers), without any code of the product's own members.
Any change of `ids` or of its topics makes it stop reading, commit, delete every owner node that it believes its own
(whatever stands there), read everything anew, and claim its share node by node. If one of these nodes is taken, the
whole attempt is undone, and repeated after a wait. After the last attempt it stays registered and owns nothing. Nobody
watches owners.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tests.sim.blocking import Blocking, Sleep, Threads, Until
from tests.sim.old_kafka import OldCommits
from tests.sim.old_settings import OldSettings, registration_text
from tests.sim.old_share import read_share
from tests.sim.old_zkclient import Listener, NodeExistsError, ZkClient
from zkcoord.core.model import TopicPartition
from zkcoord.shell.ports import CallDone, FromStore, Input, Request
from zkcoord.tree.paths import BROKERS, TOPICS
from zkcoord.tree.snapshot import Kind, Node
from zkcoord.tree.topic_filter import matches, normal_filter

if TYPE_CHECKING:
    from tests.sim.application import Logs
    from tests.sim.offset_log import OffsetLog
    from tests.sim.process import SimProcess

READ_RECORDS_MAX = 500
NO_OFFSET = -1
CHECKS_SHUTDOWN_SINCE = (0, 9, 0)  # waited at each try (KAFKA-1848)


class RebalanceFailedError(Exception):
    """ConsumerRebalanceFailedException: "can't rebalance after 4 retries"."""


@dataclass(slots=True)
class Position:
    """PartitionTopicInfo: the offset of the next record for the program."""

    offset: int


class OldMember:
    """One connector and its program, which reads the records that the fetchers bring."""

    def __init__(self, process: SimProcess, logs: Logs, settings: OldSettings, log: OffsetLog | None) -> None:
        """`log`: where it commits to Kafka, if it does so."""
        self._process, self._logs, self.settings = process, logs, settings
        self.name = process.name
        self.consumer_id = f"{settings.group}_{process.name}-{process.world.now_ms}-{process.random_hex()}"
        self._group = f"/consumers/{settings.group}"
        self.registry: dict[TopicPartition, Position] = {}  # the partitions that it believes to own
        self.reading: dict[TopicPartition, Position] = {}  # the partitions that its fetchers read
        self._checkpoints: dict[TopicPartition, int] = {}
        self._triggered = self._locked = self._shutting_down = False
        self._wildcard_topics: list[str] = []
        self.gave_up = self.left = self.busy = False
        self.tries = self.rebalances = 0
        process.group, process.application = settings.group, self
        self._threads = Threads(self._died)
        self.client = ZkClient(process, self._threads, self._new_session)
        in_kafka = settings.offsets == "kafka"
        self._kafka = OldCommits(process, log) if in_kafka and log is not None else None
        self._in_nodes = not in_kafka or settings.dual_commit
        self._threads.start("main", self._main())
        self._threads.start("watcher", self._watcher())
        if settings.auto_commit:
            self._threads.start("committer", self._committer())
        self._look_later()

    def step(self, inputs: list[Input], now_ms: int) -> int | None:
        """Take the inputs, and let the threads go on."""
        for item in inputs:
            if isinstance(item, Request) and item.name == "stop":
                self._threads.start("shutdown", self._shutdown())
                item.future.set_result(None)
            elif isinstance(item, FromStore):
                self.client.take(item)
            elif isinstance(item, CallDone):
                self._threads.answer(item.token, item.value)
        return self._threads.run(now_ms)

    def lag(self, partition: TopicPartition) -> int | None:
        """Records between its position and the log's end; None when it does not read the partition."""
        position = self.reading.get(partition)
        return None if position is None else self._logs.end(partition) - position.offset

    def commit(self) -> None:
        """The program commits the records that it has consumed."""
        self._threads.start("commit", self._commit())
        self._process.world.awake[self._process] = None

    @property
    def settled(self) -> bool:
        """True while it neither rebalances nor has a rebalance to do."""
        return not (self._triggered or self._locked or self.busy)

    # -- its life

    def _main(self) -> Blocking:
        self.busy = True
        try:
            yield from self._register()
            yield from self.client.subscribe(f"{self._group}/ids", Listener(Kind.CHILDREN, self._trigger))
            if self.settings.wildcard is None:
                yield from self._follow_topics(list(self.settings.topics))
                yield from self._synced_rebalance()
            else:
                node = yield from self.client.subscribe(TOPICS, Listener(Kind.CHILDREN, self._topics_changed))
                yield from self._topics_changed(node, first=True)
        finally:
            self.busy = False

    def _register(self) -> Blocking:
        path, text = (
            f"{self._group}/ids/{self.consumer_id}",
            registration_text(self.settings, self._process.world.now_ms),
        )
        while True:
            try:
                yield from self.client.create(path, text, ephemeral=True)
            except NodeExistsError:
                owner = yield from self.client.owner_of(path)
                if owner == 0:
                    continue
                if owner != self.client.session_id:
                    raise
            return  # if the node existed: it was created in this session, and the reply was lost

    def _new_session(self) -> Blocking:
        self.registry.clear()  # its fetchers go on until the rebalance stops them
        yield from self._register()
        yield from self._synced_rebalance()

    def _shutdown(self) -> Blocking:
        self._shutting_down = True
        yield Until(lambda: not self._locked)
        self._locked = True
        self._stop_reading()
        if self.settings.auto_commit:
            yield from self._commit()
        self.client.close()
        self.left = True

    def _committer(self) -> Blocking:
        while not self._shutting_down:
            yield Sleep(self.settings.commit_interval_ms)
            yield from self._commit()

    def _died(self, thread: str, error: Exception) -> None:
        self._process.world.trace(self._process.client, "thread", thread, "ends with", repr(error))
        if thread == "events":  # ZkClient logs a listener's error, and takes the next event
            self._threads.start("events", self.client.event_thread())

    # -- causes of a rebalance

    def _trigger(self, _node: Node) -> None:
        self._triggered = True

    def _topic_changed(self, node: Node) -> None:
        self._triggered |= node.exists  # a deletion is only logged

    def _topics_changed(self, node: Node, *, first: bool = False) -> Blocking:
        """Listener of a wildcard: rebalance on this thread when other topics match than before."""
        now = [topic for topic in node.children if matches(normal_filter(self.settings.wildcard or ""), topic)]
        if first or now != self._wildcard_topics:
            self._wildcard_topics = now
            yield from self._follow_topics(now)
            yield from self._synced_rebalance()

    def _follow_topics(self, topics: list[str]) -> Blocking:
        for topic in topics:
            yield from self.client.subscribe(f"{TOPICS}/{topic}", Listener(Kind.DATA, self._topic_changed))

    def _watcher(self) -> Blocking:
        while True:
            yield Until(lambda: self._triggered)
            self._triggered = False
            if self._shutting_down:
                return
            try:
                yield from self._synced_rebalance()
            except RebalanceFailedError as error:
                self._process.world.trace(self._process.client, "error during syncedRebalance:", str(error))

    # -- the rebalance

    def _synced_rebalance(self) -> Blocking:
        yield Until(lambda: not self._locked)
        self._locked, self.gave_up = True, False
        self.rebalances += 1
        try:
            for _ in range(self.settings.retries):
                if self._shutting_down and self.settings.old.numbers >= CHECKS_SHUTDOWN_SINCE:
                    return
                self.tries += 1
                try:
                    done = yield from self._rebalance()
                except Exception as error:
                    self._process.world.trace(self._process.client, "exception during rebalance", repr(error))
                    done = False
                if done:
                    return
                yield from self._close_fetchers()
                yield Sleep(self.settings.backoff_ms)
            self.gave_up = True
            self._process.world.note(self._process, "gave up")
        finally:
            self._locked = False
        raise RebalanceFailedError(f"{self.consumer_id} can't rebalance after {self.settings.retries} retries")

    def _rebalance(self) -> Blocking:
        """One try. False when another member owns a partition of its share."""
        yield from self.client.read(f"{self._group}/ids/{self.consumer_id}")
        brokers = yield from self.client.children(BROKERS)
        if not brokers:
            yield from self.client.subscribe(BROKERS, Listener(Kind.CHILDREN, self._trigger))
            return True  # it keeps what it owns
        yield from self._close_fetchers()
        for partition in list(self.registry):
            yield from self.client.delete(self._owner(partition))
            self.registry.pop(partition, None)
        share = yield from read_share(self.client, self.settings, self.consumer_id)
        offsets = yield from self._committed(share)  # read before the claim: a commit in between is not seen
        self._checkpoints.update(offsets)
        if not (yield from self._claim(share)):
            return False
        self.registry = {partition: Position(offset) for partition, offset in offsets.items()}
        self._start_reading()
        return True

    def _committed(self, share: dict[TopicPartition, str]) -> Blocking:
        """The start offset of each partition: the larger one of its stores."""
        found = dict.fromkeys(share, NO_OFFSET)
        if self._kafka is not None:
            found |= yield from self._kafka.read(list(share))
        for partition in share if self._in_nodes else ():
            text = yield from self.client.read_or_none(self._offset(partition))
            found[partition] = max(found[partition], NO_OFFSET if text is None else int(text))
        return found

    def _claim(self, share: dict[TopicPartition, str]) -> Blocking:
        claimed, taken = [], False
        for partition, thread in share.items():
            path = self._owner(partition)
            try:
                yield from self.client.create(path, thread, ephemeral=True)
            except NodeExistsError:
                stored = yield from self.client.read_or_none(path)
                if stored != thread:  # an equal node counts as its own, whichever session made it
                    taken = True
                    continue
            claimed.append(path)
        for path in claimed if taken else ():
            yield from self.client.delete(path)
        return not taken

    def _owner(self, partition: TopicPartition) -> str:
        return f"{self._group}/owners/{partition.topic}/{partition.partition}"

    def _offset(self, partition: TopicPartition) -> str:
        return f"{self._group}/offsets/{partition.topic}/{partition.partition}"

    # -- reading and committing

    def _start_reading(self) -> None:
        for partition, position in sorted(self.registry.items()):
            if position.offset == NO_OFFSET:
                position.offset = 0 if self.settings.reset == "smallest" else self._logs.end(partition)
            self._process.world.note(self._process, "start", partition, position.offset)
        self.reading = dict(self.registry)

    def _stop_reading(self) -> None:
        for partition, position in sorted(self.reading.items()):
            self._process.world.note(self._process, "stop", partition, position.offset)
        self.reading = {}

    def _close_fetchers(self) -> Blocking:
        self._stop_reading()
        if self.settings.auto_commit:
            yield from self._commit()

    def _commit(self) -> Blocking:
        """Write the offsets that it has consumed now, one node after the other, whatever the nodes say and whoever owns
        the partitions by then."""
        if self._kafka is not None and self.registry:
            offsets = {p: position.offset for p, position in self.registry.items() if position.offset != NO_OFFSET}
            done = yield from self._kafka.commit(offsets)
            for partition, offset in sorted(offsets.items()) if done else ():
                self._process.world.note(self._process, "commit", partition, offset)
            if not (done and self._in_nodes):
                return
        for partition, offset in sorted((p, position.offset) for p, position in self.registry.items()):
            if self._checkpoints.get(partition) != offset:
                yield from self.client.put(self._offset(partition), str(offset))
                self._checkpoints[partition] = offset
                self._process.world.note(self._process, "commit", partition, offset)

    def _look_later(self) -> None:
        world = self._process.world
        self._process.after(1 + int(world.rng.random() * world.options.read_ms_max), self._look)

    def _look(self) -> None:
        draining, random = self._process.world.draining, self._process.world.rng.random
        for partition in sorted(self.reading):
            if draining or random() < 0.5:
                self._read(partition, draining=draining)
        if not self.left:
            self._look_later()

    def _read(self, partition: TopicPartition, *, draining: bool) -> None:
        position, end = self.reading[partition], self._logs.end(partition)
        if position.offset >= end:
            return
        if not draining:
            end = min(end, position.offset + 1 + int(self._process.world.rng.random() * READ_RECORDS_MAX))
        start, position.offset = position.offset, end
        self._process.world.note(self._process, "read", partition, start, end)


def old_member(logs: Logs, settings: OldSettings, log: OffsetLog | None = None) -> partial[OldMember]:
    """A factory for `World.spawn`."""
    return partial(_made, logs, settings, log)


def _made(logs: Logs, settings: OldSettings, log: OffsetLog | None, process: SimProcess) -> OldMember:
    return OldMember(process, logs, settings, log)
