"""The metadata of commits in Kafka."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zkcoord.core.tenure import KafkaCommit, Stamp, Tenure
from zkcoord.errors import UsageError
from zkcoord.offsets.metadata import MAX_BYTES, decode_commit, encode_metadata

STAMP = Stamp(tenure=Tenure("3f2a", 2**62), incarnation=3, generation=7, thread="g_h-1-aaaaaaaa-0", at_ms=1_700)
OURS = KafkaCommit(offset=120, stamp=STAMP)


def test_a_commit_is_recognised_with_all_that_it_says() -> None:
    text = encode_metadata(OURS)
    assert text == (
        '{"zkcoord":1,"offset":"120","tree":"3f2a","mzxid":"4611686018427387904","incarnation":3,"generation":7,'
        '"at_ms":"1700","thread":"g_h-1-aaaaaaaa-0"}'
    )
    assert decode_commit(120, text) == OURS


@pytest.mark.parametrize(
    "metadata",
    [
        *(None, "", "by hand", "{", '{"zkcoord":', '{"zkcoord":1}', '{"zkcoord":"x"}', '{"zkcoord":true}'),
        encode_metadata(OURS).replace('"zkcoord":1', '"zkcoord":2'),
        encode_metadata(OURS).replace('"mzxid":"4', '"mzxid":"-4'),
        encode_metadata(OURS).replace('"tree":"3f2a"', '"tree":7'),
        '{"zkcoord":' + "[" * 2_000,
    ],
)
def test_metadata_of_anybody_else_makes_a_foreign_commit(metadata: str | None) -> None:
    assert decode_commit(120, metadata) == KafkaCommit(offset=120)


def test_an_offset_that_was_changed_under_our_metadata_is_foreign() -> None:
    assert decode_commit(121, encode_metadata(OURS)) == KafkaCommit(offset=121)


def test_unknown_keys_of_a_later_program_are_ignored() -> None:
    assert decode_commit(120, encode_metadata(OURS)[:-1] + ',"more":[1]}') == OURS


def test_a_foreign_commit_is_made_without_metadata() -> None:
    assert encode_metadata(KafkaCommit(offset=5)) == ""


def test_the_threads_name_gives_way_to_the_brokers_limit() -> None:
    without = KafkaCommit(
        offset=120, stamp=Stamp(tenure=Tenure("3f2a", 2**62), incarnation=3, generation=7, at_ms=1_700)
    )
    text = encode_metadata(OURS, max_bytes=len(encode_metadata(OURS)) - 1)
    assert "thread" not in text
    assert decode_commit(120, text) == without


def test_a_limit_without_room_for_the_tenure_is_refused_with_what_to_change() -> None:
    with pytest.raises(UsageError, match=r"offset\.metadata\.max\.bytes"):
        encode_metadata(OURS, max_bytes=50)


@settings(deadline=None)
@given(
    st.builds(
        Stamp,
        tenure=st.builds(Tenure, st.text(max_size=40), st.integers(0, 2**63 - 1)),
        incarnation=st.integers(0, 2**31),
        generation=st.integers(0, 2**31),
        thread=st.text(max_size=400),
        at_ms=st.integers(0, 2**45),
    ),
    st.integers(0, 2**63 - 1),
)
def test_every_stamp_comes_back_in_plain_ascii_within_the_limit(stamp: Stamp, offset: int) -> None:
    text = encode_metadata(KafkaCommit(offset=offset, stamp=stamp))
    found = decode_commit(offset, text)
    assert text.isascii()
    assert len(text) <= MAX_BYTES
    assert found.stamp is not None
    assert (found.offset, found.stamp.tenure, found.stamp.incarnation) == (offset, stamp.tenure, stamp.incarnation)
