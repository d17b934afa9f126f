"""Layout legacy: a group is served once it is adopted. Before and after its adoption nothing of it is touched."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from typing import TypeGuard

import pytest

from tests.sim.actors import GROUP, coordinator
from tests.sim.mixed_scene import MixedScene
from tests.sim.script import Script, Tried, seeds
from tests.sim.test_journal import MemoryPages
from zkcoord.core.adoption import Adoption
from zkcoord.core.record import DEFAULT_RECORD, GroupRecord, Request
from zkcoord.shell.journal.replay import replay
from zkcoord.tree.paths import DRAFT, LEGACY, SCHEMA, Layout
from zkcoord.tree.record import encode_record
from zkcoord.tree.writes import CheckNode, CreateNode, DeleteNode, SetNode

RECORD, STATE, IDS = LEGACY.record(GROUP), LEGACY.state(GROUP), LEGACY.ids(GROUP)
ADOPTED = replace(DEFAULT_RECORD, adoption=Adoption(offsets="zookeeper", strategy="range", kafka="0.11"))
QUIET_MS = 20_000
OLD_MEMBER = f"{IDS}/g_old-1416335000123-1a2b3c4d"
ABOVE = ("/consumers", LEGACY.group(GROUP), IDS)


class OldGroup(Script):
    """A tree of the layout legacy, with a group of old consumers."""

    def __init__(self, seed: int, *, consumers: int = 1, adopted: bool = False) -> None:
        super().__init__(seed, coordinators=1, consumers=0, coordinates=partial(coordinator, layout=LEGACY))
        self.world.run_until(lambda: self.world.ensemble.stat(RECORD.rpartition("/")[0]) is not None, what="a tree")
        for path in ABOVE:
            self.world.ensemble.operate(CreateNode(path))
        self.world.ensemble.operate(CreateNode(OLD_MEMBER, b'{"version":1,"subscription":{"t":1},"pattern":"static"}'))
        if adopted:
            self.decide_on(ADOPTED)
        for n in range(consumers):
            self.join(f"consumer{n}")

    def decide_on(self, record: GroupRecord) -> None:
        """A tool writes the record."""
        stat, data = self.world.ensemble.stat(RECORD), encode_record(record)
        self.world.ensemble.operate(CreateNode(RECORD, data) if stat is None else SetNode(RECORD, data, stat.version))

    def look_on(self) -> None:
        """Let some time pass."""
        end_ms = self.world.now_ms + QUIET_MS
        self.world.run_until(lambda: self.world.now_ms >= end_ms, what="some time")

    def written(self) -> list[str]:
        """The paths below the group's folder, record and channels that programs of ours wrote."""
        return [path for tried in self.world.tried if tried.applied for path in _of_the_group(tried)]

    def ids(self) -> list[str]:
        """The consumer ids that are registered."""
        return sorted(self.world.ensemble.names(IDS))


def _of_the_group(tried: Tried) -> list[str]:
    places = (LEGACY.group(GROUP), RECORD, LEGACY.channels_of(GROUP))
    changes = [write for write in tried.transaction.writes if not isinstance(write, CheckNode)]
    return [write.path for write in changes if write.path.startswith(places)]


@pytest.mark.parametrize("seed", seeds(3))
def test_nothing_of_a_group_that_is_not_adopted_is_written_and_no_consumer_registers(seed: int) -> None:
    group = OldGroup(seed, consumers=2)
    group.look_on()
    assert group.written() == []
    assert group.ids() == [OLD_MEMBER.rpartition("/")[2]]
    told = {event.client: event.fields["why"] for event in group.world.events("waiting")}
    assert sorted(client.partition("#")[0].partition("/")[0][:8] for client in told) == ["consumer", "consumer"]
    for why in told.values():
        assert why == f"group g is not adopted: whoever runs its old consumers runs `zkcoord group adopt {GROUP}`"


@pytest.mark.parametrize("seed", seeds(3))
def test_a_waiting_consumer_registers_when_its_group_is_adopted(seed: int) -> None:
    group = OldGroup(seed)
    for number in range(4):  # the old member owns everything, and does not give it up
        group.world.ensemble.ensure(f"{LEGACY.owners(GROUP)}/t/{number}", b"g_old-1416335000123-1a2b3c4d-0")
    group.look_on()
    group.decide_on(ADOPTED)
    group.world.run_until(lambda: len(group.ids()) == 2, what="a registration")
    group.world.run_until(lambda: group.world.ensemble.stat(STATE) is not None, what="the group's state")
    assert all(path.startswith((IDS, "/zkcoord/", "/consumers/g/o")) for path in group.written())


