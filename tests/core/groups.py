"""Views of one small group, the decisions about it, and its view after a raise is written."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace

from zkcoord.core.assignors import ASSIGNORS, Assignor
from zkcoord.core.coordinate import decide
from zkcoord.core.decisions import Decision, SetState, StateEvent
from zkcoord.core.difference import difference
from zkcoord.core.memory import Memory
from zkcoord.core.model import Phase, TopicPartition
from zkcoord.core.record import GroupRecord, Policy, Request
from zkcoord.core.state import GroupState
from zkcoord.core.view import Channel, GroupView, Member, Owner, QueuedCommand, phase

T0, T1, T2, T3 = (TopicPartition("t", n) for n in range(4))
NOW = 1_000_000


def digest(target: Mapping[TopicPartition, str]) -> str:
    """A digest that is easy to read when a test fails."""
    return ",".join(f"{p}={thread}" for p, thread in sorted(target.items()))


def member(name: str, czxid: int = 1, **values: object) -> Member:
    """A consumer that reads t."""
    values = {"threads": {"t": 1}, "assignors": ("sticky", "range"), **values}
    return Member(consumer_id=name, czxid=czxid, **values)  # type: ignore[arg-type]


def state_set(view: GroupView, event: StateEvent, why: str, **changes: object) -> SetState:
    """The decision that writes the view's state with these changes."""
    return SetState(state=replace(view.state, **changes), event=event, why=why)  # type: ignore[arg-type]


def states(decisions: Iterable[Decision], event: StateEvent) -> list[GroupState]:
    """The states that are written with this event."""
    return [d.state for d in decisions if isinstance(d, SetState) and d.event is event]


def channel(name: str, *commands: QueuedCommand, **values: object) -> Channel:
    """The channel of a registered member."""
    return Channel(consumer_id=name, version=1, commands=commands, **values)  # type: ignore[arg-type]


def command(option: str, *partitions: TopicPartition, sequence: int = 0, thread: str = "") -> QueuedCommand:
    """A command about these partitions."""
    return QueuedCommand(
        sequence=f"{sequence:010d}", version=0, option=option, threads=dict.fromkeys(partitions, thread)
    )


def altered(view: GroupView, **values: object) -> GroupView:
    """The view with these values, each at its own place: in the view, its record, the record's policy, or its state."""
    of_record, of_policy, of_state = ({f.name for f in fields(kind)} for kind in (GroupRecord, Policy, GroupState))
    own = {name: value for name, value in values.items() if name in view.__dataclass_fields__}
    policy = {name: value for name, value in values.items() if name in of_policy}
    record = {name: value for name, value in values.items() if name in of_record - {"policy"}}
    state = {name: value for name, value in values.items() if name in of_state - own.keys()}
    assert own.keys() | policy.keys() | record.keys() | state.keys() == values.keys()
    asked = replace(view.record, policy=replace(view.record.policy, **policy), **record)  # type: ignore[arg-type]
    return replace(view, **{"record": asked, "state": replace(view.state, **state), **own})  # type: ignore[arg-type]


def runs(**requests: str) -> dict[str, Request]:
    """Requests of a record: name of the request -> its run."""
    return {name: Request(run=run) for name, run in requests.items()}


def group(members: list[Member], owners: Mapping[TopicPartition, str], **values: object) -> GroupView:
    """A group whose topic t has four partitions. `values` are as in `altered`."""
    view = GroupView(
        group="g",
        members={m.consumer_id: m for m in members},
        channels={m.consumer_id: channel(m.consumer_id) for m in members},
        owners={p: Owner(thread, 5) for p, thread in owners.items()},
        topics={"t": (0, 1, 2, 3)},
        marked=frozenset({"t"}),
        record_version=0,
        state_version=0,
    )
    return altered(view, **values)


def phase_of(view: GroupView, target: Mapping[TopicPartition, str]) -> Phase:
    """The group's phase on the way to this target."""
    return phase(view, difference(view.owners, target).owning)


class Steps:
    """A coordinator's memory of one group, kept from step to step."""

    def __init__(self, last: Memory | None = None) -> None:
        self.last = last or Memory()

    def step(
        self, view: GroupView, now_ms: int = NOW, assignors: Mapping[str, Assignor] = ASSIGNORS
    ) -> tuple[tuple[Decision, ...], int | None]:
        """The decisions, and the time of the next step. Checks that the step changed no argument, and that a second
        step gives the same result."""
        handed_in = pickle.dumps((view, self.last))
        first = decide(view, self.last, now_ms, digest, assignors)
        assert pickle.dumps((view, self.last)) == handed_in
        assert decide(view, self.last, now_ms, digest, assignors) == first
        assert decide(view, first.memory, now_ms, digest, assignors).decisions == first.decisions
        self.last = first.memory
        return first.decisions, first.wake_at_ms


def decided(view: GroupView, steps: Steps | None = None, now_ms: int = NOW) -> list[Decision]:
    """The decisions of one step."""
    return list((steps or Steps()).step(view, now_ms)[0])


def settled(view: GroupView) -> GroupView:
    """The view after the raise of the generation that its target needs was written."""
    target = decide(view, Memory(), NOW, digest).memory.target
    return altered(view, target=target.digest, generation=view.state.generation + 1)
