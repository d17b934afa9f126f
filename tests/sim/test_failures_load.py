"""Failure cases of size (docs/failures.md): commands that pile up, large multis, other groups' work, bursts."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.sim.actors import GROUP, ConsumerFactory
from tests.sim.field import START, STOP
from tests.sim.script import SESSION_MS, Script, hold_calls, on_seeds
from zkcoord.core.model import TopicPartition
from zkcoord.serving import role as coordinating
from zkcoord.shell import tracker
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.snapshot import Read
from zkcoord.tree.writes import BYTES_MAX, ITEMS_MAX, Transaction

OTHER = "other"


def standing(script: Script, name: str) -> dict[str, int]:
    """Option -> how many commands of this option are outstanding in a consumer's channel."""
    found: dict[str, int] = {}
    for command in script.field.commands.get((GROUP, script.member(name)), {}).values():
        found[command.option] = found.get(command.option, 0) + 1
    return found


@on_seeds()
def test_f09_commands_do_not_pile_up_while_their_consumer_is_silent_and_coordinators_restart(seed: int) -> None:
    """A consumer obeys nothing, plans change, and coordinators come and go. At most one command for each partition is
    outstanding."""
    script = Script(seed, consumers=3, topics={"t": 12}, rebalance_timeout_ms=60_000)
    script.settle()
    world = script.world
    go_on = hold_calls(script.application("consumer0"))
    owned = set(script.owned("consumer0"))
    for turn in range(6):
        script.join(f"late{turn}")
        world.run_until(lambda name=f"late{turn}": script.registered(name), what="it joins")  # type: ignore[misc]
        world.crash(script.leader(), restart_after_ms=SESSION_MS)
        world.run_for(3 * SESSION_MS)
        named = [
            partition
            for command in script.field.commands.get((GROUP, script.member("consumer0")), {}).values()
            for partition in command.partitions or ()
        ]
        assert len(named) == len(set(named)) <= len(owned)
        assert standing(script, "consumer0").keys() <= {STOP, START}
    go_on()
    script.settle("it obeys after all")
    script.calm()


@on_seeds(1)
def test_f19_a_large_grant_is_cut_into_multis_that_every_server_takes(seed: int) -> None:
    """2,500 partitions with long names go to one member: several commands, each within both limits."""
    topic = "t" * 200
    script = Script(seed, consumers=1, topics={topic: 2_500})
    script.world.run_until(script.all_held, 60_000, "everything is held")
    sizes = [t.transaction.payload_bytes() for t in script.world.tried]
    assert max(sizes) <= BYTES_MAX * 2
    grants = script.commands_sent(START)
    named = [len(Transaction(writes=t.transaction.writes).writes) for t in grants]
    assert len(grants) > 2
    assert max(named) <= ITEMS_MAX + 4  # the three checks and the command
    script.leave("consumer0")
    script.world.run_until(lambda: not script.registered("consumer0"), 60_000, "it leaves")
    assert max(t.transaction.payload_bytes() for t in script.world.tried) <= BYTES_MAX * 2
    assert not [t for t in script.world.tried if t.result.reason == "Lost"]


@on_seeds()
def test_f10_a_group_in_turmoil_does_not_starve_another(seed: int) -> None:
    """Members of one group come and go without end. Meanwhile a member that joins another group gets its share."""
    script = Script(seed, consumers=6, topics={"t": 40})
    others = ConsumerFactory(script.logs, {"t": 1}, OTHER)
    world = script.world
    world.spawn("other0", others)
    world.run_until(lambda: len(owners_of(script, OTHER)) == 1, what="the other group is served")
    turmoil = Turmoil(script, every_ms=50)
    turmoil.begin()
    world.run_until(lambda: turmoil.acts >= 20, what="turmoil")
    joined_ms = world.now_ms
    world.spawn("other1", others)
    world.run_until(lambda: len(owners_of(script, OTHER)) == 2, 30_000, "the other group shares")
    assert world.now_ms - joined_ms < 2_000
    turmoil.end()
    script.calm()


