"""The limits of a restore, on trees in memory; and the file of a backup."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from tests.migrate.memory_tree import CrashError, MemoryTree
from tests.offsets.two_trees import OLD, OURS, P0, P1, put
from zkcoord.core.adoption import Adoption
from zkcoord.core.moved import Moved, MoveState
from zkcoord.core.record import GroupRecord, Request, Response
from zkcoord.errors import UnavailableError, UsageError
from zkcoord.migrate import upgrade
from zkcoord.offsets import backup_file
from zkcoord.offsets.backup import saved
from zkcoord.offsets.backup_file import BackupWriter, Header, Saved
from zkcoord.offsets.restore import Restore, first_nodes
from zkcoord.offsets.writing import RecordChangedError
from zkcoord.shell.ports import CommitDone, Outcome
from zkcoord.tree.paths import CANDIDATES, DRAFT, EPOCH, LEGACY, RECORDS, ROOT, SCHEMA, Layout
from zkcoord.tree.record import decode_record, encode_record
from zkcoord.tree.schema import decode_schema, encode_schema
from zkcoord.tree.snapshot import Node, Read
from zkcoord.tree.topic import Mark, encode_mark
from zkcoord.tree.writes import Transaction

NODE_BYTES_MAX = 1024 * 1024


def tree(layout: Layout = DRAFT) -> MemoryTree:
    """A tree with the groups g and h."""
    made = MemoryTree()
    upgrade(made, run_id="test", layout=layout.name, tree_id="aa")
    put(made, {layout.record("g"): encode_record(GroupRecord(assignor="range")), layout.mark("g", "clicks"): mark(3)})
    put(made, {layout.offset(group, p): b"100" for group in ("g", "h") for p in (P0, P1)})
    made.commits.clear()
    return made


def mark(incarnation: int) -> bytes:
    return encode_mark(Mark(incarnation=incarnation, topic_id=None, czxid=5, root_czxid=6))


def whole(there: MemoryTree, backup: Sequence[Saved], work: Restore) -> None:
    """Do what the command does."""
    work.survey(backup)
    work.carry_out(backup)
    if not work.dry_run:
        first_nodes(there, backup, work.layout, "cc")


@pytest.mark.parametrize("registration", [OURS, OLD, b"nobody can parse it"])
@pytest.mark.parametrize("paused", [False, True])
def test_no_group_is_restored_under_a_member_of_whatever_kind_not_even_a_paused_one(
    registration: bytes, paused: bool
) -> None:
    backup = list(saved(tree(LEGACY).read, LEGACY))
    there = tree(LEGACY)
    asked = {"pause": Request(run="r1")} if paused else {}
    record = replace(
        GroupRecord(), requests=asked, responses={"pause": Response(run="r1", state="paused")} if paused else {}
    )
    put(there, {LEGACY.record("g"): encode_record(record), LEGACY.registration("g", "g_h-1-z0000000"): registration})
    with pytest.raises(UsageError, match=r"group g has members \(g_h-1-z0000000\): stop its consumers"):
        whole(there, backup, Restore(there, LEGACY))
    whole(there, backup, Restore(there, LEGACY, groups=("h",)))


@pytest.mark.parametrize("state", list(MoveState))
def test_f276_offsets_of_a_group_that_is_in_another_tree_or_on_its_way_are_not_restored(state: MoveState) -> None:
    """A restore set offsets forward after the comparison of both trees. That was not noticed, and records were skipped.
    For a group that is read in the other tree, the restore reported success."""
    there = tree()
    backup = list(saved(there.read, DRAFT))
    moved = Moved(state=state, tree="bb", address="zk-bb:2181", run="r1")
    there.set(DRAFT.record("g"), encode_record(GroupRecord(moved=moved)))
    there.set(DRAFT.offset("g", P0), b"7")
    gone = state is MoveState.GONE
    how = "nothing is changed here: set its offsets there" if gone else "end that move first"
    why = f"group g {moved.where()}: {how}, or restore other groups"
    with pytest.raises(UsageError, match=why):
        whole(there, backup, Restore(tree=there, layout=DRAFT))
    assert there.data()[DRAFT.offset("g", P0)] == b"7"
    whole(there, backup, Restore(tree=there, layout=DRAFT, groups=["h"]))


def test_f276_a_move_that_begins_under_a_restore_ends_it() -> None:
    there = tree()
    backup = list(saved(there.read, DRAFT))
    there.set(DRAFT.offset("g", P0), b"7")
    moved = Moved(state=MoveState.LEAVING, tree="bb", address="zk-bb:2181", run="r1")
    work = Restore(tree=there, layout=DRAFT)
    work.survey(backup)
    there.set(DRAFT.record("g"), encode_record(GroupRecord(moved=moved)))
    with pytest.raises(UsageError, match="is being moved to zk-bb:2181: end that move first"):
        work.carry_out(backup)
    assert there.data()[DRAFT.offset("g", P0)] == b"7"


@pytest.mark.parametrize("state", list(MoveState))
def test_a_move_that_the_backup_has_as_well_comes_back_with_it(state: MoveState) -> None:
    old = tree()
    moved = Moved(state=state, tree="bb", address="zk-bb:2181", run="r1")
    old.set(DRAFT.record("g"), encode_record(GroupRecord(moved=moved)))
    backup = list(saved(old.read, DRAFT))
    there = MemoryTree()
    for _ in range(2):
        whole(there, backup, Restore(tree=there, layout=DRAFT))
    assert decode_record(there.data()[DRAFT.record("g")]).moved == moved
    assert there.data()[DRAFT.offset("g", P0)] == b"100"


def test_somebody_who_changes_the_groups_record_meanwhile_ends_the_restore() -> None:
    backup, there = list(saved(tree().read, DRAFT)), tree()
    put(there, {DRAFT.offset("g", P0): b"50"})

    def asks(_: int) -> None:
        there.meanwhile = lambda _: None
        put(there, {DRAFT.record("g"): encode_record(GroupRecord(assignor="sticky"))})

    there.meanwhile = asks
    with pytest.raises(RecordChangedError, match="group g: somebody changed its record"):
        whole(there, backup, Restore(there, DRAFT))
    assert there.data()[DRAFT.offset("g", P0)] == b"50"


def before_the_write_of(there: MemoryTree, path: str, what: Callable[[], None]) -> None:
    """Call a function once, right before that node is written."""

    def meanwhile(n: int) -> None:
        if path in [write.path for write in there.commits[n].writes]:
            there.meanwhile = lambda _: None
            what()

    there.meanwhile = meanwhile


@pytest.mark.parametrize("present", [b"50", None])
def test_f263_an_offset_that_a_consumer_commits_under_the_restore_is_not_set_back(present: bytes | None) -> None:
    """The consumer registered after the check for members. The restore had decided to raise the offset. When the node's
    version refused that, it wrote its own offset over the commit."""
    backup, there = list(saved(tree().read, DRAFT)), tree()
    if present is None:
        del there.nodes[DRAFT.offset("g", P0)]
    else:
        put(there, {DRAFT.offset("g", P0): present})
    put(there, {DRAFT.offset("g", P1): b"1"})
    before_the_write_of(there, DRAFT.offset("g", P0), lambda: put(there, {DRAFT.offset("g", P0): b"150"}))
    work = Restore(there, DRAFT)
    whole(there, backup, work)
    assert [there.data()[DRAFT.offset("g", p)] for p in (P0, P1)] == [b"150", b"100"]
    done = work.done["g"]
    assert (done.created, done.raised, done.lowered, done.kept.count, done.kept.named) == (0, 1, 0, 1, [P0])
    assert there.refusals != []


@pytest.mark.parametrize("fault", ["before", "after"])
def test_f263_an_answer_that_is_lost_is_counted_as_what_was_done(fault: str) -> None:
    backup = list(saved(tree().read, DRAFT))
    calm = MemoryTree()
    whole(calm, backup, Restore(calm, DRAFT))
    for at in range(len(calm.commits)):
        there = MemoryTree()
        there.fault = lambda n, at=at: fault if n == at else ""  # type: ignore[misc]
        work = Restore(there, DRAFT)
        whole(there, backup, work)
        assert there.data() == calm.data()
        assert [(work.done[g].created, work.done[g].kept.count) for g in ("g", "h")] == [(2, 0), (2, 0)], at


def test_f263_a_late_registration_ends_the_restore_before_its_offsets() -> None:
    backup, there = list(saved(tree().read, DRAFT)), tree()
    put(there, {DRAFT.offset("g", P0): b"50"})
    work = Restore(there, DRAFT)
    work.survey(backup)
    put(there, {DRAFT.registration("g", "g_h-1-z0000000"): OURS})
    with pytest.raises(UsageError, match=r"group g has members \(g_h-1-z0000000\): stop its consumers"):
        work.carry_out(backup)
    assert there.data()[DRAFT.offset("g", P0)] == b"50"


@pytest.mark.parametrize("present", [2, 4])
def test_f107_an_offset_of_any_other_incarnation_of_its_topic_is_left_out(present: int) -> None:
    """A lower number is that of a group that was deleted, and whose topic was marked again."""
    backup, there = list(saved(tree().read, DRAFT)), tree()
    put(there, {DRAFT.mark("g", "clicks"): mark(present), DRAFT.offset("g", P0): b"4"})
    work = Restore(there, DRAFT, rewind=True)
    whole(there, backup, work)
    assert (there.data()[DRAFT.offset("g", P0)], work.done["g"].other_topic.count) == (b"4", 2)


@pytest.mark.parametrize("dual_commit", [True, False])
@pytest.mark.parametrize("rewind", [True, False])
def test_f319_an_offset_of_a_group_whose_old_members_commit_to_kafka_counts_only_where_it_is_asked_for(
    rewind: bool, dual_commit: bool
) -> None:
    """Kafka has further commits of zkcoord's. The node that held the backup's offset was not written, so those counted
    on; and without `--rewind` the other node was, which set the group back."""
    adoption = Adoption(offsets="kafka", dual_commit=dual_commit, strategy="range", kafka="1.1")
    record = {LEGACY.record("g"): encode_record(GroupRecord(store_name="kafka", adoption=adoption))}
    old, there = tree(LEGACY), tree(LEGACY)
    put(old, record)
    backup = list(saved(old.read, LEGACY))
    put(there, record | {LEGACY.offset("g", P1): b"50"})
    before = [there.nodes[LEGACY.offset("g", p)] for p in (P0, P1)]
    work = Restore(there, LEGACY, groups=("g",), rewind=rewind)
    whole(there, backup, work)
    after = [there.nodes[LEGACY.offset("g", p)] for p in (P0, P1)]
    assert after == ([(data, version + 1) for data, version in ((b"100", 0), (b"100", 1))] if rewind else before)
    assert work.done["g"].kept.named == ([] if rewind else [P1])


def test_only_the_groups_that_are_named_are_restored_also_where_offsets_are_set_back() -> None:
    backup, there = list(saved(tree().read, DRAFT)), tree()
    put(there, {DRAFT.offset(group, P0): b"150" for group in ("g", "h")})
    whole(there, backup, Restore(there, DRAFT, groups=("g",), rewind=True))
    assert [there.data()[DRAFT.offset(group, P0)] for group in ("g", "h")] == [b"100", b"150"]


def test_a_dry_run_writes_nothing_and_counts_what_the_restore_then_does() -> None:
    backup, there = list(saved(tree().read, DRAFT)), tree()
    put(there, {DRAFT.offset("g", P0): b"150", DRAFT.offset("g", P1): b"1"})
    del there.nodes[DRAFT.mark("g", "clicks")]
    dry, done = (Restore(there, DRAFT, rewind=True, dry_run=dry) for dry in (True, False))
    whole(there, backup, dry)
    assert there.commits == []
    whole(there, backup, done)
    assert dry.done == done.done
    assert (done.done["g"].nodes, done.done["g"].raised, done.done["g"].lowered) == (1, 1, 1)


def test_a_restore_that_dies_at_any_write_leaves_no_tree_to_be_served_before_it_is_whole() -> None:
    backup = list(saved(tree().read, DRAFT))
    calm = MemoryTree()
    whole(calm, backup, Restore(calm, DRAFT))
    for number in range(len(calm.commits)):
        for fault in ("crash-before", "crash-after"):
            there = MemoryTree()
            there.fault = lambda at, number=number, fault=fault: fault if at == number else ""
            with pytest.raises(CrashError):
                whole(there, backup, Restore(there, DRAFT))
            if SCHEMA in there.nodes:
                assert there.data() == calm.data()
            there.fault = lambda _: ""
            whole(there, backup, Restore(there, DRAFT))
            assert there.data() == calm.data()
    assert {ROOT, EPOCH, SCHEMA, CANDIDATES, RECORDS} <= calm.nodes.keys()
    assert decode_schema(calm.data()[SCHEMA]).tree_id == "cc"


def test_a_copy_of_a_tree_that_was_being_migrated_is_not_being_migrated() -> None:
    """Otherwise no coordinator could be elected in the copy, and the migration's own tool does not know the copy."""
    source, there = tree(), MemoryTree()
    migrated = replace(decode_schema(source.data()[SCHEMA]), migration={"from": "0001", "to": "0002", "run": "r1"})
    put(source, {SCHEMA: encode_schema(migrated)})
    whole(there, list(saved(source.read, DRAFT)), Restore(there, DRAFT))
    assert decode_schema(there.data()[SCHEMA]) == replace(migrated, migration=None, tree_id="cc")


