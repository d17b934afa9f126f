"""The settings of a simulated old consumer, and the registration that it writes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from zkcoord.legacy.planning import RANGE
from zkcoord.legacy.versions import OldVersion, old_version
from zkcoord.tree.registration import WHITE_LIST
from zkcoord.tree.topic_filter import normal_filter

V08, V011, V11 = "0.8.2.2", "0.11.0.2", "1.1.1"
VERSIONS = (V08, V011, V11)
PATIENCE = ((4, 2_000), (4, 2_000), (2, 3_000), (3, 4_000), (7, 700))
"""Retries, and the wait between two tries: Kafka's defaults more often than others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OldSettings:
    """The properties of one old consumer. The defaults are Kafka's, except `reset`, as in tests/old_consumers."""

    group: str = "g"
    version: str = V11
    topics: Mapping[str, int] = field(default_factory=lambda: {"t": 1})  # topic -> threads
    wildcard: str | None = None  # a white list instead of topics, with one thread
    strategy: str = RANGE
    retries: int = 4
    backoff_ms: int = 2_000
    auto_commit: bool = True
    commit_interval_ms: int = 60_000
    reset: str = "smallest"
    exclude_internal: bool = True
    offsets: str = "zookeeper"  # offsets.storage
    dual_commit: bool = True  # Kafka's default; only with offsets in Kafka

    @property
    def old(self) -> OldVersion:
        """The habits of its version."""
        return old_version(self.version)


def registration_text(settings: OldSettings, now_ms: int) -> str:
    """The data of the consumer's `ids` node. Versions 1.0.1 and newer escape a wildcard a second time."""
    if settings.wildcard is None:
        return _text(settings.topics, "static", now_ms)
    regex = normal_filter(settings.wildcard).replace("\\", "\\\\").replace("/", "\\/")
    if settings.old.doubles_backslashes:
        return _text({regex: 1}, WHITE_LIST, now_ms)
    return _text({"?": 1}, WHITE_LIST, now_ms).replace('"?"', f'"{regex}"')


def _text(subscription: Mapping[str, int], pattern: str, now_ms: int) -> str:
    found = {"version": 1, "subscription": dict(subscription), "pattern": pattern, "timestamp": str(now_ms)}
    return json.dumps(found, separators=(",", ":"), ensure_ascii=False)
