"""The group that a crash-point sweep plays, and the conditions "settled" and "at rest"."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from tests.sim.actors import GROUP
from tests.sim.field import parsed
from tests.sim.scenarios import Scene
from tests.sim.script import QUIET, SESSION_MS
from tests.sim.world import World

SMALL: Mapping[str, int] = {"t": 3}
REBALANCE_MS = 1_000
OPTIONS = replace(QUIET, read_ms_max=4_000)  # few commits, since each write is one more crash point
SETTLE_STEPS = 20_000
BUDGET_MS = 120_000


def scene(world: World, consumers: int = 2) -> Scene:
    """Two coordinators and some consumers of three partitions."""
    return Scene(world, consumers=consumers, topics=SMALL, rebalance_timeout_ms=REBALANCE_MS)


def settled(played: Scene, members: int = 0) -> bool:
    """True when every partition is held by a member, no command is outstanding, and there are at least `members`
    members."""
    field = played.field
    if any(field.commands.values()) or len(field.registrations) < members:
        return False
    alive = [p for p, held in field.holdings.items() if (GROUP, held.consumer) in field.registrations]
    topic = parsed(field.ensemble.data("/brokers/topics/t") or b"")
    return len(alive) == len(topic["partitions"])


def settle(played: Scene, members: int) -> None:
    """Run until the group is settled, with at least `members` members."""
    played.world.run_until(lambda: settled(played, members), SETTLE_STEPS, "settled")
    played.world.settled = True


def at_rest(played: Scene) -> None:
    """Everything comes to rest, and soon: a crash costs no more than the time-outs that detect it."""
    began_ms = played.world.now_ms
    played.calm()
    assert played.world.now_ms - began_ms <= BUDGET_MS
    assert settled(played)


Middle = Callable[[Scene, Callable[[], bool]], None]
"""What happens in the middle of a scenario, told when that is over."""


def undisturbed(played: Scene, over: Callable[[], bool]) -> None:
    """Do nothing in the middle of the scenario."""


def failover_in_between(played: Scene, over: Callable[[], bool]) -> None:
    """Kill the coordinator that serves as soon as it has sent a command (or the scenario is over); it comes back
    later."""
    world, field = played.world, played.field
    world.run_until(lambda: any(field.commands.values()) or over(), SETTLE_STEPS, "a command stands, or it is over")
    session = field.epoch_session
    if session is not None and world.processes[session.process].running:
        world.crash(session.process, restart_after_ms=3 * SESSION_MS)
    world.run_until(lambda: field.epoch_session is not session, SETTLE_STEPS, "another is elected")
