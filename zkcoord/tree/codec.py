"""Functions for all codecs: strict JSON, and errors that show the bytes and the reason.

Bytes from a znode may be anything. Every reader here returns a value or raises `CorruptError`, and never another
exception: not for bytes that are no UTF-8, for a number of 5,000 digits, for 100,000 opening brackets, or for NaN.
Written JSON is ASCII without spaces, since the oldest readers of this tree accept nothing else.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple, TypeVar

from zkcoord.core.given import SEEN_CHARS_MAX, shown
from zkcoord.core.model import TopicPartition, as_partitions
from zkcoord.errors import CorruptError

DEPTH_MAX = 32  # no format here nests deeper than five; deeper text could exhaust a later reader's stack
INT32_MAX = 2**31 - 1  # the largest number that the old clients read
INT64_MAX = 2**63 - 1  # the largest number of Kafka and ZooKeeper

T = TypeVar("T")

_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,18}")
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,255}")
_PLAIN = re.compile(r"[a-zA-Z0-9._-]{1,80}")  # keys that messages show without quotes
_DOCUMENT = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


def seen(data: bytes | str) -> str:
    """The beginning of foreign data, printable on one line.

    >>> seen(b"clicks\\n")
    "'clicks\\\\n'"
    >>> seen(b"")
    'nothing'
    """
    if not data:
        return "nothing"
    head = data[: SEEN_CHARS_MAX + 1]
    return shown(head.decode("utf-8", "backslashreplace") if isinstance(head, bytes) else head)


def corrupt(what: str, data: bytes | str, why: str) -> CorruptError:
    """The error that `data` is not a valid `what`, because of `why`.

    >>> str(corrupt("offset", b"abc", "not a number"))
    "bad offset 'abc': not a number"
    """
    return CorruptError(f"bad {what} {seen(data)}: {why}")


def compact(document: Mapping[str, Any]) -> bytes:
    """The document as ASCII JSON without spaces, with its keys in order. Raises ValueError for NaN and infinities."""
    return _DOCUMENT.encode(document).encode("ascii")


def beside(known: Mapping[str, Any], unknown: Mapping[str, Any]) -> dict[str, Any]:
    """The known keys, then the unknown ones. If both have a key, the known value counts.

    >>> beside({"a": 1}, {"b": 2, "a": 3})
    {'a': 1, 'b': 2}
    """
    return {**known, **{key: value for key, value in unknown.items() if key not in known}}


def whole(value: object) -> int | None:
    """The integer that `value` is, or that it writes as text. None for anything else (true, 1.0, "01", "+1", "1 ").

    >>> whole(7), whole("7"), whole(True), whole("07"), whole(7.0)
    (7, 7, None, None, None)
    """
    if isinstance(value, str):
        return int(value) if _WHOLE.fullmatch(value) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def partition_of(key: str) -> TopicPartition | None:
    """The partition that a key `topic-partition` names, split at the last `-`. None: it names none.

    >>> partition_of("a-b-12")
    TopicPartition(topic='a-b', partition=12)
    >>> partition_of("clicks-01") is None
    True
    """
    found = partitions_of((key,))
    return None if found is None else found[0]


def partitions_of(keys: Collection[str]) -> list[TopicPartition] | None:
    """The partitions that these keys name, in order. None: a key names none. It consists of passes of built-in
    functions, since most of what is read are mappings by partition.

    >>> partitions_of(["clicks-0", "clicks-12"])
    [TopicPartition(topic='clicks', partition=0), TopicPartition(topic='clicks', partition=12)]
    """
    if not keys:
        return []
    topics, _, names = zip(*[key.rpartition("-") for key in keys], strict=True)
    try:
        numbers = list(map(int, names))
    except ValueError:
        return None
    # int() would accept "07" and "1_0"
    if tuple(map(str, numbers)) != names or min(numbers) < 0 or max(numbers) > INT32_MAX:
        return None
    if not all(map(is_topic, set(topics))):
        return None
    return as_partitions(zip(topics, numbers, strict=True))


def is_topic(name: str) -> bool:
    """True when a topic may have this name. No other name may be in a command.

    >>> is_topic("clicks-2"), is_topic("two words")
    (True, False)
    """
    return _TOPIC.fullmatch(name) is not None and name not in (".", "..")


def parse_json(text: str, *, trailing: bool = False) -> Any:
    """The value of a JSON text. Raises ValueError for text that is no JSON, NaN, infinities, and nesting deeper than
    DEPTH_MAX.

    With `trailing`, text after the value is ignored, as Jackson (Kafka 1.0.1 to 1.1) does.
    """
    try:
        if trailing:
            value, _ = _DECODER.raw_decode(text.lstrip(" \t\r\n"))
        else:
            value = _DECODER.decode(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if text.count("{") + text.count("[") > DEPTH_MAX and _nests_deeply(value):
        raise ValueError("nested too deeply")
    return value


def _nests_deeply(value: Any) -> bool:
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(DEPTH_MAX):
        children = (child for node in level for child in (node.values() if isinstance(node, dict) else node))
        level = [child for child in children if isinstance(child, dict | list)]
        if not level:
            return False
    return True


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:20]} is no finite number")
    return number


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is no JSON")


_DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=_no_constant)


def text_of(what: str, data: bytes) -> str:
    """The data as UTF-8 text. Raises CorruptError if it is none."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise corrupt(what, data, f"byte {error.start} is no UTF-8") from None


