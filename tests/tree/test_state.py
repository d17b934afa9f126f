"""Group states: the values that one coordinator leaves for the next, and the digest on which they must agree."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tree.cases import HOSTILE, QUICK, announced, counters, damaged, names, partitions, reads_or_refuses, texts
from zkcoord.core.model import TopicPartition
from zkcoord.core.old_owners import NOTED_BYTES_MAX
from zkcoord.core.quarantine import FORGIVEN_BYTES_MAX, QUARANTINED_BYTES_MAX, WHY_CHARS_MAX, state_bytes
from zkcoord.core.replay import KEPT_BYTES_MAX
from zkcoord.core.replay_quota import range_bytes
from zkcoord.core.state import Announced, Failure, GroupState, Quarantine
from zkcoord.errors import CorruptError
from zkcoord.shell.zk.multi import REQUEST_BYTES_MAX
from zkcoord.tree.state import decode_state, digest, encode_state
from zkcoord.tree.writes import BYTES_MAX

EXAMPLE = b'{"version":1,"generation":7,"target":"00ff","stopping":false,"refused":{},"failed":null,"quarantined":{}}'
FAILED = Failure(error="ConsumerRebalanceFailed", since_generation=7)


def test_an_example_state_is_written_and_read() -> None:
    assert encode_state(GroupState(generation=7, target="00ff")) == EXAMPLE
    assert decode_state(EXAMPLE) == GroupState(generation=7, target="00ff")


def test_a_failure_stands_with_its_generation() -> None:
    data = encode_state(GroupState(generation=7, failed=FAILED))
    assert b'"failed":{"error":"ConsumerRebalanceFailed","since_generation":7}' in data
    assert decode_state(data).failed == FAILED


def test_the_partitions_of_old_members_stand_as_ranges() -> None:
    state = GroupState(generation=7, old=frozenset(TopicPartition("t", n) for n in (0, 1, 3)), old_as_of=12)
    data = encode_state(state)
    assert data.endswith(b',"old":{"t":"0-1,3"},"old_as_of":12}')
    assert decode_state(data) == state


def test_an_empty_state_is_the_first() -> None:
    assert decode_state(b"") == GroupState()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"x", "bad group state 'x': no JSON"),
        (b"{}", "generation is missing"),
        (b'{"generation":-1}', "generation is -1, allowed is an integer from 0"),
        (b'{"generation":1,"stopping":"no"}', "stopping is 'no', allowed is true or false"),
        (b'{"generation":1,"refused":{"c":1}}', "refused.c is 1, allowed is a text"),
        (b'{"generation":1,"failed":"yes"}', "failed is 'yes', allowed is an object"),
        (b'{"generation":1,"failed":{}}', "failed.error is missing"),
        (b'{"generation":1,"old":{"t":"3-1"}}', "bad ranges '3-1': not ascending"),
        (b'{"generation":1,"version":2}', "version is 2, this program reads up to 1"),
    ],
)
def test_a_broken_state_is_refused_with_the_key_and_the_rule(data: bytes, message: str) -> None:
    with pytest.raises(CorruptError) as caught:
        decode_state(data)
    assert message in str(caught.value)


def test_the_largest_state_fits_into_one_node() -> None:
    """All ranges and quarantines that may be kept, at the real limits, and the ranges that one start may add."""
    wide = Announced(2**63 - 10, 2**63 - 1, 2**63 - 1, 2**31 - 1)
    number, weight = 2**31 - 1, 0
    replay = {}
    for partition in (TopicPartition(f"{'x' * 20}{n}", number) for n in range(100_000)):
        replay[partition] = wide
        weight += range_bytes(partition, wide)
        if weight > KEPT_BYTES_MAX + BYTES_MAX:
            break
    entry = Quarantine("\U0001f600" * WHY_CHARS_MAX, 2**63 - 1)
    quarantined = {
        TopicPartition("x" * 249, number - n): entry
        for n in range(QUARANTINED_BYTES_MAX // state_bytes(TopicPartition("x" * 249, number), entry))
    }
    forgiven = {f"{'g' * 255}-{n:020}": "9999999999" for n in range(FORGIVEN_BYTES_MAX // (276 + 10 + 6))}
    assert len(encode_state(GroupState(forgiven=forgiven))) < FORGIVEN_BYTES_MAX + 200
    ranges = NOTED_BYTES_MAX // len(",2147483647-2147483647") - 20
    old = frozenset(TopicPartition("x" * 249, number - 3 * n - m) for n in range(ranges) for m in range(2))
    assert NOTED_BYTES_MAX * 0.9 < len(encode_state(GroupState(old=old))) < NOTED_BYTES_MAX + 200
    problem = "\U0001f600" * 1_000
    data = encode_state(
        GroupState(generation=1, quarantined=quarantined, replay=replay, problem=problem, forgiven=forgiven, old=old)
    )
    assert len(data) < REQUEST_BYTES_MAX - 1_024
    assert decode_state(data).replay == replay
    assert QUARANTINED_BYTES_MAX * 0.9 < len(encode_state(GroupState(quarantined=quarantined))) < QUARANTINED_BYTES_MAX


states = st.builds(
    GroupState,
    generation=counters,
    target=texts,
    stopping=st.booleans(),
    refused=st.dictionaries(names, texts, max_size=3),
    failed=st.none() | st.builds(Failure, error=texts, since_generation=counters),
    quarantined=st.dictionaries(partitions, st.builds(Quarantine, texts, counters), max_size=3),
    replay=st.dictionaries(partitions, announced, max_size=3),
    empty_ms=counters,
    brokers=st.dictionaries(st.integers(0, 2**31 - 1), texts, max_size=3),
    forgiven=st.dictionaries(texts, texts, max_size=3),
    deleted=st.booleans(),
    old=st.frozensets(partitions, max_size=3),
    old_as_of=st.integers(0, 2**31 - 1),
)


@QUICK
@given(states)
def test_a_state_reads_back_as_written(state: GroupState) -> None:
    assert decode_state(encode_state(state)) == state


@pytest.mark.parametrize("data", HOSTILE)
def test_hostile_bytes_are_refused(data: bytes) -> None:
    assert reads_or_refuses(decode_state, data) is not None


@QUICK
@given(st.binary(max_size=60) | states.map(encode_state).flatmap(damaged))
def test_random_and_damaged_bytes_never_raise_anything_else(data: bytes) -> None:
    reads_or_refuses(decode_state, data)


assignments = st.dictionaries(partitions, names, max_size=6)


@QUICK
@given(assignments, st.randoms(use_true_random=False))
def test_the_digest_does_not_depend_on_the_order(assignment: dict[TopicPartition, str], random: object) -> None:
    shuffled = list(assignment.items())
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert digest(dict(shuffled)) == digest(assignment)


@QUICK
@given(assignments, assignments)
def test_different_assignments_have_different_digests(
    one: dict[TopicPartition, str], other: dict[TopicPartition, str]
) -> None:
    assert (digest(one) == digest(other)) == (one == other)


@pytest.mark.parametrize("seed", ["0", "1"])
def test_the_digest_is_the_same_in_every_process(seed: str) -> None:
    program = (
        "from zkcoord.core.model import TopicPartition as P\n"
        "from zkcoord.tree.state import digest\n"
        "print(digest({P(t, n): f'c-{n}' for t in {'a', 'b', 'c'} for n in range(12)}))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    run = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    here = {TopicPartition(topic, n): f"c-{n}" for topic in "abc" for n in range(12)}
    assert run.stdout.strip() == digest(here)
    assert len(digest(here)) == 16
    int(digest(here), 16)
