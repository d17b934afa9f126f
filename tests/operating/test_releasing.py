"""The way back on a tree in memory: every place where it breaks off, and who comes in between."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from tests.legacy.groups import static
from tests.migrate.memory_tree import CrashError, MemoryTree
from zkcoord.core.adoption import Adoption
from zkcoord.core.moved import Moved, MoveState
from zkcoord.core.record import BEGUN, DEFAULT_RECORD, DONE, PAUSE, GroupRecord, Request
from zkcoord.errors import UnavailableError, UsageError
from zkcoord.migrate import upgrade
from zkcoord.operating.adopting import Result, adopt_group
from zkcoord.operating.releasing import ROUNDS_MAX, named, ours, release
from zkcoord.tree.paths import DRAFT, LEGACY
from zkcoord.tree.record import decode_record, encode_record
from zkcoord.tree.snapshot import Read

OLD, OURS = "g_h-1416335000123-1a2b3c4d", "g_h-1416335000123-z1a2b3c4"
RECORD = LEGACY.record("g")
ADOPTED = replace(DEFAULT_RECORD, adoption=Adoption(offsets="zookeeper", strategy="range", kafka="0.11"))
GROUP_OF_THEIRS = {
    "/consumers/g": "",
    "/consumers/g/ids": "",
    f"/consumers/g/ids/{OLD}": static(t=1),
    "/consumers/g/offsets": "",
    "/consumers/g/offsets/t": "",
    "/consumers/g/offsets/t/0": "7",
    "/consumers/g/owners": "",
    "/consumers/g/owners/t": "",
    "/consumers/g/owners/t/0": f"{OLD}-0",
}
OF_OURS = {
    RECORD: encode_record(ADOPTED).decode(),
    f"{RECORD}/state": "{}",
    f"{RECORD}/state/marks": "",
    f"{RECORD}/state/marks/t": "{}",
    f"{RECORD}/state/instances": "",
    "/zkcoord/channels/g": "",
    f"/zkcoord/channels/g/{OURS}": "{}",
    f"/zkcoord/channels/g/{OURS}/0000000001": "{}",
    f"/zkcoord/channels/g/{OURS}/evicted": "6000",
}
REGISTERED = '{"version":1,"subscription":{"t":1},"pattern":"static","coordination":"zkcoord/1","timestamp":"1"}'


def refuses(there: Sequence[str]) -> None:
    raise UsageError(" ".join(there))


def put(tree: MemoryTree, nodes: dict[str, str]) -> None:
    for path, text in nodes.items():
        tree.set(path, text.encode())


@pytest.fixture
def tree() -> MemoryTree:
    """A tree of the layout legacy with a group that is adopted, and no consumer of ours in it any more."""
    made = MemoryTree()
    upgrade(made, run_id="test", layout="legacy")
    put(made, GROUP_OF_THEIRS)
    put(made, OF_OURS)
    made.commits.clear()
    return made


def without_ours(tree: MemoryTree) -> dict[str, bytes]:
    return {path: data for path, data in tree.data().items() if path not in OF_OURS}


def test_a_release_removes_what_is_ours_and_leaves_all_that_is_the_groups(tree: MemoryTree) -> None:
    after = without_ours(tree)
    assert release(tree, LEGACY, "g", refuses) == len(OF_OURS)
    assert tree.data() == after
    assert release(tree, LEGACY, "g", refuses) == 0


def test_all_offset_nodes_stay_where_old_members_commit_to_kafka_alone(
    tree: MemoryTree,
) -> None:
    """They may as well be of the time before the old members changed to Kafka."""
    adoption = Adoption(offsets="kafka", strategy="range", kafka="0.11")
    put(tree, {RECORD: encode_record(replace(DEFAULT_RECORD, adoption=adoption, store_name="kafka")).decode()})
    after = without_ours(tree)
    assert release(tree, LEGACY, "g", refuses) == len(OF_OURS)
    assert tree.data() == after
    assert after["/consumers/g/offsets/t/0"] == b"7"


@pytest.mark.parametrize("fault", ["before", "after", "crash-before", "crash-after"])
@pytest.mark.parametrize("at", range(2))
def test_a_release_that_broke_off_anywhere_is_ended_by_the_next_one(tree: MemoryTree, at: int, fault: str) -> None:
    after = without_ours(tree)
    tree.fault = lambda n: fault if n == at else ""
    try:
        release(tree, LEGACY, "g", refuses)
    except CrashError:
        release(tree, LEGACY, "g", refuses)
    assert tree.data() == after
    assert len(tree.commits) > at


def test_a_release_is_refused_while_a_consumer_of_ours_is_registered_and_writes_nothing(tree: MemoryTree) -> None:
    put(tree, {f"/consumers/g/ids/{OURS}": REGISTERED})
    before = tree.data()
    with pytest.raises(UsageError, match=OURS):
        release(tree, LEGACY, "g", refuses)
    assert (tree.data(), tree.commits) == (before, [])


def test_a_release_is_refused_while_a_consumer_that_is_gone_still_owns_a_partition(tree: MemoryTree) -> None:
    """Its session ends soon."""
    put(tree, {"/consumers/g/owners/t/0": f"{OURS}-0"})
    assert ours(tree, LEGACY, "g") == [OURS]


def test_f92_a_consumer_that_registers_before_the_adoption_goes_has_the_release_refused(
    tree: MemoryTree,
) -> None:
    """The tool had read that nobody is there; it puts the adoption back as it was."""
    before = {**tree.data(), f"/consumers/g/ids/{OURS}": REGISTERED.encode()}
    tree.meanwhile = lambda n: put(tree, {f"/consumers/g/ids/{OURS}": REGISTERED}) if n == 0 else None
    with pytest.raises(UsageError, match=OURS):
        release(tree, LEGACY, "g", refuses)
    assert tree.data() == before
    assert decode_record(tree.nodes[RECORD][0]) == ADOPTED


def test_f92_a_release_that_waits_goes_on_when_that_consumer_has_left(tree: MemoryTree) -> None:
    after = without_ours(tree)
    tree.meanwhile = lambda n: put(tree, {f"/consumers/g/ids/{OURS}": REGISTERED}) if n == 0 else None

    def leaves(there: Sequence[str]) -> None:
        assert there == [OURS]
        del tree.nodes[f"/consumers/g/ids/{OURS}"]

    release(tree, LEGACY, "g", leaves)
    assert tree.data() == after


def once_read(tree: MemoryTree, path: str, what: Callable[[], None], *, commits: int = 0) -> None:
    """Have something happen right before that node is read, once so many commits were made."""

    def looks(reads: Sequence[Read]) -> None:
        if len(tree.commits) >= commits and path in [each.path for each in reads]:
            tree.before_read = lambda _: None
            what()

    tree.before_read = looks


def joins_before_the_next_write(tree: MemoryTree) -> None:
    at = len(tree.commits)
    tree.meanwhile = lambda n: put(tree, {f"/consumers/g/ids/{OURS}": REGISTERED}) if n == at else None


def test_f259_a_release_looks_again_where_another_one_took_the_adoption_out(tree: MemoryTree) -> None:
    """A consumer joined behind the looks of both. The one that has seen it was killed before it put the adoption back;
    the other one removed the consumer's channel under it."""

    def another() -> None:
        joins_before_the_next_write(tree)
        tree.fault = lambda n: "crash-after" if n == 0 else ""
        with pytest.raises(CrashError):
            release(tree, LEGACY, "g", refuses)

    once_read(tree, RECORD, another)
    with pytest.raises(UsageError, match=OURS):
        release(tree, LEGACY, "g", refuses)
    assert {*OF_OURS, f"/consumers/g/ids/{OURS}"} <= tree.data().keys()


