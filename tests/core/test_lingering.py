"""How long a start waits for what others are about to release to its receiver."""

from __future__ import annotations

from dataclasses import replace

from tests.core.groups import NOW, T0, T1, T2, T3, channel, command, group, member
from zkcoord.core.ack_timeouts import LINGER_MS
from zkcoord.core.decisions import GrantPartitions
from zkcoord.core.memory import Memory
from zkcoord.core.model import TopicPartition
from zkcoord.core.reconcile import Granted, grants
from zkcoord.core.replay import Replays
from zkcoord.core.target import Target
from zkcoord.core.view import GroupView, QueuedCommand

TARGET = {T0: "b-0", T1: "c-0", T2: "b-0", T3: "c-0"}
WHY = "available, and in the target"


def told(*commands: QueuedCommand) -> GroupView:
    """a has t-0 and t-1, and is told this. The rest is free."""
    channels = {"a": channel("a", *commands), "b": channel("b"), "c": channel("c")}
    members = [member("a"), member("b", 2), member("c", 3)]
    return group(members, {T0: "a-0", T1: "a-0", T2: "", T3: ""}, channels=channels)


def granted(view: GroupView, memory: Memory, now_ms: int) -> Granted:
    return grants(view, memory.aiming(view, Target(assignment=TARGET)), Replays(), now_ms)


def test_each_of_several_receivers_waits_for_its_own_stop() -> None:
    stops = [command("stop-fetcher", partition, sequence=n) for n, partition in enumerate((T0, T1))]
    first, both = told(stops[0]), told(*stops)
    memory = Memory().seen(first, NOW).seen(both, NOW + 10)
    start = GrantPartitions(consumer_id="b", partitions={T2: "b-0"}, why=WHY)
    assert granted(both, memory, NOW + 10) == Granted([], frozenset(), NOW + LINGER_MS)
    assert granted(both, memory, NOW + LINGER_MS) == Granted([start], frozenset(), NOW + 10 + LINGER_MS)
    assert [d.consumer_id for d in granted(both, memory, NOW + 10 + LINGER_MS).decisions] == ["b", "c"]


def test_a_command_that_starts_partitions_is_not_waited_for() -> None:
    view = told(command("start-fetcher", T0, thread="a-0"))
    memory = Memory().seen(view, NOW)
    assert [d.consumer_id for d in granted(view, memory, NOW).decisions] == ["b", "c"]


def test_a_stop_of_what_nobody_gets_is_not_waited_for() -> None:
    other = TopicPartition("u", 0)
    view = told(command("stop-fetcher", other))
    view = replace(view, owners={**view.owners, other: view.owners[T0]})
    memory = Memory().seen(view, NOW)
    assert [d.consumer_id for d in granted(view, memory, NOW).decisions] == ["b", "c"]
