"""The only place that reads topics (`/brokers/topics/<t>`, and their mirror), and that reads and writes their marks.

Only the *sets* of partitions are compared, never the JSON: a reassignment rewrites replicas all the time, and moves no
partition here except for racks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from zkcoord.core.view import TopicChange
from zkcoord.errors import CorruptError
from zkcoord.tree.codec import INT32_MAX, compact, corrupt, is_topic, read_document
from zkcoord.tree.paths import partition_number, partition_numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicInfo:
    """A topic's partitions, ascending (gaps are legal), and its id when its broker is 2.8 or newer."""

    partitions: tuple[int, ...] = ()
    topic_id: str | None = None


def decode_topic(data: bytes) -> TopicInfo:
    """The topic in `data`, version 1 to 3. Without data or partitions it has no partitions, as for the old clients.

    >>> decode_topic(b'{"version":1,"partitions":{"10":[1,2],"2":[2,3]}}').partitions
    (2, 10)
    """
    if data.strip() in (b"", b"null"):
        return TopicInfo()
    document = read_document("topic", data)
    names = document.section("partitions").fields
    numbers = partition_numbers(names)
    if len(numbers) < len(names):
        wrong = next(name for name in names if partition_number(name) is None)
        raise document.wrong("partitions", wrong, f"partition numbers from 0 to {INT32_MAX}")
    return TopicInfo(
        partitions=tuple(sorted(numbers)),
        topic_id=document.optional_text("topic_id"),
    )


def topic_of(name: str, data: bytes) -> TopicInfo:
    """The topic in a node of this name. Also raises CorruptError for a name that fits no command: the oldest brokers
    created any topic that a producer named.

    >>> topic_of("two words", b'{"version":1,"partitions":{"0":[1]}}')
    Traceback (most recent call last):
    ...
    zkcoord.errors.CorruptError: bad topic 'two words': Kafka allows no such name
    """
    if not is_topic(name):
        raise corrupt("topic", name, "Kafka allows no such name")
    return decode_topic(data)


def decode_replicas(data: bytes) -> dict[int, tuple[int, ...]]:
    """Partition -> ids of the brokers with a replica, for data that `decode_topic` accepts. Values that are no ids are
    left out.

    >>> decode_replicas(b'{"version":1,"partitions":{"10":[1,2],"2":[3,"x"]}}')
    {10: (1, 2), 2: (3,)}
    """
    if data.strip() in (b"", b"null"):
        return {}
    found = read_document("topic", data).section("partitions").fields.items()
    lists = ((partition_number(name), ids if isinstance(ids, list) else []) for name, ids in found)
    return {number: tuple(one for one in ids if type(one) is int) for number, ids in lists if number is not None}


MIRRORED_CZXID = 0
"""The czxid in the mark of a mirrored topic, which is identified only by its id. No node has this czxid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Identifies the topic of a group's owners and offsets. A name may be used again; an id or a czxid is not."""

    incarnation: int  # number of the topic among those of that name that the group has seen, from 1
    topic_id: str | None
    czxid: int  # of the topic's node; MIRRORED_CZXID where topics come from Kafka's metadata
    root_czxid: int  # of /zkcoord: another value means that the whole tree was copied, and that no czxid means anything


def encode_mark(mark: Mark) -> bytes:
    """The mark's znode data.

    >>> encode_mark(Mark(incarnation=1, topic_id=None, czxid=2**40, root_czxid=9))
    b'{"version":1,"incarnation":1,"topic_id":null,"czxid":"1099511627776","root_czxid":"9"}'
    """
    return compact(
        {
            "version": 1,
            "incarnation": mark.incarnation,
            "topic_id": mark.topic_id,
            "czxid": str(mark.czxid),
            "root_czxid": str(mark.root_czxid),
        }
    )


def decode_mark(data: bytes) -> Mark | None:
    """The mark in `data`. None: the node is empty, since the topic was not marked yet."""
    if not data:
        return None
    document = read_document("topic mark", data)
    document.version()
    return Mark(
        incarnation=document.integer("incarnation", low=1, high=INT32_MAX),
        topic_id=document.optional_text("topic_id"),
        czxid=document.integer("czxid"),
        root_czxid=document.integer("root_czxid"),
    )


def mark_in_a_copy(data: bytes) -> bytes:
    """The mark's data for a copy of its tree, without zxids: those of two ensembles may coincide.

    The copy's coordinator writes the mark again, and drops nothing unless the topic's id shows a new topic. An
    unparsable mark is kept.

    >>> mark_in_a_copy(b'{"version":1,"incarnation":3,"topic_id":"x","czxid":"7","root_czxid":"2"}')
    b'{"version":1,"incarnation":3,"topic_id":"x","czxid":"0","root_czxid":"0"}'
    """
    try:
        mark = decode_mark(data)
    except CorruptError:
        return data
    return data if mark is None else encode_mark(replace(mark, czxid=0, root_czxid=0))


class MarkSeen(NamedTuple):
    """A mark's node. `mark` None: the node is empty (the topic was not marked yet), or cannot be parsed."""

    mark: Mark | None
    version: int
    unreadable: bool = False


def change_of(seen: MarkSeen, present: Mark) -> TopicChange | None:
    """How the present topic differs from its mark. None: it does not differ, or there is no mark yet."""
    if seen.unreadable:
        return TopicChange.UNREADABLE
    mark = seen.mark
    if mark is None or replace(present, incarnation=mark.incarnation) == mark:
        return None
    same = same_incarnation(mark, present.topic_id, present.czxid, present.root_czxid)
    return TopicChange.RENEWED if same else TopicChange.RECREATED


def changes_of(
    marks: Mapping[str, MarkSeen], present: Callable[[str], Mark | None], deleted: Callable[[str], bool]
) -> dict[str, TopicChange]:
    """Compare marks with topics. `present` returns a topic's mark as it would be written now."""
    found: dict[str, TopicChange] = {}
    for topic, seen in marks.items():
        now = present(topic)
        change = change_of(seen, now) if now is not None else None
        if now is None and deleted(topic):
            change = TopicChange.DELETED
        if change is not None:
            found[topic] = change
    return found


def same_incarnation(mark: Mark, topic_id: str | None, czxid: int, root_czxid: int) -> bool:
    """True unless the topic was deleted and created again since it was marked.

    If both sides have ids, these decide. Otherwise czxids do, but only under the same `/zkcoord`: in a copied or
    restored tree every czxid differs, and nothing must be dropped (the caller writes the mark again). A mirrored
    topic's czxid says nothing, either.
    """
    if mark.topic_id is not None and topic_id is not None:
        return mark.topic_id == topic_id
    return mark.root_czxid != root_czxid or mark.czxid == czxid or MIRRORED_CZXID in (mark.czxid, czxid)
