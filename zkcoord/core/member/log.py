"""The group's commits in Kafka, as one member uses them: its calls, and their answers.

Kafka is a third party beside ZooKeeper and the application. The call `read` takes partitions and answers their commits
(without those that have none). The call `commit` takes commits and answers the outcome of each
(`core.tenure.CommitOutcome`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from zkcoord.core.fast_replace import fast_replace
from zkcoord.core.member.application import Partitions

CHECKPOINT_MS = 3_600_000
"""ms: the age at which a tenure's commit in Kafka is committed again. It is far below any retention of offsets in Kafka
(one day was the default before Kafka 2.0)."""


class LogCall(NamedTuple):
    """A call to Kafka. `starting` is the number of a start's question; 0: it is about held partitions."""

    name: str
    partitions: Partitions
    starting: int = 0


class LogAnswer(NamedTuple):
    """The answer to a call: a value or an error."""

    call: LogCall
    value: Any = None
    error: BaseException | None = None


@dataclass(frozen=True, kw_only=True)
class CommitLog:
    """The calls of one registration."""

    tree: str = ""  # the tree's id, which tenures carry
    patience_ms: int = 20_000  # how long an answer is waited for
    checkpoint_ms: int = CHECKPOINT_MS
    calls: Mapping[int, LogCall] = field(default_factory=dict)  # token -> call without an answer
    answers: tuple[LogAnswer, ...] = ()  # answers that no decision has seen

    def asked(self, token: int, call: LogCall) -> CommitLog:
        """Return a copy with this call under way."""
        return fast_replace(self, calls={**self.calls, token: call})

    def answered(self, token: int, value: Any, error: BaseException | None) -> CommitLog:
        """Return a copy with the answer to a call. It is unchanged if the call is another registration's."""
        call = self.calls.get(token)
        if call is None:
            return self
        calls = {t: waiting for t, waiting in self.calls.items() if t != token}
        return fast_replace(self, calls=calls, answers=(*self.answers, LogAnswer(call, value, error)))

    def heard(self) -> CommitLog:
        """Return a copy in which all answers are seen."""
        return fast_replace(self, answers=()) if self.answers else self

    def waits_for(self, *, starting: bool) -> bool:
        """True while a call has no answer. `starting`: a call for a start; else another call."""
        return any(bool(call.starting) is starting for call in self.calls.values())
