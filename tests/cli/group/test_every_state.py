"""README's commands about groups, on a group in every state that zkcoord shows: each prints something that says the
state, `group describe` also what can be done, and the exit code is the documented one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from tests.cli.group_tree import P0, P1, TARGET, A, B, World
from tests.cli.old_world import AUDIT, ETL, OldWorld
from tests.cli.program import Run
from zkcoord.core.adoption import Adoption
from zkcoord.core.mode import Mode
from zkcoord.core.model import Phase
from zkcoord.core.moved import Moved, MoveState
from zkcoord.core.record import BEGUN, DELETE, DONE, HOLD, PAUSE, RESET, GroupRecord, Request, Response
from zkcoord.core.requests import DELETING, PAUSED, STOPPED
from zkcoord.core.state import Failure, GroupState, Quarantine
from zkcoord.core.view import Instance
from zkcoord.migrate import upgrade
from zkcoord.operating.waiting import NOBODY
from zkcoord.shell.zk.blocking import Tree
from zkcoord.tree.instance import encode_instance
from zkcoord.tree.paths import DRAFT, LEGACY
from zkcoord.tree.record import encode_record
from zkcoord.tree.state import digest, encode_state

pytestmark = pytest.mark.zookeeper

SETTLED = GroupState(generation=7, target=digest(TARGET))
ASKED = Request(who="ann@db1", run="1")
Make = Callable[[World], None]


def settled(world: World) -> None:
    """Stable, and served."""
    world.settle()
    world.put(DRAFT.coordinator, b"3")


def with_record(record: GroupRecord) -> Make:
    """A stable group of which people have decided this."""

    def make(world: World) -> None:
        settled(world)
        world.put(DRAFT.record("g"), encode_record(record))

    return make


def asked(name: str, answer: str, **more: str) -> Make:
    """A stable group to which this request was made, and its coordinator's response."""
    return with_record(
        GroupRecord(requests={name: replace(ASKED, **more)}, responses={name: Response(run="1", state=answer)})
    )


def moved(state: MoveState) -> Make:
    """One that is in another tree, or on its way."""
    return with_record(GroupRecord(moved=Moved(state=state, tree="5e0b", address="zk2:2181/kafka", run="r")))


def noted(**more: object) -> Make:
    """A group of which its coordinator has noted this."""

    def make(world: World) -> None:
        settled(world)
        world.put(DRAFT.state("g"), encode_state(replace(SETTLED, **more)))  # type: ignore[arg-type]

    return make


def on_the_way(world: World) -> None:
    """To another store of offsets."""
    with_record(GroupRecord(store_name="dual", store_step=3))(world)
    world.member(A, "etl-1", offers=frozenset({"offset-store"}), offsets=("zookeeper", "dual"))


def empty(world: World) -> None:
    settled(world)
    world.remove(DRAFT.registration("g", A))
    for partition in (P0, P1):
        world.put(DRAFT.owner("g", partition))


def deleted(world: World) -> None:
    world.put(DRAFT.coordinator, b"3")
    world.put(DRAFT.offset("g", P0), b"7")
    world.put(DRAFT.state("g"), encode_state(GroupState(deleted=True)))


def preparing(world: World) -> None:
    settled(world)
    world.put(DRAFT.owner("g", P1))


def syncing(world: World) -> None:
    settled(world)
    world.start_for_a()


def away(world: World) -> None:
    settled(world)
    known = Instance(last_id=B, hold_ms=3_600_000, threads={"clicks": 1}, share={P1: 0}, assignor="sticky", away=True)
    world.put(DRAFT.instance("g", "etl-2"), encode_instance(known))
    world.put(DRAFT.owner("g", P1), f"{B}-0".encode())
    target = digest({P0: f"{A}-0", P1: "@etl-2-0"})
    world.put(DRAFT.state("g"), encode_state(GroupState(generation=7, target=target)))


def quarantined(world: World) -> None:
    settled(world)
    world.put(DRAFT.owner("g", P1))
    of_nobody = {P1: Quarantine("no", 2**60)}  # no member is as new as this czxid
    state = GroupState(generation=7, target=digest({P0: f"{A}-0"}), quarantined=of_nobody)
    world.put(DRAFT.state("g"), encode_state(state))


def unread(world: World) -> None:
    settled(world)
    world.put(DRAFT.record("g"), b"[")


