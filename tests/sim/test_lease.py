"""Each server has its own limits for session timeouts, so a session's timeout can become shorter later."""

from __future__ import annotations

from dataclasses import replace

from tests.sim import faults
from tests.sim.actors import GROUP
from tests.sim.script import QUIET, Script, hold_calls, on_seeds
from zkcoord.shell.ports import TOO_LARGE, CommitDone, FromStore, Outcome
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.writes import CheckNode, Transaction

LONG_MS, SHORT_MS = 40_000, 4_000


@on_seeds(3)
def test_a_lease_ends_before_a_session_that_goes_on_with_a_shorter_timeout(seed: int) -> None:
    """The consumer reconnects to a server with a lower `maxSessionTimeout`, and is then cut off. It must not read
    longer than its session lasts."""
    script = Script(seed, replace(QUIET, session_timeout_ms=LONG_MS), consumers=2, topics={"t": 2})
    script.settle()
    world, ensemble = script.world, script.world.ensemble
    ensemble.timeout_max_ms = SHORT_MS
    (store,) = script.process("consumer0").stores
    store.break_wire("another server")
    world.run_for(2 * LONG_MS)  # further syncs extend its lease
    assert script.journal("lost") == []
    gone, cut_ms = script.member("consumer0"), world.now_ms
    faults.cut(world, script.process("consumer0"))
    world.run_until(lambda: len(script.owned("consumer1")) == 2, what="its partitions are another's")
    assert world.now_ms < cut_ms + LONG_MS // 2
    (lost,) = {entry.time_ms for entry in script.journal("lost")}
    assert lost < script.field.gone["g", gone].time_ms
    world.run_for(LONG_MS)
    faults.uncut(world, script.process("consumer0"))
    script.settle()
    script.calm()


@on_seeds()
def test_an_outcome_that_no_server_gave_extends_no_lease(seed: int) -> None:
    """Unknown outcomes and refusals by the client itself extend no lease, even while the registration is seen to
    exist."""
    script = Script(seed, consumers=1)
    script.settle()
    role, now_ms = script.actor("consumer0").role, script.process("consumer0").clock.now_ms()
    until_ms = role.lease.until_ms
    for done in (CommitDone(0, Outcome.UNKNOWN), CommitDone(0, Outcome.REFUSED, reason=TOO_LARGE)):
        role.committed("none", done, now_ms + 1_000, now_ms + 1_000)
    assert role.lease.until_ms == until_ms
    role.committed("none", CommitDone(0, Outcome.REFUSED, reason="BadVersion"), now_ms + 1_000, now_ms + 1_000)
    assert role.lease.until_ms == now_ms + 1_000 + role.lease.timeout_ms * 2 // 3


@on_seeds()
def test_nothing_extends_a_lease_once_something_says_that_the_registration_changed(seed: int) -> None:
    """The watch of the registration fired, or the fence refused a write of its own. Nothing extends the lease until the
    registration is read again."""
    script = Script(seed, consumers=1)
    script.settle()
    loop, role, clock = (
        script.actor("consumer0").loop,
        script.actor("consumer0").role,
        script.process("consumer0").clock,
    )
    until_ms, path = role.lease.until_ms, DRAFT.registration(GROUP, script.member("consumer0"))
    fenced = Transaction(writes=(CheckNode(path, 7),), why="a fence that does not stand any more")
    script.wire("consumer0").up = False
    loop.commit(fenced, "none", clock.now_ms())
    done = CommitDone(loop._token, Outcome.REFUSED, failed_at=0, reason="NoNode")
    script.process("consumer0").inbox.put(FromStore(1, done))
    script.world.run_for(100)
    assert role.lease.until_ms == until_ms


@on_seeds()
def test_nothing_may_be_read_beyond_the_lease_though_its_loop_comes_late(seed: int) -> None:
    script = Script(seed, consumers=1)
    script.settle()
    script.world.run_for(1_000)
    role, mine = script.actor("consumer0").role, script.owned("consumer0")
    assert all(role.allowed(partition, role.lease.until_ms - 1) for partition in mine)
    assert not any(role.allowed(partition, role.lease.until_ms) for partition in mine)
    assert role.readable == set(mine)


@on_seeds()
def test_resting_partitions_are_not_read_under_a_renewed_lease(seed: int) -> None:
    """The application was told that all partitions are lost, and has not started them again yet."""
    script = Script(seed, consumers=1)
    script.settle()
    world, role, mine = script.world, script.actor("consumer0").role, script.owned("consumer0")
    hold_calls(script.application("consumer0"))
    script.wire("consumer0").down = False
    world.run_until(lambda: not role.registered.application.running, what="the lease ends")
    world.run_until(lambda: bool(role.registered.application.resuming), what="it is back")
    now_ms = script.process("consumer0").clock.now_ms()
    assert role.lease.holds(now_ms)
    assert role.registered.memory.held.keys() == set(mine)
    assert not any(role.allowed(partition, now_ms) for partition in mine)


@on_seeds()
def test_a_decision_compares_seen_nodes_once(seed: int) -> None:
    """Otherwise each step would compare all partitions that are held."""
    script = Script(seed, consumers=1)
    script.settle()
    script.world.run_for(1_000)
    assert script.actor("consumer0").role.registered.watch.nodes.view.fresh == frozenset()
