"""Bad input in the tree: a node that nobody can parse is left out. A line names its path and who must act.

Everybody else goes on: the members of the group, and the other groups.
"""

from __future__ import annotations

import json

import pytest

from tests.sim.actors import GROUP, ConsumerFactory, coordinator, topic_json
from tests.sim.field import consumer_of
from tests.sim.script import Script, Told, on_seeds
from zkcoord.core.model import TopicPartition
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.writes import CreateNode, DeleteNode, SetNode

OTHER = "h"
T0, T4 = TopicPartition("t", 0), TopicPartition("t", 4)


class TwoGroups(Script):
    """A group with bad input, and another group, which must not be affected."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, consumers=2)
        self.others = ConsumerFactory(self.logs, {"t": 1}, OTHER)
        self.world.spawn("other0", self.others)
        self.settle()

    def balanced(self) -> bool:
        """The condition looks at the first group only."""
        names = [n for n, p in self.world.processes.items() if p.group == GROUP and p.running]
        return self.all_held() and all(self.registered(n) and self.owned(n) for n in names)

    def write(self, *writes: CreateNode | SetNode | DeleteNode) -> None:
        """A write by hand of an operator or of a foreign program."""
        result = self.world.ensemble.operate(*writes)
        assert not result.reason, result

    def version(self, path: str) -> int:
        """A node's data version."""
        stat = self.world.ensemble.stat(path)
        assert stat is not None, path
        return stat.version

    def told_once(self, name: str, path: str) -> Told:
        """The first event that names this path. Each coordinator reports it once, even one that loses the election."""
        found = [told for told in self.world.events(name) if told.fields.get("path") == path]
        assert found
        assert len({told.client for told in found}) == len(found), found
        assert found[0].fields["level"] == "warning"
        return found[0]

    def told_at(self, path: str) -> list[Told]:
        """The events that say that this path cannot be parsed."""
        return [told for told in self.world.events("unreadable") if told.fields["path"] == path]

    def read_at(self, path: str, since_ms: int) -> list[int]:
        """The times at which the serving coordinator asked for this path."""
        client = self.client(self.leader())
        return [ms for ms, asked, name in self.world.asked if (asked, name) == (client, path) and ms >= since_ms]

    def other_shares(self) -> list[int]:
        """How many partitions each member of the other group holds."""
        counts = dict.fromkeys((c for g, c in self.field.registrations if g == OTHER), 0)
        for (group, _), holding in self.field.holdings.items():
            if group == OTHER and holding.consumer in counts:
                counts[holding.consumer] += 1
        return sorted(counts.values())

    def the_other_group_goes_on(self) -> None:
        """A member joins the other group, and gets its share."""
        count = len(self.partitions())
        self.world.spawn("other1", self.others)
        self.world.run_until(
            lambda: self.other_shares() in ([count // 2, count - count // 2],), what="the other group shares"
        )


GARBAGE = {
    "empty": b"",
    "bytes": b"\xff\x00\xfe",
    "kafka-0.7": b"*4*white.*",
    "bare-topic": b"t",
    "no-count": b'{"version":1,"subscription":{"t":"many"},"pattern":"static","timestamp":"1"}',
    "a-list": b"[]",
    "long-integer": b'{"version":1,"subscription":{"t":99999999999},"pattern":"static","timestamp":1}',
    "broken-regex": b'{"version":1,"subscription":{"t[":1},"pattern":"white_list","timestamp":"1"}',
    "no-pattern": b"{}",
}


@pytest.mark.parametrize("kind", GARBAGE)
def test_f31_a_registration_that_nobody_can_parse_is_named_and_changes_nothing(kind: str) -> None:
    script = TwoGroups(1)
    path, began_ms = DRAFT.registration(GROUP, "g_stranger-1-00000000"), script.world.now_ms + 1
    script.world.run_for(5)
    script.write(CreateNode(path, GARBAGE[kind]))
    script.world.run_for(3_000)
    told = script.told_once("unreadable", path)
    assert "its owner must register again correctly" in told.fields["why"]
    assert script.changes_below(DRAFT.owners(GROUP), began_ms) == []
    assert script.writes_to(DRAFT.state(GROUP), began_ms) == 0
    script.grow("t", 8)
    script.settle("the good members get the new partitions")
    script.the_other_group_goes_on()
    script.write(DeleteNode(path, 0))
    script.calm()


OLD = {
    "unescaped-regex": b'{"version":1,"subscription":{"t\\.x|t":1},"pattern":"white_list","timestamp":"1"}',
    "seconds": b'{"version":1,"subscription":{"t":1},"pattern":"static","timestamp":1416335000}',
    "long-timestamp": b'{"version":1,"subscription":{"t":1},"pattern":"static","timestamp":1416335000123}',
}


@pytest.mark.parametrize("kind", OLD)
def test_f31_an_odd_but_readable_old_registration_gets_nothing_and_the_group_goes_on(kind: str) -> None:
    script = TwoGroups(1)
    path = DRAFT.registration(GROUP, "g_stranger-1-00000000")
    script.write(CreateNode(path, OLD[kind]))
    script.world.run_for(3_000)
    assert [told for told in script.world.events("unreadable") if told.fields["path"] == path] == []
    script.grow("t", 8)
    script.settle("the good members get the new partitions")
    assert "g_stranger-1-00000000" not in {consumer_of(thread) for thread in script.field.owners.values()}
    script.write(DeleteNode(path, 0))
    script.calm()


def test_a_registration_that_nobody_can_parse_keeps_what_it_owns() -> None:
    """A member exists as long as its registration exists, even if nobody can parse it. It is never taken for dead."""
    script = TwoGroups(1)
    consumer = "g_stranger-1-00000000"
    path = DRAFT.registration(GROUP, consumer)
    script.write(CreateNode(path, b"?"), CreateNode(DRAFT.owner(GROUP, T4), f"{consumer}-0".encode()))
    script.grow("t", 6)
    script.world.run_for(5_000)
    assert script.owner(T4) == consumer
    assert script.owner(TopicPartition("t", 5)) in {script.member("consumer0"), script.member("consumer1")}
    script.write(DeleteNode(path, 0))
    script.settle("it is dead now")
    script.calm()


@on_seeds()
@pytest.mark.parametrize("data", [b"\xff\xfe", b"nobody", b"?"])
def test_an_owner_that_nobody_can_parse_is_left_alone_until_an_operator_empties_it(data: bytes, seed: int) -> None:
    script = TwoGroups(seed)
    path = DRAFT.owner(GROUP, T4)
    script.write(CreateNode(path, data))
    script.grow("t", 6)
    script.world.run_for(5_000)
    told = script.told_once("unreadable", path)
    assert "an operator must set it empty" in told.fields["why"]
    assert script.world.ensemble.data(path) == data
    fifth = script.field.owners[GROUP, TopicPartition("t", 5)]
    assert (GROUP, consumer_of(fifth)) in script.field.registrations
    script.world.crash(script.leader(), exact=True)  # the next coordinator leaves the node alone, too
    script.world.run_for(15_000)
    assert script.world.ensemble.data(path) == data
    script.the_other_group_goes_on()


@pytest.mark.parametrize("name", ["\u00b2", "\u0663", "007", "9" * 5_000, "2147483648"])
@on_seeds(1)
def test_a_node_whose_name_is_no_partitions_is_left_alone_by_every_coordinator(name: str, seed: int) -> None:
    """The names are digits for `str.isdigit` but not for `int`, or another spelling of a partition's number."""
    script = TwoGroups(seed)
    paths = [f"{DRAFT.mark(GROUP, 't')}/{name}", f"{DRAFT.topic_offsets(GROUP, 't')}/{name}"]
    script.write(*(CreateNode(path, b"7") for path in paths))
    script.world.crash(script.leader(), exact=True)  # the next coordinator reads every list
    script.world.run_for(15_000)
    script.settle()
    assert [script.world.ensemble.data(path) for path in paths] == [b"7", b"7"]
    script.the_other_group_goes_on()


@on_seeds(1)
def test_an_owner_that_nobody_can_parse_is_given_anew_as_soon_as_an_operator_empties_it(seed: int) -> None:
    script = TwoGroups(seed)
    path = DRAFT.owner(GROUP, T4)
    script.write(CreateNode(path, b"nobody"))
    script.grow("t", 6)
    script.world.run_for(5_000)
    script.write(SetNode(path, b"", 0))
    script.world.run_until(script.balanced, 5_000, "it is given anew")
    script.calm()


FUTURE = {
    "version": {"version": 2, "option": "start-fetcher", "generation": 1},
    "option": {"version": 1, "option": "dance", "generation": 1},
}


@on_seeds()
@pytest.mark.parametrize("kind", FUTURE)
def test_f48_a_command_from_the_future_is_refused_removed_and_frees_what_it_named(kind: str, seed: int) -> None:
    """A coordinator of a newer program granted a partition, and then a coordinator of this program took over."""
    script = TwoGroups(seed)
    world, consumer = script.world, script.member("consumer0")
    channel, owner = DRAFT.channel(GROUP, consumer), DRAFT.owner(GROUP, T4)
    for name in ("coordinator0", "coordinator1"):
        world.crash(name, restart_after_ms=None, exact=True)
    command = json.dumps({**FUTURE[kind], "ownershipMap": {str(T4): f"{consumer}-0"}}).encode()
    script.grow("t", 6)
    script.write(CreateNode(owner, f"{consumer}-0".encode()), CreateNode(channel, command, sequential=True))
    (sequence,) = (name for name in world.ensemble.names(channel) if name.isdigit())
    world.run_until(lambda: bool(world.events("command_refused")), what="it is refused")
    told = script.told_once("command_refused", f"{channel}/{sequence}")
    assert told.client == "consumer0#1"
    assert ("version is 2" if kind == "version" else "dance") in told.fields["why"]
    world.restart("coordinator1")
    world.run_until(lambda: f"{channel}/{sequence}" not in world.ensemble.leader.nodes, 10_000, "it is removed")
    acknowledged = DeleteNode(f"{channel}/refused", 0)
    removals = [t.transaction for t in world.tried if t.applied and t.transaction.writes[-1] == acknowledged]
    assert len(removals) == 1
    assert SetNode(owner, b"", 0) in removals[0].writes  # the same multi frees the partition and removes the command
    assert script.journal("start", T4) == []
    assert [event.fields["consumer"] for event in world.events("command_removed")] == [consumer]
    script.settle("it is given anew")
    assert "refused" not in world.ensemble.names(channel)
    script.the_other_group_goes_on()
    script.calm()


@on_seeds()
def test_a_command_from_the_future_does_not_delay_those_behind_it(seed: int) -> None:
    """While no coordinator serves, nobody removes the refused command. The consumer goes on with the next command."""
    script = TwoGroups(seed)
    world, consumer = script.world, script.member("consumer0")
    channel, moved = DRAFT.channel(GROUP, consumer), script.owned("consumer0")[0]
    for name in ("coordinator0", "coordinator1"):
        world.crash(name, restart_after_ms=None, exact=True)
    future = json.dumps(FUTURE["option"]).encode()
    stop = json.dumps({"version": 1, "option": "stop-fetcher", "ownershipMap": {str(moved): ""}}).encode()
    script.write(CreateNode(channel, future, sequential=True), CreateNode(channel, stop, sequential=True))
    world.run_until(lambda: script.owner(moved) == "", what="the stop is obeyed")
    world.run_for(1_000)
    assert script.outstanding("consumer0") == 1
    assert "refused" in world.ensemble.names(channel)
    assert len(world.events("command_refused")) == 1
    world.restart("coordinator0")
    script.settle("a coordinator cleans up")
    script.calm()


@on_seeds()
def test_a_topic_that_nobody_can_parse_is_named_and_what_was_known_of_it_holds(seed: int) -> None:
    script = TwoGroups(seed)
    path, began_ms = "/brokers/topics/t", script.world.now_ms + 1
    script.world.run_for(5)
    good = script.world.ensemble.data(path) or b""
    script.write(SetNode(path, b'{"version":1,"partitions":', script.version(path)))
    script.world.run_for(3_000)
    told = script.told_once("unreadable", path)
    assert "the broker or an operator must mend it" in told.fields["why"]
    assert script.changes_below(DRAFT.owners(GROUP), began_ms) == []
    script.write(SetNode(path, good, script.version(path)))
    script.grow("t", 6)
    script.settle("it is mended")
    script.calm()


@on_seeds()
def test_a_topic_that_does_not_exist_is_told_by_its_consumer_which_waits_for_it(seed: int) -> None:
    script = TwoGroups(seed)
    script.world.spawn("later0", ConsumerFactory(script.logs, {"later": 1, "t": 1}, GROUP))
    script.settle("it shares the topic that there is")
    told = [(event.fields["topic"], event.fields["level"]) for event in script.world.events("topic_missing")]
    assert told == [("later", "warning")]
    script.write(CreateNode("/brokers/topics/later", topic_json(2)))
    script.settle("it reads the other, too")
    script.calm()
    assert len(script.world.events("topic_missing")) == 1


@on_seeds(1)
def test_a_topic_without_partitions_is_named_and_the_others_go_on(seed: int) -> None:
    script = TwoGroups(seed)
    path = "/brokers/topics/empty"
    script.write(CreateNode(path, b'{"version":1,"partitions":{}}'))
    script.world.spawn("empty0", ConsumerFactory(script.logs, {"empty": 1, "t": 1}, GROUP))
    script.settle()
    script.the_other_group_goes_on()
    script.calm()
    told = [event for event in script.world.told if event.fields.get("path") == path]
    assert len(told) == 1
    assert told[0].fields["level"] == "warning"


@on_seeds()
def test_f34_an_offset_that_is_no_number_is_named_refused_and_tried_again(seed: int) -> None:
    script = TwoGroups(seed)
    world, path = script.world, DRAFT.offset(GROUP, T4)
    script.write(CreateNode(path, b"12 apples"))
    script.grow("t", 6)
    world.run_for(40_000)
    refusals = [told for told in world.events("start_refused") if told.fields["partitions"] == [T4]]
    assert 3 <= len(refusals) <= 6  # after 2, 4, 8, 16, 30 s, and not in a loop
    assert path in refusals[0].fields["why"]
    assert "an operator must set the offset" in refusals[0].fields["why"]
    assert script.owner(TopicPartition("t", 5)) in {script.member("consumer0"), script.member("consumer1")}
    assert world.ensemble.data(path) == b"12 apples"
    script.the_other_group_goes_on()
    script.write(SetNode(path, b"12", 0))
    script.settle("it starts")
    assert script.journal("start", T4)[0].start == 12
    script.calm()


@on_seeds(1)
def test_a_group_record_that_nobody_can_parse_is_named_and_what_was_known_of_it_holds(seed: int) -> None:
    script = TwoGroups(seed)
    path = DRAFT.record(GROUP)
    script.set_policy(max_rebalance_retries=0)
    script.world.run_for(1_000)
    script.write(SetNode(path, b"{", script.version(path)))
    script.world.run_for(1_000)
    assert "an operator must mend it" in script.told_once("unreadable", path).fields["why"]
    script.grow("t", 6)
    script.settle()
    script.the_other_group_goes_on()
    script.calm()


@on_seeds()
def test_a_consumer_that_finds_no_schema_creates_nothing_says_so_and_joins_once_it_is_there(seed: int) -> None:
    script = Script(seed, coordinators=0, consumers=1)
    world = script.world
    world.run_for(5_000)
    assert [tried.transaction.why for tried in world.tried] == []
    (told,) = world.events("waiting")
    assert "start a coordinator, or run `zkcoord migrate upgrade`" in told.fields["why"]
    world.spawn("coordinator0", coordinator)
    script.settle()
    script.calm()
