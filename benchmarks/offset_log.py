"""How fast the job over Kafka's offset log decodes commits, against a plain loop in one process.

    python benchmarks/offset_log.py [--quick] [--json FILE]

Embedded Kafka; a topic of four partitions with commits in the offset log's formats: values of version 1 and 3, half of
them with zkcoord's metadata, one record in 200 a tombstone, one in 100 a group's metadata. In each round both read all
of it: *plain*, a loop over `confluent_kafka.Consumer.consume` that parses each key and value, from making its consumer
to closing it; *spark*, `zkcoord.spark.history.commits.decoded` with `local[2]`, from making the DataFrame to the end of
its write to nowhere. Their counts are compared. The first round does not count; compared are medians.

Ends with one line a measure: `measure value goal ok|short`; exit code 0 when all hold. `history_decoding` is the plain
loop's time over Spark's.
"""

from __future__ import annotations

import statistics
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from kafka_log import TOPIC, create_topic
from spark_bench import conclude
from verdict import Measure, arguments

from zkcoord.embedded import EmbeddedKafka, EmbeddedZooKeeper, spark_environment
from zkcoord.spark import OffsetRange, spark_session
from zkcoord.spark.history.commits import decoded
from zkcoord.spark.history.decoding import parse_key, parse_value

GOAL = 2.0  # the plain loop must take at least this many times as long as Spark
PARTITIONS = 4
FULL, QUICK = (2_000_000, 5), (400_000, 2)  # records, rounds that count
GROUPS, TOPICS = 100, 5
METADATA = b'{"zkcoord":1,"offset":"7","tree":"","mzxid":"5","incarnation":0,"generation":0,"at_ms":"0","thread":"g-0"}'


def records(count: int) -> Iterator[tuple[bytes, bytes | None]]:
    """Return keys and values of commits: of 100 groups with 500 partitions each."""
    now_ms = 1_700_000_000_000
    for number in range(count):
        group, topic, partition = number % GROUPS, number % TOPICS, (number // GROUPS) % 500
        name = b"group-%03d" % group
        if number % 100 == 99:
            yield struct.pack(">hh", 2, len(name)) + name, b"\0\3" + bytes(80)
            continue
        topic_name = b"topic-%d" % topic
        key = struct.pack(">hh", 1, len(name)) + name + struct.pack(">h", len(topic_name)) + topic_name
        key += struct.pack(">i", partition)
        metadata = METADATA if number % 2 else b""
        text = struct.pack(">h", len(metadata)) + metadata
        if number % 200 == 0:
            yield key, None
        elif number % 3:
            yield key, struct.pack(">hqi", 3, number, -1) + text + struct.pack(">q", now_ms + number)
        else:
            yield key, struct.pack(">hq", 1, number) + text + struct.pack(">qq", now_ms + number, now_ms)


def fill(servers: str, count: int) -> list[OffsetRange]:
    """Write the records into the topic; return its ranges."""
    create_topic(servers, PARTITIONS)
    settings = {"queue.buffering.max.messages": 500_000, "linger.ms": 50, "log_level": 0}
    producer = Producer({"bootstrap.servers": servers, **settings})
    ends = [0] * PARTITIONS
    for number, (key, value) in enumerate(records(count)):
        partition = (number // 1000) % PARTITIONS
        ends[partition] += 1
        while True:
            try:
                producer.produce(TOPIC, value, key, partition)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0
    return [OffsetRange(TOPIC, partition, 0, end) for partition, end in enumerate(ends)]


def plain(servers: str, ranges: list[OffsetRange]) -> tuple[int, int]:
    """Run the plain loop. Return how many commits and tombstones it saw."""
    settings = {"bootstrap.servers": servers, "group.id": "plain", "enable.auto.commit": "false"}
    consumer = Consumer({**settings, "enable.partition.eof": "true", "auto.offset.reset": "error"})
    consumer.assign([TopicPartition(each.topic, each.partition, each.start) for each in ranges])
    commits = tombstones = 0
    left = len(ranges)
    while left:
        for message in consumer.consume(10_000, 1.0):
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                left -= 1
                continue
            if parse_key.__wrapped__(message.key()) is None:
                continue
            if message.value() is None:
                tombstones += 1
            elif parse_value(message.value()) is not None:
                commits += 1
    consumer.close()
    return commits, tombstones


def main() -> int:
    """The program."""
    chosen = arguments(__doc__).parse_args()
    count, rounds = QUICK if chosen.quick else FULL
    times: dict[str, list[float]] = {"plain": [], "spark": []}
    with ExitStack() as stack:
        zookeeper = stack.enter_context(EmbeddedZooKeeper(fsync=False))
        servers = stack.enter_context(EmbeddedKafka(zookeeper.hosts, heap="1g")).bootstrap_servers
        ranges = fill(servers, count)
        spark = spark_session("zkcoord benchmark", environment=spark_environment(), log_level="OFF")
        stack.callback(spark.stop)
        expected = plain(servers, ranges)
        found = decoded(spark, servers, ranges)
        counted = found.selectExpr("count(offset)", "count_if(tombstone)").first()
        assert counted is not None
        assert tuple(counted) == expected, (counted, expected)
        for turn in range(rounds + 1):
            began = time.perf_counter()
            plain(servers, ranges)
            between = time.perf_counter()
            decoded(spark, servers, ranges).write.format("noop").mode("append").save()
            took = {"plain": between - began, "spark": time.perf_counter() - between}
            rates = ", ".join(f"{name} {count / seconds / 1000:,.0f}" for name, seconds in took.items())
            print(f"round {turn}: {rates} thousand rows/s", file=sys.stderr)
            for name, seconds in took.items() if turn else ():
                times[name].append(1000 * seconds)
    medians = {name: statistics.median(found_ms) for name, found_ms in times.items()}
    for name, median in medians.items():
        print(f"{name:<8}{median:>8.0f} ms {count / median:>10,.0f} thousand rows/s")
    measures = [Measure("history_decoding", medians["plain"] / medians["spark"], GOAL)]
    return conclude("offset_log", {"ms": times}, measures, chosen.json)


if __name__ == "__main__":
    sys.exit(main())