@pytest.mark.parametrize(
    ("present", "backed_up", "told"),
    [(None, "kafka", True), (None, "zookeeper", False), ("zookeeper", "kafka", False), ("kafka", "zookeeper", True)],
)
def test_whether_commits_of_other_programs_count_is_told_by_the_record_as_it_will_be(
    present: str | None, backed_up: str, told: bool
) -> None:
    source, there = tree(), tree()
    put(source, {DRAFT.record("g"): encode_record(GroupRecord(store_name=backed_up))})
    del there.nodes[DRAFT.record("g")]
    if present is not None:
        put(there, {DRAFT.record("g"): encode_record(GroupRecord(store_name=present))})
    work = Restore(there, DRAFT)
    work.survey(list(saved(source.read, DRAFT)))
    assert work.done["g"].strangers_count is told


@pytest.mark.parametrize(("store", "told"), [("zookeeper", False), ("dual", True), ("kafka", True)])
def test_a_group_that_commits_to_kafka_is_known_as_such(store: str, told: bool) -> None:
    source, there = tree(), MemoryTree()
    put(source, {DRAFT.record("g"): encode_record(GroupRecord(store_name=store))})
    work = Restore(there, DRAFT)
    whole(there, list(saved(source.read, DRAFT)), work)
    assert (work.done["g"].in_kafka, work.done["g"].created, work.done["h"].in_kafka) == (told, 2, False)


