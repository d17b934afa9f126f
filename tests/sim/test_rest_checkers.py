"""The checker of a world at rest complains about nodes that are left over, and not about nodes that must stay."""

from __future__ import annotations

import json

from tests.sim.rest_checkers import at_rest
from tests.sim.test_checkers import GROUP, RECORD, STATE, Scene
from zkcoord.tree.writes import ANY_VERSION, SetNode


def test_leftovers_at_rest_are_named() -> None:
    field = Scene()
    assert list(at_rest(field.world, field.known)) == []
    field.member("a")
    field.ensemble.ensure(f"{GROUP}/channel/old")
    field.grant("a")
    state = {**json.loads(field.ensemble.data(STATE) or b"{}"), "deleted": True}
    field.ensemble.operate(SetNode(STATE, json.dumps(state).encode(), ANY_VERSION))
    assert list(at_rest(field.world, field.known)) == [
        "command 0000000000 (start-fetcher) of a in g is left",
        "channel of old in g is left",
        "g has members, and its state says that it was deleted",
        "t-0 of g is owned by a-0, who reads it with lag None",
    ]


def test_at_rest_the_channel_of_an_evicted_owner_stays_in_a_pause_and_no_other() -> None:
    field = Scene()
    field.member("a")
    field.ensemble.ensure(f"{GROUP}/channel/old/evicted", b"10000")
    left = "channel of old in g is left"
    assert left in list(at_rest(field.world, field.known))
    owner = f"{GROUP}/owners/t/1"
    field.ensemble.ensure(owner, b"old-0")
    assert left in list(at_rest(field.world, field.known))
    field.ensemble.operate(SetNode(RECORD, b'{"wish":{"pause":{"run":"r"}}}', ANY_VERSION))
    assert left not in list(at_rest(field.world, field.known))
    field.ensemble.operate(SetNode(owner, b"", ANY_VERSION))
    assert left in list(at_rest(field.world, field.known))