def test_f259_an_adoption_is_not_put_back_where_another_release_has_removed_the_record(tree: MemoryTree) -> None:
    """The consumer for whose sake it would be has left again."""
    after = without_ours(tree)

    def another() -> None:
        del tree.nodes[f"/consumers/g/ids/{OURS}"]
        assert release(tree, LEGACY, "g", refuses) == len(OF_OURS)

    joins_before_the_next_write(tree)
    once_read(tree, RECORD, another, commits=1)
    assert release(tree, LEGACY, "g", refuses) == 0
    assert tree.data() == after


def test_f259_an_adoption_is_not_put_back_over_another_one(tree: MemoryTree) -> None:
    told = Adoption(offsets="zookeeper", strategy="roundrobin", kafka="1.1")
    joins_before_the_next_write(tree)
    theirs = encode_record(replace(DEFAULT_RECORD, adoption=told))
    once_read(tree, RECORD, lambda: tree.set(RECORD, theirs), commits=1)
    with pytest.raises(UsageError, match=OURS):
        release(tree, LEGACY, "g", refuses)
    assert tree.data()[RECORD] == theirs


def test_a_group_that_is_adopted_again_in_the_middle_keeps_its_record(tree: MemoryTree) -> None:
    def adopts(n: int) -> None:
        if n == 1:
            tree.set(RECORD, encode_record(ADOPTED))

    tree.meanwhile = adopts
    with pytest.raises(UsageError, match="somebody adopted the group again"):
        release(tree, LEGACY, "g", refuses)
    assert decode_record(tree.nodes[RECORD][0]) == ADOPTED


