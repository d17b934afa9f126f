"""Somebody's data makes a transaction larger than servers allow. It is not sent, and delays nobody else."""

from __future__ import annotations

import json

from tests.sim.actors import ConsumerFactory
from tests.sim.scenarios import RECORD
from tests.sim.script import Script, on_seeds
from zkcoord.core.model import TopicPartition
from zkcoord.tree.writes import SetNode

NOTES = "ä" * 400_000
"""In ZooKeeper 800 kB; in the ASCII that a coordinator writes 2.4 MB."""


@on_seeds(2)
def test_an_answer_for_which_a_record_has_no_room_waits_and_all_else_goes_on(seed: int) -> None:
    script = Script(seed, consumers=2, topics={"t": 4, "u": 1})
    script.settle()
    world, ensemble = script.world, script.world.ensemble
    term = script.field.epoch_session
    record = {**script.record(), "notes": NOTES}
    record["wish"] = {**record["wish"], "hold": {"who": "somebody", "run": "1"}}
    stat = ensemble.stat(RECORD)
    assert stat is not None
    assert not ensemble.operate(SetNode(RECORD, json.dumps(record, ensure_ascii=False).encode(), stat.version)).reason
    world.run_until(lambda: bool(world.events("write_refused")), what="it is told")
    (told,) = world.events("write_refused")
    assert told.fields["path"] == RECORD
    assert "TooLarge" in told.fields["why"]
    world.run_for(60_000)
    assert len(world.events("write_refused")) == 1
    others = ConsumerFactory(script.logs, {"u": 1}, group="others")
    world.spawn("other", others)
    world.stop("consumer0")
    world.run_until(lambda: ("others", TopicPartition("u", 0)) in script.field.holdings, what="another group is served")
    world.run_until(lambda: script.all_held(), what="and this one")
    assert script.field.epoch_session is term
    stat = ensemble.stat(RECORD)
    assert stat is not None
    del record["notes"]
    assert not ensemble.operate(SetNode(RECORD, json.dumps(record).encode(), stat.version)).reason
    world.run_until(lambda: script.answered("hold"), what="it is answered")
    assert script.record()["done"]["hold"]["state"] == "held"
    script.resume()
    script.calm()
