"""Remembers consumers that were rejected while nobody takes part. Between two attempts their registrations are gone,
and the group would look as if nobody had tried to join."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

NAMES_MAX = 100
"""Number of consumers that are remembered. If all are wrong, one reason is enough."""

PROBLEM_CHARS_MAX = 600


@dataclass(frozen=True, slots=True)
class TurnedAway:
    """An immutable value. It is lost at a failover, and known again after the next attempts, which come at least every
    300 s."""

    _why: Mapping[str, str] = field(default_factory=dict)
    # consumer id without the parts that change with each registration -> the reason

    def seen(self, rejected: Mapping[str, str], *, anybody: bool) -> TurnedAway:
        """Return a copy with these rejections, by consumer id. If `anybody` takes part, other reports name them, and
        none is kept here."""
        if anybody:
            return TurnedAway() if self._why else self
        new = {consumer_id.rsplit("-", 2)[0]: why for consumer_id, why in sorted(rejected.items())}
        if new.items() <= self._why.items():
            return self
        return TurnedAway(
            dict(list({**new, **{n: w for n, w in self._why.items() if n not in new}}.items())[:NAMES_MAX])
        )

    @property
    def problem(self) -> str | None:
        """What people are told. None: nobody was turned away.

        >>> TurnedAway().seen({"g_h-1-aa": "too old", "g_i-2-bb": "too old"}, anybody=False).problem
        'nobody takes part: 2 consumers were rejected (g_h, g_i: too old)'
        """
        if not self._why:
            return None
        names: dict[str, list[str]] = {}
        for name, why in sorted(self._why.items()):
            names.setdefault(why, []).append(name)
        whys = "; ".join(f"{', '.join(alike)}: {why}" for why, alike in sorted(names.items()))
        count = "1 consumer was" if len(self._why) == 1 else f"{len(self._why)} consumers were"
        text = f"nobody takes part: {count} rejected ({whys})"
        return text if len(text) <= PROBLEM_CHARS_MAX else text[: PROBLEM_CHARS_MAX - 1] + "…"