def test_late_nodes_of_a_coordinator_are_removed_too(tree: MemoryTree) -> None:
    after = without_ours(tree)
    tree.meanwhile = lambda n: tree.set(f"{RECORD}/state", b'{"generation":9}') if n == 1 else None
    release(tree, LEGACY, "g", refuses)
    assert tree.data() == after


@pytest.mark.parametrize("fault", ["before", "after", "crash-before", "crash-after"])
@pytest.mark.parametrize("at", range(3))
def test_adoptions_that_broke_off_anywhere_are_ended_by_the_next_run_and_none_is_written_twice(
    at: int, fault: str
) -> None:
    tree = MemoryTree()
    upgrade(tree, run_id="test", layout="legacy")
    tree.commits.clear()
    told = ADOPTED.adoption
    assert told is not None

    def run() -> list[str]:
        return [adopt_group(tree, LEGACY, group, told, None, force=False).result for group in ("a", "b", "c")]

    tree.fault = lambda n: fault if n == at else ""
    try:
        assert run() == ["adopted"] * 3
    except CrashError:
        assert set(run()) <= {"adopted", "unchanged"}
    assert run() == ["unchanged"] * 3
    assert [tree.nodes[LEGACY.record(group)] for group in ("a", "b", "c")] == [(encode_record(ADOPTED), 0)] * 3


def adopted(tree: MemoryTree, told: Adoption) -> Result:
    return adopt_group(tree, LEGACY, "g", told, None, force=False)


def test_a_changed_adoption_keeps_unknown_facts_and_the_place_of_the_offsets() -> None:
    tree = MemoryTree()
    upgrade(tree, run_id="test", layout="legacy")
    both = Adoption(offsets="kafka", dual_commit=True, strategy="range", kafka="0.11")
    assert adopted(tree, both).result == "adopted"
    assert decode_record(tree.nodes[RECORD][0]).store_name == "dual"
    later = replace(both, unknown={"later": 1})
    put(tree, {RECORD: encode_record(replace(DEFAULT_RECORD, adoption=later, store_name="kafka")).decode()})
    assert adopted(tree, replace(both, strategy="roundrobin")).result == "changed"
    record = decode_record(tree.nodes[RECORD][0])
    assert (record.adoption, record.store_name) == (replace(later, strategy="roundrobin"), "kafka")
    assert adopted(tree, replace(both, strategy="roundrobin")).result == "unchanged"
    for other in (replace(both, dual_commit=False), replace(both, offsets="zookeeper", dual_commit=False)):
        found = adopted(tree, other)
        assert (found.result, "release it first" in found.why) == ("refused", True)
    assert decode_record(tree.nodes[RECORD][0]) == record


def test_a_zookeeper_that_does_not_answer_ends_a_run_of_adoptions_and_is_no_refusal_of_a_group() -> None:
    tree = MemoryTree()
    upgrade(tree, run_id="test", layout="legacy")
    tree.fault = lambda _: "before"
    assert ADOPTED.adoption is not None
    with pytest.raises(UnavailableError, match="others changed it 20 times"):
        adopted(tree, ADOPTED.adoption)


