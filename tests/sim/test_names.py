"""No name is registered twice, even if it is unknown whether it was registered, and an operator removed it."""

from __future__ import annotations

from dataclasses import replace

from tests.sim.actors import GROUP
from tests.sim.script import QUIET, Script, on_seeds
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.writes import DeleteNode


@on_seeds(3)
def test_a_registration_that_was_removed_before_its_consumer_saw_it_is_made_under_another_name(seed: int) -> None:
    """Partitions were granted to its former name, and their owners still name it. Under the same name it would never
    read them."""
    script = Script(seed, replace(QUIET, reconnect_ms_max=2_000), consumers=0, coordinators=1, topics={"t": 2})
    world = script.world
    world.strike("late", lambda transaction: transaction.why == "join", "reply_lost")
    script.join("late")
    world.run_until(lambda: bool(script.field.registrations), what="it is registered")
    member = script.member("late")
    world.run_until(lambda: len(script.owned("late")) == 2, what="all is granted to it")
    assert not world.ensemble.operate(DeleteNode(DRAFT.registration(GROUP, member), -1)).reason
    world.run_until(lambda: len(script.field.registrations) == 1, what="it is back")
    assert script.member("late") != member
    script.settle()
    script.calm()


@on_seeds(3)
def test_a_name_that_another_session_has_registered_is_nobody_elses(seed: int) -> None:
    """Two programs choose the same name, as copies of one machine may do. The second one takes another name."""
    script = Script(seed, QUIET, consumers=1, coordinators=1, topics={"t": 2})
    script.settle()
    taken = script.member("consumer0")
    script.join("twin")
    role = script.actor("twin").role
    names, new_id = iter([taken]), role._settings.new_id
    role._settings = replace(role._settings, new_id=lambda: next(names, None) or new_id())
    script.settle()
    assert next(names, None) is None
    assert script.member("consumer0") == taken != script.member("twin")
    assert [len(script.owned(name)) for name in ("consumer0", "twin")] == [1, 1]
    script.calm()
