"""The only place that reads and writes static members in the state (`state/instances/<instance>`)."""

from __future__ import annotations

from typing import Any

from zkcoord.core.model import TopicPartition
from zkcoord.core.view import Instance
from zkcoord.tree.codec import INT32_MAX, compact, read_document, whole
from zkcoord.tree.ranges import parse_ranges, ranges_text
from zkcoord.tree.registration import THREADS_MAX

_WHAT = "instance"


def encode_instance(instance: Instance) -> bytes:
    """The node's data. Its share is written as topic -> thread number -> partitions.

    >>> encode_instance(Instance(last_id="c", hold_ms=9, threads={"t": 1}, share={TopicPartition("t", 0): 0}))
    b'{"version":1,"id":"c","hold_ms":"9","subscription":{"t":1},"share":{"t":{"0":"0"}}}'
    """
    numbers: dict[str, dict[int, list[int]]] = {}
    for partition, thread in instance.share.items():
        numbers.setdefault(partition.topic, {}).setdefault(thread, []).append(partition.partition)
    share = {
        topic: {str(thread): ranges_text(ids) for thread, ids in sorted(threads.items())}
        for topic, threads in sorted(numbers.items())
    }
    document: dict[str, Any] = {
        "version": 1,
        "id": instance.last_id,
        "hold_ms": str(instance.hold_ms),
        "subscription": dict(sorted(instance.threads.items())),
        "share": share,
    }
    if instance.rack is not None:
        document["rack"] = instance.rack
    if instance.capacity is not None:
        document["capacity"] = str(instance.capacity)
    if instance.assignor:
        document["assignor"] = instance.assignor
    if instance.away:
        document["away"] = True
    return compact(document)


def decode_instance(data: bytes, version: int, written_ms: int = 0) -> Instance:
    """The instance in `data`. The node has this data version, and was written at `written_ms` (the server's wall
    clock).

    Raises CorruptError if it cannot be read.
    """
    document = read_document(_WHAT, data)
    document.version()
    subscription, share = document.section("subscription"), document.section("share")
    found: dict[TopicPartition, int] = {}
    for topic in share.fields:
        threads = share.section(topic)
        for key in threads.fields:
            number = whole(key)
            if number is None or not 0 <= number < THREADS_MAX:
                raise threads.error(key, "is no thread's number")
            found.update(dict.fromkeys((TopicPartition(topic, n) for n in parse_ranges(threads.text(key))), number))
    return Instance(
        last_id=document.text("id"),
        hold_ms=document.integer("hold_ms"),
        threads={topic: subscription.integer(topic, low=1, high=THREADS_MAX) for topic in subscription.fields},
        share=found,
        rack=document.optional_text("rack"),
        capacity=document.optional_integer("capacity", low=1, high=INT32_MAX),
        assignor=document.text("assignor", default=""),
        away=document.flag("away"),
        version=version,
        written_ms=written_ms,
    )
