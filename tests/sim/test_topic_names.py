"""No command can name a topic with such a name: a command with it would also fail for all other topics that it
names."""

from __future__ import annotations

from tests.sim.actors import ConsumerFactory, topic_json
from tests.sim.script import Script, on_seeds

PATH = "/brokers/topics/two words"


@on_seeds(3)
def test_a_topic_whose_name_kafka_does_not_allow_is_given_to_nobody_and_stops_nothing(seed: int) -> None:
    """A wildcard matches the topic. Then members come and go, and the group is paused."""
    script = Script(seed, consumers=0, topics={"t": 4})
    world = script.world
    assert not world.ensemble.ensure(PATH, topic_json(4))
    script.consumers = ConsumerFactory(script.logs, {".*": 1}, pattern="white_list")
    script.join("consumer0")
    mine = [p for p in script.partitions() if p.topic == "t"]
    world.run_until(lambda: script.held() == mine, what="it reads all others")
    (told,) = [event for event in world.events("unreadable") if event.fields["path"] == PATH]
    assert "Kafka allows no such name" in told.fields["why"]
    script.join("late")
    world.run_until(lambda: script.registered("late"), what="somebody joins")
    world.run_until(lambda: len(script.owned("late")) == 2 == len(script.owned("consumer0")), what="they share it")
    script.request("pause")
    world.run_until(lambda: (script.record().get("done") or {}).get("pause") is not None, what="it is paused")
    assert script.held() == []
    script.resume()
    world.run_until(lambda: script.held() == mine, what="they read on")
