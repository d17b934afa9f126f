"""Topics and marks: sets of partitions are read as old clients read them, and different incarnations are recognised."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tree.cases import HOSTILE, QUICK, counters, damaged, names, reads_or_refuses
from zkcoord.core.view import TopicChange
from zkcoord.errors import CorruptError
from zkcoord.tree.topic import (
    MIRRORED_CZXID,
    Mark,
    MarkSeen,
    TopicInfo,
    changes_of,
    decode_mark,
    decode_topic,
    encode_mark,
    same_incarnation,
)

ID, OTHER_ID = "oxbH-Pl5TzqiGyEFZh3Cbw", "AAAAAAAAAAAAAAAAAAAAAQ"
V3 = (
    b'{"removing_replicas":{},"partitions":{"2":[1],"10":[2],"0":[1]},"topic_id":"oxbH-Pl5TzqiGyEFZh3Cbw",'
    b'"adding_replicas":{},"version":3}'
)


@pytest.mark.parametrize(
    ("data", "topic"),
    [
        (b'{"version":1,"partitions":{"0":[1,2],"1":[2,3]}}', TopicInfo(partitions=(0, 1))),
        (
            b'{"version":2,"partitions":{"0":[1]},"adding_replicas":{"0":[2]},"removing_replicas":{}}',
            TopicInfo(partitions=(0,)),
        ),
        (V3, TopicInfo(partitions=(0, 2, 10), topic_id=ID)),
        (b'{"version":9,"partitions":{"7":null,"3":"odd"}}', TopicInfo(partitions=(3, 7))),
        (b'{"version":1}', TopicInfo()),
        (b'{"version":1,"partitions":null}', TopicInfo()),
        (b'{"version":1,"partitions":{}}', TopicInfo()),
        (b"null", TopicInfo()),
        (b"", TopicInfo()),
    ],
)
def test_a_topic_of_every_version_is_read(data: bytes, topic: TopicInfo) -> None:
    assert decode_topic(data) == topic


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"4", "bad topic '4': not a JSON object"),
        (b"x", "bad topic 'x': no JSON"),
        (b'{"partitions":[0,1]}', "partitions is [0, 1], allowed is an object"),
        (b'{"partitions":{"1-0":[1]}}', "partitions is '1-0', allowed is partition numbers from 0 to 2147483647"),
        (b'{"partitions":{"-1":[1]}}', "partitions is '-1', allowed is partition numbers"),
        (b'{"partitions":{"01":[1]}}', "partitions is '01', allowed is partition numbers"),
        (b'{"partitions":{"4294967296":[1]}}', "partitions is '4294967296', allowed is partition numbers"),
        (b'{"topic_id":7}', "topic_id is 7, allowed is a text"),
    ],
)
def test_another_text_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(CorruptError) as caught:
        decode_topic(data)
    assert message in str(caught.value)


@QUICK
@given(st.binary(max_size=60) | damaged(V3))
def test_random_and_damaged_topics_never_raise_anything_else(data: bytes) -> None:
    reads_or_refuses(decode_topic, data)


marks = st.builds(
    Mark, incarnation=st.integers(1, 2**31 - 1), topic_id=st.none() | names, czxid=counters, root_czxid=counters
)


@QUICK
@given(marks)
def test_a_mark_reads_back_as_written(mark: Mark) -> None:
    assert decode_mark(encode_mark(mark)) == mark


def test_an_empty_node_is_no_mark() -> None:
    assert decode_mark(b"") is None


@pytest.mark.parametrize("data", [*HOSTILE, b"{}", b'{"incarnation":0,"czxid":"1","root_czxid":"1"}'])
def test_a_broken_mark_is_refused(data: bytes) -> None:
    assert reads_or_refuses(decode_mark, data) is not None


@QUICK
@given(st.binary(max_size=60) | marks.map(encode_mark).flatmap(damaged))
def test_random_and_damaged_marks_never_raise_anything_else(data: bytes) -> None:
    reads_or_refuses(decode_mark, data)


@pytest.mark.parametrize(
    ("marked_id", "topic_id", "czxid", "root_czxid", "same"),
    [
        (None, None, 10, 1, True),
        (None, None, 11, 1, False),  # deleted and created again
        (None, None, 11, 2, True),  # the tree was copied
        (None, ID, 10, 1, True),  # the brokers were updated, and have given it an id
        (None, ID, 11, 1, False),
        (ID, None, 10, 1, True),
        (ID, ID, 10, 1, True),
        (ID, ID, 11, 1, True),  # somebody restored its node
        (ID, ID, 11, 2, True),
        (ID, OTHER_ID, 11, 1, False),
        (ID, OTHER_ID, 10, 1, False),
        (ID, OTHER_ID, 11, 2, False),  # copied, and created again
        (None, ID, MIRRORED_CZXID, 1, True),  # topics come from Kafka, and a broker that told no id led to this mark
        (ID, OTHER_ID, MIRRORED_CZXID, 1, False),
    ],
)
def test_ids_tell_incarnations_apart_else_czxids_under_the_same_root(
    marked_id: str | None, topic_id: str | None, czxid: int, root_czxid: int, same: bool
) -> None:
    mark = Mark(incarnation=1, topic_id=marked_id, czxid=10, root_czxid=1)
    assert same_incarnation(mark, topic_id, czxid, root_czxid) is same


def test_a_topic_that_is_not_there_is_not_deleted_before_that_is_known() -> None:
    seen = {"t": MarkSeen(Mark(incarnation=1, topic_id=ID, czxid=10, root_czxid=1), 0)}
    assert changes_of(seen, lambda _: None, lambda _: False) == {}
    assert changes_of(seen, lambda _: None, lambda _: True) == {"t": TopicChange.DELETED}
