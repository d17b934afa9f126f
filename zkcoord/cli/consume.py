"""`zkcoord consume`: prints the records of the partitions that the group's coordinator assigns to it."""

from __future__ import annotations

import base64
import gc
import json
import logging
import os
import select
import stat
import sys
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from zkcoord.cli.coordinator import COLLECTOR
from zkcoord.cli.options import (
    MEMBER_FLAGS,
    Command,
    Settings,
    at_least,
    member_options,
    pass_settings,
)
from zkcoord.cli.standing import Standing
from zkcoord.clock import mono_ms
from zkcoord.core.model import TopicPartition
from zkcoord.errors import FencedError, UnavailableError, UsageError
from zkcoord.operating.saying import say
from zkcoord.operating.words import cell
from zkcoord.signals import stopping

if TYPE_CHECKING:
    from zkcoord.kafka.client import Message
    from zkcoord.kafka.consumer import KafkaConsumer
    from zkcoord.kafka.ports import Membership

LOG = logging.getLogger("zkcoord.cli")

COMMIT_MS = 1_000
RECORDS_MAX = 500  # printed at once; so few that a stop does not wait long for them
POLL_SECONDS = 0.2  # the longest time until a signal is noticed


@click.command(cls=Command, example="zkcoord consume --group etl --topic clicks --from-beginning")
@click.option("--group", required=True, metavar="G", help="The consumer group.")
@click.option("--topic", "topics", multiple=True, metavar="T", help="A topic; may be repeated.")
@member_options
@click.option("--from-beginning", is_flag=True, help="Start partitions without an offset at their beginning.")
@click.option("--max-messages", type=at_least(1), metavar="N", help="Stop after N messages.")
@click.option(
    "--timeout-ms",
    type=at_least(1),
    metavar="N",
    help="Stop when no message came for this time. Exit code 5 if no partition came, or Kafka is away.",
)
@click.option("--no-commit", is_flag=True, help="Leave the group's offsets as they are.")
@pass_settings
def consume(settings: Settings, **options: Any) -> None:
    """Print a group's records as one of its consumers, until SIGTERM, SIGINT or a closed pipe.

    It commits the printed records every second, and when a partition is revoked. A record may be printed twice; no
    record is left out. With --output json each line is an object: topic, partition, offset, timestamp, key and value
    (as text, else key_base64 and value_base64). With --output table each line has partition, offset, key and value.
    """
    address, servers = settings.zookeeper_address(), settings.needed_kafka_address()
    topics = _topics(options["topics"], options["include"], options["exclude"])
    if options["hold_ms"] and options["instance"] is None:
        raise UsageError("--hold-ms is for a consumer that comes back: give it a stable name with --consumer-id")
    from zkcoord.kafka.consumer import KafkaConsumer

    gc.set_threshold(*COLLECTOR)
    consumer = KafkaConsumer(
        address,
        servers,
        options["group"],
        topics,
        from_beginning=options["from_beginning"],
        config=settings.kafka_settings(),
        membership=keeping_offsets if options["no_commit"] else None,
        zookeeper_config=settings.zookeeper_settings(),
        **{name: options[name] for name in MEMBER_FLAGS if name != "assignors" or options[name]},
    )
    printing = Printing(
        consumer,
        json_line if settings.json else text_line,
        max_messages=options["max_messages"],
        timeout_ms=options["timeout_ms"],
        commits=not options["no_commit"],
        wanted=wanted_words(topics, options["include"], options["exclude"]),
        tell=partial(say, "notice") if settings.log_format == "text" and sys.stderr.isatty() else None,
    )
    if options["timeout_ms"] is not None:
        consumer.ask_within(options["timeout_ms"])
    with stopping() as asked:
        try:
            begun_ms = mono_ms()
            with consumer:
                printing.run(asked, begun_ms)
        finally:
            if settings.log_format == "text":
                click.echo(f"{printing.printed} messages", err=True)


