"""Each checker sees the violation that it is for, and a whole correct hand-over passes all checkers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.sim.checkers import watch
from tests.sim.options import Options
from tests.sim.world import SimulationError, World
from tests.sim.zookeeper import Session
from zkcoord.core.model import TopicPartition
from zkcoord.tree.writes import CheckNode, CreateNode, DeleteNode, SetNode, Write

GROUP = "/consumers/groups/g"
STATE = "/zkcoord/groups/g/state"
P0 = TopicPartition("t", 0)
REGISTRATION = b'{"version":1,"subscription":{"t":1},"pattern":"static","timestamp":"1","coordination":"zkcoord/1"}'

OF_THE_DRAFT = REGISTRATION.replace(b',"coordination":"zkcoord/1"', b"")


class Scene:
    """A world of one group with one coordinator, written by hand."""

    def __init__(self) -> None:
        self.world = World(0, Options())
        ensemble = self.ensemble = self.world.ensemble
        for path in ("ids", "owners/t/0", "offsets/t", "channel"):
            ensemble.ensure(f"{GROUP}/{path}")
        ensemble.ensure("/zkcoord/epoch", b"1")
        ensemble.ensure(STATE, b'{"version":1,"generation":1,"target":"x"}')
        ensemble.ensure("/brokers/topics/t", b'{"version":1,"partitions":{"0":[1]}}')
        self.known = watch(self.world)
        self.coordinator = self.session("coordinator")
        self.elect(self.coordinator)

    def session(self, name: str) -> Session:
        session = self.ensemble.open_session(name, f"{name}#1", 10_000)
        session.expires_at_ms = None
        return session

    def elect(self, session: Session) -> None:
        self.submit(session, SetNode("/zkcoord/epoch", b"2", self.version("/zkcoord/epoch")))

    def submit(self, session: Session, *writes: Write) -> None:
        assert self.ensemble.submit(session, writes).reason == ""

    def version(self, path: str) -> int:
        stat = self.ensemble.stat(path)
        assert stat is not None
        return stat.version

    def member(self, name: str, registration: bytes = REGISTRATION) -> Session:
        session = self.session(name)
        self.submit(session, CreateNode(f"{GROUP}/channel/{name}"))
        self.submit(session, CreateNode(f"{GROUP}/ids/{name}", registration, ephemeral=True))
        return session

    def checks(self) -> list[Write]:
        paths = ("/zkcoord/epoch", "/zkcoord/groups/g", STATE)
        return [CheckNode(path, self.version(path)) for path in paths]

    def own(self, thread: str) -> SetNode:
        return SetNode(f"{GROUP}/owners/t/0", thread.encode(), self.version(f"{GROUP}/owners/t/0"))

    def command(self, name: str, option: str, **fields: Any) -> CreateNode:
        body = {"version": 1, "option": option, "ownershipMap": {"t-0": f"{name}-0"}, **fields}
        return CreateNode(f"{GROUP}/channel/{name}", json.dumps(body).encode(), sequential=True)

    def grant(self, name: str, session: Session | None = None) -> None:
        start = self.command(name, "start-fetcher")
        self.submit(session or self.coordinator, *self.checks(), self.own(f"{name}-0"), start)

    def acknowledge(self, name: str, session: Session, *writes: Write, sequence: int = 0) -> None:
        check = CheckNode(f"{GROUP}/ids/{name}", -1)
        self.submit(session, check, DeleteNode(f"{GROUP}/channel/{name}/{sequence:010d}", 0), *writes)

    def note(self, name: str, event: str, start: int, end: int = -1) -> None:
        process = self.world.processes.get(name) or self.world.spawn(name, lambda process: Nobody())
        process.group = "g"
        self.world.note(process, event, P0, start, end)

    def offset(self, value: int) -> Write:
        path = f"{GROUP}/offsets/t/0"
        stat = self.ensemble.stat(path)
        data = str(value).encode()
        return CreateNode(path, data) if stat is None else SetNode(path, data, stat.version)


class Nobody:
    """An actor that does nothing."""

    def step(self, inputs: list[Any], now_ms: int) -> int | None:
        return None


def started() -> tuple[Scene, Session]:
    """A member `a` that reads partition 0 from offset 5."""
    field = Scene()
    session = field.member("a")
    field.grant("a")
    field.note("a", "reset", 5)
    field.acknowledge("a", session, field.offset(5))
    return field, session


def test_a_lawful_hand_over_is_no_violation() -> None:
    field, a = started()
    field.note("a", "read", 5, 9)
    field.submit(a, CheckNode(f"{GROUP}/ids/a", -1), field.offset(7))
    b = field.member("b")
    raised = b'{"version":1,"generation":2,"target":"y"}'
    epoch = field.checks()[0]
    field.submit(field.coordinator, epoch, CheckNode("/zkcoord/groups/g", 0), SetNode(STATE, raised, 0))
    field.submit(field.coordinator, *field.checks(), field.command("a", "stop-fetcher"))
    field.acknowledge("a", a, field.offset(9), field.own(""), sequence=1)
    field.grant("b")
    field.acknowledge("b", b)
    field.note("b", "read", 9, 12)
    field.submit(b, CheckNode(f"{GROUP}/ids/b", -1), field.offset(12))


def test_two_readers_are_seen_in_the_tree_and_in_the_journal() -> None:
    field, _ = started()
    b = field.member("b")
    field.submit(field.coordinator, *field.checks(), field.command("b", "start-fetcher"))
    field.known.owners["g", P0] = "b-0"
    with pytest.raises(SimulationError, match="b starts t-0, a has not released it"):
        field.acknowledge("b", b)
    with pytest.raises(SimulationError, match="b#1 reads t-0, which a#1 holds"):
        field.note("b", "read", 5, 6)


def test_reading_after_the_registration_ended_is_seen() -> None:
    field, a = started()
    field.note("a", "read", 5, 6)
    field.world.now_ms = field.ensemble.now_ms = 100
    field.ensemble.end_session(a, "expire")
    field.world.now_ms = 101
    with pytest.raises(SimulationError, match="1 ms after its registration ended"):
        field.note("a", "read", 6, 7)


@pytest.mark.parametrize("record", [b"", b'{"policy":{"evict_grace_ms":5000}}'])
def test_an_evicted_one_may_read_on_for_its_grace_and_its_partition_waits_for_it(record: bytes) -> None:
    field, _ = started()
    assert not field.ensemble.operate(SetNode("/zkcoord/groups/g", record, 0)).reason
    mark = CreateNode(f"{GROUP}/channel/a/evicted")
    field.submit(field.coordinator, *field.checks(), DeleteNode(f"{GROUP}/ids/a", 0), mark)
    field.member("b")
    field.world.now_ms = field.ensemble.now_ms = 8_000
    field.note("a", "read", 5, 6)
    with pytest.raises(SimulationError, match="of the evicted a granted after 8000 ms"):
        field.grant("b")


@pytest.mark.parametrize(("registration", "by"), [(REGISTRATION, "a"), (OF_THE_DRAFT, "a"), (OF_THE_DRAFT, "b")])
def test_only_a_draft_receiver_may_delete_a_command_after_its_eviction(registration: bytes, by: str) -> None:
    field = Scene()
    sessions = {"a": field.member("a", registration), "b": field.member("b", registration)}
    field.grant("a")
    mark = CreateNode(f"{GROUP}/channel/a/evicted")
    field.submit(field.coordinator, *field.checks(), DeleteNode(f"{GROUP}/ids/a", 0), mark)
    late = DeleteNode(f"{GROUP}/channel/a/0000000000", 0)
    if (registration, by) == (OF_THE_DRAFT, "a"):
        field.submit(sessions[by], late)
    else:
        with pytest.raises(SimulationError, match=f"{by}#1 deleted a command of a"):
            field.submit(sessions[by], late)


def test_a_grant_of_what_a_living_member_owns_is_seen() -> None:
    field, _ = started()
    field.member("b")
    with pytest.raises(SimulationError, match="granted to b-0 while a is registered"):
        field.grant("b")


@pytest.mark.parametrize(
    ("offset", "complaint"), [(8, "beyond what was processed"), (4, "went back"), (6, "without a check of its reg")]
)
def test_offsets_that_lie_are_seen(offset: int, complaint: str) -> None:
    field, a = started()
    field.note("a", "read", 5, 7)
    fence = [] if offset == 6 else [CheckNode(f"{GROUP}/ids/a", -1)]
    with pytest.raises(SimulationError, match=complaint):
        field.submit(a, *fence, field.offset(offset))


def test_a_first_offset_that_no_policy_gave_is_seen() -> None:
    field = Scene()
    a = field.member("a")
    field.grant("a")
    field.note("a", "reset", 5)
    with pytest.raises(SimulationError, match="first offset 6 of t-0"):
        field.acknowledge("a", a, field.offset(6))


def test_a_skipped_record_is_seen() -> None:
    field, _ = started()
    field.note("a", "read", 5, 7)
    with pytest.raises(SimulationError, match="records from 7 are skipped"):
        field.note("a", "read", 8, 9)


def test_a_deposed_coordinator_and_an_unchecked_epoch_are_seen() -> None:
    field = Scene()
    field.member("a")
    other = field.session("other")
    field.elect(other)
    with pytest.raises(SimulationError, match="the newest epoch is other#1's"):
        field.grant("a")
    field.world._failure = None
    with pytest.raises(SimulationError, match="without a check of the epoch"):
        field.submit(other, *field.checks()[1:], field.command("a", "start-fetcher"))


def test_a_grant_without_a_check_of_the_state_is_seen() -> None:
    field = Scene()
    field.member("a")
    with pytest.raises(SimulationError, match=f"without a check of {STATE}"):
        field.submit(field.coordinator, *field.checks()[:2], field.own("a-0"), field.command("a", "start-fetcher"))


def test_a_foreign_hand_on_a_command_or_an_owner_is_seen() -> None:
    field = Scene()
    field.member("a")
    b = field.member("b")
    field.grant("a")
    delete = DeleteNode(f"{GROUP}/channel/a/0000000000", 0)
    with pytest.raises(SimulationError, match="b#1 deleted a command of a"):
        field.submit(b, CheckNode(f"{GROUP}/ids/b", -1), delete)
    field, _ = started()
    b = field.member("b")
    with pytest.raises(SimulationError, match="b#1 released t-0, which a-0 owns"):
        field.submit(b, CheckNode(f"{GROUP}/ids/b", -1), field.own(""))
    field = Scene()
    field.member("a")
    field.grant("a")
    with pytest.raises(SimulationError, match="withdrew a command of a"):
        field.submit(field.coordinator, *field.checks(), delete)


def test_an_acknowledgement_without_its_fence_is_seen() -> None:
    field = Scene()
    a = field.member("a")
    field.grant("a")
    with pytest.raises(SimulationError, match="without a check of its registration"):
        field.submit(a, DeleteNode(f"{GROUP}/channel/a/0000000000", 0))


def test_a_status_without_its_fence_is_seen() -> None:
    field, a = started()
    field.submit(a, CheckNode(f"{GROUP}/ids/a", 0), SetNode(f"{GROUP}/channel/a", b"{}", 0))
    with pytest.raises(SimulationError, match="wrote the status of a without a check of its registration"):
        field.submit(a, SetNode(f"{GROUP}/channel/a", b"{}", 1))


def test_a_second_command_for_a_partition_is_seen() -> None:
    field = Scene()
    field.member("a")
    field.grant("a")
    with pytest.raises(SimulationError, match="has start-fetcher 0000000000 outstanding, was sent stop-fetcher"):
        field.submit(field.coordinator, *field.checks(), field.command("a", "stop-fetcher"))


@pytest.mark.parametrize(
    ("generation", "target", "complaint"),
    [(0, "y", "fell from 1 to 0"), (2, "x", "rose to 2 without"), (1, "y", "at the same generation 1")],
)
def test_a_generation_without_a_cause_is_seen(generation: int, target: str, complaint: str) -> None:
    field = Scene()
    state = json.dumps({"version": 1, "generation": generation, "target": target}).encode()
    with pytest.raises(SimulationError, match=complaint):
        field.submit(field.coordinator, *field.checks()[:2], SetNode(STATE, state, 0))


MARK = '{"version":1,"incarnation":%d,"topic_id":null,"czxid":"%s","root_czxid":"1"}'


def mark(field: Scene, incarnation: int, czxid: int | None = None) -> bytes:
    """A mark of the present topic, or of another one."""
    stat = field.ensemble.stat("/brokers/topics/t")
    assert stat is not None
    return (MARK % (incarnation, stat.czxid if czxid is None else czxid)).encode()


def test_an_offset_dropped_while_its_topic_stands_is_seen() -> None:
    field = Scene()
    owners = f"{GROUP}/owners/t"
    field.submit(field.coordinator, *field.checks(), SetNode(owners, mark(field, 1), field.version(owners)))
    field.ensemble.ensure(f"{GROUP}/offsets/t/0", b"5")
    with pytest.raises(SimulationError, match="its topic is still the one that was marked"):
        field.submit(field.coordinator, *field.checks(), DeleteNode(f"{GROUP}/offsets/t/0", 0))


def test_an_offset_dropped_under_a_reader_is_seen() -> None:
    field = Scene()
    session = field.member("a")
    field.grant("a")
    field.ensemble.ensure(f"{GROUP}/offsets/t/0", b"5")
    field.submit(
        session,
        CheckNode(f"{GROUP}/ids/a", 0),
        DeleteNode(f"{GROUP}/channel/a/0000000000", 0),
    )
    with pytest.raises(SimulationError, match="was dropped while a reads t-0"):
        field.submit(field.coordinator, *field.checks(), DeleteNode(f"{GROUP}/offsets/t/0", 0))


@pytest.mark.parametrize(
    ("incarnation", "czxid", "complaint"),
    [(1, 99, "the mark of t in g went from"), (3, None, "went from"), (2, None, "went from")],
)
def test_a_mark_that_counts_wrongly_is_seen(incarnation: int, czxid: int | None, complaint: str) -> None:
    field = Scene()
    owners = f"{GROUP}/owners/t"
    field.submit(field.coordinator, *field.checks(), SetNode(owners, mark(field, 1), field.version(owners)))
    with pytest.raises(SimulationError, match=complaint):
        field.submit(
            field.coordinator, *field.checks(), SetNode(owners, mark(field, incarnation, czxid), field.version(owners))
        )


def test_a_mark_that_begins_again_at_an_old_number_is_seen() -> None:
    field = Scene()
    path = f"{GROUP}/owners/u"
    field.submit(field.coordinator, *field.checks(), CreateNode(path, mark(field, 2)))
    field.submit(field.coordinator, *field.checks(), DeleteNode(path, 0))
    with pytest.raises(SimulationError, match="the mark of u in g began again at 2, after 2"):
        field.submit(field.coordinator, *field.checks(), CreateNode(path, mark(field, 2)))


RECORD = "/zkcoord/groups/g"
DECIDED = {"policy": {"max_moves": 3}, "wish": {"hold": {"run": "r"}}}


@pytest.mark.parametrize(
    ("record", "complaint"),
    [
        ({**DECIDED, "policy": {"max_moves": None}}, "changed policy in the record of g"),
        ({**DECIDED, "wish": {}}, "took back the request hold of g and answered None"),
        ({**DECIDED, "wish": {"hold": {"run": "s"}}}, "took back the request hold"),
    ],
)
def test_a_record_that_a_coordinator_edits_is_seen(record: dict[str, Any], complaint: str) -> None:
    field = Scene()
    field.ensemble.operate(SetNode(RECORD, json.dumps(DECIDED).encode(), 0))
    lawful = {**DECIDED, "assignor": None, "wish": {"hold": None}, "done": {"hold": {"run": "r", "state": "held"}}}
    field.submit(field.coordinator, field.checks()[0], SetNode(RECORD, json.dumps(lawful).encode(), 1))
    field.ensemble.operate(SetNode(RECORD, json.dumps(DECIDED).encode(), 2))
    with pytest.raises(SimulationError, match=complaint):
        field.submit(field.coordinator, field.checks()[0], SetNode(RECORD, json.dumps(record).encode(), 3))


@pytest.mark.parametrize(("name", "option"), [("pause", "start-fetcher"), ("hold", "stop-fetcher")])
def test_a_command_against_a_request_is_seen(name: str, option: str) -> None:
    field = Scene()
    field.member("a")
    field.ensemble.operate(SetNode(RECORD, json.dumps({"wish": {name: {"run": "r"}}}).encode(), 0))
    with pytest.raises(SimulationError, match="a was sent a"):
        field.submit(field.coordinator, *field.checks(), field.command("a", option))


def test_a_grant_of_what_is_in_quarantine_is_seen() -> None:
    field = Scene()
    field.member("a")
    state = b'{"version":1,"generation":1,"target":"x","quarantined":{"t-0":{"why":"","czxid":1}}}'
    field.submit(field.coordinator, *field.checks()[:2], SetNode(STATE, state, 0))
    with pytest.raises(SimulationError, match="t-0 is in quarantine, and was granted to a-0"):
        field.grant("a")
