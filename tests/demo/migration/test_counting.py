"""What the demo of a migration counts: losses, and repeats by what explains them."""

from pathlib import Path

from zkcoord.demo.migration.counting import Counted, OutputLog, Record, RecordLog, count

FIRST, SECOND, THIRD = (Record(0, offset) for offset in range(3))


def test_a_record_that_nobody_processed_is_lost() -> None:
    counted = count({0: 3}, {"x": [FIRST, THIRD]})
    assert (counted.processed, counted.lost, counted.fine) == (2, 1, False)


def test_a_repeat_is_explained_by_a_kill_first_then_by_an_old_consumer() -> None:
    read = {"a": [FIRST, SECOND], "b": [SECOND], "x": [FIRST, SECOND, THIRD], "y": [THIRD]}
    assert count({0: 3}, read, killed=["b"], old=["a", "b"]) == Counted(
        produced=3, processed=3, lost=0, by_kill=2, by_old=1, unexplained=1
    )


def test_records_repeated_by_one_program_count_as_repeats() -> None:
    assert count({0: 1}, {"x": [FIRST, FIRST]}).unexplained == 1


def test_a_line_that_is_being_written_is_read_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    log = RecordLog(path)
    assert log.look() == []
    path.write_bytes(b'{"at_ms":1,"event":"record","topic":"t","partition":0,"offset":0}\nWARN\n{"topic":"t","parti')
    assert log.look() == [FIRST]
    with path.open("ab") as more:
        more.write(b'tion":0,"offset":1}\n{"event":"offsets_committed","offsets":{"t-0":2}}\n')
    assert log.look() == [SECOND]
    assert log.records == [FIRST, SECOND]


def test_a_file_of_pyspark_holds_the_records_of_its_range(tmp_path: Path) -> None:
    log = OutputLog(tmp_path)
    assert log.look() == []
    (tmp_path / "clicks-0-0-2.parquet").touch()
    assert log.look() == [FIRST, SECOND]
    (tmp_path / "clicks-0-2-3.parquet").touch()
    assert (log.look(), log.records) == ([THIRD], [FIRST, SECOND, THIRD])
