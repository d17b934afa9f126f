"""The group's commits in Kafka, as one member deals with them: what it asked there, and what was answered.

This is a third party beside ZooKeeper and the application. Calls: `read` takes partitions and answers their commits
(those without one are left out); `commit` takes commits and answers what became of each (`core.tenure.CommitOutcome`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from zkcoord.core.fast_replace import fast_replace
from zkcoord.core.member.application import Partitions

CHECKPOINT_MS = 3_600_000
"""So old a tenure becomes, far below any retention of offsets in Kafka: a day was the default before Kafka 2.0."""


class LogCall(NamedTuple):
    """A call to Kafka. `starting`: the number of a start's question; 0: it is about what is held."""

    name: str
    partitions: Partitions
    starting: int = 0


class LogAnswer(NamedTuple):
    """What was answered: a value, or an error."""

    call: LogCall
    value: Any = None
    error: BaseException | None = None


@dataclass(frozen=True, kw_only=True)
class CommitLog:
    """One registration's calls."""

    tree: str = ""  # the tree's id, which tenures carry
    patience_ms: int = 20_000  # so long an answer is waited for
    checkpoint_ms: int = CHECKPOINT_MS
    calls: Mapping[int, LogCall] = field(default_factory=dict)  # by token: without an answer
    answers: tuple[LogAnswer, ...] = ()  # that no decision has seen

    def asked(self, token: int, call: LogCall) -> CommitLog:
        """With this call under way."""
        return fast_replace(self, calls={**self.calls, token: call})

    def answered(self, token: int, value: Any, error: BaseException | None) -> CommitLog:
        """With the answer to a call; without a change when it is another registration's."""
        call = self.calls.get(token)
        if call is None:
            return self
        calls = {t: waiting for t, waiting in self.calls.items() if t != token}
        return fast_replace(self, calls=calls, answers=(*self.answers, LogAnswer(call, value, error)))

    def heard(self) -> CommitLog:
        """With all answers seen."""
        return fast_replace(self, answers=()) if self.answers else self

    def waits_for(self, *, starting: bool) -> bool:
        """True while a call, for a start or another one, has no answer."""
        return any(bool(call.starting) is starting for call in self.calls.values())
