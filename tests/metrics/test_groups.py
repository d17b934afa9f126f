"""What a coordinator's metrics tell of a group in the simulated world: of its hand-overs, and of members that hang."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from prometheus_client import CollectorRegistry

from tests.sim.actors import GROUP, ProductActor, coordinator
from tests.sim.process import SimProcess
from tests.sim.script import Script, hold_calls, on_seeds
from zkcoord.core.memory import Memory
from zkcoord.core.view import Channel, GroupView, Member
from zkcoord.metrics import names
from zkcoord.metrics.families import Instruments
from zkcoord.metrics.groups import GroupMetrics
from zkcoord.serving.decided import DecidedGroup
from zkcoord.shell.ports import Input


class Measured:
    """The metrics of each coordinator's process, fed as `zkcoord.metrics.programs` does."""

    def __init__(self) -> None:
        self.registries: dict[str, CollectorRegistry] = {}
        self.groups: dict[str, GroupMetrics] = {}

    def __call__(self, process: SimProcess) -> ProductActor:
        """A coordinator that is measured."""
        registry = self.registries[process.name] = CollectorRegistry()
        instruments = Instruments(registry)
        instruments.make(names.ALL)
        groups = self.groups[process.name] = GroupMetrics(instruments)
        actor = coordinator(process)
        step = actor.step

        def measured(inputs: Sequence[Input], now_ms: int) -> int | None:
            done = step(inputs, now_ms)
            for each in actor.role.decided:
                groups.decided(each)
            groups.keep(actor.role.groups)
            return done

        actor.step = measured
        return actor

    def counted(self, script: Script, sample: str, **labels: str) -> float:
        """A sample of the coordinator that serves; 0 if there is none."""
        return self.registries[script.leader()].get_sample_value(sample, {"group": GROUP, **labels}) or 0

    def now(self, script: Script, name: names.Name, *labels: str) -> float:
        """What is looked up now, of the coordinator that serves."""
        found = self.groups[script.leader()].samples(script.process(script.leader()).clock.now_ms())
        return {(each, values): value for each, values, value in found}[name, (GROUP, *labels)]


@on_seeds()
def test_a_dead_members_partitions_are_counted_until_others_have_them(seed: int) -> None:
    measured = Measured()
    script = Script(seed, consumers=3, topics={"t": 6}, coordinates=measured)
    script.settle()
    stable = partial(measured.now, script, names.STATE, "Stable")
    script.world.run_until(stable, 20_000, "the coordinator sees it stable")
    before = measured.counted(script, "zkcoord_handover_seconds_count")
    assert measured.now(script, names.UNOWNED) == 0
    dead = script.member("consumer0")
    script.world.crash("consumer0", restart_after_ms=None)
    script.world.run_until(lambda: (GROUP, dead) not in script.field.registrations, 20_000, "its session is over")
    script.world.run_until(lambda: measured.now(script, names.UNOWNED) > 0, 20_000, "its share has no reader")
    script.settle("others have its share")
    script.world.run_until(stable, 20_000, "the coordinator sees that")

    assert measured.counted(script, "zkcoord_handover_seconds_count") >= before + 2
    assert measured.counted(script, "zkcoord_group_unowned_seconds_total") > 0
    assert (measured.now(script, names.UNOWNED), measured.now(script, names.MEMBERS)) == (0, 2)
    done = measured.groups[script.leader()].handovers(GROUP)
    assert done is not None
    assert all(each.acknowledged_ms is not None for each in done)
    assert measured.groups[script.leader()].handovers(GROUP, 2) == done[-2:]


@on_seeds()
def test_a_first_record_that_is_told_later_stands_in_the_timeline_and_is_counted_once(seed: int) -> None:
    measured = Measured()
    script = Script(seed, coordinators=1, consumers=1, topics={"t": 4}, coordinates=measured)
    script.settle()
    script.world.run_for(1_000)
    groups = measured.groups[script.leader()]
    assert {each.first_record_ms for each in groups.handovers(GROUP) or ()} == {None}
    script.world.run_for(12_000)
    done = groups.handovers(GROUP) or []
    assert (len(done), [each for each in done if each.first_record_ms is None]) == (4, [])
    script.world.run_for(60_000)
    assert measured.counted(script, "zkcoord_handover_stage_seconds_count", stage="first_record") == 4
    assert groups.handovers(GROUP) == done


@on_seeds()
def test_a_member_that_hangs_shows_as_an_old_command_then_retries_then_an_eviction(seed: int) -> None:
    measured = Measured()
    script = Script(seed, consumers=2, topics={"t": 4}, coordinates=measured)
    script.settle()
    hold_calls(script.application("consumer0"))
    script.grow("t", 8)
    world = script.world
    world.run_until(lambda: measured.now(script, names.COMMAND_AGE) > 5, 60_000, "a command is old")
    assert measured.now(script, names.COMMANDS, "1") == 1
    assert measured.now(script, names.COMMANDS, "60") == 0
    assert measured.counted(script, "zkcoord_group_retries_total") == 0
    world.run_until(lambda: measured.now(script, names.COMMAND_AGE) > 12, 60_000, "it is older")
    assert measured.counted(script, "zkcoord_group_retries_total") == 1
    world.run_until(lambda: bool(world.events("evicted")), 200_000, "it is evicted")
    world.run_for(1_000)
    assert measured.counted(script, "zkcoord_group_evictions_total") == 1
    assert measured.now(script, names.COMMANDS, "60") == 0


@on_seeds()
def test_a_group_that_was_removed_is_shown_no_more(seed: int) -> None:
    measured = Measured()
    script = Script(seed, consumers=2, topics={"t": 4}, coordinates=measured)
    script.settle()
    serving = measured.groups[script.leader()]
    serving.keep(())

    assert list(serving.samples(script.world.now_ms)) == []
    assert serving.handovers(GROUP) is None
    found = [s for metric in measured.registries[script.leader()].collect() for s in metric.samples]
    assert [s for s in found if s.labels.get("group") == GROUP] == []


def test_lag_that_was_told_by_who_is_no_member_any_more_does_not_count() -> None:
    registry = CollectorRegistry()
    instruments = Instruments(registry)
    instruments.make(names.ALL)
    groups = GroupMetrics(instruments)
    channels = {c: Channel(consumer_id=c, version=1, lag=lag) for c, lag in (("here", 5), ("gone", 100))}
    view = GroupView(group=GROUP, members={"here": Member(consumer_id="here", czxid=1)}, channels=channels)

    groups.decided(DecidedGroup(view=view, memory=Memory(), decisions=(), now_ms=1))

    assert [value for name, _, value in groups.samples(1) if name is names.REPORTED_LAG] == [5]
