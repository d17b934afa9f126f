"""The times in a status: which are written, which are read, and which are left out."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from zkcoord.core.member.status import Held, MemberStatus
from zkcoord.core.member.told import Named, Told
from zkcoord.core.model import TopicPartition
from zkcoord.core.timing import Timing, bounds_of
from zkcoord.core.view import Channel
from zkcoord.tree.decoders import with_status
from zkcoord.tree.member_plan import TOLD_MS, encode_member_status
from zkcoord.tree.snapshot import Kind, Node, Stat
from zkcoord.tree.status import STATUS_BYTES_MAX, TIMING_BYTES_MAX, Status, decode_status, encode_status

PARTITIONS = [TopicPartition("a", 1), TopicPartition("a", 0), TopicPartition("b", 7), TopicPartition("a", 3)]
STOPPED = Timing("0000000003", True, 1_795_229_172_529, bounds_of(PARTITIONS), 812, 12, 0)
READ = Timing("0000000004", False, 0, (("a", ((4, 4),)),), first_record_ms=9)


def test_an_entry_has_the_command_its_partitions_as_ranges_and_the_ages() -> None:
    status = Status(store_name="zookeeper", timing=(STOPPED, READ))
    data = encode_status(status)

    assert json.loads(data)["timing"] == [
        {
            "stop": "0000000003",
            "made": "1795229172529",
            "partitions": {"a": "0-1,3", "b": "7"},
            "seen": 812,
            "stopped": 12,
            "committed": 0,
        },
        {"start": "0000000004", "partitions": {"a": "4"}, "first_record": 9},
    ]
    assert decode_status(data) == status
    assert [STOPPED.names(TopicPartition("a", n)) for n in range(5)] == [True, True, False, True, False]
    assert (STOPPED.names(TopicPartition("b", 7)), STOPPED.names(TopicPartition("c", 7))) == (True, False)


@pytest.mark.parametrize(
    "timing",
    [
        "yesterday",
        [7],
        [{}],
        [{"stop": 3, "partitions": {}}],
        [{"stop": "0000000003", "partitions": {"a": "3-x"}}],
        [{"stop": "0000000003", "partitions": {"a": "3"}, "seen": -1}],
        [{"stop": "0000000003", "partitions": {"a": "3"}, "made": "soon"}],
        [{"stop": "0000000003", "partitions": {"a": ["3"]}}],
        [{"stop": "0000000003", "partitions": ["a"]}],
    ],
)
def test_an_entry_that_nobody_can_parse_is_left_out_alone(timing: Any) -> None:
    """Decisions depend on the other parts of the status."""
    document = json.loads(encode_status(Status(held={7: {"a": "0-1"}}, store_name="zookeeper", timing=(READ,))))
    entries = timing if isinstance(timing, list) else []
    document["timing"] = [*entries, *document["timing"]] if entries else timing

    read = decode_status(json.dumps(document).encode())
    assert (read.held, read.timing) == ({7: {"a": "0-1"}}, (READ,) if entries else ())


def test_the_oldest_entries_are_left_out_beyond_eight_kib() -> None:
    scattered = (("clicks", tuple((n, n) for n in range(0, 1_000, 2))),)
    entries = tuple(replace_sequence(number, scattered) for number in range(10))
    kept = decode_status(encode_status(Status(timing=entries))).timing

    assert kept == entries[-len(kept) :]
    assert 1 <= len(kept) < 10
    assert len(encode_status(Status(timing=entries))) < TIMING_BYTES_MAX + 200


def replace_sequence(number: int, partitions: tuple[tuple[str, tuple[tuple[int, int], ...]], ...]) -> Timing:
    return STOPPED._replace(sequence=f"{number:010}", partitions=partitions)


def test_all_are_left_out_where_what_is_held_would_be_cut_for_them() -> None:
    held = {1: {"t": ",".join(str(n) for n in range(100_000, 118_690, 2))}}
    bare = encode_status(Status(held=held))
    assert STATUS_BYTES_MAX - 200 < len(bare) <= STATUS_BYTES_MAX

    assert encode_status(Status(held=held, timing=(STOPPED, READ))) == bare


def test_ages_count_back_from_the_writing_and_what_was_long_ago_is_told_no_more() -> None:
    told = Told(
        command=Named("0000000003", 70_000),
        stops=True,
        partitions=frozenset(PARTITIONS),
        seen_ms=1_000,
        stopped_ms=1_800,
        committed_ms=1_810,
    )
    status = MemberStatus(held={PARTITIONS[0]: Held("c-0", 0, 5, 3, 1)}, timing=(told,))
    node = Node("/c", Kind.DATA, Stat(5, 1, 0, 71_000), encode_member_status(status, 1_812))
    channel, problem = with_status(Channel(consumer_id="c", version=4), node)
    assert (problem, channel.written_ms) == (None, 71_000)
    assert channel.timing == (Timing("0000000003", True, 70_000, bounds_of(PARTITIONS), 812, 12, 2),)

    for now_ms, number in ((1_810 + TOLD_MS, 1), (1_811 + TOLD_MS, 0)):
        assert len(decode_status(encode_member_status(status, now_ms)).timing) == number
    assert replace(status, timing=()) == status  # for decisions it is the same status
