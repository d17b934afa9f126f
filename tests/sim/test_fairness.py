"""Fairness (F10): a small group and a crowd share one coordinator. The small group waits for at most one step of the
crowd.

The tests look at each step of the coordinator: did it send something for the crowd while it kept back something of the
small group, and how many requests for the crowd were before it at the server?
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from tests.sim.actors import GROUP, ConsumerFactory
from tests.sim.mutations import Patch, must_be_missed
from tests.sim.script import SESSION_MS, Script, on_seeds
from zkcoord.core.model import TopicPartition
from zkcoord.serving.role import CoordinatorRole
from zkcoord.shell import fair_queue, tracker
from zkcoord.shell.ports import Input
from zkcoord.tree.paths import DRAFT, TOPICS
from zkcoord.tree.registration import MARKER, Registration, encode_registration
from zkcoord.tree.snapshot import Read, path_and_kind
from zkcoord.tree.writes import CreateNode, Transaction

PARTITIONS = [TopicPartition("t", n) for n in range(4)]
CROWD = 400
NEEDED = (f"{DRAFT.group(GROUP)}/", DRAFT.record(GROUP), f"{TOPICS}/t")
"""What is read for the small group."""
READS_MAX = 40
"""Of one request here: a crowd is to this as 20,000 members are to the product's."""
REQUESTS = 10
"""So many of a crowd's requests wait yet: else nobody would notice who comes first."""


class Line:
    """Watches, from now on, what one coordinator sends for a crowd and for the small group."""

    def __init__(self, script: Script, crowd: str) -> None:
        self.longest = 0  # steps in a row that sent something for the crowd, and kept back something of the small group
        self.ahead = 0  # the most reads under way when something was sent for the small group
        self.stops = 0  # multis that create a command for the small group
        self.waited = 0  # reads for the crowd that were not sent yet at the first of those multis
        self._crowd, self._row, self._sent = crowd, 0, False
        self._actor = script.actor("coordinator0")
        store = script.process("coordinator0").stores[-1]
        self._step, self._actor.step = self._actor.step, self._stepped
        self._read, store.read = store.read, self._reads  # type: ignore[method-assign]
        self._commit, store.commit = store.commit, self._commits  # type: ignore[method-assign]

    def waiting(self, group: str) -> int:
        """How many nodes of a group must be read and are not asked for yet."""
        known = self._tracker()
        return sum(known._wants[key].scope == group for key in known._dirty - known._reading.keys())

    def _tracker(self) -> tracker.Tracker:
        return self._actor.loop.tracker

    def _stays(self) -> bool:
        """True when something of the small group could have been sent, and was not."""
        clean = all(map(self._tracker().clean, ("", GROUP, TOPICS, f"{TOPICS}/t")))
        undecided = GROUP in self._actor.role._pending and clean
        return undecided or any(path.startswith(NEEDED) for path in self._queued())

    def _queued(self) -> list[str]:
        return [path_and_kind(key)[0] for lane in self._tracker()._queue._lanes.values() for key in lane]

    def _stepped(self, inputs: Sequence[Input], now_ms: int) -> int | None:
        self._sent = False
        wake_ms = self._step(list(inputs), now_ms)
        self._row = self._row + 1 if self._sent and self._stays() else 0
        self.longest = max(self.longest, self._row)
        return wake_ms

    def _reads(self, token: int, reads: Sequence[Read]) -> None:
        self._sends([read.path for read in reads], len(reads))
        self._read(token, tuple(reads))

    def _commits(self, token: int, transaction: Transaction) -> None:
        paths = [write.path for write in transaction.writes]
        if any(path.startswith(f"{DRAFT.channels_of(GROUP)}/") for path in paths):
            self.waited = self.waited if self.stops else self.waiting(self._crowd)
            self.stops += 1
        self._sends(paths, 0)
        self._commit(token, transaction)

    def _sends(self, paths: list[str], own: int) -> None:
        below = {group: (f"{DRAFT.group(group)}/", DRAFT.record(group)) for group in (GROUP, self._crowd)}
        self._sent |= any(path.startswith(below[self._crowd]) for path in paths)
        if any(path.startswith(below[GROUP]) for path in paths):
            self.ahead = max(self.ahead, sum(self._tracker()._under_way.values()) - own)


def join_at_once(script: Script, group: str, topic: str, size: int) -> None:
    """Members join that obey nothing: the test looks at the coordinator only."""
    ensemble, registration = script.world.ensemble, Registration(subscription={topic: 1}, coordination=MARKER)
    data = encode_registration(replace(registration, assignors=("sticky",)))
    for path in (DRAFT.ids(group), DRAFT.channels_of(group)):
        ensemble.ensure(path)
    for number in range(size):
        name = f"{group}_h-1-{number:08x}"
        ensemble.operate(CreateNode(DRAFT.channel(group, name)), CreateNode(DRAFT.registration(group, name), data))


