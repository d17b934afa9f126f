"""With `resume_from` a consumer starts where a table ends, and reports it."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog

from tests.spark.fakes import DEADLINE_S, InThread, Job, World
from tests.spark.sinks.conftest import frames_are_counted as frames_are_counted
from tests.spark.sinks.frames import TYPES, Frame
from zkcoord.core.model import Starting, TopicPartition
from zkcoord.errors import UnavailableError, UsageError
from zkcoord.spark import delta_ends, iceberg_ends, write_delta, write_iceberg
from zkcoord.spark.driver.batch_guard import BatchGuard
from zkcoord.spark.driver.resuming import TableStart
from zkcoord.spark.ports import Limits
from zkcoord.spark.ranges import Batch, OffsetRange

pytestmark = pytest.mark.spark
A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def run(world: World, ends: Any, batches: int = 1, **settings: Any) -> list[OffsetRange]:
    """Return the ranges of this number of batches."""
    found: list[OffsetRange] = []
    world.consumer(resume_from=ends, **settings).run(lambda df, batch: found.extend(batch.ranges), max_batches=batches)
    return found


def table_of(**ends: int) -> Any:
    return lambda: {f"zkcoord/g/{name.replace('_', '-')}": end for name, end in ends.items()}.get


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    fields = [each.__dict__ for each in caplog.records if each.levelno >= logging.WARNING]
    return [f"{each['zkcoord_event']} {each['zkcoord_fields'].get('partitions')}" for each in fields]


def test_f176_partitions_start_where_the_table_ends_forwards_and_back_and_each_is_told(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """The world gives t-0 at 0 of 10, and t-1 at 100 of 130."""
    assert run(world, table_of(t_0=4, t_1=90)) == [OffsetRange("t", 0, 4, 10), OffsetRange("t", 1, 90, 130)]
    assert world.commits == [{A: 4, B: 90}, {A: 10, B: 130}]
    assert told(caplog) == ["resumed_from_table ['t-0']", "resumed_from_table ['t-1']"]
    assert "t-0: the group's offset was 0, and the table ends at 4: reading goes on there" in caplog.text


def test_f176_without_being_asked_the_groups_offsets_stand(world: World) -> None:
    assert run(world, None) == [OffsetRange("t", 0, 0, 10), OffsetRange("t", 1, 100, 130)]
    assert len(world.commits) == 1


def test_offsets_that_the_table_lacks_or_confirms_stay(world: World, caplog: pytest.LogCaptureFixture) -> None:
    assert run(world, table_of(t_1=100, u_0=7)) == [OffsetRange("t", 0, 0, 10), OffsetRange("t", 1, 100, 130)]
    assert (len(world.commits), told(caplog)) == (1, [])


def test_the_table_is_read_once_for_each_start(world: World) -> None:
    read = []

    def ends() -> Any:
        read.append(1)
        return {"zkcoord/g/t-0": 5}.get

    assert run(world, ends, batches=3, max_offsets_per_batch=6)[0] == OffsetRange("t", 0, 5, 8)
    assert len(read) == 1


def started(*positions: int) -> tuple[BatchGuard, list[Any], TableStart]:
    """Start A and B with these committed offsets, and with a table that has 4 of A and 90 of B."""
    guard, commits = BatchGuard(lambda tag: None, Limits(cancel_wait_ms=1)), list[Any]()
    membership: Any = SimpleNamespace(commit=commits.append, incarnation=lambda each: 1)
    guard.start(Starting(dict(zip((A, B), positions, strict=False)), 1))
    return guard, commits, TableStart(table_of(t_0=4, t_1=90), "g", membership, guard)


def test_a_partition_lost_while_positions_move_is_not_committed_and_others_move_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    guard, commits, start = started(0, 100)
    begin = guard.begin

    def lose(*arguments: Any) -> Any:
        kept = begin(*arguments)
        guard.lose([A])
        return kept

    with monkeypatch.context() as while_moving:
        while_moving.setattr(guard, "begin", lose)
        assert (start.apply(guard.view()), commits) == (False, [])
    assert (start.apply(guard.view()), commits) == (True, [{B: 90}])


def test_a_partition_that_is_started_again_is_compared_again() -> None:
    guard, commits, start = started(4)
    assert not start.apply(guard.view())
    guard.lose([A])
    guard.start(Starting({A: 7}, 2))
    assert start.apply(guard.view())
    assert commits == [{A: 4}]


def test_an_announced_range_is_read_again_as_it_was(world: World) -> None:
    """The table has all, a part or nothing of the range. The sink leaves out the records that the table has."""

    world.given = {}
    job = Job(world)
    running = InThread(lambda: world.consumer(resume_from=table_of(t_0=8)).run(job, max_batches=2))
    assert world.joined.wait(DEADLINE_S)
    assert world.member is not None
    world.member.give({A: 0}, {A: (0, 6)})
    assert job.await_begun(1).ranges == (OffsetRange("t", 0, 0, 6),)
    job.let_go(2)
    running.result()
    assert job.seen[1].ranges == (OffsetRange("t", 0, 6, 10),)


def test_f185_an_announced_range_behind_the_tables_end_leaves_no_gap(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """A consumer was killed in a batch, and then the table was restored to a version before that batch."""
    world.given = {}
    job = Job(world)
    running = InThread(lambda: world.consumer(resume_from=table_of(t_0=3)).run(job, max_batches=1))
    assert world.joined.wait(DEADLINE_S)
    assert world.member is not None
    world.member.give({A: 6}, {A: (6, 8)})
    assert job.await_begun(1).ranges == (OffsetRange("t", 0, 3, 10),)
    job.let_go()
    running.result()
    assert told(caplog) == ["resumed_from_table ['t-0']"]


def test_a_topic_that_was_created_again_is_another_one_to_the_table(world: World) -> None:
    world.incarnation = 2
    assert run(world, lambda: {"zkcoord/g/t-0": 4, "zkcoord/g/t-0.2": 6}.get)[0] == OffsetRange("t", 0, 6, 10, 2)


def test_a_table_that_does_not_answer_is_asked_again_and_nothing_is_read_before(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    answers = iter([UnavailableError("503"), UnavailableError("503"), {"zkcoord/g/t-0": 4}])

    def ends() -> Any:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer.get

    assert run(world, ends)[0] == OffsetRange("t", 0, 4, 10)
    assert told(caplog)[0].startswith("planning_failed")


def test_an_end_behind_the_log_goes_where_the_policy_says(world: World) -> None:
    assert run(world, table_of(t_0=50), out_of_range="earliest")[0] == OffsetRange("t", 0, 0, 10)
    assert world.commits[:2] == [{A: 50}, {A: 0}]


def test_a_delta_table_that_was_restored_is_filled_up_again(world: World, tmp_path: Path) -> None:
    table = tmp_path / "clicks"

    def write(*ranges: OffsetRange) -> None:
        batch = Batch(id="b", seq=0, generation=1, ranges=ranges, group="g")
        assert write_delta(Frame.of(*ranges), batch, table) > 0

    assert delta_ends(table)()("zkcoord/g/t-0") is None
    write(OffsetRange("t", 0, 0, 6))
    before = DeltaTable(table).version()
    write(OffsetRange("t", 0, 6, 10))
    assert delta_ends(table)()("zkcoord/g/t-0") == 10
    DeltaTable(table).restore(before)
    assert delta_ends(table)()("zkcoord/g/t-0") == 6
    world.given = {A: 10}
    assert run(world, delta_ends(table)) == [OffsetRange("t", 0, 6, 10)]


@pytest.mark.parametrize(("error", "raised"), [(TypeError("x"), TypeError), (OSError("x"), UnavailableError)])
def test_a_mistake_is_not_taken_for_a_catalog_that_is_away(error: Exception, raised: type[Exception]) -> None:
    """The consumer would ask again for ever."""

    class Broken:
        def load_table(self, name: str) -> None:
            raise error

    with pytest.raises(raised, match="x"):
        iceberg_ends("db.t", catalog=Broken())()


def test_an_iceberg_tables_ends_go_back_with_a_rollback(world: World, tmp_path: Path) -> None:
    where = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}
    catalog = SqlCatalog("tests", **where)
    try:
        catalog.create_namespace("db")
        catalog.create_table("db.t", TYPES)
        ends = iceberg_ends("db.t", catalog=catalog)
        assert ends()("zkcoord/g/t-0") is None
        for span in (OffsetRange("t", 0, 0, 6), OffsetRange("t", 0, 6, 10)):
            batch = Batch(id="b", seq=0, generation=1, ranges=(span,), group="g")
            write_iceberg(Frame.of(span), batch, "db.t", catalog=catalog)
        assert ends()("zkcoord/g/t-0") == 10
        table = catalog.load_table("db.t")
        table.manage_snapshots().rollback_to_snapshot(table.history()[0].snapshot_id).commit()
        assert ends()("zkcoord/g/t-0") == 6
        world.given = {A: 10}
        assert run(world, ends) == [OffsetRange("t", 0, 6, 10)]
        with pytest.raises(UsageError, match=r"has no table 'db.other'"):
            iceberg_ends("db.other", catalog=catalog)()
    finally:
        catalog.close()
