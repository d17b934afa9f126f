"""Planning is fair, bounded and complete; a batch's id depends on its ranges alone."""

from hypothesis import given, settings
from hypothesis import strategies as st

from zkcoord.core.model import TopicPartition
from zkcoord.spark.ranges import OffsetRange, batch_id, describe, offsets_in, plan_ranges

A, B, C = (TopicPartition("t", number) for number in range(3))
PARTITIONS = st.builds(TopicPartition, st.sampled_from(["a", "b-c"]), st.integers(0, 12))
LOGS = st.dictionaries(PARTITIONS, st.tuples(st.integers(0, 10**6), st.integers(-5, 10**6)), max_size=20)


def test_everything_is_planned_when_it_fits() -> None:
    assert plan_ranges({B: 5, A: 0}, {A: 3, B: 9}, 7) == (OffsetRange("t", 0, 0, 3), OffsetRange("t", 1, 5, 9))


def test_a_short_partitions_rest_is_shared_by_the_others() -> None:
    assert plan_ranges({A: 0, B: 0, C: 0}, {A: 1000, B: 10, C: 1000}, 100) == (
        OffsetRange("t", 0, 0, 45),
        OffsetRange("t", 1, 0, 10),
        OffsetRange("t", 2, 0, 45),
    )


def test_nothing_is_planned_without_records_or_without_a_known_end() -> None:
    assert plan_ranges({A: 7, B: 9, C: 0}, {A: 7, B: 5}, 100) == ()


def test_with_fewer_offsets_than_partitions_each_has_its_turn() -> None:
    read = {
        each.partition for turn in range(3) for each in plan_ranges({A: 0, B: 0, C: 0}, {A: 9, B: 9, C: 9}, 1, turn)
    }
    assert read == {0, 1, 2}


@settings(deadline=None)
@given(LOGS, st.integers(1, 10**6), st.integers(0, 1000))
def test_a_plan_is_sorted_bounded_and_as_large_as_it_may_be(
    logs: dict[TopicPartition, tuple[int, int]], max_offsets: int, turn: int
) -> None:
    positions = {each: start for each, (start, _) in logs.items()}
    ends = {each: start + lag for each, (start, lag) in logs.items()}
    planned = plan_ranges(positions, ends, max_offsets, turn)
    assert list(planned) == sorted(planned)
    assert all(
        each.start == positions[each.topic_partition] < each.end <= ends[each.topic_partition] for each in planned
    )
    assert offsets_in(planned) == min(max_offsets, sum(max(0, lag) for _, lag in logs.values()))


@settings(deadline=None)
@given(LOGS, st.integers(1, 10**6))
def test_no_partition_has_much_more_than_one_that_wants_more(
    logs: dict[TopicPartition, tuple[int, int]], max_offsets: int
) -> None:
    positions = {each: start for each, (start, _) in logs.items()}
    ends = {each: start + lag for each, (start, lag) in logs.items()}
    planned = plan_ranges(positions, ends, max_offsets)
    shares = {each.topic_partition: each.end - each.start for each in planned}
    for hungry, (_, lag) in logs.items():
        if shares.get(hungry, 0) < lag:
            assert max(shares.values()) <= shares.get(hungry, 0) + 1


def test_an_id_is_the_same_for_the_same_ranges_in_any_order_and_for_no_others() -> None:
    first, second = OffsetRange("t", 0, 1, 2), OffsetRange("t", 1, 1, 2)
    assert batch_id([first, second]) == batch_id([second, first])
    assert len({batch_id([first]), batch_id([second]), batch_id([first, second]), batch_id([])}) == 4


def test_a_description_is_bounded() -> None:
    ranges = tuple(OffsetRange("t", number, 0, 1) for number in range(1000))
    assert describe(ranges).endswith("t-7 0..1 and 992 more")