STATES: dict[str, tuple[Make, str, str, int]] = {
    "stable": (settled, "Stable", "", 0),
    "no coordinator": (World.settle, "Stable", NOBODY, 0),
    "empty": (empty, "Empty", "start its consumers", 5),
    "deleted, offsets kept": (deleted, "Empty", "`zkcoord group delete g --offsets` removes them", 5),
    "a partition without an owner": (preparing, "PreparingRebalance", "`zkcoord group describe g --members`", 5),
    "a start outstanding": (syncing, "AwaitingSync", "`zkcoord group describe g --members`", 5),
    "a static member away": (away, "AwaitingMember", "`zkcoord group rebalance g` give its share to others", 5),
    "paused": (asked(PAUSE, PAUSED), "Paused", "`zkcoord group resume g` ends that", 5),
    "being reset": (asked(RESET, STOPPED), "Paused", "`zkcoord group resume g` ends that", 5),
    "being handed over": (
        asked(PAUSE, PAUSED, handed_over=BEGUN),
        "Paused",
        "`zkcoord group take-back g` ends that",
        5,
    ),
    "handed over": (asked(PAUSE, PAUSED, handed_over=DONE), "Paused", "`zkcoord group take-back g` ends that", 5),
    "held": (asked(HOLD, "held"), "Stable", "`zkcoord group resume g` ends the hold", 0),
    "being deleted": (asked(DELETE, DELETING), "Dead", "run `zkcoord group delete g` again", 5),
    "failed": (
        noted(failed=Failure(error="it does not obey", since_generation=6)),
        "FAILED",
        "`zkcoord group rebalance g` tries again",
        3,
    ),
    "quarantined": (quarantined, "QUARANTINED", "`zkcoord group rebalance g`", 0),
    "an assignment not as asked": (noted(problem="nobody has 'mine'"), "PROBLEM: nobody has 'mine'", "", 0),
    "moving away": (moved(MoveState.LEAVING), "is being moved to zk2:2181/kafka", "--give-up", 5),
    "moved away": (moved(MoveState.GONE), "was moved to zk2:2181/kafka", "start its consumers at zk2:2181/kafka", 5),
    "arriving": (moved(MoveState.ARRIVING), "is arriving from zk2:2181/kafka", "run `zkcoord migrate move", 5),
    "a step of offsets": (on_the_way, "STEP TO dual NOT DONE", "", 0),
    "a record that nobody can parse": (unread, "Stable", "`zkcoord group mend g` shows", 5),
}
"""How each is made; words that tell it; words that say what to do; the exit code of `--wait stable`."""


@pytest.fixture
def world(chroot: str) -> Iterator[World]:
    with Tree(chroot) as tree:
        yield World(tree, chroot)


@pytest.mark.parametrize("name", STATES)
def test_each_command_says_the_state_and_describe_what_to_do(name: str, world: World, run: Run) -> None:
    make, state, todo, waited = STATES[name]
    make(world)

    def printed(*words: str, code: int = 0) -> str:
        done = run(*words, "--zookeeper", world.address)
        assert (done.exit_code, done.exception is None or isinstance(done.exception, SystemExit)) == (code, True), words
        assert (done.stdout + done.stderr).strip(), words
        return done.stdout + done.stderr

    listed = printed("group", "list", "--state", "--all")
    assert state in listed
    assert "g" in printed("group", "list", "--all").splitlines()
    described = printed("group", "describe", "g")
    assert state in described
    assert state in printed("group", "describe", "g", "--state")
    said = [line for line in described.splitlines() if line.startswith("! ")]
    assert [line for line in said if todo in line] if todo else not said, described
    patience_ms = "100" if waited else "60000"
    waiting = printed("group", "describe", "g", "--wait", "stable", "--timeout-ms", patience_ms, code=waited)
    assert waited == 0 or waiting.splitlines()[-1].startswith("error: "), waiting
    for words in ("group describe g --members", "group members g", "group commands g", "group commands", "topic list"):
        printed(*words.split())
    printed("coordinators", "list")


def test_every_state_that_there_is_has_been_made() -> None:
    told = " ".join(state for _, state, _, _ in STATES.values())
    phases = {phase.value for phase in Phase} - {Phase.OBSERVED.value}  # of the layout `legacy`: below
    assert {phase for phase in phases if phase not in told} == set()
    assert len([name for name in STATES if name in ("moving away", "moved away", "arriving")]) == len(MoveState)


@pytest.mark.parametrize(
    ("members", "adopt", "state", "todo"),
    [
        (ETL, False, "Observed", "NOT ADOPTED: `zkcoord group adopt g`"),
        (ETL, True, f"{Mode.MIXED.value}: ", ""),
        (AUDIT, True, f"{Mode.OBSERVE.value}: ", "! the member that is named must leave"),
    ],
    ids=["not adopted", "mixed", "with a member of another library"],
)
def test_a_group_of_old_members_says_its_mode_and_what_to_do(
    members: dict[str, dict[str, str]], adopt: bool, state: str, todo: str, chroot: str, run: Run
) -> None:
    with Tree(chroot) as tree:
        world = OldWorld(tree, chroot)
        upgrade(tree, run_id="test", layout="legacy")
        world.group("g", members)
        if adopt:
            adoption = Adoption(offsets="zookeeper", strategy="range", kafka="0.11")
            world._there |= {"/zkcoord", "/zkcoord/groups"}
            world.put(LEGACY.record("g"), encode_record(GroupRecord(adoption=adoption)).decode())
        described, listed = (
            run(*words.split(), "--zookeeper", chroot) for words in ("group describe g", "group list --state")
        )
        assert (described.exit_code, state in described.stdout, todo in described.stdout) == (0, True, True), (
            described.output
        )
        assert (listed.exit_code, state in listed.stdout) == (0, True), listed.output


@pytest.mark.parametrize("words", ["group list", "group list --state", "group describe --all-groups"])
def test_a_tree_without_groups_says_so(words: str, world: World, run: Run) -> None:
    done = run(*words.split(), "--zookeeper", world.address)
    assert (done.exit_code, "there is no group" in done.stderr) == (0, True), done.output


@pytest.mark.parametrize(
    ("words", "code"), [("group list", 7), ("group describe g", 7), ("coordinators list", 7), ("topic list", 7)]
)
def test_without_a_tree_each_command_says_who_makes_it(words: str, code: int, chroot: str, run: Run) -> None:
    done = run(*words.split(), "--zookeeper", chroot)
    assert (done.exit_code, "start a coordinator" in done.stderr) == (code, True), done.output
