"""Every function that is given bytes of others, and what it may raise: CorruptError and the like, or nothing."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import NamedTuple

from zkcoord.core.view import Channel, GroupView
from zkcoord.errors import CorruptError, SchemaError, UsageError
from zkcoord.legacy.cases import read_cases
from zkcoord.legacy.clients import client_of
from zkcoord.legacy.reading import matched, read_as
from zkcoord.legacy.versions import old_version
from zkcoord.migrate.plan import read_mark
from zkcoord.offsets.backup_file import check, nodes
from zkcoord.offsets.lines import parsed
from zkcoord.offsets.metadata import decode_commit
from zkcoord.offsets.targets import from_file
from zkcoord.operating.mending import record_without_faults
from zkcoord.tree.broker import decode_broker
from zkcoord.tree.candidate import (
    asked_to_resign,
    assignors_of,
    describe,
    protocols_of,
    says_silent,
    with_resign,
    with_silent,
)
from zkcoord.tree.command import decode_command, refusal
from zkcoord.tree.decoders import instance_of, member_of, offset_seen, outstanding, with_mark, with_status
from zkcoord.tree.evicted import decode_evicted
from zkcoord.tree.instance import decode_instance
from zkcoord.tree.offset import decode_offset
from zkcoord.tree.ownership import is_draft_stop, owner_of
from zkcoord.tree.record import decode_record
from zkcoord.tree.registration import decode_registration, moved_to
from zkcoord.tree.scala_json import parse_scala_json
from zkcoord.tree.schema import decode_epoch, decode_schema, is_newer
from zkcoord.tree.snapshot import Kind, Node, Stat
from zkcoord.tree.state import decode_state
from zkcoord.tree.status import decode_status, held_partitions
from zkcoord.tree.topic import decode_mark, decode_replicas, decode_topic, mark_in_a_copy, topic_of
from zkcoord.tree.topic_mirror import decode_mirrored, decode_mirrored_broker, decode_root

STAT = Stat(3, 1, 2, 4)
CHANNEL = Channel(consumer_id="g_h-1-1a", version=1)
VIEW = GroupView(group="g", members={}, channels={})
TOPICS = ("t", "clicks", "__consumer_offsets")


class Decoder(NamedTuple):
    """A function, and what it may raise."""

    decode: Callable[[bytes], object]
    refuses: tuple[type[Exception], ...] = ()


def node(data: bytes) -> Node:
    return Node("/consumers/g/x", Kind.DATA, STAT, data)


def text(data: bytes) -> str:
    """As files are read: what is not UTF-8 stays what it is."""
    return data.decode("utf-8", "surrogateescape")


def reads_old(version: str) -> Callable[[bytes], object]:
    def read(data: bytes) -> object:
        found = read_as(old_version(version), data.decode("utf-8", "replace"))
        return [matched(regex, TOPICS, black_list=False) for regex in found.counts]

    return read


def backup(data: bytes) -> object:
    file = io.StringIO(text(data))
    check(file, "a file")
    return list(nodes(file))


DECODERS: dict[str, Decoder] = {
    "registration": Decoder(decode_registration, (CorruptError,)),
    "member": Decoder(lambda data: member_of("g_h-1-1a", node(data))),
    "client": Decoder(lambda data: client_of("g", "g_h-1-1a", data)),
    "0.8 reads": Decoder(reads_old("0.8.2"), (CorruptError,)),
    "1.0 reads": Decoder(reads_old("1.0.0"), (CorruptError,)),
    "1.1 reads": Decoder(reads_old("1.1.1"), (CorruptError,)),
    "Scala's JSON": Decoder(lambda data: parse_scala_json(data.decode("utf-8", "replace")), (ValueError,)),
    "a case": Decoder(lambda data: read_cases(data.decode("utf-8", "replace")), (UsageError,)),
    "owner": Decoder(lambda data: (owner_of(data, 1), is_draft_stop(data))),
    "offset": Decoder(decode_offset, (CorruptError,)),
    "offset seen": Decoder(lambda data: offset_seen(data, 1)),
    "broker": Decoder(decode_broker, (CorruptError,)),
    "topic": Decoder(decode_topic, (CorruptError,)),
    "named topic": Decoder(lambda data: topic_of("t", data), (CorruptError,)),
    "replicas": Decoder(decode_replicas, (CorruptError,)),
    "mark": Decoder(decode_mark, (CorruptError,)),
    "mark in a copy": Decoder(mark_in_a_copy),
    "mirror": Decoder(decode_root),
    "mirrored topic": Decoder(decode_mirrored),
    "mirrored broker": Decoder(decode_mirrored_broker),
    "record": Decoder(decode_record, (CorruptError,)),
    "mended record": Decoder(lambda data: record_without_faults(data, VIEW)),
    "state": Decoder(decode_state, (CorruptError,)),
    "instance": Decoder(lambda data: decode_instance(data, 1), (CorruptError,)),
    "instance of": Decoder(lambda data: instance_of(data, STAT)),
    "evicted": Decoder(decode_evicted, (CorruptError,)),
    "evicted of": Decoder(lambda data: with_mark(CHANNEL, node(data))),
    "command": Decoder(decode_command, (CorruptError,)),
    "queued command": Decoder(lambda data: outstanding("0000000001", node(data))),
    "refused command": Decoder(lambda data: outstanding("0000000001", node(refusal(data, "no")))),
    "status": Decoder(lambda data: held_partitions(decode_status(data)), (CorruptError,)),
    "status of": Decoder(lambda data: with_status(CHANNEL, node(data))),
    "candidate": Decoder(lambda data: (describe(data), protocols_of(data), assignors_of(data))),
    "silent": Decoder(lambda data: (says_silent(data), with_silent(data, silent=True))),
    "moved to": Decoder(moved_to),
    "resigning": Decoder(lambda data: (asked_to_resign(data), with_resign(data, {"who": "ann"}))),
    "schema": Decoder(lambda data: read_mark(decode_schema(data)), (CorruptError, SchemaError)),
    "newer schema": Decoder(is_newer),
    "epoch": Decoder(decode_epoch, (CorruptError,)),
    "commit": Decoder(lambda data: decode_commit(7, text(data))),
    "a line": Decoder(lambda data: parsed(text(data), 1), (UsageError,)),
    "offsets to reset to": Decoder(lambda data: from_file(io.StringIO(text(data)), "g"), (UsageError,)),
    "backup": Decoder(backup, (CorruptError, UsageError)),
}