class Printing:
    """The loop of `consume`. Invariant: a record is printed, and has left the process, before its offset is
    committed."""

    def __init__(
        self,
        consumer: KafkaConsumer,
        line: Callable[[Message], str],
        *,
        max_messages: int | None,
        timeout_ms: int | None,
        commits: bool,
        wanted: str = "a partition",
        tell: Callable[[str], None] | None = None,
    ) -> None:
        """`tell` is called with what it reads, and what it waits for."""
        self._consumer, self._line = consumer, line
        self._max_messages, self._timeout_ms, self._commits = max_messages, timeout_ms, commits
        self._wanted, self._tell = wanted, tell
        self._pipe = _pipe(sys.stdout)
        self.printed = 0

    def run(self, asked: threading.Event, begun_ms: int | None = None) -> None:
        """Print records until `asked` is set, or until there are enough. Raise BrokenPipeError if nobody reads standard
        output.

        Raise UnavailableError if no partition was assigned within `timeout_ms`, if Kafka cannot be reached after that
        time, or if nothing was printed and Kafka cannot be reached at the stop.
        """
        committed_ms = heard_ms = mono_ms() if begun_ms is None else begun_ms
        standing = None if self._tell is None else Standing(self._tell, committed_ms)
        started = False
        while not asked.is_set() and self.printed != self._max_messages:
            left = RECORDS_MAX if self._max_messages is None else self._max_messages - self.printed
            messages = self._consumer.poll_many(min(RECORDS_MAX, left), POLL_SECONDS)
            now_ms = mono_ms()
            held = self._consumer.assignment()
            started = started or bool(held)
            if standing is not None:
                standing.look(held, self._consumer.consumer_id, now_ms, printed=bool(messages))
            if messages:
                heard_ms = now_ms
                self._print(messages)
            elif self._timeout_ms is not None and now_ms - heard_ms >= self._timeout_ms:
                self._check_reached(started, now_ms - heard_ms)
                return
            if self._commits and now_ms - committed_ms >= COMMIT_MS:
                committed_ms = now_ms
                self._commit()
            if self._pipe is not None and self._pipe.poll(0):
                raise BrokenPipeError
        if not self.printed and self._consumer.away is not None:
            raise self._consumer.away

    def _check_reached(self, started: bool, waited_ms: int) -> None:
        """Ask the brokers whether so long a silence is the end of the records. Raise UnavailableError if it is not."""
        away = self._consumer.away or self._consumer.ask_kafka()  # `away` was asked for a second ago
        if away is not None:
            if self._commits:  # otherwise the printed records would come again
                self._commit()
            raise away
        if not started:
            raise self._never_began(waited_ms)

    def _never_began(self, waited_ms: int) -> UnavailableError:
        """Return the error that there was no partition to read from. This is not the end of the records."""
        from zkcoord.subscription import why_nothing_is_held

        why = why_nothing_is_held(self._consumer.consumer_id)
        return UnavailableError(f"waited {waited_ms} ms in vain for {self._wanted}; {why}")

    def _print(self, messages: Sequence[Message]) -> None:
        sys.stdout.write("".join(f"{self._line(message)}\n" for message in messages))
        sys.stdout.flush()
        self.printed += len(messages)

    def _commit(self) -> None:
        try:
            self._consumer.commit()
        except (FencedError, UnavailableError) as error:  # tried again in a second; others read lost partitions again
            LOG.warning("%s", error)


def json_line(message: Message) -> str:
    """Return the record as one JSON object. Keys and values that are not UTF-8 are in `key_base64` and
    `value_base64`."""
    document = {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": message.timestamp()[1],
        **_member("key", message.key()),
        **_member("value", message.value()),
    }
    return json.dumps(document, separators=(",", ":"))


def text_line(message: Message) -> str:
    """Return the record as a line for people: partition, offset, key, value."""
    partition = TopicPartition(message.topic(), message.partition())
    return f"{partition}\t{message.offset()}\t{_shown(message.key())}\t{_shown(message.value())}"


def _member(name: str, data: bytes | None) -> Mapping[str, str | None]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode("utf-8")}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode("ascii")}


def _shown(data: bytes | None) -> str:
    return cell(None if data is None else data.decode("utf-8", "backslashreplace"))


def _topics(topics: Sequence[str], include: str | None, exclude: str | None) -> list[str]:
    if sum((bool(topics), include is not None, exclude is not None)) != 1:
        raise UsageError("give either --topic (once or more), or --include, or --exclude")
    return list(dict.fromkeys(topics))


def wanted_words(topics: Sequence[str], include: str | None, exclude: str | None) -> str:
    """Say which partitions or topics the command waits for."""
    if topics:
        return f"a partition of {', '.join(topics)}"
    return f"a topic that matches {include}" if exclude is None else f"a topic that does not match {exclude}"


def keeping_offsets(*args: Any, on_stop: Callable[[tuple[TopicPartition, ...]], Any], **settings: Any) -> Membership:
    """Return a membership that commits no offsets when it gives partitions back."""
    from zkcoord.consumer import Consumer

    class KeepingOffsets(Consumer):
        def stopped(self, partitions: Collection[TopicPartition], offsets: Mapping[TopicPartition, int]) -> None:
            super().stopped(partitions, {})

    def stop(partitions: tuple[TopicPartition, ...]) -> Mapping[TopicPartition, int]:
        on_stop(partitions)
        return {}

    return KeepingOffsets(*args, on_stop=stop, **settings)


def _pipe(stream: Any) -> select.poll | None:
    """Return a poll that fires when the reader of standard output has gone; None if standard output is no pipe."""
    try:
        if not stat.S_ISFIFO(os.fstat(stream.fileno()).st_mode):
            return None
    except (OSError, ValueError):  # not a file
        return None
    waiting = select.poll()
    waiting.register(stream.fileno(), 0)  # POLLERR is always reported
    return waiting
