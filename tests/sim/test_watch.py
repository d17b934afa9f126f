"""`zkcoord watch` reports what really happened to a group. It reads a simulated world after every transaction."""

from __future__ import annotations

from tests.sim.actors import GROUP
from tests.sim.script import Script, hold_calls, on_seeds
from tests.sim.test_failures_tools import Tree
from tests.sim.zookeeper import Txn
from zkcoord.core.view import START, STOP
from zkcoord.group_report import TreeReport, read_group
from zkcoord.operating.happenings import Happening, Sight, happenings
from zkcoord.tree.paths import DRAFT


class Watched:
    """Reads the group after every transaction, or after `every` transactions, and keeps the lines that it would
    print."""

    def __init__(self, script: Script, every: int = 1) -> None:
        self._every, self._count = every, 0
        self.told: list[Happening] = []
        self._script = script
        self._before = self._sight()
        script.world.ensemble.on_applied.append(self._applied)

    def _sight(self) -> Sight:
        report = read_group(Tree(self._script.world.ensemble), DRAFT, GROUP)
        above = TreeReport(layout=DRAFT, coordinator="0", epoch=1, epoch_since_ms=0)
        return Sight(above=above, groups={GROUP: report})

    def _applied(self, _txn: Txn) -> None:
        self._count += 1
        if self._count % self._every == 0:
            self.look()

    def look(self) -> None:
        """Read the group, and note the differences."""
        now = self._sight()
        self.told += happenings(self._before, now)
        self._before = now

    def of(self, *events: str) -> list[tuple[str, object]]:
        """The events of these kinds and the consumers that they concern, in order."""
        return [(each.event, each.fields.get("consumer")) for each in self.told if each.event in events]

    def owners(self) -> dict[str, str]:
        """The owners, computed only from the reported events."""
        found: dict[str, str] = {}
        for each in self.told:
            if each.event in ("partitions_granted", "partitions_moved", "partitions_released"):
                for partition in each.fields["partitions"]:
                    assert found.pop(partition, None) == each.fields["from"], each
                    found |= {partition: each.fields["to"]} if each.fields["to"] else {}
        return found


@on_seeds()
def test_members_and_owners_are_told_as_they_change(seed: int) -> None:
    script = Script(seed, consumers=1, topics={"t": 6})
    script.world.run_until(lambda: script.world.ensemble.stat(DRAFT.group(GROUP)) is not None, 30_000, "the group")
    watched, coarse = Watched(script), Watched(script, every=7)
    script.settle()
    first = script.member("consumer0")
    script.join("late")
    script.settle("two share it")
    late = script.member("late")
    script.leave("consumer0")
    script.settle("one is left")
    script.world.crash("late", restart_after_ms=None)
    script.world.run_until(lambda: (GROUP, late) not in script.field.registrations, 60_000, "it is dead")

    gone = {each.fields["consumer"]: each.fields["why"] for each in watched.told if each.event == "member_gone"}
    assert watched.of("member_joined", "member_gone")[-3:] == [
        ("member_joined", late),
        ("member_gone", first),
        ("member_gone", late),
    ]
    assert gone == {first: "left", late: "died"}
    assert watched.owners() == {str(p): thread for (_, p), thread in script.field.owners.items()}
    coarse.look()
    assert coarse.owners() == watched.owners()
    sent, over = watched.of("command_sent"), watched.of("command_done", "command_dropped")
    assert len(sent) - len(over) == script.outstanding()
    assert {each.fields["option"] for each in watched.told if each.event == "command_sent"} == {START, STOP}
    raised = [(e.fields["from"], e.fields["to"]) for e in watched.told if e.event == "generation_raised"]
    assert all(before + 1 == after for before, after in raised) and raised[-1][1] == script.generation()


@on_seeds()
def test_a_static_member_is_awaited_and_returns_and_who_hangs_is_evicted(seed: int) -> None:
    script = Script(seed, consumers=2, topics={"t": 4}, rebalance_timeout_ms=10_000, hold_ms=60_000)
    script.settle()
    watched = Watched(script)
    away = script.member("consumer0")
    script.world.crash("consumer0", restart_after_ms=8_000)
    script.world.run_until(lambda: bool(watched.of("member_returned")), 60_000, "it returns")
    script.settle("both read again")
    back = script.member("consumer0")
    hold_calls(script.application("consumer1"))
    hung = script.member("consumer1")
    script.grow("t", 8)
    script.world.run_until(lambda: bool(watched.of("member_gone")[1:]), 300_000, "it is evicted")

    told = watched.of("member_gone", "member_awaited", "member_returned", "member_joined")
    assert told[:4] == [
        ("member_gone", away),
        ("member_awaited", away),
        ("member_returned", back),
        ("member_gone", hung),
    ]
    assert [each.fields["why"] for each in watched.told if each.event == "member_gone"] == ["died", "evicted"]
    assert [(e.fields["from"], e.fields["to"]) for e in watched.told if e.event == "topic_changed"] == [(4, 8)]
