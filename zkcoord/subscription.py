"""Makes a consumer's registration from the arguments of the public classes, or raises a UsageError with the reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from zkcoord.core.given import given_number, given_text, shown
from zkcoord.errors import CorruptError, UsageError
from zkcoord.settings import MemberOptions
from zkcoord.tree.codec import corrupt, is_topic
from zkcoord.tree.registration import BLACK_LIST, MARKER, THREADS_MAX, WHITE_LIST, Registration
from zkcoord.tree.topic_filter import normal_filter, taken, topic_pattern

NAME_CHARS_MAX = 249
"""Kafka's limit for a topic's name, since `<topic>-<partition>` is a folder. The same limit holds for groups and
instances.
"""


def subscription_of(topics: Sequence[str] | Mapping[str, int], options: MemberOptions) -> Registration:
    """Return a registration for `topics`, or for the wildcard `include` or `exclude`; UsageError unless exactly one of
    the three is given.

    >>> subscription_of((), MemberOptions(include="clicks, views.*", threads=2)).wildcard
    'clicks|views.*'
    """
    options.check_values()
    include, exclude, threads = options.include, options.exclude, options.threads
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
        why = str(error).removeprefix(str(corrupt("regex", regex, "")))
        raise UsageError(f"{given[0]} {written!r}: {why}{hint}") from None
    pattern = WHITE_LIST if include is not None else BLACK_LIST
    return Registration(subscription={regex: threads}, pattern=pattern, coordination=MARKER)


def registration_of(
    topics: Sequence[str] | Mapping[str, int], options: MemberOptions, replaces: str | None = None
) -> Registration:
    """Return the registration of a consumer with these options; UsageError for options that can never work."""
    document = subscription_of(topics, options)
    check_instance(options.instance, options.hold_ms)
    if replaces is not None:
        given_text("replaces", replaces)
    return replace(
        document,
        replaces=replaces,
        assignors=tuple(options.assignors),
        **{
            name: getattr(options, name) for name in ("instance", "hold_ms", "rack", "capacity", "rebalance_timeout_ms")
        },
    )


def asked_for(document: Registration, topics: Iterable[str]) -> list[str]:
    """Return those of the topics that a registration subscribes to, in their order. UsageError for a regex that takes
    too long.

    >>> asked_for(subscription_of((), MemberOptions(exclude="test-.*")), ["clicks", "test-1", "__consumer_offsets"])
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
    if not isinstance(topics, Iterable):
        raise UsageError(f"topics is {shown(topics)}: pass a list of names, or a mapping from name to threads")
    counts = dict(topics) if isinstance(topics, Mapping) else dict.fromkeys(map(_named, topics), threads)
    if not counts:
        raise UsageError("name at least one topic, or give include or exclude")
    for topic, count in counts.items():
        check_name("topic", topic)
        given_number(f"the threads of {topic}", count, 1, THREADS_MAX)
    return counts


def _named(topic: str) -> str:
    check_name("topic", topic)
    return topic


def check_name(what: str, name: str) -> None:
    """Raise UsageError for an invalid name of a group, a topic or an instance (`what` says which)."""
    if not (isinstance(name, str) and is_topic(name) and len(name) <= NAME_CHARS_MAX):
        raise UsageError(
            f"{what} {name!r}: letters, digits, '.', '_' and '-' only, at most {NAME_CHARS_MAX} (as Kafka has it)"
        )


def check_instance(name: str | None, hold_ms: int) -> None:
    """Raise UsageError for an invalid name of an instance, and for a hold without an instance."""
    if hold_ms and name is None:
        raise UsageError("hold_ms is for static members: give this consumer an instance, its own stable name")
    if name is not None:
        check_name("instance", name)


def why_nothing_is_held(consumer_id: str | None) -> str:
    """Return, for people, what may be missing when a consumer waits for a partition and gets none. `consumer_id` None:
    it is not registered."""
    if consumer_id is None:
        return (
            "it is not registered: ZooKeeper must answer, a coordinator must have set the tree up, and not have sent it"
            " away (a warning says why)"
        )
    return (
        f"{consumer_id} is registered: a coordinator must serve, a topic must exist and have a partition for each"
        " consumer, and the group must be neither paused, held nor moved away; see `zkcoord group describe`"
    )