def read_document(what: str, data: bytes) -> Document:
    """The JSON object in `data`. Raises CorruptError if there is none."""
    text = text_of(what, data)
    try:
        value = parse_json(text)
    except ValueError as error:
        raise corrupt(what, data, f"no JSON ({error})" if text.strip() else "no JSON") from None
    if not isinstance(value, dict):
        raise corrupt(what, data, "not a JSON object")
    return Document(what=what, data=data, fields=value)


def _integers(value: object, length: int) -> tuple[int, ...] | None:
    if not isinstance(value, list) or len(value) != length:
        return None
    numbers = tuple(number for number in map(whole, value) if number is not None)
    return numbers if len(numbers) == length else None


def _key(key: str) -> str:
    return key if _PLAIN.fullmatch(key) else shown(key)


class Document(NamedTuple):
    """A JSON object that is being read. Each method returns one key's value, or raises a CorruptError that names key
    and rule.

    A key with null counts as missing. A missing key returns `default`; without a default it is an error.
    """

    what: str
    data: bytes
    fields: Mapping[str, Any]
    within: tuple[str, ...] = ()
    # the keys that lead to this object; messages then say "policy." for keys inside policy

    def error(self, key: str, why: str) -> CorruptError:
        """The error for one key; `why` completes the sentence "<key> …"."""
        keys = ".".join(map(_key, (*self.within, key)))
        return corrupt(self.what, self.data, f"{keys} {why}")

    def wrong(self, key: str, value: object, allowed: str) -> CorruptError:
        """The error for a key whose value is not allowed."""
        return self.error(key, f"is {shown(value)}, allowed is {allowed}")

    def version(self, newest: int = 1) -> int:
        """The format's version; 1 when missing. A version above `newest` is an error."""
        version = self.integer("version", low=1, default=1)
        if version > newest:
            raise self.error("version", f"is {version}, this program reads up to {newest}")
        return version

    def integer(self, key: str, *, low: int = 0, high: int = INT64_MAX, default: int | None = None) -> int:
        """An integer, as number or as text, from `low` to `high`."""
        value = self.fields.get(key)
        if value is None:
            if default is None:
                raise self.error(key, "is missing")
            return default
        number = whole(value)
        if number is None or not low <= number <= high:
            raise self.wrong(key, value, f"an integer from {low} to {high}")
        return number

    def optional_integer(self, key: str, *, low: int = 0, high: int = INT64_MAX) -> int | None:
        """Like `integer`, but None when missing."""
        return None if self.fields.get(key) is None else self.integer(key, low=low, high=high)

    def text(self, key: str, *, default: str | None = None) -> str:
        """A text."""
        value = self.fields.get(key)
        if value is None:
            if default is None:
                raise self.error(key, "is missing")
            return default
        if not isinstance(value, str):
            raise self.wrong(key, value, "a text")
        return value

    def optional_text(self, key: str) -> str | None:
        """A text that is not empty; None when missing."""
        if self.fields.get(key) is None:
            return None
        if self.fields[key] == "":
            raise self.wrong(key, "", "a text that is not empty")
        return self.text(key)

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts; empty when missing."""
        value = self.fields.get(key)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
            raise self.wrong(key, value, "a list of texts that are not empty")
        return tuple(value)

    def flag(self, key: str) -> bool:
        """True or false; false when missing."""
        value = self.fields.get(key)
        if value is not None and not isinstance(value, bool):
            raise self.wrong(key, value, "true or false")
        return bool(value)

    def section(self, key: str) -> Document:
        """An object; empty when missing. Messages name its keys `<key>.<name>`."""
        value = self.fields.get(key)
        if value is not None and not isinstance(value, dict):
            raise self.wrong(key, value, "an object")
        return Document(what=self.what, data=self.data, fields=value or {}, within=(*self.within, key))

    def all_texts(self) -> dict[str, str]:
        """All keys of this object, each of which must be a text."""
        return {key: self.text(key) for key in self.fields}

    def partition(self, key: str) -> TopicPartition:
        """The partition that one of this object's keys names."""
        partition = partition_of(key)
        if partition is None:
            raise self.error(key, "names no partition, allowed is <topic>-<partition>")
        return partition

    def by_partition(self, value: Callable[[str], T]) -> dict[TopicPartition, T]:
        """The partitions that this object's keys name, in order, each with the `value` of its key."""
        partitions = partitions_of(self.fields.keys()) or [self.partition(key) for key in self.fields]
        return dict(zip(partitions, map(value, self.fields), strict=True))

    def offsets(self, key: str, *extra: str) -> tuple[int, ...]:
        """A list `[start, end, …]` of offsets and of the integers named by `extra`, of which the last may be missing.
        None may be negative, and start must not be above end."""
        value = self.fields[key]
        numbers = _integers(value, 2 + len(extra)) or (_integers(value, 1 + len(extra)) if len(extra) > 1 else None)
        if numbers is None or not 0 <= min(numbers) <= max(numbers) <= INT64_MAX or numbers[0] > numbers[1]:
            raise self.wrong(key, value, f"a list of {', '.join(('start', 'end', *extra))}, start not above end")
        return numbers

    def unknown(self, *known: str) -> dict[str, Any]:
        """The keys that are not in `known`, with their values."""
        return {key: value for key, value in self.fields.items() if key not in known}
