"""What a consumer asks for, by the arguments of the public classes: a registration, or a UsageError that says why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from zkcoord.errors import CorruptError, UsageError
from zkcoord.tree.codec import is_topic
from zkcoord.tree.registration import BLACK_LIST, MARKER, WHITE_LIST, Registration, legal_instance
from zkcoord.tree.topic_filter import normal_filter, taken, topic_pattern

NAME_CHARS_MAX = 249
"""Of a topic, since Kafka makes a folder `<topic>-<partition>` of it; groups are held to the same."""


def subscription_of(
    topics: Sequence[str] | Mapping[str, int], include: str | None, exclude: str | None, threads: int
) -> Registration:
    """A registration for these topics, or by a wildcard; UsageError unless it is exactly one of the three.

    >>> subscription_of((), "clicks, views.*", None, 2).wildcard
    'clicks|views.*'
    """
    given = [name for name, value in (("include", include), ("exclude", exclude)) if value is not None]
    if len(given) + bool(topics) > 1:
        raise UsageError(
            f"name topics, or give include, or exclude: not {' and '.join([*['topics'] * bool(topics), *given])}"
        )
    if not given:
        return Registration(subscription=_subscription(topics, threads), coordination=MARKER)
    written = include if include is not None else exclude or ""
    regex = normal_filter(written)
    if not regex:
        raise UsageError(f"{given[0]} {written!r} is no regex: it is empty")
    try:
        topic_pattern(regex)
    except CorruptError as error:
        hint = " (a ',' means or in a topic filter: write {2,3} as {2}|{3})" if "," in written else ""
        raise UsageError(f"{given[0]} {written!r}: {error}{hint}") from None
    pattern = WHITE_LIST if include is not None else BLACK_LIST
    return Registration(subscription={regex: threads}, pattern=pattern, coordination=MARKER)


def asked_for(document: Registration, topics: Iterable[str]) -> list[str]:
    """Those of the topics that a registration asks for, in their order; UsageError for a regex that takes too long.

    >>> asked_for(subscription_of((), None, "test-.*", 1), ["clicks", "test-1", "__consumer_offsets"])
    ['clicks']
    """
    if document.wildcard is None:
        return [topic for topic in topics if topic in document.subscription]
    try:
        return taken(document.wildcard, topics, black_list=document.pattern == BLACK_LIST)
    except CorruptError as error:
        raise UsageError(f"the wildcard cannot be used: {error}") from None


def _subscription(topics: Sequence[str] | Mapping[str, int], threads: int) -> dict[str, int]:
    if isinstance(topics, str):
        raise UsageError(f"topics must be a list: [{topics!r}]")
    counts = dict(topics) if isinstance(topics, Mapping) else dict.fromkeys(topics, threads)
    if not counts:
        raise UsageError("name at least one topic, or give include or exclude")
    for topic in counts:
        check_name("topic", topic)
    return counts


def check_name(what: str, name: str) -> None:
    """UsageError for what cannot be the name of a group or a topic (`what` says which)."""
    if not (isinstance(name, str) and is_topic(name) and len(name) <= NAME_CHARS_MAX):
        raise UsageError(
            f"{what} {name!r}: letters, digits, '.', '_' and '-' only, at most {NAME_CHARS_MAX} (as Kafka has it)"
        )


def check_instance(name: str | None, hold_ms: int) -> None:
    """UsageError for what cannot be an instance's name, and for a hold without an instance."""
    if hold_ms and name is None:
        raise UsageError("hold_ms is for static members: give this consumer an instance, its own stable name")
    if name is not None and not legal_instance(name):
        raise UsageError(f"instance {name!r}: 1 to 255 printable characters, no '/', as it becomes part of a path")
