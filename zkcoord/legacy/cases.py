"""Groups in a file: what `zkcoord group plan --dump FILE` reads. One case, or a list of them, as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from zkcoord.core.assignors import ASSIGNORS
from zkcoord.core.given import shown
from zkcoord.errors import UsageError
from zkcoord.legacy.planning import RANGE, ROUND_ROBIN, OldGroup
from zkcoord.legacy.versions import OldVersion, old_version
from zkcoord.tree.codec import INT32_MAX, parse_json

PARTITIONS_MAX = 1_000_000  # in all topics of one case; more than that is a mistake, and would fill the memory

_NEWEST = "1.1"
_READ_BY = {"roundrobin-0.8": (ROUND_ROBIN, "0.11"), "roundrobin-1.0": (ROUND_ROBIN, _NEWEST)}
"""Assignor of this project -> strategy and version of the old members that compute the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A group, and the name of its case."""

    title: str  # the case's name; without one the group's name; without that the case's place in the file
    name: str | None
    group: OldGroup


def read_cases(text: str) -> list[Case] | Case:
    """Return the case in a file, or its list of cases; UsageError if the file has neither.

    The list may also be the only list in an object, under any key (`{"cases": [...]}`).
    """
    try:
        value = parse_json(text)
    except ValueError as error:
        raise UsageError(f"it holds no JSON ({error})") from None
    if isinstance(value, dict) and "registrations" not in value:
        lists = [one for one in value.values() if isinstance(one, list)]
        if len(lists) != 1:
            raise UsageError(
                "it holds an object without registrations, and no list of cases: a case has at least "
                "registrations, topics, and version and strategy (or assignor)"
            )
        value = lists[0]
    if isinstance(value, list):
        return [_case(one, f"case {number}") for number, one in enumerate(value, start=1)]
    return _case(value, "the case")


def _case(value: object, place: str) -> Case:
    if not isinstance(value, dict):
        raise UsageError(f"{place} is {shown(value)}, not an object")
    name = _text(value, "name", place)
    group = _text(value, "group", place)
    where = f"{place} ({shown(name)})" if name else place
    version, assignor = _computed(value, where)
    return Case(
        title=name or group or place,
        name=name,
        group=OldGroup(
            version=version,
            assignor=assignor,
            registrations=_registrations(value, where),
            topics=_topics(value, where),
            exclude_internal=_exclude_internal(value, where),
        ),
    )


def _computed(case: Mapping[str, Any], where: str) -> tuple[OldVersion, str]:
    """Return the version that reads the registrations, and the assignor that it computes."""
    strategy, assignor = _text(case, "strategy", where), _text(case, "assignor", where)
    written = _text(case, "version", where)
    if assignor is not None:
        if assignor not in ASSIGNORS:
            raise UsageError(
                f"{where}: assignor is {shown(assignor)}, allowed is one of {', '.join(sorted(ASSIGNORS))}"
            )
        computed, version = _READ_BY.get(assignor, (assignor, _NEWEST))
        return (_version(version, where), computed) if written is None else (_version(written, where), assignor)
    if strategy is None or written is None:
        raise UsageError(f"{where}: say version and strategy, or assignor: they do not stand in registrations")
    if strategy not in (RANGE, ROUND_ROBIN):
        raise UsageError(f"{where}: strategy is {shown(strategy)}, allowed is {RANGE} or {ROUND_ROBIN}")
    return _version(written, where), strategy


def _version(text: str, where: str) -> OldVersion:
    try:
        return old_version(text)
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from None


def _registrations(case: Mapping[str, Any], where: str) -> dict[str, str]:
    found = case.get("registrations")
    if not isinstance(found, dict) or not all(isinstance(text, str) for text in found.values()):
        raise UsageError(f"{where}: registrations must be an object: consumer id to the text of its node")
    return found


def _topics(case: Mapping[str, Any], where: str) -> dict[str, tuple[int, ...]]:
    found = case.get("topics")
    if not isinstance(found, dict):
        raise UsageError(f"{where}: topics must be an object: name to number of partitions, or to a list of their ids")
    topics: dict[str, tuple[int, ...]] = {}
    room = PARTITIONS_MAX
    for topic, size in found.items():
        ids = range(size) if _is_number(size) else size
        if not isinstance(ids, range | list) or not all(map(_is_number, ids[:room])) or len(ids) > room:
            raise UsageError(
                f"{where}: topic {shown(topic)} is given {shown(size)}: write its number of partitions, or a list of "
                f"their ids (at most {PARTITIONS_MAX} in all)"
            )
        room -= len(ids)
        topics[topic] = tuple(sorted(set(ids)))
    return topics


def _exclude_internal(case: Mapping[str, Any], where: str) -> bool:
    found = case.get("exclude_internal")
    if found is not None and not isinstance(found, bool):
        raise UsageError(f"{where}: exclude_internal is {shown(found)}, allowed is true or false")
    return found is not False


def _text(case: Mapping[str, Any], key: str, where: str) -> str | None:
    found = case.get(key)
    if found is not None and not isinstance(found, str):
        raise UsageError(f"{where}: {key} is {shown(found)}, not a text")
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= INT32_MAX
