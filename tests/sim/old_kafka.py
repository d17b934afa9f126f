"""The stores of an old member's offsets: ZooKeeper, Kafka (`offsets.storage=kafka`), or both.

It behaves as the real ones do (tests/old_consumers). An automatic commit is tried once: it goes to Kafka for everything
that is owned, and then, with dual commit, to the nodes of the partitions that have moved. A read is repeated until
Kafka answers. Of both stores the larger offset counts. Commits name no tenure, and Kafka fences none of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.sim.blocking import Blocking, Call, Sleep
from tests.sim.offset_log import NETWORK_MS, OffsetLog
from zkcoord.core.model import TopicPartition
from zkcoord.shell.ports import CallDone

if TYPE_CHECKING:
    from tests.sim.process import SimProcess

TIMEOUT_MS, AGAIN_MS = 2_000, 1_000  # offsets.channel.socket.timeout.ms is 10 s, offsets.channel.backoff.ms 1 s


class OldCommits:
    """One member's connection to the offset log, as its threads use it."""

    def __init__(self, process: SimProcess, log: OffsetLog) -> None:
        self._process, self._log, self._world = process, log, process.world
        self._incarnation = process.incarnation

    def commit(self, offsets: Mapping[TopicPartition, int]) -> Blocking:
        """Commit once. Returns whether Kafka took the commit."""
        arrive = partial(self._take, self._process.client, dict(offsets))
        return bool((yield Call(partial(self._send, arrive))))

    def read(self, partitions: Collection[TopicPartition]) -> Blocking:
        """Ask until there is an answer; returns the committed offsets."""
        while partitions:
            found = yield Call(partial(self._send, partial(self._log.read, partitions)))
            if found is not None:
                return {p: commit.offset for p, commit in found.items()}
            yield Sleep(AGAIN_MS)
        return {}

    def _take(self, client: str, offsets: Mapping[TopicPartition, int]) -> bool:
        self._log.old_member_commits(client, offsets)
        return True

    def _send(self, arrive: Any, token: int) -> None:
        self._world.at(self._world.now_ms + self._draw(), partial(self._arrived, arrive, token))

    def _arrived(self, arrive: Any, token: int) -> None:
        lost = self._log.away
        value, wait_ms = (None, TIMEOUT_MS) if lost else (arrive(), self._draw())
        self._world.at(self._world.now_ms + wait_ms, partial(self._answer, token, value))

    def _answer(self, token: int, value: Any) -> None:
        if self._process.incarnation == self._incarnation:
            self._process.inbox.put(CallDone(token, value, None))

    def _draw(self) -> int:
        return 1 + int(self._world.rng.random() * NETWORK_MS)