def test_trees_without_an_id_may_differ_and_a_tree_with_an_id_keeps_it() -> None:
    source, there, named = tree(), tree(), tree()
    for each in (source, there):
        put(each, {SCHEMA: encode_schema(replace(decode_schema(each.data()[SCHEMA]), tree_id=""))})
    backup = list(saved(source.read, DRAFT))
    for each, tree_id in ((there, "cc"), (named, "aa")):
        del each.nodes[DRAFT.mark("g", "clicks")]
        whole(each, backup, Restore(each, DRAFT))
        copied = encode_mark(Mark(incarnation=3, topic_id=None, czxid=0, root_czxid=0))
        assert each.data()[DRAFT.mark("g", "clicks")] == copied
        assert decode_schema(each.data()[SCHEMA]).tree_id == tree_id


def test_a_mark_comes_back_as_it_was_into_the_tree_itself_and_owners_and_channels_do_not() -> None:
    source, there = tree(LEGACY), tree(LEGACY)
    put(source, {LEGACY.owner("g", P0): b"g_a-0", f"{LEGACY.channels_of('g')}/g_a": b"{}"})
    del there.nodes[LEGACY.mark("g", "clicks")]
    whole(there, list(saved(source.read, LEGACY)), Restore(there, LEGACY))
    assert there.data()[LEGACY.mark("g", "clicks")] == mark(3)
    assert {LEGACY.owner("g", P0), LEGACY.channels_of("g")} & there.data().keys() == set()


