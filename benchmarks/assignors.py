"""How long the sticky assignor takes, and how that grows; and a coordinator's step: pure computing, no server.

    python benchmarks/assignors.py [--quick] [--json FILE]

Each figure is the best of several runs in milliseconds (what else runs on the machine only ever adds). Groups: every
member has one thread; *uniform* ones subscribe all of 10 topics, *mixed* ones one of 20 different choices of them. The
same with hints: four *weights*, *racks* (each partition in two of three), *capacities*, and *mixed_weights*;
*everyone*: each of 1,000 members has a subscription of its own; *any_weights*: each partition has another weight, and
there are capacities; *topics*: 1,000 of them.

Events: a start with nothing owned, nothing to do, one member joins, one member died, a *tenth* of them died. Ends with
one line a measure: `measure value goal ok|short`; exit code 0 when all hold.

Goals: a hand-over at (10, 1000) may take 1.5 ms; 10,000 members with 100,000 partitions 20 ms when uniform and 200 ms
when mixed, and with weights, racks or capacities. A start is allowed 60 ms: making 100,000 new keys takes 20 ms and
putting them into a dictionary 10 ms, which the other events do not pay because they reuse the keys of `owned`. Growth
is the time of ten times the members and partitions, divided by ten; n log n would be 1.25, caches that no longer hold
it all add to that.

A *step* is one decision on a settled group of 5,000 members with 100,000 partitions, in which one member's channel has
changed since the step before: plain, with a budget of moves (`max_moves`), and with an announced range of every
partition. Nothing is to be done, so it may cost a look at each member, but not at each partition: 30 ms. In an
*owner_step* one owner node has changed, as in each hand-over. Owners are compared with the former ones, which may cost
as much again: 60 ms.
"""

from __future__ import annotations

import gc
import random
import sys
import time
from collections.abc import Callable
from dataclasses import replace

from verdict import Measure, arguments, conclude

from zkcoord.cli.coordinator import COLLECTOR
from zkcoord.core.assignors import ASSIGNORS, AssignorInput, check_assignment
from zkcoord.core.coordinate import decide
from zkcoord.core.memory import Memory
from zkcoord.core.model import Subscriber, TopicPartition, consumer_of
from zkcoord.core.record import GroupRecord, Policy
from zkcoord.core.state import Announced, GroupState
from zkcoord.core.view import Channel, GroupView, Member, Owner
from zkcoord.tree.state import digest

TOPICS = [f"topic-{number:02d}" for number in range(10)]
CHOICES_MIXED = 20
KINDS = ("uniform", "mixed", "weights", "racks", "capacities", "mixed_weights")
WEIGHTS = (1, 2, 5, 10)
RACKS = ("east", "west", "north")
WEIGHT_MAX = 10**9
CAPACITY_OF = {"capacities": 1, "any_weights": WEIGHT_MAX}  # kind -> a weight
EVENTS = ("start", "settled", "join", "death")
STEP_AT = (5_000, 100_000)
STEP_MS_MAX, OWNER_STEP_MS_MAX = 30.0, 60.0