def test_behind_a_removal_that_is_refused_nothing_more_goes_before_the_tree_is_read_again(
    tree: MemoryTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record would go, and with it the guard of what is left."""
    start, seen = len(tree.commits), list[str]()
    monkeypatch.setattr(tree, "sync", lambda: seen.append("sync"))
    tree.before_read = lambda _: seen.append("read")

    def writes(n: int) -> None:
        seen.append(f"write {n - start}")
        if n == start + 2:
            tree.set(tree.commits[n].writes[-1].path, b"changed")

    tree.meanwhile = writes
    assert release(tree, LEGACY, "g", refuses, 1) == len(OF_OURS)
    assert seen[seen.index("write 2") + 1 :][:2] == ["sync", "read"]


@pytest.mark.parametrize("store", ["dual", "kafka"])
def test_a_group_whose_offsets_were_moved_is_not_released_before_they_are_back(tree: MemoryTree, store: str) -> None:
    put(tree, {RECORD: encode_record(replace(ADOPTED, store_name=store, store_step=2)).decode()})
    before = tree.data()
    with pytest.raises(UsageError, match=f"moved to the store '{store}': bring them back .* --to zookeeper"):
        release(tree, LEGACY, "g", refuses)
    assert tree.data() == before
    gone = Moved(state=MoveState.GONE, tree="5e0b", address="zk2:2181", run="r")
    put(tree, {RECORD: encode_record(replace(ADOPTED, store_name=store, store_step=2, moved=gone)).decode()})
    assert release(tree, LEGACY, "g", refuses) > 0  # its offsets are those of another tree
    told = Adoption(offsets="kafka", dual_commit=True, strategy="range", kafka="0.11")
    put(tree, {RECORD: encode_record(replace(ADOPTED, adoption=told, store_name="dual", store_step=2)).decode()})
    assert release(tree, LEGACY, "g", refuses) > 0  # there its old members look for them


def handed_over(offsets: str, stage: str) -> str:
    """The record of a group whose old members kept their offsets there, in the store `kafka` and paused for Kafka's
    consumers."""
    pause = Request(run="r", handed_over=stage)
    told = Adoption(offsets=offsets, strategy="range", kafka="0.11")
    return encode_record(GroupRecord(store_name="kafka", store_step=2, adoption=told, requests={PAUSE: pause})).decode()


@pytest.mark.parametrize("offsets", ["zookeeper", "kafka"])
def test_f357_a_group_that_was_left_to_kafkas_consumers_is_released(tree: MemoryTree, offsets: str) -> None:
    """Its offsets are where its consumers are. It was to be brought back first, which is refused for such a group."""
    put(tree, {RECORD: handed_over(offsets, DONE)})
    after = without_ours(tree)
    assert release(tree, LEGACY, "g", refuses) == len(OF_OURS)
    assert tree.data() == after


def test_f357_a_hand_over_that_broke_off_is_ended_before_a_release(tree: MemoryTree) -> None:
    put(tree, {RECORD: handed_over("zookeeper", BEGUN)})
    before = tree.data()
    with pytest.raises(UsageError, match=r"not released: it is handed over .* run `zkcoord group take-back g`"):
        release(tree, LEGACY, "g", refuses)
    assert tree.data() == before


@pytest.mark.parametrize("state", [MoveState.ARRIVING, MoveState.LEAVING])
@pytest.mark.parametrize("late", [False, True])
def test_f371_a_group_on_its_way_to_another_tree_is_not_released_though_nobody_adopted_it(
    tree: MemoryTree, state: MoveState, late: bool
) -> None:
    """A group comes from a tree of the layout draft without an adoption. Its record went, and with it the copy."""
    moved = replace(DEFAULT_RECORD, moved=Moved(state=state, tree="5e0b", address="zk2:2181", run="r"))
    begins = {RECORD: encode_record(moved).decode()}
    put(tree, {RECORD: encode_record(DEFAULT_RECORD).decode()} if late else begins)
    tree.meanwhile = lambda n: put(tree, begins) if late and n == 0 else None
    with pytest.raises(UsageError, match="zk2:2181: end that move first, or give it up"):
        release(tree, LEGACY, "g", refuses)
    assert tree.data().keys() >= OF_OURS.keys()
    assert decode_record(tree.nodes[RECORD][0]) == moved


def test_a_removal_between_whose_writes_others_write_goes_on_and_one_that_always_loses_ends(tree: MemoryTree) -> None:
    """Only refusals in a row count: a large group in a busy tree meets more of them."""
    put(tree, {f"/zkcoord/channels/g/{OURS}/{number:010}": "{}" for number in range(2, 2 * ROUNDS_MAX)})
    after = without_ours(tree)
    after = {path: data for path, data in after.items() if not path.startswith("/zkcoord/channels/g")}
    tree.fault = lambda n: "before" if n % 2 else ""
    assert release(tree, LEGACY, "g", refuses, 1) > ROUNDS_MAX
    assert tree.data() == after

    put(tree, OF_OURS)
    first = len(tree.commits) + 1  # behind the one that takes the adoption out
    tree.fault = lambda n: "" if n < first else "before" if n < first + ROUNDS_MAX else "crash-before"
    with pytest.raises(UnavailableError, match=f"others changed it {ROUNDS_MAX} times meanwhile: try again"):
        release(tree, LEGACY, "g", refuses)


def test_all_of_ours_that_are_there_are_named(tree: MemoryTree) -> None:
    other = OURS.replace("h-", "i-")
    put(tree, {f"/consumers/g/ids/{OURS}": REGISTERED, "/consumers/g/owners/t/0": f"{other}-0"})
    assert named(ours(tree, LEGACY, "g")) == f"{OURS}, {other} of zkcoord are registered there, or still are an owner"


def test_in_the_layout_draft_an_owner_outlives_its_consumer_and_hinders_nobody(tree: MemoryTree) -> None:
    owners = DRAFT.owners("g")
    put(tree, {owners: "", f"{owners}/t": "", f"{owners}/t/0": f"{OURS}-0"})
    assert ours(tree, DRAFT, "g") == []
