"""A consumer without an application: it obeys at once, and starts at the beginning of each log."""

from __future__ import annotations

from typing import Any

from zkcoord import Consumer


def obedient(zookeeper: str, topic: str, **options: Any) -> Consumer:
    """A member of group g. `options` are those of `Consumer`, its callbacks included."""
    callbacks: dict[str, Any] = {
        "on_start": lambda positions: None,
        "on_stop": lambda partitions: {},
        "on_lost": lambda partitions: None,
        "reset": lambda partitions: dict.fromkeys(partitions, 0),
    }
    return Consumer(zookeeper, "g", [topic], **callbacks | options)