@pytest.mark.parametrize("seed", seeds(3))
def test_a_record_without_an_adoption_adopts_nothing(seed: int) -> None:
    """The record exists only because somebody set the policy first."""
    group = OldGroup(seed)
    group.decide_on(replace(DEFAULT_RECORD, assignor="range"))
    group.look_on()
    assert group.written() == []


@pytest.mark.parametrize("seed", seeds(3))
def test_an_unreadable_record_adopts_nothing_and_is_told_of(seed: int) -> None:
    group = OldGroup(seed)
    group.world.ensemble.operate(CreateNode(RECORD, b'{"adoption":{"offsets":"?"}}'))
    group.look_on()
    assert group.written() == []
    (why,) = {event.fields["why"] for event in group.world.events("waiting")} - {_unadopted(group)}
    assert "adoption.offsets is '?', allowed is zookeeper or kafka; an operator must mend it" in why


def _unadopted(group: OldGroup) -> str:
    return next((e.fields["why"] for e in group.world.events("waiting") if "not adopted" in e.fields["why"]), "")


@pytest.mark.parametrize("seed", seeds(5))
@pytest.mark.parametrize("step", ["parents", "channel", "join"])
def test_f92_a_release_between_the_steps_of_a_join_keeps_the_consumer_out(seed: int, step: str) -> None:
    """A tool sees no registration of ours, and takes the adoption out of the record. A multi that the consumer decided
    before that is refused."""
    group = OldGroup(seed, adopted=True)
    world = group.world
    before_write = world.before_write

    def release(store: object, transaction: object) -> str:
        if getattr(transaction, "why", "") == step:
            group.decide_on(DEFAULT_RECORD)
        return before_write(store, transaction)  # type: ignore[arg-type]

    world.before_write = release  # type: ignore[method-assign, assignment]
    group.look_on()
    refused = [tried for tried in world.tried if tried.transaction.why == step and not tried.applied]
    assert len(refused) == 1
    assert refused[0].transaction.writes[0] == CheckNode(RECORD, 0)
    assert group.ids() == [OLD_MEMBER.rpartition("/")[2]]
    group.decide_on(ADOPTED)
    world.before_write = before_write  # type: ignore[method-assign]
    world.run_until(lambda: len(group.ids()) == 2, what="a registration")


@pytest.mark.parametrize("seed", seeds(5))
def test_f93_a_coordinator_writes_nothing_of_a_released_group_until_it_is_adopted_again(
    seed: int,
) -> None:
    """The tool takes the adoption out, and then removes state and record. The coordinator creates neither again."""
    group = OldGroup(seed, consumers=0, adopted=True)
    world = group.world
    world.run_until(lambda: world.ensemble.stat(STATE) is not None, what="the group's state")
    group.decide_on(DEFAULT_RECORD)
    before = len(group.written())
    state = world.ensemble.stat(STATE)
    assert state is not None
    world.ensemble.operate(DeleteNode(STATE, state.version))
    group.look_on()
    record = world.ensemble.stat(RECORD)
    assert record is not None
    world.ensemble.operate(DeleteNode(RECORD, record.version))
    group.look_on()
    assert len(group.written()) == before
    group.decide_on(ADOPTED)
    world.run_until(lambda: world.ensemble.stat(STATE) is not None, what="the group's state again")