def while_it_is_read(script: Script, crowd: str, size: int) -> Line:
    """The crowd has joined, and hardly any of its nodes have been read, when a second member joins the small group."""
    line = Line(script, crowd)
    join_at_once(script, crowd, "big", size)
    many = REQUESTS * tracker.READS_PER_REQUEST_MAX if size == CROWD else size
    script.world.run_until(lambda: line.waiting(crowd) > many, 100_000, "the crowd waits to be read")
    join_at_once(script, GROUP, "t", 1)
    return line


def while_it_is_assigned(script: Script, crowd: str, size: int) -> Line:
    """Each member of the crowd is about to get a command when a second member joins the small group."""
    line = Line(script, crowd)
    join_at_once(script, crowd, "big", size)
    script.world.run_until(lambda: script.world.ensemble.stat(DRAFT.mark(crowd, "big")) is not None, 100_000, "a mark")
    join_at_once(script, GROUP, "t", 1)
    return line


def after_a_failover(script: Script, crowd: str, size: int) -> Line:
    """The crowd has its commands, and no coordinator runs, when a second member joins the small group."""
    world = script.world
    join_at_once(script, crowd, "big", size)
    without = [DRAFT.channel(crowd, name) for name in world.ensemble.names(DRAFT.channels_of(crowd))]

    def all_have_commands() -> bool:
        while without and world.ensemble.names(without[-1]):  # nobody obeys these
            without.pop()
        return not without

    world.run_until(all_have_commands, 100_000, "all have commands")
    world.crash("coordinator0", restart_after_ms=2 * SESSION_MS)
    join_at_once(script, GROUP, "t", 1)
    process = script.process("coordinator0")
    world.run_until(lambda: process.running and bool(process.stores), 100_000, "it is back")
    return Line(script, crowd)


Moment = Callable[[Script, str, int], Line]
MOMENTS: tuple[Moment, ...] = (while_it_is_read, while_it_is_assigned, after_a_failover)


def play(seed: int, crowd: str, moment: Moment, size: int) -> None:
    """A second member joins a group of one beside a crowd. The two share the group, and have waited for one step at
    most."""
    script = Script(seed, consumers=0, coordinators=1, topics={"t": len(PARTITIONS), "big": size})
    script.consumers = ConsumerFactory(script.logs, {"t": 1}, rebalance_timeout_ms=60_000)
    world = script.world
    script.join("first")
    world.run_until(lambda: len(script.field.holdings) == 4 and not script.outstanding(), what="it reads all")
    line = moment(script, crowd, size)
    world.run_until(lambda: len({script.owner(p) for p in PARTITIONS}) == 2, 200_000, "the two share")
    assert line.stops
    if moment is not while_it_is_assigned:
        assert line.waited, "the crowd was through before"
    assert line.longest <= 1
    assert line.ahead <= 2 * tracker.READS_PER_REQUEST_MAX


@on_seeds(2)
@pytest.mark.parametrize("moment", MOMENTS, ids=lambda moment: moment.__name__)
@pytest.mark.parametrize("crowd", ["a", "z"])
def test_f10_a_crowd_delays_another_group_by_no_more_than_a_step(
    seed: int, crowd: str, moment: Moment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This holds at every moment of the crowd, and whichever of the two groups comes first by name."""
    monkeypatch.setattr(tracker, "READS_PER_REQUEST_MAX", READS_MAX)
    play(seed, crowd, moment, CROWD)


@pytest.mark.long
@pytest.mark.parametrize("moment", MOMENTS, ids=lambda moment: moment.__name__)
def test_f10_a_crowd_of_5000_delays_another_group_by_no_more_than_a_step(moment: Moment) -> None:
    play(0, "a", moment, 5_000)


def all_wait_in_one_line(patch: Patch) -> None:
    """What waits to be read is asked for in the order of coming, whosever it is."""
    patch.setattr(fair_queue, "_lane", lambda scope: "")


def any_number_of_reads_is_under_way(patch: Patch) -> None:
    """Each step asks for more, however much has not been answered."""
    patch.setattr(tracker.Tracker, "_full", lambda self: False)


def one_group_after_the_other(patch: Patch) -> None:
    """The next group's turn comes when the one before it is through."""
    clean = CoordinatorRole._complete

    def in_turn(self: CoordinatorRole, group: str, now_ms: int) -> bool:
        return group == min(self._pending) and clean(self, group, now_ms)

    patch.setattr(CoordinatorRole, "_complete", in_turn)


@pytest.mark.parametrize(
    "mutate",
    [all_wait_in_one_line, any_number_of_reads_is_under_way, one_group_after_the_other],
    ids=lambda m: m.__name__,
)
def test_a_fairness_that_is_taken_away_is_missed(mutate: Callable[[Patch], None], monkeypatch: Patch) -> None:
    monkeypatch.setattr(tracker, "READS_PER_REQUEST_MAX", READS_MAX)

    def all_moments(seed: int) -> None:
        for moment in MOMENTS:
            play(seed, "a", moment, CROWD)

    must_be_missed(mutate, all_moments, 1)
