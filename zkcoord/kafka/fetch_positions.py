"""The partitions that a consumer holds, and its progress in them: a state machine without thread, clock or socket.

A partition's messages from `finished` up to `handed` are in work: the user has them. A partition is given back at
`finished`, so no unfinished message is skipped. `epoch` names one way of fetching a partition. A message that was
fetched under another epoch (before a seek, a stop, a loss) is old, and must not be handed out. Every change that the
fetcher has to follow sets `dirty`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from zkcoord.core.given import given_offsets
from zkcoord.core.model import Starting, TopicPartition
from zkcoord.errors import FencedError, UsageError


@dataclass(slots=True)
class Holding:
    """One partition that this consumer may read."""

    handed: int  # the next offset that may be handed out
    finished: int  # the user has finished everything before it
    committed: int  # the offset store is known to hold it
    epoch: int
    start: int  # number of the start by which it is held
    told: int = 0  # the user was told that everything before it is lost
    stopping: bool = False  # True: no more messages are handed out
    paused: bool = False  # by the user


class FetchPositions:
    """The partitions held now. Not thread safe: its owner has the lock."""

    def __init__(self) -> None:
        self.dirty = False
        self.closed = False  # True: no more messages are handed out
        self._held: dict[TopicPartition, Holding] = {}
        self._in_work: set[TopicPartition] = set()  # exactly the held partitions with finished < handed
        self._barred: set[TopicPartition] = set()  # held, but must not be fetched (not yet, or while the lease is over)
        self._forfeited: dict[TopicPartition, int] = {}
        # lost partitions with uncommitted messages that were handed out -> the end of these
        self._sent: dict[TopicPartition, tuple[Holding, int]] = {}  # the commit under way
        self._epoch = 0

    # what the membership says

    def start(self, starting: Starting) -> None:
        """Hold these partitions from now on at these offsets, barred. A partition that is held already continues at the
        new offset."""
        for partition, offset in starting.items():
            if partition in self._held:
                self._forfeit(partition)
            epoch, start = self._next_epoch(), starting.number
            self._held[partition] = Holding(handed=offset, finished=offset, committed=offset, epoch=epoch, start=start)
        self._in_work.difference_update(starting)
        self._barred.update(starting)

    def begin_stop(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand out no more messages of these. They are still held, and can be committed, until `stop`."""
        for partition in partitions:
            if partition in self._held:
                self._held[partition].stopping = True
                self.dirty = True

    def stop(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Stop holding these, and return their final offsets. Messages in work are forfeited."""
        finals: dict[TopicPartition, int] = {}
        for partition in partitions:
            holding = self._held.get(partition)
            if holding is None:
                continue
            finals[partition] = holding.finished
            if partition in self._in_work:
                self._forfeit(partition)
            self._drop(partition)
        return finals

    def lose(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop holding these. Nothing of them can be committed any more."""
        for partition in partitions:
            if partition in self._held:
                self._forfeit(partition)
                self._drop(partition)

    # what the fetcher brings

    def wanted(self) -> dict[TopicPartition, tuple[int, int]]:
        """Return what to fetch: partition -> (epoch, first offset), in order of the partitions."""
        return {p: (h.epoch, h.handed) for p, h in sorted(self._held.items()) if self._fetchable(p, h)}

    def hand_out(self, partition: TopicPartition, epoch: int | None, offset: int, allowed: bool) -> bool:
        """True if the message at `offset`, fetched under `epoch`, may go to the user. Then it is in work.

        A message that the lease keeps back is fetched again if the lease holds again.
        """
        holding = self._held.get(partition)
        if self.closed or holding is None or holding.epoch != epoch or not self._fetchable(partition, holding):
            return False
        if not allowed:
            self._barred.add(partition)
            self.refetch(partition, epoch)
            return False
        holding.handed = offset + 1
        self._in_work.add(partition)
        return True

    def barred(self) -> tuple[TopicPartition, ...]:
        """Return the partitions that wait for the membership to allow them, in order."""
        return tuple(sorted(self._barred))

    def unbar(self, partition: TopicPartition) -> None:
        """Fetch the partition from now on: the membership allows it."""
        self._barred.discard(partition)
        self.dirty = True

    def refetch(self, partition: TopicPartition, epoch: int | None) -> int | None:
        """Fetch again, if the partition is still held under `epoch`. Returns the offset; None: it is not held under
        `epoch`."""
        holding = self._held.get(partition)
        if holding is None or holding.epoch != epoch:
            return None
        holding.epoch = self._next_epoch()
        return holding.handed

    # what the user does

    def finish(self) -> None:
        """Finish everything that was handed out."""
        for partition in self._in_work:
            holding = self._held[partition]
            holding.finished = holding.handed
        self._in_work.clear()

    def take_back(self) -> None:
        """Fetch and hand out the messages in work again: they did not reach the user, or failed there."""
        for partition in self._in_work:
            self._held[partition].handed = self._held[partition].finished
        self._in_work.clear()
        for holding in self._held.values():
            holding.epoch = self._next_epoch()

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at `offset`, which is the partition's position from now on, also for commits."""
        holding = self._get(partition)
        holding.handed = holding.finished = offset
        holding.epoch = self._next_epoch()
        self._in_work.discard(partition)

    def pause(self, partitions: Iterable[TopicPartition], paused: bool) -> None:
        """Hand out no messages of these until they are resumed. Partitions that are not held are ignored."""
        for partition in partitions:
            if partition in self._held:
                self._held[partition].paused = paused
                self._held[partition].epoch = self._next_epoch()

    def position(self, partition: TopicPartition) -> int:
        """Return the next offset to be handed out. Raises FencedError if the partition is not held."""
        return self._get(partition).handed

    def partitions(self) -> tuple[TopicPartition, ...]:
        """Return the held partitions, in order."""
        return tuple(sorted(self._held))

    def at_rest(self, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Return those that have no unfinished message and no commit under way."""
        return set(partitions) - self._in_work - self._sent.keys()

    def begin_commit(self, offsets: Mapping[TopicPartition, int] | None) -> dict[TopicPartition, int]:
        """Return the offsets to write, in order. There is one commit at a time. `end_commit` must follow, even if it is
        empty.

        None finishes everything that was handed out, and commits each finished position that the offset store does not
        hold. Offsets finish the messages before them. Raises FencedError if one of them is not held, and UsageError for
        an offset that poll has not reached; then nothing has changed.
        """
        if offsets is None:
            self.finish()
            wanted = {p: h.finished for p, h in sorted(self._held.items()) if h.finished != h.committed}
        else:
            wanted = dict(sorted(given_offsets(offsets).items()))
            self._check(wanted)
            for partition, offset in wanted.items():
                holding = self._held[partition]
                holding.finished = max(holding.finished, offset)
                if holding.finished == holding.handed:
                    self._in_work.discard(partition)
        self._sent = {partition: (self._held[partition], offset) for partition, offset in wanted.items()}
        return wanted

    def starts_of(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the start by which each of these runs, so that the membership recognises a commit of an earlier
        start."""
        return {partition: self._held[partition].start for partition in partitions}

    def end_commit(self, written: bool, gone: Collection[TopicPartition] = ()) -> None:
        """Note whether the offset store holds the offsets of `begin_commit`. The user is told now that `gone` are
        lost."""
        sent, self._sent = self._sent, {}
        for partition, (holding, offset) in sent.items():  # if it was released or lost since, this changes nothing
            if written:
                holding.committed = offset
            elif partition in gone:
                holding.told = offset
                self._tell(partition, offset)

    def take_forfeited(self) -> tuple[TopicPartition, ...]:
        """Return the partitions that were lost with uncommitted messages handed out, each once.

        A partition that came back and has been read past those messages again is left out.
        """
        forfeited, self._forfeited = self._forfeited, {}
        return tuple(sorted(p for p, end in forfeited.items() if p not in self._held or self._held[p].finished < end))

    # inside

    def _check(self, offsets: Mapping[TopicPartition, int]) -> None:
        gone = [partition for partition in offsets if partition not in self._held]
        if gone:
            for partition in gone:
                self._tell(partition, offsets[partition])
            raise FencedError(f"not held (any more): {', '.join(map(str, gone))}; nothing was committed")
        for partition, offset in offsets.items():
            handed = self._held[partition].handed
            if offset > handed:
                raise UsageError(
                    f"cannot commit {offset} of {partition}: poll is at {handed}; seek to pass over messages"
                )

    def _fetchable(self, partition: TopicPartition, holding: Holding) -> bool:
        return not (holding.stopping or holding.paused or partition in self._barred)

    def _next_epoch(self) -> int:
        self.dirty = True
        self._epoch += 1
        return self._epoch

    def _get(self, partition: TopicPartition) -> Holding:
        holding = self._held.get(partition)
        if holding is None:
            raise FencedError(f"{partition} is not held (any more)")
        return holding

    def _forfeit(self, partition: TopicPartition) -> None:
        holding = self._held[partition]
        if holding.handed > max(holding.committed, holding.told):
            self._forfeited[partition] = max(holding.handed, self._forfeited.get(partition, 0))

    def _tell(self, partition: TopicPartition, end: int) -> None:
        """The user is told that everything before `end` is lost, and is not told again."""
        if self._forfeited.get(partition, end) <= end:
            self._forfeited.pop(partition, None)

    def _drop(self, partition: TopicPartition) -> None:
        del self._held[partition]
        self._in_work.discard(partition)
        self._barred.discard(partition)
        self.dirty = True
