"""The simulator itself: it is repeatable, makes trouble, and can find a planted bug."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.sim import faults
from tests.sim.options import FAULTS, Options, seeds
from tests.sim.process import NEVER_MS, SimProcess
from tests.sim.sweep import fingerprints
from tests.sim.toy import GOAL, PATH, Counter, count, counting_world
from tests.sim.world import CrashPlan, SimulationError, World
from zkcoord.shell.ports import (
    CommitDone,
    Heard,
    Input,
    Link,
    LinkChanged,
    Outcome,
    ReadDone,
    StoreInput,
    SyncDone,
    WatchFired,
)
from zkcoord.tree.snapshot import Kind, Read
from zkcoord.tree.writes import CreateNode, SetNode, Transaction, Write


class Hands:
    """A process whose store the test uses by hand."""

    def __init__(self, world: World, name: str = "hands") -> None:
        self.world = world
        self.inputs: list[StoreInput] = []
        self.process: SimProcess = world.spawn(name, lambda process: self)
        self.store = self.process.open_session(self.inputs.append)
        self._token = 0

    def step(self, inputs: list[Input], now_ms: int) -> int | None:
        return None

    def until(self, holds: Callable[[], bool]) -> None:
        self.world.run_until(holds, 3_000)

    def connected(self) -> Hands:
        self.until(lambda: bool(self.inputs))
        return self

    def commit(self, *writes: Write) -> CommitDone:
        self._token += 1
        self.store.commit(self._token, Transaction(writes=writes))
        return self.answer(CommitDone)

    def read(self, *reads: Read) -> ReadDone:
        self._token += 1
        self.store.read(self._token, reads)
        return self.answer(ReadDone)

    def sync(self) -> SyncDone:
        self._token += 1
        self.store.sync(self._token)
        return self.answer(SyncDone)

    def answer(self, kind: type) -> object:
        token = self._token
        self.until(lambda: any(isinstance(item, kind) and item.token == token for item in self.inputs))
        return next(item for item in self.inputs if isinstance(item, kind) and item.token == token)

    def links(self) -> list[Link]:
        return [item.link for item in self.inputs if isinstance(item, LinkChanged)]


QUIET = Options(session_timeout_ms=6_000)


# -- repeatable


def test_a_seed_gives_the_same_trace_whatever_the_hash_seed() -> None:
    found = fingerprints("tests.sim.toy:fingerprint", range(8))
    assert found[1] == found[0]
    assert found[2] == found[0]
    assert len(set(found[0])) == 8


def test_options_are_drawn_from_the_seed_and_shown() -> None:
    assert World(5).options == World(5).options
    assert World(5).options != World(6).options
    assert "session_timeout_ms=" in str(World(5).options)
    assert all(set(World(seed).options.faults) <= set(FAULTS) for seed in range(50))


def test_a_failure_names_the_seed_the_options_and_the_command_that_repeats_it() -> None:
    with pytest.raises(SimulationError) as caught:
        World(7, QUIET).fail("something broke")
    assert "something broke" in str(caught.value)
    assert "ZKCOORD_SIM_SEED=7 python -m pytest 'tests/sim/test_world.py::test_a_failure_names" in str(caught.value)
    assert "session_timeout_ms=6000" in str(caught.value)


# -- able to find bugs


def test_counting_by_compare_and_set_survives_every_storm() -> None:
    for seed in seeds(60):
        count(counting_world(seed))


def test_a_blind_write_is_caught_within_ten_seeds() -> None:
    caught = 0
    for seed in range(10):
        try:
            count(counting_world(seed, blind=True))
        except SimulationError as error:
            assert "an increment was lost" in str(error)
            caught += 1
    assert caught > 0


def test_calm_fails_when_somebody_never_rests() -> None:
    world = World(1, QUIET)
    world.ensemble.ensure(PATH, b"0")
    world.spawn("restless", lambda process: Counter(process, restless=True))
    with pytest.raises(SimulationError, match="did not come to rest"):
        world.calm(2_000)


def test_calm_does_not_wait_for_what_a_dead_process_would_have_taken_in() -> None:
    """Such an input is the answer of another server that comes after the process's death."""
    world = World(1, QUIET)
    hands = Hands(world).connected()
    hands.process.restarts = False
    world.crash("hands")
    hands.process.inbox.put(Heard())
    world.calm(2_000)


def test_an_actor_that_asks_to_be_called_at_once_for_ever_is_named() -> None:
    class Busy:
        def step(self, inputs: list[Input], now_ms: int) -> int | None:
            return now_ms

    world = World(1, QUIET)
    world.spawn("busy", lambda process: Busy())
    with pytest.raises(SimulationError, match="busy#1 asks to be called at once"):
        world.run(1_000)


