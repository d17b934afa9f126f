"""The only place that reads and writes commands, which a coordinator puts into a consumer's channel.

The format extends the draft's two commands (`option`, `ownershipMap`). A command that cannot be understood is neither
obeyed nor deleted: the consumer replaces it by its `refusal`, which holds the error and the command as it was read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zkcoord.core.command import Command, Option
from zkcoord.core.model import TopicPartition
from zkcoord.core.state import Announced
from zkcoord.errors import CorruptError
from zkcoord.tree.codec import INT32_MAX, Document, compact, parse_json, partition_of, read_document

VERSION = 1
# bytes of a refusal; with the rest of its multi it stays below the server's 1 MiB
REFUSED_OBJECT_BYTES_MAX = 960 * 1024
REFUSED_TEXT_CHARS_MAX = 32 * 1024  # for text that is no JSON: each character may take twelve bytes
ERROR_CHARS_MAX = 500
_WHAT = "command"
_OPTIONS = {option.value: option for option in Option}


class NotUnderstood(CorruptError):
    """A well-formed command of another program: it has an unknown option, or a higher version."""


def encode_command(command: Command) -> bytes:
    """The command's znode data. Keys at their defaults are left out.

    >>> encode_command(Command(option=Option.STOP_FETCHER, ownership={TopicPartition("clicks", 0): ""}, generation=7))
    b'{"version":1,"option":"stop-fetcher","ownershipMap":{"clicks-0":""},"generation":7}'
    """
    document: dict[str, Any] = {"version": VERSION, "option": command.option.value}
    keys = {p: f"{p[0]}-{p[1]}" for p in command.ownership or ()}
    if command.ownership is not None:
        document["ownershipMap"] = dict(zip(keys.values(), command.ownership.values(), strict=True))
    if command.owner_versions:
        document["ownerVersions"] = {keys[p]: version for p, version in command.owner_versions.items()}
    if command.generation:
        document["generation"] = command.generation
    if command.epoch:
        document["epoch"] = command.epoch
    if command.offsets is not None:
        document["offsets"] = command.offsets
    if command.step is not None:
        document["step"] = command.step
    if command.replay:
        document["replay"] = {f"{p[0]}-{p[1]}": [str(start), str(end)] for p, (start, end) in command.replay.items()}
    if command.incarnations:
        document["incarnations"] = dict(command.incarnations)
    if command.reason is not None:
        document["reason"] = command.reason
    if command.final:
        document["final"] = True
    return compact(document)


def decode_command(data: bytes) -> Command:
    """The command in `data`. Raises NotUnderstood for an unknown option or a higher version, and CorruptError for
    anything else.

    >>> decode_command(b'{"version":1,"option":"stop-fetcher"}').ownership is None
    True
    """
    document = read_document(_WHAT, data)
    version = document.integer("version", low=1, default=1)
    if version > VERSION:
        raise NotUnderstood(str(document.error("version", f"is {version}, this program reads up to {VERSION}")))
    ownership = None if document.fields.get("ownershipMap") is None else _ownership(document)
    return Command(
        option=_option(document),
        ownership=ownership,
        owner_versions=_owner_versions(document, ownership or {}),
        generation=document.integer("generation", default=0),
        epoch=document.integer("epoch", default=0),
        offsets=document.optional_text("offsets"),
        step=document.optional_integer("step"),
        replay=_replay(document),
        incarnations=_incarnations(document),
        reason=None if document.fields.get("reason") is None else document.text("reason"),
        final=document.flag("final"),
    )


def _option(document: Document) -> Option:
    name = document.text("option")
    option = _OPTIONS.get(name)
    if option is None:
        raise NotUnderstood(str(document.wrong("option", name, ", ".join(_OPTIONS))))
    return option


def _ownership(document: Document) -> dict[TopicPartition, str]:
    section = document.section("ownershipMap")
    if not set(map(type, section.fields.values())) <= {str}:
        key, thread = next((k, thread) for k, thread in section.fields.items() if not isinstance(thread, str))
        raise section.wrong(key, thread, "a thread's name")
    return section.by_partition(section.fields.__getitem__)


def _owner_versions(document: Document, ownership: Mapping[TopicPartition, str]) -> dict[TopicPartition, int]:
    """The owner versions of the partitions in the map. Other partitions are left out."""
    section = document.section("ownerVersions")
    if not section.fields:
        return {}
    told = section.fields
    named = zip(ownership, document.section("ownershipMap").fields, strict=True)  # partition, its key
    return {
        partition: version
        if type(version) is int and 0 <= version <= INT32_MAX
        else section.integer(key, high=INT32_MAX)
        for partition, key in named
        if (version := told.get(key)) is not None
    }


def _two(numbers: tuple[int, ...]) -> tuple[int, int]:
    return numbers[0], numbers[1]


def refusal(data: bytes, error: Exception | str) -> bytes:
    """The data that replaces a command that was not understood: the error, and the command (if it is no JSON: its text,
    cut).

    >>> refusal(b'{"version":1,"option":"dance"}', NotUnderstood("option is dance"))
    b'{"error":"option is dance","command":{"version":1,"option":"dance"}}'
    """
    message = str(error)[:ERROR_CHARS_MAX]
    text = data.decode("utf-8", "surrogateescape")
    try:
        value = parse_json(text)
    except ValueError:
        value = None
    if isinstance(value, dict):
        whole = compact({"error": message, "command": value})
        if len(whole) <= REFUSED_OBJECT_BYTES_MAX:
            return whole
    return compact({"error": message, "command": text[:REFUSED_TEXT_CHARS_MAX]})


def is_refused(data: bytes) -> bool:
    """True when `data` is the `refusal` of a command, and not a command.

    >>> is_refused(refusal(b"?", ValueError("no JSON"))), is_refused(b'{"option":"ping"}')
    (True, False)
    """
    return _refused_command(data) is not None


def refused_option(data: bytes) -> Option:
    """STOP_FETCHER for a refused stop, else START_FETCHER: owners that a start names must be freed.

    >>> refused_option(refusal(b'{"version":9,"option":"stop-fetcher"}', ValueError()))
    <Option.STOP_FETCHER: 'stop-fetcher'>
    """
    command = _refused_command(data)
    stop = isinstance(command, dict) and command.get("option") == Option.STOP_FETCHER.value
    return Option.STOP_FETCHER if stop else Option.START_FETCHER


def refused_ownership(data: bytes) -> Mapping[TopicPartition, str]:
    """The partitions of a refused command, as far as readable. A refused start leaves their owners set.

    >>> refused_ownership(refusal(b'{"version":9,"option":"start-fetcher","ownershipMap":{"t-0":"c-0"}}', ValueError()))
    {TopicPartition(topic='t', partition=0): 'c-0'}
    """
    command = _refused_command(data)
    named = command.get("ownershipMap") if isinstance(command, dict) else None
    if not isinstance(named, dict):
        return {}
    read = ((partition_of(key), thread) for key, thread in named.items())
    return {partition: thread for partition, thread in read if partition is not None and isinstance(thread, str)}


def refused_replay(data: bytes) -> Mapping[TopicPartition, Announced]:
    """The announced ranges that a refused command would have handed on, as far as readable."""
    command = _refused_command(data)
    if not isinstance(command, dict) or not command.get("replay"):
        return {}
    try:
        document = Document(what=_WHAT, data=data, fields=command)
        return announced(_replay(document), document.integer("generation", default=0), _incarnations(document))
    except CorruptError:
        return {}


def announced(
    replay: Mapping[TopicPartition, tuple[int, int]], generation: int, incarnations: Mapping[str, int]
) -> dict[TopicPartition, Announced]:
    """The announced ranges that a start of this generation hands on, for the incarnations that it starts."""
    return {
        p: Announced(start, end, generation, incarnations.get(p.topic, 0)) for p, (start, end) in sorted(replay.items())
    }


def _replay(document: Document) -> dict[TopicPartition, tuple[int, int]]:
    section = document.section("replay")
    return section.by_partition(lambda key: _two(section.offsets(key)))


def _incarnations(document: Document) -> dict[str, int]:
    section = document.section("incarnations")
    return {key: section.integer(key, high=INT32_MAX) for key in section.fields}


def _refused_command(data: bytes) -> dict[str, Any] | str | None:
    if b'"error"' not in data:
        return None
    try:
        value = parse_json(data.decode("utf-8"))
    except ValueError:
        return None
    if not isinstance(value, dict) or "option" in value or not isinstance(value.get("error"), str):
        return None
    command = value.get("command")
    return command if isinstance(command, dict | str) else None