def test_a_tree_of_the_layout_legacy_has_the_parent_of_its_channels_where_it_is_restored() -> None:
    """Consumers make their channels below it."""
    there = MemoryTree()
    whole(there, list(saved(tree(LEGACY).read, LEGACY)), Restore(there, LEGACY))
    assert LEGACY.channels in there.nodes


@pytest.mark.parametrize(("offsets", "dual", "told"), [("kafka", False, True), ("zookeeper", False, False)])
def test_a_group_whose_old_members_commit_to_kafka_is_known_as_such(offsets: str, dual: bool, told: bool) -> None:
    source, there = tree(LEGACY), MemoryTree()
    adoption = Adoption(offsets=offsets, dual_commit=dual, strategy="range", kafka="1.1")
    record = GroupRecord(adoption=adoption, store_name=adoption.store_name)
    put(source, {LEGACY.record("g"): encode_record(record)})
    work = Restore(there, LEGACY)
    work.survey(list(saved(source.read, LEGACY)))
    assert work.done["g"].in_kafka is told


def test_a_write_refused_for_another_reason_than_existence_ends_the_restore(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    there, tried = MemoryTree(), list[Transaction]()

    def refuses(transaction: Transaction) -> CommitDone:
        tried.append(transaction)
        return CommitDone(0, Outcome.REFUSED, failed_at=0, reason="NoNode")

    monkeypatch.setattr(there, "commit", refuses)
    with pytest.raises(UnavailableError, match=r"could not be written \(NoNode\): run it again"):
        whole(there, list(saved(tree().read, DRAFT)), Restore(there, DRAFT))
    assert len(tried) == 1


def test_a_sessions_nodes_are_not_saved() -> None:
    there = tree(LEGACY)
    claim, leader = LEGACY.owner("g", P0), f"{CANDIDATES}/3"
    put(there, {claim: b"g_a-0", leader: b"{}", LEGACY.registration("g", "g_a"): OLD})
    gone = {claim, leader, LEGACY.registration("g", "g_a")}

    def read(reads: Sequence[Read]) -> tuple[Node, ...]:
        found = there.read(reads)
        return tuple(
            node._replace(stat=node.stat._replace(ephemeral_owner=7))
            if node.stat is not None and node.path in gone
            else node
            for node in found
        )

    paths = {each.path for each in saved(read, LEGACY)}
    assert paths == {path for path in there.data() if path.startswith((ROOT, LEGACY.groups))} - gone


@pytest.mark.parametrize("count", ["1", "3", "-1", "null"])
def test_a_backup_whose_last_line_counts_other_nodes_than_it_has_is_not_whole(count: str) -> None:
    file = io.StringIO()
    writer = BackupWriter(file, Header(revision="", layout="draft", made="now", who="ann"))
    for path in ("/zkcoord", "/zkcoord/groups"):
        writer.add(Saved(path, b""))
    writer.end()
    assert backup_file.check(file, "backup").layout == "draft"
    text = file.getvalue()
    assert text.count('{"nodes":2,') == 1
    with pytest.raises(UsageError, match="backup is no whole backup"):
        backup_file.check(io.StringIO(text.replace('{"nodes":2,', f'{{"nodes":{count},')), "backup")


@pytest.mark.parametrize("byte", [b"\x00", b"\x1f", b"a", b"\xff", "é".encode()])
def test_f202_a_node_of_a_mebibyte_is_saved_whatever_its_bytes(byte: bytes) -> None:
    """In JSON a control character takes six bytes."""
    node = Saved("/zkcoord/groups/g", byte * (NODE_BYTES_MAX // len(byte)))
    file = io.StringIO()
    writer = BackupWriter(file, Header(revision="", layout="draft", made="now", who="ann"))
    writer.add(node)
    writer.end()
    backup_file.check(file, "backup")
    assert list(backup_file.nodes(file)) == [node]