@on_seeds()
def test_f11_a_group_whose_members_never_stop_changing_is_still_served(seed: int) -> None:
    """The coordinator does not wait for a quiet time. While a member joins or dies every 100 ms, partitions are granted
    and read."""
    script = Script(seed, consumers=4, topics={"t": 12})
    script.settle()
    world = script.world
    turmoil = Turmoil(script, every_ms=100, spared=("consumer0", "consumer1"))
    turmoil.begin()
    began_ms = world.now_ms
    world.run_for(20_000)
    starts = script.commands_sent(START, since_ms=began_ms)
    gaps = [later.time_ms - earlier.time_ms for earlier, later in pairwise(starts)]
    assert turmoil.acts >= 100
    assert max(gaps) < SESSION_MS + 2_000  # a death is known after the session timeout; nothing else may delay a grant
    readers = {entry.process for entry in script.journal("read", since_ms=world.now_ms - 5_000)}
    assert readers >= {"consumer0", "consumer1"}
    turmoil.end()
    script.calm()


@on_seeds(6)
def test_a_step_sends_a_bounded_part_and_the_rest_follows(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a bound of two decisions a raise, marks, stops and grants need many steps, and keep their order."""
    monkeypatch.setattr(coordinating, "DECISIONS_MAX", 2)
    script = Script(seed, consumers=5, topics={"t": 15, "u": 6})
    script.settle()
    began_ms = script.world.now_ms
    script.join("late")
    script.settle("it has its share")
    script.world.crash("consumer1", restart_after_ms=None)
    script.world.run_until(lambda: not script.registered("consumer1"), what="its session ends")
    script.settle("the others have its share")
    assert len(script.commands_sent(START, since_ms=began_ms)) > 2
    script.calm()


@on_seeds()
def test_f30_after_a_reconnection_reads_come_in_bounded_requests_that_writes_can_pass(seed: int) -> None:
    """Everything is read again after a broken link, but never in one request."""
    script = Script(seed, consumers=3, topics={"t": 30})
    script.settle()
    leader = script.leader()
    limit, tracker.READS_PER_REQUEST_MAX = tracker.READS_PER_REQUEST_MAX, 7
    try:
        asked: list[tuple[Read, ...]] = []
        store = next(store for store in reversed(script.process(leader).stores) if store.wire is not None)
        read = store.read

        def noted(token: int, reads: tuple[Read, ...]) -> None:
            asked.append(tuple(reads))
            read(token, reads)

        store.read = noted  # type: ignore[method-assign, assignment]
        store.break_wire("by the script")
        script.join("late")
        script.settle("it joins")
    finally:
        tracker.READS_PER_REQUEST_MAX = limit
    assert max(map(len, asked)) == 7
    assert {r.path for reads in asked for r in reads} >= {DRAFT.owner(GROUP, TopicPartition("t", n)) for n in range(30)}
    assert script.leader() == leader
    script.calm()


def owners_of(script: Script, group: str) -> set[str]:
    """The registered consumers that own a partition of a group."""
    found = set()
    for (of, _), thread in script.field.owners.items():
        consumer = thread.rpartition("-")[0]
        if of == group and (group, consumer) in script.field.registrations:
            found.add(consumer)
    return found


class Turmoil:
    """Members of the scene's group are killed and started again and again, one act at a time."""

    def __init__(self, script: Script, every_ms: int, spared: tuple[str, ...] = ()) -> None:
        self._script, self._every_ms, self._spared = script, every_ms, spared
        self.acts = 0
        self._on = False

    def begin(self) -> None:
        """Begin the acts."""
        self._on = True
        self._later()

    def end(self) -> None:
        """End the acts."""
        self._on = False

    def _later(self) -> None:
        world = self._script.world
        world.at(world.now_ms + self._every_ms, self._act)

    def _act(self) -> None:
        if not self._on:
            return
        world = self._script.world
        names = sorted(n for n in world.processes if n.startswith("consumer") and n not in self._spared)
        name = names[int(world.rng.random() * len(names))]
        self.acts += 1
        if world.processes[name].running:
            world.crash(name, restart_after_ms=2 * self._every_ms)
        self._later()
