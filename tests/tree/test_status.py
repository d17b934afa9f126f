"""Statuses: everything that a member says about itself is kept, within the size of a znode."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tree.cases import HOSTILE, QUICK, announced, counters, damaged, partitions, reads_or_refuses, texts, topics
from zkcoord.core.member.decisions import Versions
from zkcoord.core.member.starts import STARTS_MAX
from zkcoord.core.model import TopicPartition
from zkcoord.core.replay_quota import HELD_BYTES_MAX, range_bytes
from zkcoord.core.state import Announced
from zkcoord.core.view import Refusal
from zkcoord.errors import CorruptError
from zkcoord.shell.zk.multi import REQUEST_BYTES_MAX
from zkcoord.tree.codec import compact
from zkcoord.tree.member import Acknowledgement, MemberPaths, room, start
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.ranges import parse_ranges, ranges_text
from zkcoord.tree.status import (
    REASON_CHARS_MAX,
    REFUSED_BYTES_MAX,
    STATUS_BYTES_MAX,
    Status,
    decode_status,
    encode_status,
    range_fields,
)

CLICKS_0, CLICKS_3 = TopicPartition("clicks", 0), TopicPartition("clicks", 3)
STATUS = Status(
    held={7: {"clicks": "0-9"}},
    batch={CLICKS_0: Announced(100, 600, 7, 2)},
    store_name="zookeeper",
    progress=1234,
    lag=56,
)
EXAMPLE = (
    b'{"version":1,"held":{"7":{"clicks":"0-9"}},"batch":{"clicks-0":["100","600",7,2]},'
    b'"store":{"name":"zookeeper","step":0},"refused":{},"progress":"1234","lag":"56"}'
)


def test_an_example_status_is_written_and_read() -> None:
    assert encode_status(STATUS) == EXAMPLE
    assert decode_status(EXAMPLE) == STATUS


def test_a_refused_partition_stands_with_generation_and_reason() -> None:
    status = Status(refused={CLICKS_3: Refusal(generation=7, sequence="", reason="broker")})
    assert json.loads(encode_status(status))["refused"] == {"clicks-3": {"generation": 7, "reason": "broker"}}
    assert decode_status(encode_status(status)) == status


def test_a_refusal_may_name_the_start_that_it_answers() -> None:
    status = Status(refused={CLICKS_3: Refusal(generation=7, sequence="0000000004", reason="broker")})
    fields = {"generation": 7, "sequence": "0000000004", "reason": "broker"}
    assert json.loads(encode_status(status))["refused"] == {"clicks-3": fields}
    assert decode_status(encode_status(status)) == status


def test_a_long_reason_is_cut() -> None:
    status = Status(refused={CLICKS_3: Refusal(generation=7, sequence="", reason="x" * 5000)})
    assert decode_status(encode_status(status)).refused[CLICKS_3].reason == "x" * REASON_CHARS_MAX


@pytest.mark.parametrize("data", [b"", b"{}", b'{"version":1,"held":null,"later":[1.5]}'])
def test_an_empty_status_is_read_and_unknown_keys_are_ignored(data: bytes) -> None:
    assert decode_status(data) == Status()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"x", "bad status 'x': no JSON"),
        (b'{"version":2}', "version is 2, this program reads up to 1"),
        (b'{"held":{"x":{}}}', "held.x is no generation"),
        (b'{"held":{"7":{"clicks":"0-"}}}', "held.7.clicks is '0-', allowed is ranges of partitions"),
        (b'{"held":{"7":{"clicks":[0]}}}', "held.7.clicks is [0], allowed is a text"),
        (b'{"batch":{"clicks-0":["600","100",7]}}', "batch.clicks-0 is ['600', '100', 7], allowed is a list of"),
        (
            b'{"batch":{"clicks-0":["100","600"]}}',
            "allowed is a list of start, end, generation, incarnation, start not above end",
        ),
        (b'{"batch":{"clicks":["100","600",7]}}', "batch.clicks names no partition"),
        (b'{"store":{"step":"x"}}', "store.step is 'x', allowed is an integer from 0"),
        (b'{"refused":{"clicks-3":"why"}}', "refused.clicks-3 is 'why', allowed is an object"),
        (b'{"lag":-1}', "lag is -1, allowed is an integer from 0"),
    ],
)
def test_a_broken_status_is_refused_with_the_key_and_the_rule(data: bytes, message: str) -> None:
    with pytest.raises(CorruptError) as caught:
        decode_status(data)
    assert message in str(caught.value)


def test_held_is_cut_with_a_count_and_the_newest_generation_stays() -> None:
    old = {f"topic-{n:05}": "0-9,11" for n in range(3000)}
    status = Status(held={6: old, 7: {"clicks": "0-9"}}, batch={CLICKS_0: Announced(100, 600, 7, 2)}, lag=1)
    data = encode_status(status)
    read = decode_status(data)
    kept = len(read.held[6])
    assert STATUS_BYTES_MAX * 9 // 10 < len(data) <= STATUS_BYTES_MAX
    assert read.held[7] == {"clicks": "0-9"}
    assert list(read.held[6]) == sorted(old)[:kept]
    assert read.held_cut == 11 * (3000 - kept)
    assert (read.batch, read.lag) == (status.batch, 1)


def test_a_batch_is_never_cut_but_held_gives_way_to_it() -> None:
    batch = {TopicPartition("clicks", n): Announced(10**12, 10**13, 7) for n in range(2000)}
    status = Status(held={7: {"clicks": "0-1999"}}, batch=batch)
    read = decode_status(encode_status(status))
    assert (read.batch, read.held, read.held_cut) == (batch, {}, 2000)


LONG = "x" * 249  # a topic's name in Kafka


def test_the_largest_status_and_all_that_may_go_along_fit_into_one_multi() -> None:
    """The most that a member may be handed, may refuse, and may say, at the real limits."""
    wide = Announced(2**63 - 10, 2**63 - 1, 2**63 - 1, 2**31 - 1)
    batch, taken = {}, 0
    while (
        taken + range_bytes(p := TopicPartition(LONG[: 249 - len(batch) % 200], 2**31 - 1 - len(batch)), wide)
        <= HELD_BYTES_MAX
    ):
        batch[p], taken = wide, taken + range_bytes(p, wide)
    refusal = Refusal(generation=2**63 - 1, sequence="0000000001", reason="\U0001f600" * 500)
    refused = {TopicPartition(LONG, n): refusal._replace(sequence=f"{n:010d}") for n in range(5_000)}
    status = Status(
        held={7: {LONG: "0-9"}}, batch=batch, store_name="zookeeper", refused=refused, progress=2**63 - 1, lag=2**63 - 1
    )
    data = encode_status(status)
    assert len(compact({str(p): range_fields(r) for p, r in batch.items()})) <= taken
    assert 0.9 * (HELD_BYTES_MAX + REFUSED_BYTES_MAX) < len(data) < HELD_BYTES_MAX + REFUSED_BYTES_MAX + 1_024
    read = decode_status(data)
    assert read.batch == batch
    newest = max(int(r.sequence) for r in read.refused.values())
    assert newest == 4_999
    paths = MemberPaths(layout=DRAFT, group="g" * 100, consumer_id="g" * 200)
    named = [TopicPartition(f"{LONG[:240]}{n}", 2**31 - 1) for n in range(1_000)]
    named = named[: room(paths, named)]
    above = [paths.layout.topic_offsets(paths.group, p.topic) for p in named]
    done = Acknowledgement(commands={f"{n:010d}": 0 for n in range(STARTS_MAX)}, status=data, status_version=2**31 - 1)
    first = dict.fromkeys(named, (2**63 - 1, Versions(2**31 - 1, None)))
    whole = start(paths, first, above, {}, done)
    assert whole.payload_bytes() < REQUEST_BYTES_MAX


def test_refusals_beyond_their_room_are_told_by_their_starts() -> None:
    refusal = Refusal(generation=7, sequence="0000000004", reason="broker: start: UnavailableError: nobody answers")
    refused = {TopicPartition(topic, n): refusal for topic in ("clicks", "views") for n in range(10_000)}
    data = encode_status(Status(refused=refused))
    assert len(data) < 400
    fields = {"generation": 7, "sequence": "0000000004", "reason": refusal.reason}
    ranges = {"clicks": "0-9999", "views": "0-9999"}
    assert json.loads(data)["refusals"] == {"0": {**fields, "partitions": ranges}}
    assert decode_status(data).refused == refused


refusals = st.builds(Refusal, generation=counters, sequence=texts, reason=texts)
statuses = st.builds(
    Status,
    held=st.dictionaries(
        st.integers(0, 10**17),
        st.dictionaries(topics, st.sets(st.integers(0, 300)).map(ranges_text), max_size=3),
        max_size=3,
    ),
    held_cut=counters,
    batch=st.dictionaries(partitions, announced, max_size=3),
    store_name=texts,
    store_step=counters,
    refused=st.dictionaries(partitions, refusals, max_size=3),
    progress=st.none() | counters,
    lag=st.none() | counters,
)


@QUICK
@given(statuses)
def test_a_status_reads_back_as_written(status: Status) -> None:
    assert decode_status(encode_status(status)) == status


@pytest.mark.parametrize("data", HOSTILE)
def test_hostile_bytes_are_refused(data: bytes) -> None:
    assert reads_or_refuses(decode_status, data) is not None


@QUICK
@given(st.binary(max_size=60) | statuses.map(encode_status).flatmap(damaged))
def test_random_and_damaged_bytes_never_raise_anything_else(data: bytes) -> None:
    reads_or_refuses(decode_status, data)


@QUICK
@given(st.sets(st.integers(0, 500)))
def test_ranges_read_back_as_written(numbers: set[int]) -> None:
    assert parse_ranges(ranges_text(numbers)) == tuple(sorted(numbers))


def test_neighbours_are_joined_and_the_order_does_not_matter() -> None:
    assert ranges_text([9, 3, 1, 2, 12, 2]) == "1-3,9,12"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a", "allowed is ascending numbers"),
        ("1-", "allowed is ascending numbers"),
        ("-1", "allowed is ascending numbers"),
        ("1,,2", "allowed is ascending numbers"),
        ("9-1", "not ascending"),
        ("2,1", "not ascending"),
        ("1-3,3", "not ascending"),
        ("0-9999999999", "more than 1000000 partitions"),
        ("0-1000000", "more than 1000000 partitions"),
        ("9999999999", "one beyond 2147483647"),
    ],
)
def test_other_ranges_are_refused(text: str, reason: str) -> None:
    with pytest.raises(CorruptError, match="bad ranges") as caught:
        parse_ranges(text)
    assert reason in str(caught.value)
