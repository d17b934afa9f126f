"""Somebody else sets offsets while a member of ours reads: late commits of old members, and resets by people."""

from __future__ import annotations

from collections import Counter

from tests.sim.actors import GROUP
from tests.sim.application import Application
from tests.sim.beside_scene import BesideScene
from tests.sim.old_rules import LATE_COMMIT
from tests.sim.script import ScriptWorld, on_seeds, seeds
from zkcoord.core.mode import Mode
from zkcoord.core.model import TopicPartition
from zkcoord.tree.writes import ANY_VERSION, SetNode

LONG_MS = 100_000  # later than any late commit of an old member
P2 = TopicPartition("t", 2)


def hung_until_coordinated(seed: int) -> BesideScene:
    """The only old member hangs beyond its session, and commits after the group became coordinated."""
    scene = BesideScene(ScriptWorld(seed), {"t": 6})
    scene.start_old("olda", commit_interval_ms=2_000)
    scene.enter("consumer0", "consumer1")
    scene.settle()
    scene.world.run_for(5_000)
    scene.world.pause("olda")
    scene.world.run_until(
        lambda: scene.mode() is Mode.COORDINATED and len(scene.of_ours()) == 6, what="the group is coordinated"
    )
    scene.world.run_for(10_000)
    scene.member("olda").commit()
    scene.world.resume("olda")
    scene.world.run_for(5_000)
    scene.settle()
    scene.calm()
    return scene


def test_f132_an_old_members_late_commit_is_overwritten_in_a_coordinated_group_too() -> None:
    excused = Counter[str]()
    for seed in seeds(12):
        scene = hung_until_coordinated(seed)
        assert scene.world.events("foreign_offset") == []
        excused.update(scene.rules.excused)
    assert excused[LATE_COMMIT] > 0


def shares(scene: BesideScene, who: str) -> None:
    """Run until other members than the hung one own everything, and `who` owns a part of it."""

    def shared() -> bool:
        owners = scene.owners()
        return len(owners) == 6 and "olda" not in owners.values() and who in owners.values()

    scene.world.run_until(shared, what="all is read without it")
    scene.world.run_for(5_000)


def test_f132_a_joining_member_overwrites_a_late_commit_from_before_its_time() -> None:
    """It has the partition from a member of ours, which took it over when the old member hung. No plan that it saw says
    so."""
    found = 0
    for seed in seeds(8):
        scene = BesideScene(ScriptWorld(seed), {"t": 6})
        scene.start_old("olda", commit_interval_ms=2_000)
        scene.start_old("oldb")
        scene.enter("consumer0")
        scene.settle()
        scene.world.run_for(5_000)
        hung = {p for p, name in scene.owners().items() if name == "olda"}
        scene.world.pause("olda")
        shares(scene, "consumer0")
        scene.enter("consumer1")
        shares(scene, "consumer1")
        found += len(hung & {p for p, name in scene.owners().items() if name == "consumer1"})
        scene.member("olda").commit()
        scene.world.resume("olda")
        scene.world.run_for(5_000)
        assert scene.world.events("foreign_offset") == []
        scene.settle()
        scene.calm()
    assert found > 0


def joined_after_the_old_one(seed: int) -> BesideScene:
    """The only old member hangs, the group becomes coordinated, and a consumer of ours joins and is given partitions of
    it. The old member commits these after that. Every second time another coordinator serves by then."""
    scene = BesideScene(ScriptWorld(seed), {"t": 6})
    scene.start_old("olda", commit_interval_ms=2_000)
    scene.enter("consumer0")
    scene.settle()
    scene.world.run_for(5_000)
    hung = {p for p, name in scene.owners().items() if name == "olda"}
    scene.world.pause("olda")
    scene.world.run_until(
        lambda: scene.mode() is Mode.COORDINATED and len(scene.of_ours()) == 6, what="the group is coordinated"
    )
    if seed % 2:
        scene.kill("coordinator0")
        scene.bring_coordinator()
    scene.world.run_for(5_000)
    scene.enter("consumer1")
    shares(scene, "consumer1")
    assert hung & {p for p, name in scene.owners().items() if name == "consumer1"}
    scene.member("olda").commit()
    scene.world.resume("olda")
    scene.world.run_for(5_000)
    assert scene.world.events("foreign_offset") == []
    return scene


def test_f326_a_joiner_writes_over_the_late_commit_of_an_old_member_that_it_never_saw() -> None:
    excused = Counter[str]()
    for seed in seeds(6):
        scene = joined_after_the_old_one(seed)
        excused.update(scene.rules.excused)
        scene.settle()
        scene.calm()
    assert excused[LATE_COMMIT] > 0


def reset_while_it_reads(scene: BesideScene, partition: TopicPartition) -> None:
    """Somebody sets the partition's offset back while its consumer works at it and commits nothing. The consumer is
    told of it, and reads from there."""
    reader, began_ms = scene.world.processes[scene.owners()[str(partition)]], scene.world.now_ms
    application = reader.application
    assert isinstance(application, Application)
    application.commits = False
    application._read = lambda *_args, **_named: None  # type: ignore[method-assign]
    reader.stores[-1].break_wire("a flap", server_side=False)  # after this, all held partitions are read again
    path = f"/consumers/{GROUP}/offsets/t/{partition.partition}"
    scene.world.ensemble.operate(SetNode(path, b"1", ANY_VERSION))
    scene.world.run_until(lambda: bool(scene.world.events("foreign_offset", began_ms)), what="it is told")
    (told,) = scene.world.events("foreign_offset")
    assert (told.fields["partitions"], told.fields["offset"]) == ([partition], 1)
    scene.world.run_until(lambda: application.positions.get(partition) == 1, what="it reads from there")


@on_seeds(4)
def test_f326_a_reset_is_adopted_soon_after_a_join_if_no_old_member_had_the_partition_lately(seed: int) -> None:
    scene = BesideScene(ScriptWorld(seed), {"t": 6})
    scene.start_old("olda")
    scene.enter("consumer0")
    scene.settle()
    scene.world.run_for(LONG_MS)
    ours = set(scene.of_ours())
    scene.enter("consumer1")
    scene.settle()
    scene.world.run_for(5_000)
    mine = sorted(ours & {p for p, name in scene.owners().items() if name == "consumer1"})
    reset_while_it_reads(scene, TopicPartition("t", int(mine[0].removeprefix("t-"))))


@on_seeds(6)
def test_f133_a_reset_of_what_no_old_member_had_is_adopted_however_soon_after_the_claim(seed: int) -> None:
    scene = BesideScene(ScriptWorld(seed), {"t": 6}, coordinators=seed % 2)
    scene.start_old("olda")
    scene.enter("consumer0", "consumer1")
    scene.settle()
    had = next(name for p, name in scene.owners().items() if p == str(P2))
    scene.world.run_for(LONG_MS)
    scene.ask_to_leave(had)
    scene.world.run_until(lambda: had not in scene.owners().values(), what="it has left")
    scene.settle()
    scene.world.run_for(5_000)
    assert str(P2) in scene.of_ours()
    reset_while_it_reads(scene, P2)