@pytest.mark.parametrize(
    ("when", "applied", "incarnation"),
    [
        ("before", 2, 2),
        ("after_applied_reply_lost", 3, 2),
        ("after", 3, 2),
        ("request_lost", 2, 1),
        ("reply_lost", 3, 1),
    ],
)
def test_a_crash_plan_strikes_exactly_there(when: str, applied: int, incarnation: int) -> None:
    world = counting_world(3, QUIET, counters=1)
    world.plan(CrashPlan("counter-0", 3, when, restart_after_ms=5_000))
    world.run_until(lambda: any("plan:" in line for line in world.trace_lines()))
    world.run_until(lambda: world.processes["counter-0"].wake_ms == NEVER_MS)
    assert int(world.ensemble.data(PATH) or b"") == applied
    world.calm(5_000, quiet_ms=5_000)
    assert world.processes["counter-0"].incarnation == incarnation
    assert int(world.ensemble.data(PATH) or b"") == GOAL


# -- adverse


def test_a_lost_reply_leaves_the_write_applied_and_its_outcome_unknown() -> None:
    world = World(1, QUIET)
    hands = Hands(world).connected()
    world.plan(CrashPlan("hands", 1, "reply_lost"))
    assert hands.commit(CreateNode("/a")).outcome is Outcome.UNKNOWN
    assert world.ensemble.data("/a") == b""
    assert hands.links() == [Link.CONNECTED, Link.SUSPENDED]
    hands.until(lambda: hands.links()[-1] is Link.CONNECTED)


def test_a_request_before_the_link_is_up_comes_back_at_once() -> None:
    hands = Hands(World(1, QUIET))
    assert hands.commit(CreateNode("/a")).outcome is Outcome.UNKNOWN
    assert hands.read(Read("/")).nodes is None
    assert hands.world.ensemble.data("/a") is None


def test_a_session_that_is_cut_off_expires_and_its_client_learns_that_when_it_reconnects() -> None:
    world = World(1, QUIET)
    hands = Hands(world).connected()
    hands.commit(CreateNode("/mine", ephemeral=True))
    faults.cut(world, hands.process)
    world.run_for(20_000)
    assert world.ensemble.data("/mine") is None
    assert hands.links() == [Link.CONNECTED, Link.SUSPENDED]
    faults.uncut(world, hands.process)
    hands.until(lambda: Link.LOST in hands.links())
    assert hands.links() == [Link.CONNECTED, Link.SUSPENDED, Link.LOST]
    told = len(hands.inputs)
    hands.store.read(99, [Read("/")])
    world.run_for(1_000)
    assert len(hands.inputs) == told


def test_a_session_lives_while_its_process_runs_and_dies_when_it_is_stopped_for_too_long() -> None:
    world = World(1, QUIET)
    hands = Hands(world).connected()
    hands.commit(CreateNode("/mine", ephemeral=True))
    world.run_for(60_000)
    assert world.ensemble.data("/mine") == b""
    world.pause("hands")
    world.run_for(3_000)
    world.resume("hands")
    world.run_for(60_000)
    assert world.ensemble.data("/mine") == b""
    world.pause("hands")
    world.run_for(10_000)
    assert world.ensemble.data("/mine") is None


def test_a_killed_process_leaves_its_ephemerals_until_its_timeout() -> None:
    world = World(1, QUIET)
    hands = Hands(world).connected()
    hands.commit(CreateNode("/mine", ephemeral=True))
    world.crash("hands", restart_after_ms=None)
    world.run_for(1_000)
    assert world.ensemble.data("/mine") == b""
    world.run_for(9_000)
    assert world.ensemble.data("/mine") is None


def test_a_closed_session_takes_its_ephemerals_along_and_reports_nothing() -> None:
    world = World(1, QUIET)
    hands = Hands(world).connected()
    hands.commit(CreateNode("/mine", ephemeral=True))
    told = len(hands.inputs)
    hands.store.commit(50, Transaction(writes=(CreateNode("/last"),)))
    hands.store.close()
    hands.store.close()
    world.run_for(1_000)
    assert world.ensemble.data("/mine") is None
    assert world.ensemble.data("/last") == b""
    assert len(hands.inputs) == told


def test_nothing_moves_in_a_black_hole_until_the_client_drops_the_connection() -> None:
    world = World(1, QUIET)
    hands = Hands(world).connected()
    assert hands.store.wire is not None
    hands.store.wire.up = hands.store.wire.down = False
    hands.store.refresh()
    hands.store.sync(7)
    world.run_for(3_000)
    assert hands.inputs[1:] == []
    hands.store.drop_connection()
    hands.until(lambda: hands.links()[-1] is Link.CONNECTED and len(hands.links()) == 3)
    assert SyncDone(7, False) in hands.inputs


def test_a_broken_connection_takes_all_watches_along() -> None:
    world = World(1, QUIET)
    world.ensemble.ensure("/a", b"0")
    hands = Hands(world).connected()
    hands.read(Read("/a", watch=True))
    hands.store.break_wire("test")
    hands.until(lambda: len(hands.links()) == 3)
    world.ensemble.operate(SetNode("/a", b"1", 0))
    world.run_for(1_000)
    assert not any(isinstance(item, WatchFired) for item in hands.inputs)