@pytest.mark.parametrize("seed", seeds(3))
def test_an_adopted_group_without_members_and_offsets_is_kept_beyond_the_retention(seed: int) -> None:
    group = OldGroup(seed, consumers=0)
    group.world.spawn("coordinator1", partial(coordinator, layout=LEGACY, retention_ms=QUIET_MS // 4))
    group.decide_on(ADOPTED)
    group.world.processes["coordinator0"].kill()
    group.world.ensemble.operate(DeleteNode(OLD_MEMBER, 0))
    group.look_on()
    group.look_on()
    assert group.world.ensemble.stat(RECORD) is not None
    assert group.world.ensemble.stat(IDS) is not None


@pytest.mark.parametrize("seed", seeds(3))
def test_an_adopted_group_is_not_deleted_on_request(seed: int) -> None:
    group = OldGroup(seed, consumers=0, adopted=True)
    group.world.run_until(lambda: group.world.ensemble.stat(STATE) is not None, what="the group's state")
    group.decide_on(replace(ADOPTED, requests={"delete": Request(run="r", offsets=True)}))
    group.look_on()
    assert group.world.ensemble.stat(IDS) is not None
    assert group.world.ensemble.stat(SCHEMA) is not None
    text = (group.world.ensemble.data(RECORD) or b"").decode()
    assert "it was adopted from old consumers: release it, then delete it with their tool" in text


@pytest.mark.parametrize("seed", seeds(3))
@pytest.mark.parametrize("layout", [DRAFT, LEGACY])
def test_the_layout_draft_is_not_set_up_where_old_consumers_are(seed: int, layout: Layout) -> None:
    script = Script(seed, coordinators=0, consumers=0)
    world = script.world
    for path in (*ABOVE, "/consumers/h"):
        world.ensemble.operate(CreateNode(path))
    world.spawn("coordinator9", partial(coordinator, layout=layout), restarts=False)
    if layout is LEGACY:
        world.run_until(lambda: bool(world.events("elected")), what="an election")
        return
    world.run_until(lambda: script.actor("coordinator9").loop.fatal is not None, what="a refusal")
    refusal = str(script.actor("coordinator9").loop.fatal)
    assert "old consumers use this tree (/consumers/g/ids is there)" in refusal
    assert "--layout legacy" in refusal
    assert world.ensemble.stat("/zkcoord") is None


@pytest.mark.parametrize("seed", seeds(3))
def test_the_layout_draft_is_set_up_beside_offsets_that_brokers_wrote(seed: int) -> None:
    """A broker writes offsets of clients that never register."""
    script = Script(seed, coordinators=0, consumers=0)
    for path in ("/consumers", "/consumers/g", "/consumers/g/offsets"):
        script.world.ensemble.operate(CreateNode(path))
    script.world.spawn("coordinator9", coordinator, restarts=False)
    script.world.run_until(lambda: bool(script.world.events("elected")), what="an election")


@pytest.mark.parametrize("seed", seeds(3))
def test_nodes_below_consumers_are_open_but_owners_and_offsets_are_not(seed: int) -> None:
    """Old members read registrations, and create nodes below the parents, whatever ACL is configured."""
    script = Script(seed, coordinators=1, consumers=1, coordinates=partial(coordinator, layout=LEGACY))
    script.world.run_until(lambda: script.world.ensemble.stat("/zkcoord/groups") is not None, what="a tree")
    script.world.ensemble.operate(CreateNode(RECORD, encode_record(ADOPTED)))
    script.world.run_until(lambda: bool(script.world.ensemble.names(LEGACY.owners(GROUP))), what="an owner")
    made = {w.path: w.shared for t in script.world.tried if t.applied for w in t.transaction.writes if is_create(w)}
    folder = LEGACY.group(GROUP)
    offset_or_owner = re.compile(rf"{folder}/(owners|offsets)/t/\d+")
    assert {path for path, shared in made.items() if shared} == {
        path for path in made if path.startswith("/consumers") and not offset_or_owner.fullmatch(path)
    }
    assert {"/consumers", folder, IDS, f"{folder}/owners", f"{folder}/owners/t", f"{folder}/offsets/t"} <= made.keys()


def is_create(write: object) -> TypeGuard[CreateNode]:
    """A type guard for the type checker."""
    return isinstance(write, CreateNode)


@pytest.mark.parametrize("seed", seeds(3))
def test_a_journal_of_a_mixed_coordinated_and_released_group_replays_the_same(seed: int) -> None:
    journal = MemoryPages()
    scene = MixedScene(seed, coordinators=0)
    scene.world.spawn("journaled", lambda process: coordinator(process, journal, layout=LEGACY))
    scene.start("old0")
    scene.start_ours("consumer0")
    scene.await_shared("consumer0", "old0")
    scene.leave("old0")
    scene.await_shared("consumer0")
    scene.stop_ours("consumer0")
    ensemble = scene.world.ensemble
    scene.world.run_until(lambda: not ensemble.names(IDS), what="nobody of ours is left")
    stat = ensemble.stat(RECORD)
    assert stat is not None
    ensemble.operate(SetNode(RECORD, encode_record(DEFAULT_RECORD), stat.version))
    end_ms = scene.world.now_ms + QUIET_MS
    scene.world.run_until(lambda: scene.world.now_ms >= end_ms, what="some time")
    played = [each for page in journal.pages for each in replay(page)]
    assert [each.step for each in played if each.difference] == []
    assert len(played) > 20
