"""The draft of 2012, line by line (docs/protocol.md, section 11): each test names the line that it shows.

The sections are: election, start, and changes with the groups that they concern. Rebalances are in
`test_draft_rebalance`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from tests.sim.actors import GROUP, ConsumerFactory
from tests.sim.field import Holding, consumer_of
from tests.sim.script import Script, on_seeds
from zkcoord.core.model import TopicPartition
from zkcoord.serving.group_watch import GroupWatch
from zkcoord.serving.owner_rounds import STATUS_AFTER_MS
from zkcoord.shell.ports import Input
from zkcoord.tree.paths import CANDIDATES, DRAFT, TOPICS
from zkcoord.tree.snapshot import Kind, path_and_kind

OTHER, THIRD = "h", "i"


class Groups(Script):
    """Three groups: two consumers of t, one of u, and one of all topics that begin with u. All are at rest."""

    def __init__(self, seed: int, **size: object) -> None:
        super().__init__(seed, consumers=2, topics={"t": 4, "u": 2}, **size)
        self.consumers = ConsumerFactory(self.logs, {"t": 1})
        for n in range(2):
            self.leave(f"consumer{n}")
            self.join(f"reader{n}")
        self.world.spawn("other0", ConsumerFactory(self.logs, {"u": 1}, OTHER))
        self.world.spawn("third0", ConsumerFactory(self.logs, {"u.*": 1}, THIRD, pattern="white_list"))
        self.quiet()
        self.world.run_for(3_000)

    def quiet(self) -> None:
        """Run until every partition that a group wants is read, and no command is outstanding."""
        self.world.run_until(lambda: not self.outstanding() and self.reading(), what="all groups at rest")

    def reading(self) -> bool:
        wanted = {
            *((GROUP, p) for p in self.partitions() if p.topic == "t"),
            *((OTHER, p) for p in self.partitions() if p.topic == "u"),
            *((THIRD, p) for p in self.partitions() if p.topic.startswith("u")),
        }
        return wanted <= self.field.holdings.keys()

    def since(self) -> int:
        """The moment after all acts so far, and after the statuses were read once more behind the last starts."""
        self.world.run_for(STATUS_AFTER_MS[-1] + 5)
        return self.world.now_ms + 1

    def touched(self, group: str, since_ms: int) -> list[str]:
        """The nodes of a group that a coordinator wrote or read."""
        paths = (DRAFT.group(group), DRAFT.record(group))
        return [path for below in paths for path in self.touched_below(below, since_ms)]

    def lives(self, holding: Holding) -> bool:
        """True while the holder is registered."""
        return any(consumer == holding.consumer for _, consumer in self.field.registrations)

    def watched(self) -> set[tuple[str, Kind]]:
        """The nodes that the serving coordinator watches."""
        tracker = self.actor(self.leader()).loop.tracker
        return {path_and_kind(key) for key, want in tracker._wants.items() if want.watch}


# -- election


@on_seeds()
def test_election_is_on_one_ephemeral_path_and_who_watches_it_elects_again_when_it_goes(seed: int) -> None:
    script = Script(seed)
    script.settle()
    first = script.leader()
    stat = script.world.ensemble.stat(DRAFT.coordinator)
    session = script.field.epoch_session
    assert stat is not None and session is not None and stat.ephemeral_owner == session.id
    script.world.crash(first, exact=True, restart_after_ms=None)
    script.world.run_until(lambda: script.leader() != first, what="another coordinator")
    assert len(script.world.ensemble.names(CANDIDATES)) >= 1
    script.settle()
    script.calm()


@on_seeds()
def test_a_new_session_resets_all_state_and_elects_again(seed: int) -> None:
    script = Script(seed, coordinators=1)
    script.settle()
    epoch = script.world.ensemble.data("/zkcoord/epoch")
    script.world.run_for(500)
    session = script.field.epoch_session
    assert session is not None
    script.world.ensemble.end_session(session, "expire")
    for store in script.process("coordinator0").stores:
        store.refresh()
    script.world.run_until(lambda: script.field.epoch_session is not session, what="the same program in a new session")
    assert int(script.world.ensemble.data("/zkcoord/epoch") or b"") == int(epoch or b"") + 1
    script.join("late")
    script.settle()
    script.calm()


# -- on start


@on_seeds()
def test_on_start_all_topics_and_groups_are_read_and_watched(seed: int) -> None:
    groups = Groups(seed)
    before = groups.leader()
    groups.world.crash(before, exact=True, restart_after_ms=60_000)
    groups.world.run_until(lambda: groups.leader() != before, what="another coordinator")
    groups.quiet()
    groups.world.run_for(3_000)
    lists = {(path, Kind.CHILDREN) for path in (TOPICS, DRAFT.groups)}
    lists |= {(DRAFT.ids(group), Kind.CHILDREN) for group in (GROUP, OTHER, THIRD)}
    assert lists | {(f"{TOPICS}/{topic}", Kind.DATA) for topic in ("t", "u")} <= groups.watched()


@on_seeds()
def test_on_start_every_group_is_put_up_for_rebalance(seed: int) -> None:
    """Events from the time without a coordinator are found, in every group."""
    groups = Groups(seed)
    for name in ("coordinator0", "coordinator1"):
        groups.world.crash(name, exact=True, restart_after_ms=None)
    groups.world.run_for(10_000)
    groups.world.spawn("other1", ConsumerFactory(groups.logs, {"u": 1}, OTHER))
    groups.grow("t", 6)
    groups.create_topic("u2", 2)
    groups.world.run_for(5_000)
    groups.world.restart("coordinator0")
    groups.world.run_until(
        lambda: len({c for (g, _), c in groups.field.owners.items() if g == OTHER}) == 2, what="both of h read"
    )
    groups.quiet()
    groups.calm()


# -- changes, and the groups that they concern


def _grow(groups: Groups) -> None:
    groups.grow("t", 6)


def _join(groups: Groups) -> None:
    groups.join("reader2")


def _leave(groups: Groups) -> None:
    groups.leave("reader1")


def _die(groups: Groups) -> None:
    groups.world.stop("reader1")


def _recreate(groups: Groups) -> None:
    groups.delete_topic("t")
    groups.create_topic("t", 3)


def _delete(groups: Groups) -> None:
    groups.delete_topic("t")


CHANGES: dict[str, Callable[[Groups], None]] = {
    "partitions added": _grow,
    "member joins": _join,
    "member leaves": _leave,
    "member dies": _die,
    "topic created again": _recreate,
    "topic deleted": _delete,
}


@on_seeds()
@pytest.mark.parametrize("change", CHANGES)
def test_f29_only_the_groups_concerned_are_queued(change: str, seed: int) -> None:
    """A coordinator neither writes nor reads a single node of another group."""
    groups = Groups(seed)
    since_ms = groups.since()
    CHANGES[change](groups)
    groups.world.run_for(25_000)
    assert groups.touched(GROUP, since_ms) != []
    assert groups.touched(OTHER, since_ms) == []
    assert groups.touched(THIRD, since_ms) == []


@on_seeds()
def test_f29_a_new_topic_concerns_only_the_groups_whose_wildcards_take_it(seed: int) -> None:
    groups = Groups(seed)
    since_ms = groups.since()
    groups.create_topic("u7", 2)
    groups.quiet()
    groups.create_topic("x", 2)
    groups.world.run_for(3_000)
    assert groups.touched(THIRD, since_ms) != []
    assert groups.touched(OTHER, since_ms) == []
    assert groups.touched(GROUP, since_ms) == []
    assert (f"{TOPICS}/u7", Kind.DATA) in groups.watched()
    assert (f"{TOPICS}/x", Kind.DATA) not in groups.watched()
    groups.calm()


@on_seeds()
def test_new_groups_come_under_watch(seed: int) -> None:
    groups = Groups(seed)
    since_ms = groups.since()
    groups.world.spawn("new0", ConsumerFactory(groups.logs, {"t": 1}, "new"))
    groups.world.run_until(
        lambda: sum(1 for group, _ in groups.field.holdings if group == "new") == 4, what="the new group reads"
    )
    groups.world.spawn("new1", ConsumerFactory(groups.logs, {"t": 1}, "new"))
    groups.world.run_until(
        lambda: len({consumer_of(t) for (g, _), t in groups.field.owners.items() if g == "new" and t}) == 2,
        what="both of the new group read",
    )
    assert [groups.touched(group, since_ms) for group in (GROUP, OTHER, THIRD)] == [[], [], []]
    groups.calm()


class Queue:
    """Counts how often the serving coordinator decided on each group in each step, and how many inputs came with the
    step."""

    def __init__(self, groups: Groups) -> None:
        self.decided: list[Counter[str]] = []
        self.events: list[int] = []  # watches and answers that came with a step
        actor = groups.actor(groups.leader())
        self._step, actor.step = actor.step, self._counted
        self._decide, actor.role._decide_group = actor.role._decide_group, self._noted

    def _counted(self, inputs: Sequence[Input], now_ms: int) -> int | None:
        self.decided.append(Counter())
        self.events.append(len(inputs))
        return self._step(list(inputs), now_ms)

    def _noted(self, watch: GroupWatch, now_ms: int) -> None:
        self.decided[-1][watch.group] += 1
        self._decide(watch, now_ms)


@on_seeds()
def test_a_group_is_queued_once_however_many_events_arrive(seed: int) -> None:
    """Twenty members join and partitions are added at once: all inputs that arrive during a step are handled together
    in the next."""
    groups = Groups(seed)
    groups.world.run_for(500)
    generation, queue = groups.generation(), Queue(groups)
    for n in range(20):
        groups.join(f"more{n}")
    for count in range(5, 30):
        groups.grow("t", count)
    groups.world.run_until(lambda: len(groups.field.registrations) == 24, what="all are members")
    groups.quiet()
    assert {count for step in queue.decided for count in step.values()} == {1}
    assert max(queue.events) > 1
    assert groups.generation() - generation <= 21  # 45 changes; the seed decides how many fall together
    groups.calm()


@on_seeds()
def test_partitions_that_are_added_are_read(seed: int) -> None:
    groups = Groups(seed)
    before = dict(groups.field.owners)
    groups.grow("t", 8)
    groups.world.run_until(lambda: (GROUP, TopicPartition("t", 7)) in groups.field.holdings, what="the new partition")
    groups.quiet()
    after = groups.field.owners
    assert {key: after[key] for key in before} == before  # no other partition moves: 2 + 2 became 4 + 4
    groups.calm()


@on_seeds()
def test_topics_may_be_created_after_their_subscribers(seed: int) -> None:
    script = Script(seed, topics={})
    script.consumers = ConsumerFactory(script.logs, {"late": 1})
    for n in range(2):
        script.join(f"reader{n}")
    script.world.run_for(5_000)
    assert script.field.owners == {}
    script.create_topic("late", 4)
    script.world.run_until(lambda: len(script.field.holdings) == 4, what="the topic is read")
    script.calm()


# -- topics that become wanted, or are no longer wanted


@on_seeds()
def test_a_group_that_loses_interest_in_a_topic_stops_being_concerned(seed: int) -> None:
    groups = Groups(seed)
    path = f"{TOPICS}/t"
    assert (path, Kind.DATA) in groups.watched()
    groups.consumers = ConsumerFactory(groups.logs, {"u": 1})
    for n in range(2):
        groups.leave(f"reader{n}")
        groups.join(f"changed{n}")
    groups.world.run_until(
        lambda: sum(1 for group, p in groups.field.holdings if group == GROUP and p.topic == "u") == 2, what="u is read"
    )
    groups.world.run_for(10_000)
    assert {p.topic for (group, p), held in groups.field.holdings.items() if group == GROUP and groups.lives(held)} == {
        "u"
    }
    assert (path, Kind.DATA) not in groups.watched()  # nobody wants the topic: its watch is gone
    since_ms = groups.since()
    groups.grow("t", 6)
    groups.world.run_for(3_000)
    assert [groups.touched(group, since_ms) for group in (GROUP, OTHER, THIRD)] == [[], [], []]
    groups.calm()


@on_seeds()
def test_a_group_that_gains_interest_in_a_topic_is_concerned_from_then_on(seed: int) -> None:
    groups = Groups(seed)
    groups.world.spawn("wide", ConsumerFactory(groups.logs, {"t": 1, "u": 1}, OTHER))
    groups.world.run_until(
        lambda: sum(1 for group, p in groups.field.holdings if group == OTHER and p.topic == "t") == 4, what="t is read"
    )
    groups.grow("t", 5)
    groups.world.run_until(lambda: (OTHER, TopicPartition("t", 4)) in groups.field.holdings, what="and grows")
    groups.calm()