def group(kind: str, members: int, partitions: int) -> AssignorInput:
    """Return a group that owns nothing yet; the same arguments always make the same group."""
    choose = random.Random(members)
    topics = [f"topic-{number:04d}" for number in range(1_000)] if kind == "topics" else TOPICS
    choices = [topics]
    if kind.startswith("mixed"):
        choices = [sorted(choose.sample(TOPICS, choose.randint(1, 9))) for _ in range(CHOICES_MIXED)]
    elif kind == "everyone":
        choices = [[t for n, t in enumerate(TOPICS) if bits >> n & 1] for bits in range(1, 1 << len(TOPICS))]
    ids = [f"g_host{number}-1700000000000-{choose.getrandbits(32):08x}" for number in range(members)]
    plain = AssignorInput(
        subscribers=tuple(
            Subscriber(
                consumer_id=consumer_id,
                threads=dict.fromkeys(choices[number % len(choices)], 1),
                rack=choose.choice(RACKS) if kind == "racks" else None,
                capacity=2 * partitions // members * CAPACITY_OF[kind] if kind in CAPACITY_OF else None,
            )
            for number, consumer_id in enumerate(ids)
        ),
        partitions={topic: tuple(range(partitions // len(topics))) for topic in topics},
        owned={},
    )
    weights = range(1, WEIGHT_MAX) if kind == "any_weights" else WEIGHTS
    pairs = [TopicPartition(topic, number) for topic, numbers in plain.partitions.items() for number in numbers]
    return replace(
        plain,
        weights={pair: choose.choice(weights) for pair in pairs} if "weights" in kind else {},
        racks={pair: frozenset(choose.sample(RACKS, 2)) for pair in pairs} if kind == "racks" else {},
    )


def after(event: str, start: AssignorInput) -> AssignorInput:
    """Return the group as the assignor sees it after `event` in the settled group."""
    if event == "start":
        return start
    owned = ASSIGNORS["sticky"](start)
    check_assignment(start, owned)
    subscribers = start.subscribers
    if event == "join":
        joiner = replace(subscribers[0], consumer_id="g_joiner-1700000000001-00000000")
        subscribers = (*subscribers, joiner)
    elif event in ("death", "tenth"):
        gone = {member.consumer_id for member in subscribers[: 1 if event == "death" else None : 10]}
        subscribers = tuple(member for member in subscribers if member.consumer_id not in gone)
        owned = {pair: thread for pair, thread in owned.items() if consumer_of(thread) not in gone}
    return replace(start, subscribers=subscribers, owned=owned)


def best_ms(function: Callable[[], object], runs: int) -> float:
    """The shortest of `runs` calls, in milliseconds."""
    times = []
    for _ in range(runs):
        begin_ns = time.perf_counter_ns()
        function()
        times.append(time.perf_counter_ns() - begin_ns)
    return min(times) / 1e6


def measure(kind: str, members: int, partitions: int, *, event: str, runs: int) -> float:
    """Milliseconds of one assignment."""
    given = after(event, group(kind, members, partitions))
    return best_ms(lambda: ASSIGNORS["sticky"](given), runs)


def settled_group(at: tuple[int, int] = STEP_AT) -> GroupView:
    """Return a group of so many members that own so many partitions, as the assignor assigns them."""
    given = group("uniform", *at)
    offers = frozenset({"replay", "ping"})
    names = [member.consumer_id for member in given.subscribers]
    members = {
        name: Member(consumer_id=name, czxid=n, threads=dict.fromkeys(TOPICS, 1), assignors=("sticky",), offers=offers)
        for n, name in enumerate(names, 1)
    }
    view = GroupView(
        group="g",
        members=members,
        channels={name: Channel(consumer_id=name, version=1, czxid=1) for name in names},
        topics=given.partitions,
        marked=frozenset(TOPICS),
        record_version=0,
        state_version=0,
    )
    target = decide(view, Memory(), 0, digest).memory.target
    owners = {partition: Owner(thread, 1) for partition, thread in target.assignment.items()}
    return replace(view, owners=owners, state=GroupState(generation=1, target=target.digest))


def limited(view: GroupView) -> GroupView:
    """Return the view with a budget of moves."""
    return replace(view, record=GroupRecord(policy=Policy(max_moves=10)))


def announced(view: GroupView) -> GroupView:
    """Return the same view, in which each member has announced a range of every partition that it owns."""
    ranges: dict[str, dict[TopicPartition, Announced]] = {}
    for partition, owner in view.owners.items():
        ranges.setdefault(consumer_of(owner.thread), {})[partition] = Announced(5, 10, 1)
    channels = {name: replace(channel, announced=ranges.get(name, {})) for name, channel in view.channels.items()}
    return replace(view, channels=channels)


def channel_changed(view: GroupView, version: int) -> GroupView:
    """Return the view in which the first member's channel has this version."""
    name, channel = next(iter(view.channels.items()))
    return replace(view, channels={**view.channels, name: replace(channel, version=version)})


def owner_changed(view: GroupView, version: int) -> GroupView:
    """Return the view in which the first partition's owner node has this version."""
    partition, owner = next(iter(view.owners.items()))
    return replace(view, owners={**view.owners, partition: owner._replace(version=version)})


def step_ms(view: GroupView, changed: Callable[[GroupView, int], GroupView], runs: int) -> float:
    """Return the time of the shortest of `runs` steps in milliseconds. Before each step the same node changes."""
    memory, times = Memory(), []
    for version in range(2, runs + 3):
        now = changed(view, version)
        begin_ns = time.perf_counter_ns()
        step = decide(now, memory, 0, digest)
        times.append(time.perf_counter_ns() - begin_ns)
        if step.decisions:
            raise AssertionError(f"the group is not settled: {step.decisions[0]}")
        memory = step.memory
    return min(times[1:]) / 1e6  # the first one asks the assignor


def goal_ms(kind: str, members: int, event: str) -> float:
    """Return the goal of this point (see the module's docstring)."""
    if members <= 10:
        return 1.5
    if kind != "uniform":
        return 200.0
    return 60.0 if event == "start" else 20.0


def all_measures(*, quick: bool) -> list[Measure]:
    """In the order in which they are printed."""
    found: list[Measure] = []

    def add(name: str, value: float, goal: float) -> None:
        found.append(Measure(name, value, goal, at_most=True))

    for kind in KINDS:
        joins = {}
        for members, partitions, runs in ((10, 1_000, 50), (1_000, 10_000, 20), (10_000, 100_000, 3 if quick else 25)):
            for event in EVENTS:
                value = measure(kind, members, partitions, event=event, runs=5 if quick and members < 10_000 else runs)
                if event == "join":
                    joins[members] = value
                if members != 1_000:
                    add(f"{kind}_{members}x{partitions}_{event}_ms", value, goal_ms(kind, members, event))
        add(f"{kind}_growth_1000_to_10000", joins[10_000] / joins[1_000] / 10, 2.0)
    for kind, event, goal in (
        ("everyone", "join", 200.0),
        ("everyone", "tenth", 1_000.0),
        ("any_weights", "join", 400.0),
        ("topics", "join", 200.0),
    ):
        value = measure(kind, 1_000, 10_000, event=event, runs=3)
        add(f"{kind}_1000x10000_{event}_ms", value, goal)
    settled = settled_group()
    steps = {"": settled, "_max_moves": limited(settled), "_announced": announced(settled)}
    for name, view in steps.items():
        add(f"step{name}_5000x100000_ms", step_ms(view, channel_changed, runs=5), STEP_MS_MAX)
        add(f"owner_step{name}_5000x100000_ms", step_ms(view, owner_changed, runs=5), OWNER_STEP_MS_MAX)
    topics = group("topics", 1_000, 10_000)
    answer = ASSIGNORS["sticky"](topics)
    add("topics_1000x10000_check_ms", best_ms(lambda: check_assignment(topics, answer), 3), 200.0)
    return found


def main() -> int:
    """Print the measures; 0 when all reach their goals."""
    chosen = arguments("How long the sticky assignor takes.").parse_args()
    gc.set_threshold(*COLLECTOR)  # as the coordinator's command does
    return conclude(all_measures(quick=chosen.quick), {}, chosen.json)


if __name__ == "__main__":
    sys.exit(main())