def test_a_follower_answers_stale_until_it_is_synced() -> None:
    world = World(2, Options(followers=2, session_timeout_ms=6_000, weight_replicate=0))
    hands = Hands(world).connected()
    while hands.store.wire is None or hands.store.wire.replica is world.ensemble.leader:
        hands.store.break_wire("another server, please")
        hands.until(lambda: hands.store.wire is not None)
    world.ensemble.operate(CreateNode("/new"))
    assert not hands.read(Read("/new")).nodes[0].exists
    hands.sync()
    assert hands.read(Read("/new")).nodes[0].exists


def test_a_client_never_goes_back_behind_what_it_has_seen() -> None:
    world = World(2, Options(followers=2, session_timeout_ms=6_000, weight_replicate=0))
    hands = Hands(world).connected()
    for n in range(20):
        done = hands.commit(CreateNode(f"/n{n}"))
        if done.outcome is Outcome.COMMITTED:
            hands.store.break_wire("test")
            hands.until(lambda: hands.store.wire is not None)
            hands.until(lambda: hands.links()[-1] is Link.CONNECTED)
            assert hands.read(Read(f"/n{n}")).nodes[0].exists


def test_a_follower_without_its_leader_answers_reads_while_the_session_ends() -> None:
    world = World(2, Options(followers=1, session_timeout_ms=6_000))
    hands = Hands(world).connected()
    while hands.store.wire is None or hands.store.wire.replica is world.ensemble.leader:
        hands.store.break_wire("another server, please")
        hands.until(lambda: hands.store.wire is not None)
    hands.until(lambda: hands.links()[-1] is Link.CONNECTED)
    hands.commit(CreateNode("/mine", ephemeral=True))
    world.ensemble.followers[0].cut = True
    hands.store.refresh()
    world.run_for(10_000)
    assert world.ensemble.data("/mine") is None
    assert hands.read(Read("/mine")).nodes[0].exists
    hands.store.sync(77)
    world.run_for(1_000)
    assert not any(isinstance(item, SyncDone) for item in hands.inputs)


def test_events_between_two_parts_of_a_read_are_told_before_it() -> None:
    """A real store sends each watched read by itself, and reports events when they come."""
    options = Options(session_timeout_ms=6_000, torn_rate=1.0)
    for seed in range(50):
        world = World(seed, options)
        for name in "abc":
            world.ensemble.ensure(f"/{name}", b"0")
        hands = Hands(world).connected()
        hands.store.read(5, [Read("/a", watch=True), Read("/b", watch=True), Read("/c", watch=True)])
        wire = hands.store.wire
        hands.until(lambda wire=wire: not wire.requests or len(wire.requests[0].waiting) < 3)
        if not wire.requests:
            continue  # the whole read was answered at once
        world.ensemble.operate(SetNode("/a", b"1", 0))
        hands.until(lambda hands=hands: any(isinstance(item, ReadDone) for item in hands.inputs))
        fired, done = hands.inputs[1:]
        assert fired == WatchFired("/a", True, False)
        assert isinstance(done, ReadDone)
        assert done.nodes is not None
        assert done.nodes[0].data == b"0"
        return
    pytest.fail("no read was torn")


def test_a_request_that_is_too_large_is_refused_and_the_connection_stays() -> None:
    hands = Hands(World(1, QUIET)).connected()
    done = hands.commit(CreateNode("/large", bytes(1 << 20)))
    assert done == CommitDone(1, Outcome.REFUSED, failed_at=0, reason="TooLarge")
    assert hands.links() == [Link.CONNECTED]
    assert hands.world.ensemble.data("/large") is None


def test_without_a_quorum_nobody_connects_and_no_session_expires() -> None:
    world = World(1, Options(session_timeout_ms=6_000, fault_sessions_max=0.1))
    hands = Hands(world).connected()
    hands.commit(CreateNode("/mine", ephemeral=True))
    world.ensemble.serving = False
    hands.store.break_wire("no quorum")
    world.run_for(60_000)
    assert hands.links()[-1] is Link.SUSPENDED
    faults.restore(world)
    hands.until(lambda: hands.links()[-1] is Link.CONNECTED)
    assert hands.read(Read("/", Kind.CHILDREN)).nodes[0].children == ("mine",)


def test_clocks_of_processes_run_at_their_own_rates() -> None:
    world = World(4, Options(clock_skew_permille_max=50))
    process = Hands(world).process
    begin_ms = process.clock.now_ms()
    world.run_for(100_000)
    assert 94_000 < process.clock.now_ms() - begin_ms < 106_000
    for local_ms in range(begin_ms, begin_ms + 50):
        at_ms = process.clock.world_ms(local_ms)
        shown = [process.clock.zero_ms + ms * process.clock.permille // 1000 for ms in (at_ms - 1, at_ms)]
        assert shown[0] < local_ms <= shown[1]
