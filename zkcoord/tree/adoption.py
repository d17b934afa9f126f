"""The only place that reads and writes the key `adoption` of a group record."""

from __future__ import annotations

import re
from typing import Any

from zkcoord.core.adoption import (
    OLD_AUTO_COMMIT_MS,
    OLD_BACKOFF_MS,
    OLD_RETRIES,
    OLD_STORES,
    OLD_STRATEGIES,
    Adoption,
)
from zkcoord.tree.codec import INT32_MAX, Document, beside

KEYS = (
    "offsets",
    "dual_commit",
    "strategy",
    "kafka",
    "retries",
    "backoff_ms",
    "auto_commit_interval_ms",
    "exclude_internal",
    "broker",
)
OLD_VERSIONS = "0.8, 0.9, 0.10, 0.11, 1.0 or 1.1, or an exact version of these"

_OLD_VERSION = re.compile(r"(?:0\.(?:8|9|10|11)|1\.[01])(?:\.[0-9]{1,3}){0,2}")
_BROKER_VERSION = re.compile(r"[0-9]{1,2}(?:\.[0-9]{1,3}){1,3}")


def adoption_fields(adoption: Adoption) -> dict[str, Any]:
    """Return the key's value: known keys, then unknown ones. An unknown broker version is left out."""
    fields = {key: getattr(adoption, key) for key in KEYS}
    if adoption.broker is None:
        del fields["broker"]
    return beside(fields, adoption.unknown)


def read_adoption(section: Document) -> Adoption | None:
    """Return the adoption. None: the record has no such key, or an empty one. Raises CorruptError for a bad value."""
    if not section.fields:
        return None
    offsets, dual_commit = _told(section, "offsets", OLD_STORES), section.flag("dual_commit")
    if dual_commit and offsets != "kafka":
        raise section.wrong("dual_commit", True, "false, unless offsets is kafka")
    kafka = _version(section, "kafka", _OLD_VERSION, OLD_VERSIONS)
    if kafka is None:
        raise _missing(section, "kafka")
    return Adoption(
        offsets=offsets,
        strategy=_told(section, "strategy", OLD_STRATEGIES),
        kafka=kafka,
        dual_commit=dual_commit,
        retries=section.integer("retries", low=1, high=INT32_MAX, default=OLD_RETRIES),
        backoff_ms=section.integer("backoff_ms", high=INT32_MAX, default=OLD_BACKOFF_MS),
        auto_commit_interval_ms=section.integer("auto_commit_interval_ms", high=INT32_MAX, default=OLD_AUTO_COMMIT_MS),
        exclude_internal=section.fields.get("exclude_internal") is None or section.flag("exclude_internal"),
        broker=_version(section, "broker", _BROKER_VERSION, "a version such as 0.10.2 or 3.9.1"),
        unknown=section.unknown(*KEYS),
    )


def _told(section: Document, key: str, allowed: tuple[str, ...]) -> str:
    """One of `allowed`. There is no default, since the tree does not show the value."""
    value = section.fields.get(key)
    if value is None:
        raise _missing(section, key)
    if value not in allowed:
        raise section.wrong(key, value, " or ".join(allowed))
    return str(value)


def _version(section: Document, key: str, form: re.Pattern[str], allowed: str) -> str | None:
    value = section.fields.get(key)
    if value is not None and not (isinstance(value, str) and form.fullmatch(value)):
        raise section.wrong(key, value, allowed)
    return value


def _missing(section: Document, key: str) -> Exception:
    return section.error(key, "is missing: whoever knows the old members' configuration adopts the group again")
