"""Checks the values that a program passes in.

A value that cannot be used raises a UsageError, which shows the value and says what to pass. After these checks a
partition is a TopicPartition, and an offset is a plain integer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from operator import index
from typing import Any

from zkcoord.core.model import TopicPartition
from zkcoord.errors import UsageError

NUMBER_MAX = 2**63 - 1  # Kafka and ZooKeeper count with 64 bits
SEEN_CHARS_MAX = 80  # characters of a value in a message: enough to recognise it, too few to flood a log


def given_partition(given: object) -> TopicPartition:
    """The partition that was given.

    >>> given_partition(TopicPartition("t", 0))
    TopicPartition(topic='t', partition=0)
    >>> given_partition(("t", 0))
    Traceback (most recent call last):
    ...
    zkcoord.errors.UsageError: ('t', 0) is no partition: pass zkcoord.TopicPartition(topic, number)
    """
    if isinstance(given, TopicPartition) and isinstance(given[0], str) and type(given[1]) is int and given[1] >= 0:
        return given
    raise UsageError(f"{shown(given)} is no partition: pass zkcoord.TopicPartition(topic, number)")


def given_partitions(given: Iterable[TopicPartition]) -> tuple[TopicPartition, ...]:
    """The partitions that were given, in their order.

    >>> given_partitions("t")
    Traceback (most recent call last):
    ...
    zkcoord.errors.UsageError: 't' holds no partitions: pass a collection of zkcoord.TopicPartition(topic, number)
    """
    wanted = "a collection of zkcoord.TopicPartition(topic, number)"
    if isinstance(given, str | bytes | TopicPartition):  # a partition is a tuple itself
        raise UsageError(f"{shown(given)} holds no partitions: pass {wanted}")
    try:
        items = tuple(given)
    except TypeError:
        raise UsageError(f"{shown(given)} holds no partitions: pass {wanted}") from None
    for item in items:
        given_partition(item)
    return items


def given_offsets(given: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """The next offset of each partition, as plain integers.

    >>> given_offsets({TopicPartition("t", 0): 7})
    {TopicPartition(topic='t', partition=0): 7}
    """
    found: dict[TopicPartition, int] = {}
    for partition, offset in _entries(given, "offset"):
        exact = whole(offset)
        if exact is None or not 0 <= exact <= NUMBER_MAX:
            wanted = "pass the next one to read, an integer of 0 or more"
            raise UsageError(f"{partition}: {shown(offset)} is no offset: {wanted}")
        found[partition] = exact
    return found


def given_ranges(given: Mapping[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, tuple[int, int]]:
    """The range of each partition, from a first offset up to, not including, an end.

    >>> given_ranges({TopicPartition("t", 0): (5, 5)})
    Traceback (most recent call last):
    ...
    zkcoord.errors.UsageError: t-0: (5, 5) is no range: pass (start, end) with 0 <= start < end
    """
    found: dict[TopicPartition, tuple[int, int]] = {}
    for partition, given_range in _entries(given, "(start, end)"):
        try:
            start, end = map(whole, given_range)
        except (TypeError, ValueError):
            start = end = None
        if start is None or end is None or not 0 <= start < end <= NUMBER_MAX:
            wanted = "pass (start, end) with 0 <= start < end"
            raise UsageError(f"{partition}: {shown(given_range)} is no range: {wanted}")
        found[partition] = start, end
    return found


def given_number(name: str, given: object, low: int = 0, high: int = NUMBER_MAX) -> int:
    """The integer that was given for the argument `name`, between two bounds.

    >>> given_number("progress", 1.5)
    Traceback (most recent call last):
    ...
    zkcoord.errors.UsageError: progress is 1.5: pass an integer of 0 or more
    """
    exact = whole(given)
    if exact is None or not low <= exact <= high:
        limits = f"of {low} or more" if high == NUMBER_MAX else f"from {low} to {high}"
        raise UsageError(f"{name} is {shown(given)}: pass an integer {limits}")
    return exact


def given_function(name: str, given: object) -> None:
    """Raises UsageError unless the callback `name` can be called.

    >>> given_function("on_start", None)
    Traceback (most recent call last):
    ...
    zkcoord.errors.UsageError: on_start is None: pass a function
    """
    if not callable(given):
        raise UsageError(f"{name} is {shown(given)}: pass a function")


def given_flag(name: str, given: object) -> None:
    """Raises UsageError unless True or False was given for the argument `name`."""
    if not isinstance(given, bool):
        raise UsageError(f"{name} is {shown(given)}: pass True or False")


def given_choice(name: str, given: object, among: Collection[str]) -> None:
    """Raises UsageError unless one of `among` was given for the argument `name`.

    >>> given_choice("reader", "jar", ["kafka", "python"])
    Traceback (most recent call last):
    ...
    zkcoord.errors.UsageError: reader is 'jar': pass 'kafka' or 'python'
    """
    if not isinstance(given, str) or given not in among:
        raise UsageError(f"{name} is {shown(given)}: pass {' or '.join(map(repr, among))}")


def given_config(name: str, given: object) -> None:
    """Raises UsageError unless a mapping was given for the argument `name`."""
    if not isinstance(given, Mapping):
        raise UsageError(f"{name} is {shown(given)}: pass a mapping of Kafka settings")


def given_text(name: str, given: object) -> None:
    """Raises UsageError unless a text was given for the argument `name`.

    >>> given_text("zookeeper", 2181)
    Traceback (most recent call last):
    ...
    zkcoord.errors.UsageError: zookeeper is 2181: pass a text
    """
    if not isinstance(given, str):
        raise UsageError(f"{name} is {shown(given)}: pass a text")


def whole(given: Any) -> int | None:
    """A whole number as a plain integer, also from NumPy's types. None for everything else, including True and False.

    >>> whole(7), whole(7.0), whole(True)
    (7, None, None)
    """
    try:
        return None if isinstance(given, bool) else index(given)
    except TypeError:
        return None


def shown(given: object) -> str:
    """A value as one line of ASCII, cut to SEEN_CHARS_MAX."""
    text = ascii(given)
    return text if len(text) <= SEEN_CHARS_MAX else f"{text[:SEEN_CHARS_MAX]}..."


def _entries(given: Mapping[TopicPartition, Any], value: str) -> list[tuple[TopicPartition, Any]]:
    """The entries of a mapping whose keys are partitions."""
    if not isinstance(given, Mapping):
        raise UsageError(f"{shown(given)} is no mapping: pass {{zkcoord.TopicPartition(topic, number): {value}}}")
    for partition in given:
        given_partition(partition)
    return list(given.items())
