"""How the demo speaks of its programs to a person."""

from zkcoord.core.model import TopicPartition
from zkcoord.demo.programs import called
from zkcoord.demo.stage import shares


def test_a_consumer_is_called_one() -> None:
    assert [called(name) for name in ("a", "producer", "coordinator-1")] == ["consumer a", "producer", "coordinator-1"]


def test_a_free_partition_is_not_shown_as_that_of_a_waiting_consumer() -> None:
    owners = {TopicPartition("clicks", n): owner for n, owner in enumerate(["g_1", "", "g_2", "g_1", "g_gone"])}
    names = {"g_1": "a", "g_2": "b", "": "c"}
    assert shares(owners, names) == "consumer a: 0 3 · consumer b: 2 · nobody: 1 4"
